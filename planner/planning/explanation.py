"""Why a plan's step takes as long as it does, and what would make it shorter.

Nothing here is guessed: every remedy is a variant that was simulated.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from costmodel.base.errors import InfeasibleError, InputError, PlanMismatchError
from costmodel.base.units import Seconds
from costmodel.domain.hardware import Device, Topology
from costmodel.domain.plan import (
    ComputeKernel,
    ShardingPlan,
    ShardingType,
    TableSharding,
    make_shards,
)
from costmodel.domain.workload import (
    DataType,
    EmbeddingTable,
    LaunchMode,
    OptimizerImplementation,
    Workload,
)
from costmodel.engine.objective import Objective
from costmodel.kernels.embedding import embedding_estimate
from costmodel.memory.rank_memory import check_memory
from costmodel.step.graph import Node, NodeKind, Stage
from costmodel.step.program_timeline import plan_timeline
from costmodel.step.timeline import PathSegment, Timeline
from planner.planning.api import Planned, load_plan, make_topology, plan
from planner.planning.report import Report

MOST_CHOICES = 6
"""Tables whose sharding is explained: the costliest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRow:
    """A stretch of the critical path in one stage."""

    start: Seconds
    """From the beginning of the step."""
    seconds: Seconds
    stage: Stage
    rank: int | None
    """None: a collective, all ranks of its group."""
    bound_by: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableExplanation:
    """How one table is sharded, and what the alternative would cost."""

    sharding: TableSharding
    alone: Seconds
    """Its lookups, forward and backward, if one rank did them all and nothing else."""
    mean: Seconds
    """Lookups of the average rank."""
    whole_step_time: Seconds | None
    """Step time with this table whole on the rank where that hurts least; None: it is whole, or
    fixed."""
    whole_fits: bool
    """Whether that plan would fit in memory."""
    fixed: bool = False
    """Whether the user said which ranks it is to be on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change, and the step it gives."""

    change: str
    step_time: Seconds
    samples_per_second: float
    effect: str
    """The stage that changes most, or why the step alone does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Where a step's time goes, why the tables are where they are, and what would help."""

    report: Report
    last_rank: int
    """The rank that finishes last."""
    path: tuple[PathRow, ...]
    choices: tuple[TableExplanation, ...]
    remedies: tuple[Remedy, ...]


def explain(planned: Planned | str | Path) -> Explanation:
    """Return why a plan, or plan file, takes as long as it does, and what would help."""
    loaded = planned if isinstance(planned, Planned) else load_plan(planned)
    return _explained(loaded, plan_timeline(loaded.workload, loaded.topology, loaded.plan))


def _explained(planned: Planned, timeline: Timeline) -> Explanation:
    remedies = sorted(_remedies(planned), key=lambda remedy: -remedy.samples_per_second)
    return Explanation(
        report=planned.report,
        last_rank=_last_rank(timeline),
        path=path_rows(timeline),
        choices=_choices(planned),
        remedies=tuple(remedies),
    )


def path_rows(timeline: Timeline) -> tuple[PathRow, ...]:
    """Return the critical path of the last step, neighbours of one stage and rank merged."""

    def place(segment: PathSegment) -> tuple[Stage, int | None]:
        node = timeline.graph.nodes[segment.node]
        together = node.kind is NodeKind.COLLECTIVE and segment.stage is node.stage
        return segment.stage, None if together else node.rank

    begin, _ = timeline.window
    rows = []
    for (stage, rank), group in groupby(timeline.critical_path(), key=place):
        segments = list(group)
        longest = max(segments, key=lambda segment: segment.seconds)
        node = timeline.graph.nodes[longest.node]
        own = stage is node.stage
        rows.append(
            PathRow(
                start=segments[0].start - begin,
                seconds=sum(segment.seconds for segment in segments),
                stage=stage,
                rank=rank,
                bound_by=_bound_text(node) if own else "kernel launch",
                source=node.basis.origin if own else "",
            )
        )
    return tuple(rows)


def _bound_text(node: Node) -> str:
    if node.basis.bound_by is not None:
        return node.basis.bound_by.value
    return "CPU time" if node.stage is Stage.HOST else ""


def _last_rank(timeline: Timeline) -> int:
    return timeline.graph.nodes[timeline.last_node].rank


def _choices(planned: Planned) -> tuple[TableExplanation, ...]:
    mean = sum(rank.lookup for rank in planned.report.ranks) / len(planned.report.ranks)
    alone = {table.name: _alone(planned, table) for table in planned.workload.tables}
    fixed = {table.name for table in planned.workload.tables if table.ranks}
    special = [
        sharding
        for sharding in planned.plan.tables
        if sharding.table in fixed or sharding.sharding_type is not ShardingType.TABLE_WISE
    ]
    chosen = sorted(special or planned.plan.tables, key=lambda sharding: -alone[sharding.table])
    return tuple(
        _choice(planned, sharding, alone=alone[sharding.table], mean=mean)
        for sharding in chosen[:MOST_CHOICES]
    )


def _alone(planned: Planned, table: EmbeddingTable) -> Seconds:
    workload, topology = planned.workload, planned.topology
    estimates = embedding_estimate(
        (table,),
        num_samples=workload.local_batch_size * topology.world_size,
        optimizer=workload.optimizer,
        hardware=topology.hardware,
        output_type=workload.output_type,
    )
    return sum(estimate.seconds for estimate in estimates)


def _choice(
    planned: Planned, sharding: TableSharding, *, alone: Seconds, mean: Seconds
) -> TableExplanation:
    step_time, fits = None, True
    fixed = bool(planned.workload.table(sharding.table).ranks)
    if sharding.sharding_type is not ShardingType.TABLE_WISE and not fixed:
        variants = list(_whole_variants(planned, sharding))
        objective = Objective(planned.workload, planned.topology)
        fitting = [variant for variant in variants if _fits(planned, variant)]
        fits = bool(fitting)
        step_time = min(objective.step_time(variant) for variant in fitting or variants)
    return TableExplanation(
        sharding=sharding,
        fixed=fixed,
        alone=alone,
        mean=mean,
        whole_step_time=step_time,
        whole_fits=fits,
    )


def _whole_variants(planned: Planned, sharding: TableSharding) -> Iterator[ShardingPlan]:
    """Yield the plan with one table whole on each rank."""
    table = planned.workload.table(sharding.table)
    kernel = sharding.compute_kernel
    for rank in range(planned.plan.world_size):
        shards = make_shards(
            ShardingType.TABLE_WISE,
            table.num_embeddings,
            table.embedding_dim,
            ranks=(rank,),
            world_size=planned.plan.world_size,
            local_world_size=planned.plan.local_world_size,
        )
        whole = replace(
            sharding,
            sharding_type=ShardingType.TABLE_WISE,
            compute_kernel=ComputeKernel.FUSED if kernel is ComputeKernel.DENSE else kernel,
            shards=shards,
        )
        yield with_table(planned.plan, whole)


def with_table(plan: ShardingPlan, sharding: TableSharding) -> ShardingPlan:
    """Return the plan with one table sharded differently."""
    tables = (sharding if each.table == sharding.table else each for each in plan.tables)
    return replace(plan, tables=tuple(tables))


def _fits(planned: Planned, plan: ShardingPlan) -> bool:
    try:
        check_memory(planned.workload, planned.topology, plan)
    except InfeasibleError:
        return False
    return True


def _remedies(planned: Planned) -> Iterator[Remedy]:
    for change, workload in _workload_variants(planned):
        try:
            check_memory(workload, planned.topology, planned.plan)
        except InfeasibleError:
            continue
        yield _remedy(planned, change, workload, planned.topology, planned.plan)
    yield from _twice_the_gpus(planned)


def _workload_variants(planned: Planned) -> Iterator[tuple[str, Workload]]:
    """Yield changes to the training that leave the plan valid."""
    workload, hardware = planned.workload, planned.topology.hardware
    batch = workload.local_batch_size
    if any(table.data_type is DataType.FP32 for table in workload.tables):
        tables = tuple(_in_fp16(table) for table in workload.tables)
        yield "weights and outputs in fp16", replace(workload, tables=tables, output_type=_FP16)
    uncompressed = workload.comms_forward is None and workload.output_type is DataType.FP32
    if uncompressed and planned.topology.world_size > 1:
        smaller = replace(workload, comms_forward=_FP16, comms_backward=_BF16)
        yield "fp16 collectives, bf16 gradients", smaller
    if workload.dense.precision in {DataType.FP32, DataType.TF32} and "bf16" in hardware.gpu.gemm:
        yield (
            "dense layers in bf16",
            replace(workload, dense=replace(workload.dense, precision=_BF16)),
        )
    default = workload.dense.optimizer_implementation is None
    if default and any(map(_is_replicated, planned.plan.tables)):
        dense = replace(workload.dense, optimizer_implementation=OptimizerImplementation.FOREACH)
        yield "dense optimizer with foreach=True", replace(workload, dense=dense)
    if workload.dense.launch is LaunchMode.EAGER and hardware.device is Device.CUDA:
        for launch, change in _LAUNCHES.items():
            yield change, replace(workload, dense=replace(workload.dense, launch=launch))
    if batch > 1:
        yield f"local batch {batch // 2:,}", replace(workload, local_batch_size=batch // 2)
    yield f"local batch {2 * batch:,}", replace(workload, local_batch_size=2 * batch)


_FP16, _BF16 = DataType.FP16, DataType.BF16
_LAUNCHES = {
    LaunchMode.COMPILED: "dense model by torch.compile",
    LaunchMode.CUDA_GRAPHS: "dense model in CUDA graphs",
}


def _is_replicated(sharding: TableSharding) -> bool:
    return sharding.sharding_type is ShardingType.DATA_PARALLEL


def _in_fp16(table: EmbeddingTable) -> EmbeddingTable:
    return replace(table, data_type=_FP16) if table.data_type is DataType.FP32 else table


def _twice_the_gpus(planned: Planned) -> Iterator[Remedy]:
    """Yield a new plan for twice the GPUs; it is searched for, as the old one cannot be used.

    None where tables are to be on ranks that are all there are only of the fewer GPUs.
    """
    old = planned.topology
    local = min(2 * old.local_world_size, old.hardware.gpus_per_node)
    topology = make_topology(old.hardware, 2 * old.world_size, 2 * old.world_size // local)
    try:
        new = plan(
            planned.workload,
            gpus=topology.world_size,
            nodes=topology.num_nodes,
            hardware=old.hardware,
        )
    except (InfeasibleError, InputError, PlanMismatchError):
        return
    change = f"{topology.world_size} GPUs instead of {old.world_size}"
    yield _remedy(planned, change, planned.workload, topology, new.plan)


def _remedy(
    planned: Planned, change: str, workload: Workload, topology: Topology, plan: ShardingPlan
) -> Remedy:
    timeline = plan_timeline(workload, topology, plan)
    samples = workload.local_batch_size * topology.world_size
    return Remedy(
        change=change,
        step_time=timeline.step_time,
        samples_per_second=samples / timeline.step_time,
        effect=_effect(planned.report, timeline),
    )


def _effect(report: Report, timeline: Timeline) -> str:
    """Name the stage of the critical path that changes most the way the step does."""
    from planner.planning.report_text import STAGE_NAMES
    from planner.show.format import signed_duration

    after = timeline.breakdown()
    changes = {stage: after.get(stage, 0.0) - report.breakdown.get(stage, 0.0) for stage in Stage}
    direction = 1.0 if timeline.step_time > report.step_time else -1.0
    stage = max(changes, key=lambda each: direction * changes[each])
    return f"{STAGE_NAMES[stage]} {signed_duration(changes[stage])}"
