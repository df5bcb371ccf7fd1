"""What-ifs: a plan's step on another machine, batch or data type, with or without a new search."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from costmodel.base.errors import InputError, PlannerError, Problem, suggestion
from costmodel.base.units import Seconds
from costmodel.domain.codecs import wire_type
from costmodel.domain.families import measured_groups
from costmodel.domain.hardware import Device, HardwareProfile, Topology
from costmodel.domain.plan import ShardingType, TableSharding
from costmodel.domain.workload import (
    DataType,
    LaunchMode,
    OptimizerImplementation,
    Workload,
)
from costmodel.memory.rank_memory import could_hold
from costmodel.step.graph import Stage
from costmodel.uncertainty.error_model import Cause
from costmodel.uncertainty.scenarios import scaled
from planner.decision.confidence import confidences
from planner.environment.settings import parse_multiple
from planner.files.profiles import load_profile, profile_names
from planner.planned.notes import notes_on
from planner.planned.planned import Planned
from planner.planned.report import STAGE_NAMES
from planner.search.search import CUT_SHORT, Search, Watch
from planner.show.format import count, signed_duration
from planner.verbs.changes import Case
from planner.verbs.group_changes import (
    other_intervals,
    other_sizes,
    replicas_of,
    with_gpus,
    with_group_size,
    with_interval,
)
from planner.verbs.loading import is_usable
from planner.verbs.planning import plan_from
from planner.verbs.remedies import Found, ways_out
from planner.verbs.topologies import make_topology
from sharders.problem.sharding_problem import Progress

LAUNCHES = {
    LaunchMode.COMPILED: "dense model by torch.compile",
    LaunchMode.CUDA_GRAPHS: "dense model in CUDA graphs",
}
PARTED = "replicas part for longer, which changes training: whether that harms, only training tells"
_LEAST_EFFECT = 1e-3
"""A stage is named if it changes by at least this share of the step."""
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
"""Commas between thousands, which are dropped; any other comma separates two numbers."""
_FP16, _BF16 = DataType.FP16, DataType.BF16


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Another workload or topology to plan for, with its text."""

    text: str
    workload: Workload
    topology: Topology
    notes: tuple[str, ...] = ()
    """Warnings of what it changes beside the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change, and the plan that a search from the present one finds with it."""

    change: str
    step_time: Seconds
    """Expected step."""
    samples_per_second: float
    effect: str
    """The stage of the critical path that changes most in the direction of the step."""
    num_changed: int | None = None
    """Number of tables sharded otherwise than now; None: the ranks differ."""
    is_cut: bool = False
    """Whether the search ran out of time: with more it may find a shorter step."""
    notes: tuple[str, ...] = ()
    """Warnings that hold with the change, and not for the present plan."""


def usual_changes(planned: Planned) -> Iterator[Change]:
    """Yield the changes that are worth trying for any plan."""
    workload, topology = planned.workload, planned.topology
    batch, hardware = workload.local_batch_size, topology.hardware

    def other(text: str, changed: Workload) -> Change:
        return Change(text=text, workload=changed, topology=topology)

    halved = _converted(workload, _FP16, (DataType.FP32,))
    if halved != workload:
        yield other("weights and outputs in fp16", replace(halved, output_type=_FP16))
    converted = wire_type(workload, summed=False, backward=False)
    uncompressed = converted is None and workload.output_type is DataType.FP32
    if uncompressed and topology.world_size > 1:
        smaller = replace(workload, comms_forward=_FP16, comms_backward=_BF16)
        yield other("fp16 collectives, bf16 gradients", smaller)
    if workload.dense.precision in {DataType.FP32, DataType.TF32} and "bf16" in hardware.gpu.gemm:
        dense = replace(workload.dense, precision=_BF16)
        yield other("dense layers in bf16", replace(workload, dense=dense))
    default = workload.dense.optimizer_implementation is None
    if default and any(map(_is_replicated, planned.plan.tables)):
        dense = replace(workload.dense, optimizer_implementation=OptimizerImplementation.FOREACH)
        yield other("dense optimizer with foreach=True", replace(workload, dense=dense))
    if workload.dense.launch is LaunchMode.EAGER and hardware.device is Device.CUDA:
        for launch, text in LAUNCHES.items():
            yield other(text, _launched(workload, launch))
    if batch > 1:
        yield other(f"local batch {batch // 2:,}", replace(workload, local_batch_size=batch // 2))
    yield other(f"local batch {2 * batch:,}", replace(workload, local_batch_size=2 * batch))
    if topology.replicas is None:
        yield from _machines(planned)
    yield from map(partial(_interval_change, planned), other_intervals(topology))
    yield from map(partial(_size_change, planned), other_sizes(workload, topology))


def _machines(planned: Planned) -> Iterator[Change]:
    """Yield twice and half the GPUs where that can be planned for, and other machines."""
    gpus = planned.topology.world_size
    with suppress(ValueError):  # more than can be planned for
        yield _with_nodes(planned, _gpus_change(planned, 2 * gpus))
    if gpus > 1 and gpus % 2 == 0:
        yield from _with_room(_with_nodes(planned, _gpus_change(planned, gpus // 2)))
    for name in _neighbours(planned.topology.hardware):
        yield _with_nodes(planned, replace(_asked_hardware(planned, name), text=f"on {name}"))


def _with_room(change: Change) -> Iterator[Change]:
    """Yield a change; where tables have no room, with the smallest changes that make them fit."""
    workload, topology = change.workload, change.topology
    ways: list[Found] = []
    if not could_hold(workload, topology):
        ways = list(ways_out(Case(workload=workload, topology=topology), Search()))
    for way in ways:
        yield replace(change, text=f"{change.text}, {way.label}", workload=way.case.workload)
    if not ways:
        yield change


def _neighbours(hardware: HardwareProfile) -> list[str]:
    """Return the shipped machines, measured ones, whose memory is next slower and next faster."""

    def speed(profile: HardwareProfile) -> float:
        return profile.gpu.memory_bandwidth

    others = [
        each
        for each in map(load_profile, profile_names())
        if each.device is hardware.device and measured_groups(each)
    ]
    slower = [each for each in others if speed(each) < speed(hardware)]
    faster = [each for each in others if speed(each) > speed(hardware)]
    found = (max(slower, key=speed, default=None), min(faster, key=speed, default=None))
    return [each.name for each in found if each is not None]


def asked_change(planned: Planned, text: str) -> Change:
    """Return the change that a user's ``what=value`` names.

    Raises
    ------
    InputError
        There is no such thing to change, or no such value.

    """
    what, _, value = text.partition("=")
    try:
        maker = _MAKERS[what.strip()]
    except KeyError:
        examples = (*_EXAMPLES, *(_OF_GROUPS if planned.topology.replicas else ()))
        meant = suggestion(what.strip(), tuple(_MAKERS)) or f"write one of {', '.join(examples)}"
        raise _refused(text, "that cannot be changed", meant) from None
    try:
        return _with_nodes(planned, replace(maker(planned, value.strip()), text=text))
    except ValueError as error:
        raise _refused(text, str(error)) from None


def _with_nodes(planned: Planned, change: Change) -> Change:
    """Return a change with its number of nodes in its text, if that differs from now."""
    nodes, now = (each.num_ranks // each.node_ranks for each in (change.topology, planned.topology))
    if nodes == now:
        return change
    return replace(change, text=f"{change.text} ({count(nodes, 'node')})")


def _refused(text: str, reason: str, hint: str | None = None) -> InputError:
    """Return the error of a what-if that cannot be read."""
    problem = Problem(message=f"what-if `{text}`: {reason}", hint=hint)
    return InputError("--what-if", (problem,))


def remedy_of(planned: Planned, change: Change, search: Search) -> Remedy:
    """Return the plan that a search from the present one finds after a change, with its step.

    Raises
    ------
    PlannerError
        No plan is found.

    """
    new = plan_from(planned.plan, change.workload, change.topology, search)
    same_ranks = new.plan.world_size == planned.plan.world_size
    before = {sharding.table: sharding for sharding in planned.plan.tables}
    changed = sum(before[each.table] != each for each in new.plan.tables)
    notes = notes_on(change.workload, change.topology)
    return Remedy(
        change=change.text,
        step_time=new.report.step_time,
        samples_per_second=new.report.samples_per_second,
        effect=effect(planned.report.breakdown, new.report.breakdown),
        num_changed=changed if same_ranks else None,
        is_cut=new.report.search is not None and new.report.search.end in CUT_SHORT,
        notes=(*change.notes, *(note for note in notes if note not in planned.report.notes)),
    )


def _gpus_change(planned: Planned, gpus: int) -> Change:
    old = planned.topology
    text = f"{count(gpus, old.hardware.device.unit)} instead of {old.num_ranks:,}"
    return Change(text=text, workload=planned.workload, topology=with_gpus(old, gpus))


def _interval_change(planned: Planned, interval: int) -> Change:
    topology = with_interval(planned.topology, interval)
    now = replicas_of(planned.topology).sync_interval
    return Change(
        text=f"average every {count(interval, 'step')} instead of {now:,}",
        workload=planned.workload,
        topology=topology,
        notes=(PARTED,) if interval > now else (),
    )


def _size_change(planned: Planned, size: int) -> Change:
    topology = with_group_size(planned.topology, size)
    groups = f"groups of {size:,}" if topology.replicas else f"one group of all {size:,}"
    text = f"{groups} instead of {planned.topology.world_size:,}"
    return Change(text=text, workload=planned.workload, topology=topology)


def _asked_gpus(planned: Planned, value: str) -> Change:
    return _gpus_change(planned, _number(value))


def _number(value: str) -> int:
    return parse_multiple(_THOUSANDS.sub("", value))


def _asked_batch(planned: Planned, value: str) -> Change:
    workload = replace(planned.workload, local_batch_size=_number(value))
    return Change(text=value, workload=workload, topology=planned.topology)


def _asked_hardware(planned: Planned, value: str) -> Change:
    try:
        profile = load_profile(value)
        nodes = planned.topology.num_nodes
        if planned.topology.local_world_size > profile.gpus_per_node:
            nodes = -(-planned.topology.world_size // profile.gpus_per_node)
        topology = replace(planned.topology, hardware=profile)
        if planned.topology.replicas is None:
            topology = make_topology(profile, planned.topology.world_size, nodes)
        elif planned.topology.node_ranks > profile.gpus_per_node:
            raise ValueError("its nodes have fewer GPUs than the groups need: plan again")
    except PlannerError as error:
        raise ValueError(str(error)) from None
    return Change(text=value, workload=planned.workload, topology=topology)


def _asked_dtype(planned: Planned, value: str) -> Change:
    try:
        data_type = DataType(value)
    except ValueError:
        raise ValueError(f"there is no data type `{value}`: {', '.join(DataType)}") from None
    workload = _converted(planned.workload, data_type, tuple(DataType))
    return Change(text=value, workload=workload, topology=planned.topology)


def _converted(workload: Workload, data_type: DataType, those: Sequence[DataType]) -> Workload:
    """Return a workload whose tables of the types ``those`` have another type."""
    tables = tuple(
        replace(table, data_type=data_type) if table.data_type in those else table
        for table in workload.tables
    )
    return replace(workload, tables=tables)


def _asked_host(planned: Planned, value: str) -> Change:
    launches = {"graphs": LaunchMode.CUDA_GRAPHS, "compiled": LaunchMode.COMPILED}
    if value in launches:
        workload = _launched(planned.workload, launches[value])
        return Change(text=value, workload=workload, topology=planned.topology)
    try:
        factor = float(value)
    except ValueError:
        factor = 0.0
    if not 0 < factor < 1e3:
        raise ValueError("host is `graphs`, `compiled`, or what its time is multiplied by")
    topology = scaled(planned.topology, {Cause.HOST: factor})
    return Change(text=value, workload=planned.workload, topology=topology)


_MAKERS: dict[str, Callable[[Planned, str], Change]] = {
    "hardware": _asked_hardware,
    "batch": _asked_batch,
    "gpus": _asked_gpus,
    "dtype": _asked_dtype,
    "host": _asked_host,
    "sync-interval": lambda planned, value: _interval_change(planned, _number(value)),
    "replica-group": lambda planned, value: _size_change(planned, _number(value)),
}
_EXAMPLES = (
    "hardware=h200-sxm",
    "batch=16384",
    "gpus=16",
    "dtype=fp16",
    "host=graphs",
    "host=0.5",
)
_OF_GROUPS = ("sync-interval=10", "replica-group=8")
"""Examples of what can be changed where a job has several groups of ranks."""


def _launched(workload: Workload, launch: LaunchMode) -> Workload:
    return replace(workload, dense=replace(workload.dense, launch=launch))


def _is_replicated(sharding: TableSharding) -> bool:
    return sharding.sharding_type is ShardingType.DATA_PARALLEL


def effect(before: Mapping[Stage, Seconds], after: Mapping[Stage, Seconds]) -> str:
    """Return the stage that changes most in the direction of the step; empty: none does."""
    changes = {stage: after.get(stage, 0.0) - before.get(stage, 0.0) for stage in Stage}
    direction = 1.0 if sum(after.values()) > sum(before.values()) else -1.0
    stage = max(changes, key=lambda each: direction * changes[each])
    if abs(changes[stage]) < _LEAST_EFFECT * sum(before.values()):
        return ""
    return f"{STAGE_NAMES[stage]} {signed_duration(changes[stage])}"


def _labelled(label: str, watch: Watch) -> Watch:
    """Return a watcher that tells another one of the label, whichever sharder searches."""

    def watched(sharder: str, progress: Progress) -> None:
        del sharder
        watch(label, progress)

    return watched


def _ignore(change: str, error: PlannerError) -> None:
    del change, error


def remedies(
    planned: Planned,
    changes: Sequence[Change],
    search: Search,
    left_out: Callable[[str, PlannerError], None] = _ignore,
) -> Iterator[Remedy]:
    """Yield the remedy of each change, within the search's time limit, until interrupted.

    ``left_out`` is called with every change without a plan, and its error.
    """
    began = search.clock()
    for number, change in enumerate(changes):
        if search.interrupted():
            return
        left = began + search.time_limit - search.clock()
        own = replace(
            search,
            time_limit=max(0.1, left / (len(changes) - number)),
            began=None,
            watch=_labelled(f"what-if {number + 1} of {len(changes)}: {change.text}", search.watch),
        )
        own.watch("", Progress(evaluated=0, best=planned.report.modelled.seconds))
        try:
            yield remedy_of(planned, change, own)
        except PlannerError as error:
            left_out(change.text, error)


def unsearched(planned: Planned, changes: Iterable[Change]) -> Iterator[Remedy]:
    """Yield each change with the step of the unchanged plan, where that is valid and fits."""
    plan = planned.plan
    for change in changes:
        workload, topology = change.workload, change.topology
        if topology.world_size != plan.world_size or not is_usable(workload, topology, plan):
            continue
        (confidence,) = confidences(workload, topology, (plan,))
        samples = workload.samples_per_step * topology.num_ranks
        yield Remedy(
            change=change.text,
            step_time=confidence.step_time,
            samples_per_second=samples / confidence.step_time,
            effect="",
            num_changed=0,
            notes=change.notes,
        )
