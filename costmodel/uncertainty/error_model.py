"""How far off predicted durations may be: log-normal factors, by what they are errors of.

The time of a kernel is its prediction times exp(shared + own). *Shared* is the same for all
kernels of one cause: this machine is not the one that was measured. *Own* is every kernel's:
what the model missed on held-out measurements of the same machine. What a step's
structure (which operations there are, and what waits for what) gets wrong beyond that is one more
factor, on the whole step. ``bench.coverage`` estimates what whole steps are off by, and tests the
intervals that follow on steps that nothing was estimated from.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import hypot
from typing import NamedTuple

from costmodel.base.units import Seconds
from costmodel.domain.families import measured_groups
from costmodel.domain.hardware import Bound, CollectiveOp, Device, HardwareProfile, Topology
from costmodel.domain.workload import DataType
from costmodel.kernels.gemm import gemm_constants
from costmodel.step.graph import NodeKind, Role, Stage
from costmodel.step.step_operations import Op, ProcessGroup, group_ranks

NORMAL_90 = 1.645
"""Standard deviations on either side of a normal distribution's mean that hold 90% of it."""
MEDIAN_TO_90 = 4.0
"""90th percentile of absolute log errors over their median, where only the median is known: the
median over held-out curves of collectives; 3 for products, 2.44 if errors were normal
(bench/README.md, Found once)."""


class Cause(StrEnum):
    """Causes of errors."""

    HOST = "host"
    COPY = "memory_copy"
    LOOKUP = "embedding_forward"
    UPDATE = "embedding_backward"
    GEMM = "gemm"
    MEMORY = "memory_bound"
    BY_BYTES = "operators_by_bytes"
    """Operators that no model knows."""
    LATENCY = "collective_latency"
    """Collectives too small for their bandwidth to matter."""
    ALL_TO_ALL = "all_to_all"
    ALL_REDUCE = "all_reduce"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_GATHER = "all_gather"
    ALL_TO_ALL_ACROSS = "all_to_all_across_nodes"
    ALL_REDUCE_ACROSS = "all_reduce_across_nodes"
    REDUCE_SCATTER_ACROSS = "reduce_scatter_across_nodes"
    ALL_GATHER_ACROSS = "all_gather_across_nodes"
    STRUCTURE = "structure"
    UNREAD = "unread_dense_part"
    """Work of a dense part that was only read in part."""


INSIDE: Mapping[CollectiveOp, Cause] = {
    CollectiveOp.ALL_TO_ALL: Cause.ALL_TO_ALL,
    CollectiveOp.ALL_REDUCE: Cause.ALL_REDUCE,
    CollectiveOp.REDUCE_SCATTER: Cause.REDUCE_SCATTER,
    CollectiveOp.ALL_GATHER: Cause.ALL_GATHER,
}
"""Causes of collectives within a node."""
ACROSS: Mapping[CollectiveOp, Cause] = {
    CollectiveOp.ALL_TO_ALL: Cause.ALL_TO_ALL_ACROSS,
    CollectiveOp.ALL_REDUCE: Cause.ALL_REDUCE_ACROSS,
    CollectiveOp.REDUCE_SCATTER: Cause.REDUCE_SCATTER_ACROSS,
    CollectiveOp.ALL_GATHER: Cause.ALL_GATHER_ACROSS,
}
"""Causes of collectives across nodes."""


class Spread(NamedTuple):
    """Standard deviations of log factors."""

    shared: float
    """Spread of the factor that all operations, or plans, have in common."""
    own: float
    """Spread of the factor of each operation, or plan."""


ANOTHER_MACHINE: Mapping[Cause, float] = {
    Cause.HOST: 0.25,
    Cause.COPY: 0.1,
    Cause.LOOKUP: 0.1,
    Cause.UPDATE: 0.1,
    Cause.GEMM: 0.11,
    Cause.MEMORY: 0.1,
    Cause.LATENCY: 0.4,
    Cause.ALL_TO_ALL: 0.07,
    Cause.ALL_REDUCE: 0.07,
    Cause.REDUCE_SCATTER: 0.07,
    Cause.ALL_GATHER: 0.07,
}
"""Shared spreads of kernels that were measured, but on another machine.

GEMM: the medians of another lab's products on A100 and H100 (7% and 14% slower). Collectives: 4 and
8 H100 of another lab at 32 MiB and more (2 to 17% faster). Host: the mean gap between operators in
seven models (overheads.csv, T1). The others are assumed."""
SAME_MACHINE = 0.03
"""Shared spread of kernels that were measured on the very machine: clocks and temperature of
another day. Assumed."""
NOT_MEASURED: Mapping[Cause, Spread] = {
    Cause.HOST: Spread(0.25, 0.2),
    Cause.COPY: Spread(0.1, 0.1),
    Cause.LOOKUP: Spread(0.31, 0.18),
    Cause.UPDATE: Spread(0.5, 0.18),
    Cause.GEMM: Spread(0.32, 0.24),
    Cause.MEMORY: Spread(0.1, 0.15),
    Cause.BY_BYTES: Spread(0.5, 0.9),
    Cause.LATENCY: Spread(0.4, 0.15),
    Cause.ALL_TO_ALL: Spread(0.3, 0.26),
    Cause.ALL_REDUCE: Spread(0.3, 0.26),
    Cause.REDUCE_SCATTER: Spread(0.3, 0.26),
    Cause.ALL_GATHER: Spread(0.3, 0.26),
    Cause.ALL_TO_ALL_ACROSS: Spread(0.25, 0.15),
    Cause.ALL_REDUCE_ACROSS: Spread(0.25, 0.15),
    Cause.REDUCE_SCATTER_ACROSS: Spread(0.25, 0.15),
    Cause.ALL_GATHER_ACROSS: Spread(0.25, 0.15),
}
"""Spreads of kernels that the profile has no measurements of: constants of other machines, and the
datasheet.

GEMM and collectives within a node: four and six machines left out in turn, each predicted from the
others and its datasheet (``bench.left_out_machines``); 92% of the kernels of all families lie in
the 90% intervals of the other machines. Lookups: V100 and H100 reach 1.0 and 0.7 of their bandwidth
in lookups and 0.96 and 0.54 in updates; a third GPU's share is as likely anywhere in the normal
distribution of two such values. Own errors of lookups: the forward rows of embedding.csv that
nothing was fitted to. Host: T1 as above, and an operator's time in one model and another
(overheads.csv, T2). Operators by bytes: 61 of a million elements take 1.65 times what their bytes
do, with a spread of 0.9 (a core of an AMD EPYC, 2026-11-29). The others are assumed."""
CARRIED: Mapping[Cause, float] = {Cause.LOOKUP: 0.12, Cause.UPDATE: 0.22}
"""Shared spreads that lookups have more where their constants were fitted to other GPUs and carried
over in proportion to the memory's bandwidth: V100, A100 and H200 (``bench.left_out_machines``)."""
OTHER_MAKER = 1.5
"""Factor on shared spreads where no kernel of a machine was measured, as of another maker's.
Assumed: all machines that could be left out are of one maker."""
OTHER_RANKS = 0.2
"""Own spread of a collective on a number of ranks of which there is no curve: 8 ranks from 2 and 4
within 9 to 20% in the median (collectives_holdout.json)."""
STRUCTURE = Spread(0.15, 0.03)
"""Spreads of whole steps, beyond their kernels.

Shared: twelve published steps, none of them fitted to, times 1.09 as they are few (Student's t;
bench/results/coverage.json). Own, by which plans of one workload differ: assumed."""
STRUCTURE_ON_CORES = Spread(0.015, 0.0)
"""Spreads of whole steps on a CPU's cores that were calibrated, which run one operation after the
other.

From two studies of 46 and 48 plans of three workloads, none of them fitted to, times 1.43 as
workloads are few (cpu_runs of bench/results/coverage.json)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorModel:
    """The spreads of one machine."""

    spreads: Mapping[Cause, Spread]
    unread: Seconds = 0.0
    """Seconds that unread kernels of a dense part may take besides those timed
    (``uncertainty.unread``)."""

    def spread(self, cause: Cause) -> Spread:
        """Return a cause's spreads; 0 if they are unknown."""
        return self.spreads.get(cause, Spread(0.0, 0.0))


def cause_of(op: Op, topology: Topology) -> Cause:
    """Return the cause of errors of an operation's duration."""
    if op.kind in (NodeKind.HOST, NodeKind.WAIT):
        return Cause.HOST
    if op.kind is NodeKind.COPY:
        return Cause.COPY
    if op.role is Role.EXCHANGE:
        return _collective_cause(op, topology)
    if op.stage in _LOOKUPS:
        return _LOOKUPS[op.stage]
    return _ROLES.get(op.role, Cause.MEMORY)


_ROLES = {Role.PRODUCT: Cause.GEMM, Role.BY_BYTES: Cause.BY_BYTES}
_LOOKUPS = {Stage.LOOKUP_FORWARD: Cause.LOOKUP, Stage.LOOKUP_BACKWARD: Cause.UPDATE}
_COLLECTIVES = {
    Stage.INPUT_DIST: CollectiveOp.ALL_TO_ALL,
    Stage.ALL_TO_ALL: CollectiveOp.ALL_TO_ALL,
    Stage.ALL_REDUCE: CollectiveOp.ALL_REDUCE,
    Stage.REDUCE_SCATTER: CollectiveOp.REDUCE_SCATTER,
    Stage.ALL_GATHER: CollectiveOp.ALL_GATHER,
}


def _collective_cause(op: Op, topology: Topology) -> Cause:
    """Return which error a collective has: latency's, or its kind's within or across nodes."""
    if op.basis.bound_by is Bound.LINK_LATENCY:
        return Cause.LATENCY
    crosses = group_ranks(topology, op.group or ProcessGroup.WORLD).num_nodes > 1
    return (ACROSS if crosses else INSIDE)[_COLLECTIVES[op.stage]]


def log_sigma(error: float | None, error_p90: float | None = None) -> float | None:
    """Return the standard deviation of log errors, from the relative errors of a family.

    It is the one whose 90% interval holds 90% of the held-out measurements: tails are heavier than
    a normal distribution's, so the 90th percentile is what counts. A relative error p is log(1 + p)
    of a prediction too high and -log(1 - p) of one too low; p lies between.
    """
    if error_p90 is not None:
        return error_p90 / NORMAL_90
    return None if error is None else MEDIAN_TO_90 * error / NORMAL_90


def error_model(topology: Topology, precision: DataType) -> ErrorModel:
    """Return the errors to expect on a machine, for dense layers of a precision.

    Own spreads are those of the profile's held-out measurements; shared ones are those of another
    machine of the kind (``ANOTHER_MACHINE``, unless it was calibrated on the very one). Kernels
    without measurements are off by as much as elsewhere (``NOT_MEASURED``), and by more where
    nothing of the machine was measured (``OTHER_MAKER``).
    """
    spreads = {cause: _spread(cause, topology, precision) for cause in NOT_MEASURED}
    if not topology.hardware.curves and not measured_groups(topology.hardware):
        spreads = {
            cause: each._replace(shared=OTHER_MAKER * each.shared)
            for cause, each in spreads.items()
        }
    return ErrorModel(spreads={**spreads, Cause.STRUCTURE: structure_spread(topology.hardware)})


def structure_spread(hardware: HardwareProfile) -> Spread:
    """Return the spreads of whole steps: smaller on a CPU's cores that were calibrated."""
    on_cores = hardware.device is Device.CPU and is_calibrated(hardware)
    return STRUCTURE_ON_CORES if on_cores else STRUCTURE


def _spread(cause: Cause, topology: Topology, precision: DataType) -> Spread:
    """Return the standard deviations of a cause's error: shared by machines, and its own."""
    unknown, hardware = NOT_MEASURED[cause], topology.hardware
    shared = SAME_MACHINE if is_calibrated(hardware) else ANOTHER_MACHINE.get(cause, unknown.shared)
    if cause is Cause.GEMM:
        product = gemm_constants(precision, hardware.gpu)
        own = log_sigma(product.error, product.error_p90)
    elif cause is Cause.LATENCY:
        own = _latency_sigma(topology) if is_calibrated(hardware) else None
    elif cause in _COLLECTIVE_OF:
        own = _curve_sigma(_COLLECTIVE_OF[cause], topology)
    else:
        name = _INTER_NODE if cause in ACROSS.values() else cause.value
        family = hardware.families.get(name)
        own = None if family is None else log_sigma(family.error, family.error_p90)
        if own is not None and not (family and family.num_points):
            # measured on another kind of machine only
            return Spread(hypot(own, CARRIED.get(cause, 0.0)), unknown.own)
    return unknown if own is None else Spread(shared, own)


def is_calibrated(hardware: HardwareProfile) -> bool:
    """Return whether a profile was measured on the machine it is for.

    Host times are what ``planner calibrate`` measures and no public data has.
    """
    host = hardware.families.get(Cause.HOST.value)
    return host is not None and host.num_points > 0


def _latency_sigma(topology: Topology) -> float | None:
    """Return the largest spread of a node's curves, which holds for small messages."""
    known = [_curve_sigma(op, topology) for op in CollectiveOp]
    return max((sigma for sigma in known if sigma is not None), default=None)


_COLLECTIVE_OF = {cause: op for op, cause in INSIDE.items()}
_INTER_NODE = "inter_node"


def _curve_sigma(op: CollectiveOp, topology: Topology) -> float | None:
    """Return the spread of a node's curve; larger if it is of another number of ranks."""
    curves = [c for c in topology.hardware.curves if c.op is op and c.num_nodes == 1]
    exact = [curve for curve in curves if curve.num_ranks == topology.local_world_size]
    known = [log_sigma(curve.error, curve.error_p90) for curve in exact]
    if known and known[0] is not None:
        return known[0]
    return OTHER_RANKS if curves else None
