"""Machines that are off by the models' errors, for searches and what-ifs.

``step_samples`` scales the durations of one plan's step, operation by operation, and says how long
a plan may take. A machine whose profile has all numbers of one cause scaled times any plan, at the
speed of the engine. Both use the errors that all operations of one cause share.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import exp

from costmodel.domain.hardware import CollectiveCurve, Gpu, Host, Link, Topology, UpdateCost
from costmodel.domain.workload import DataType
from costmodel.uncertainty.error_model import ACROSS, INSIDE, Cause, error_model
from costmodel.uncertainty.sampling import Draws

DECIDING = (
    Cause.HOST,
    Cause.LOOKUP,
    Cause.UPDATE,
    Cause.LATENCY,
    Cause.ALL_TO_ALL,
    Cause.ALL_REDUCE,
    Cause.REDUCE_SCATTER,
    Cause.ALL_TO_ALL_ACROSS,
    Cause.ALL_REDUCE_ACROSS,
    Cause.REDUCE_SCATTER_ACROSS,
)
"""Causes by which plans differ, and the host, against which their work is hidden or not."""


def scaled(topology: Topology, factors: Mapping[Cause, float]) -> Topology:
    """Return a machine on which operations of some causes take longer by a factor.

    Parameters
    ----------
    topology
        The machine as it is known.
    factors
        Factor on the durations of each cause; other causes stay as they are. Dense kernels and
        copies are not scaled: no plan changes them.

    """
    hardware = topology.hardware
    changed = replace(
        hardware,
        host=_host(hardware.host, factors.get(Cause.HOST, 1.0)),
        gpu=_gpu(hardware.gpu, factors.get(Cause.LOOKUP, 1.0), factors.get(Cause.UPDATE, 1.0)),
        curves=tuple(_curve(curve, factors) for curve in hardware.curves),
        intra_node=_link(hardware.intra_node, factors, Cause.ALL_TO_ALL),
        inter_node=_link(hardware.inter_node, factors, Cause.ALL_TO_ALL_ACROSS),
    )
    return replace(topology, hardware=changed)


def scenarios(topology: Topology, precision: DataType, count: int) -> tuple[Topology, ...]:
    """Return equally likely machines, drawn from the errors that kernels of a cause share.

    The quantiles of every cause's errors are in an order of its own (a Latin hypercube), the same
    in every call: all plans are timed on the same machines.
    """
    errors, draws = error_model(topology, precision), Draws(num_samples=count)
    return tuple(
        scaled(
            topology,
            {
                cause: exp(errors.spread(cause).shared * float(draws.normal(cause)[number]))
                for cause in DECIDING
            },
        )
        for number in range(count)
    )


def _host(host: Host, factor: float) -> Host:
    listed = (host.listed_op_time, host.listed_backward_op_time)
    forward, backward = (None if each is None else each * factor for each in listed)
    return replace(
        host,
        launch_time=host.launch_time * factor,
        launch_latency=host.launch_latency * factor,
        op_time=host.op_time * factor,
        backward_op_time=host.backward_op_time * factor,
        sync_time=host.sync_time * factor,
        listed_op_time=forward,
        listed_backward_op_time=backward,
    )


def _gpu(gpu: Gpu, forward: float, backward: float) -> Gpu:
    """Return a GPU with lookup rates scaled (``kernels.embedding.lookup_rates``), not latencies."""
    gather = gpu.gather_bandwidth or gpu.l2_bandwidth
    return replace(
        gpu,
        lookup_efficiency=gpu.lookup_efficiency / forward,
        gather_bandwidth=gather / forward,
        lookup_time=gpu.lookup_time * forward,
        row_read_time=gpu.row_read_time * forward,
        bag_time=gpu.bag_time * forward,
        forward_turn_time=gpu.forward_turn_time * forward,
        update_efficiency=gpu.update_efficiency / backward,
        gradient_time=gpu.gradient_time * backward,
        row_update_time=gpu.row_update_time * backward,
        update_costs={
            name: UpdateCost(*(backward * seconds for seconds in cost))
            for name, cost in gpu.update_costs.items()
        },
        backward_turn_time=gpu.backward_turn_time * backward,
        sort_rate=gpu.sort_rate / backward,
        forward_correction=gpu.forward_correction.scaled(forward),
        backward_correction=gpu.backward_correction.scaled(backward),
    )


def _curve(curve: CollectiveCurve, factors: Mapping[Cause, float]) -> CollectiveCurve:
    """Return a curve, its latency scaled as small messages, its end as large ones.

    In between the logarithm of the factor changes linearly with that of the size.
    """
    large = factors.get((ACROSS if curve.num_nodes > 1 else INSIDE)[curve.op], 1.0)
    small = factors.get(Cause.LATENCY, 1.0)
    first, last = curve.log_bytes[0], curve.log_bytes[-1]
    knots, least = [], 0.0
    for (num_bytes, seconds), place in zip(curve.knots, curve.log_bytes.tolist(), strict=True):
        share = (place - first) / (last - first) if last > first else 1.0
        least = max(least, seconds * small ** (1 - share) * large**share)
        knots.append((num_bytes, least))
    return replace(curve, knots=tuple(knots))


def _link(link: Link, factors: Mapping[Cause, float], cause: Cause) -> Link:
    return replace(
        link,
        latency=link.latency * factors.get(Cause.LATENCY, 1.0),
        bandwidth=link.bandwidth / factors.get(cause, 1.0),
    )
