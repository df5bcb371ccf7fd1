"""Reports: what was planned and what it costs, as plain data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from costmodel.base.arrays import Array
from costmodel.base.modelled import Modelled
from costmodel.base.units import Bytes, Seconds
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan, TableSharding
from costmodel.domain.replica_groups import ReplicaGroups
from costmodel.domain.workload import Workload
from costmodel.memory.rank_memory import RankMemory, memory_per_rank, usable_bytes
from costmodel.step.graph import NodeKind, Stage
from costmodel.step.step_operations import ProcessGroup
from costmodel.step.timeline import DEVICE_KINDS, Timeline
from costmodel.uncertainty.error_model import is_calibrated
from planner.planned.extrapolation import Extrapolation, extrapolations
from planner.planned.notes import notes_on
from planner.planned.replicas import WeighedGroup
from planner.planned.verdict import PlanVerdict
from sharders.problem.sharding_problem import Proof

COLLECTIVE_STAGES = (Stage.ALL_TO_ALL, Stage.REDUCE_SCATTER, Stage.ALL_GATHER, Stage.ALL_REDUCE)
STAGE_NAMES: Mapping[Stage, str] = {
    Stage.INPUT_DIST: "input dist",
    Stage.MEMORY_COPY: "host to device",
    Stage.LOOKUP_FORWARD: "lookup forward",
    Stage.LOOKUP_BACKWARD: "lookup backward",
    Stage.ALL_TO_ALL: "all-to-all",
    Stage.REDUCE_SCATTER: "reduce-scatter",
    Stage.ALL_GATHER: "all-gather",
    Stage.ALL_REDUCE: "all-reduce",
    Stage.DENSE_FORWARD: "dense forward",
    Stage.DENSE_BACKWARD: "dense backward",
    Stage.OPTIMIZER: "optimizer",
    Stage.HOST: "host",
}
"""Stages as reports call them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """Seconds that one rank spends on each kind of work in a step.

    Work that overlaps on several streams counts once, so that each number is at most the step.
    """

    rank: int
    lookup: Seconds
    """In which forward or backward lookups run."""
    lookup_forward: Seconds
    lookup_backward: Seconds
    communication: Seconds
    """In which at least one collective runs, from when its last member is ready."""
    waiting: Seconds
    """In which at least one collective waits for slower ranks."""
    idle: Seconds
    """In which the compute stream does nothing."""
    memory: RankMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """One table, with its sharding and bytes."""

    sharding: TableSharding
    weight_bytes: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPoint:
    """A moment at which the search had a better plan."""

    time: Seconds
    """Seconds since the command began, by the clock that the time limit is measured by."""
    modelled: Modelled
    """The plan's step by the models, which the search shortens."""
    sharder: str
    """The sharder that found it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchReport:
    """How the plan was found."""

    sharder: str
    """The sharder that made the plan."""
    requested: str
    """The sharder that was asked for: the same one, or ``auto``."""
    seed: int
    status: str
    """What is known of the plan: ``optimal`` (its sharder proved it best, by an objective of its
    own) or ``given`` (a baseline's, not searched for), or else that of the search:
    ``converged`` (nothing was left to try), ``limit``, or ``stopped`` for another reason (``end``).
    """
    evaluated: int
    """Number of plans looked at, by all sharders."""
    time: Seconds
    bound: Modelled | None = None
    """No valid plan is faster than this by the models; None: not known."""
    is_bare: bool = False
    """Whether the only bound computed is the step without any embedding work."""
    proof: Proof | None = None
    """What a sharder proved that minimised something else than the step."""
    compiled: bool = True
    """Whether the search ran compiled, not interpreted (``planner.environment.compiled``)."""
    first_plan: Seconds = 0.0
    """Seconds from when the command began to when the first plan was found."""
    end: str | None = None
    """Why the search with all sharders ended (``planner.search.search.SearchEnd``)."""
    headroom: float | None = None
    """Share of its memory that every rank was to keep free; None: a plan file does not say."""
    history: tuple[SearchPoint, ...] = ()
    """Every gain that counts, in time order; the last point is the end of the search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Another sharder's plan, to compare with."""

    sharder: str
    step_time: Seconds
    """Its expected step, under the same errors as the plan's (the report's ``step_time``)."""
    modelled: Modelled
    reason: str | None = None
    """Why this may not be the plan that the sharder itself would make."""
    plan: ShardingPlan | None = None
    probability_beaten: float
    """Probability that the plan compared with it is faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """How long a step takes, and how sure that is, from its models' errors on held-out data."""

    level: float
    interval: tuple[Seconds, Seconds]
    """Seconds between which the step lies with that probability."""
    step_time: Seconds
    """Expected step, the mean over the errors: longer than modelled, as every rank waits for
    whichever is slowest."""
    optimism: float = 0.0
    """Share by which the step of a plan picked for its prediction is under-estimated; not included
    in the other numbers."""
    num_candidates: int = 1
    """Number of plans that this one was weighed against, itself included: the best few of those
    that the search looked at (``evaluated``)."""
    probability_fastest: float = 1.0
    """Probability that the plan is the fastest of them."""
    probability_beaten: float = 0.5
    """Probability that the first of these plans is faster; a half for the first itself."""
    regret: Seconds = 0.0
    """Expected seconds by which the fastest of them is faster."""
    causes: Mapping[str, float]
    """Share of the variance by cause of error, largest first; single kernels make up the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A plan's step: how long, why, and with how much memory.

    Seconds of stages, ranks and kernels are the models', stretched such that the step is the
    expected one (``Timeline.stretched``).
    """

    workload: str
    num_tables: int
    weight_bytes: Bytes
    local_batch_size: int
    hardware: str
    world_size: int
    local_world_size: int
    modelled: Modelled
    """The step by the models, without their errors."""
    confidence: Confidence
    """The step that is expected, and how sure that is."""
    breakdown: Mapping[Stage, Seconds]
    """Time of every stage on the critical path; sums to the step time."""
    ranks: tuple[RankReport, ...]
    usable_bytes: Bytes
    """Bytes of one GPU's memory that are left for tables."""
    tables: tuple[TableReport, ...]
    gradient_accumulation_steps: int = 1
    """Batches of ``local_batch_size`` in the step."""
    hardware_assumed: bool | None = None
    """Whether nobody chose the hardware, so that it is the default; None: a plan file does not
    say."""
    search: SearchReport | None = None
    baseline: Baseline | None = None
    notes: tuple[str, ...] = ()
    """Warnings: what the plan needs and the machine does not have."""
    verdict: PlanVerdict | None = None
    """What the choice of the plan rests on, if it was chosen among several."""
    replicas: ReplicaGroups | None = None
    """The groups of the job, of which all numbers are one's; None: all ranks are one group."""
    averaging_time: Seconds = 0.0
    """Seconds that averaging all replicas takes in the steps that do; ``replicas`` has how many."""
    averaging_critical: Seconds = 0.0
    """Seconds of the critical path of a step that replicas are averaged in: its share of one."""
    weighed_groups: tuple[WeighedGroup, ...] = ()
    """Group sizes that this one was chosen among."""
    extrapolated: tuple[Extrapolation, ...] = ()
    """Stages whose kernels lie outside the measured range, the most critical first."""

    @property
    def step_time(self) -> Seconds:
        """The step to quote: the expected one."""
        return self.confidence.step_time

    @property
    def interval(self) -> tuple[Seconds, Seconds]:
        """Seconds between which the step lies with 90% probability."""
        return self.confidence.interval

    @property
    def gap(self) -> float | None:
        """Share by which the step is above the bound, by the models; None: there is no bound."""
        bound = None if self.search is None else self.search.bound
        return self.modelled / bound - 1 if bound else None

    @property
    def samples_per_second(self) -> float:
        """Samples per second of all GPUs together."""
        samples = self.local_batch_size * self.gradient_accumulation_steps
        return samples * self.num_ranks / self.step_time

    @property
    def num_ranks(self) -> int:
        """Ranks of the job, of all groups."""
        return self.world_size * (1 if self.replicas is None else self.replicas.num_groups)

    @property
    def replica_nodes(self) -> int:
        """Number of nodes that the ranks with the same shards are on; 1 for a single group."""
        replicas = self.replicas
        if replicas is None:
            return 1
        return max(1, replicas.num_groups * self.local_world_size // replicas.ranks_per_node)

    @property
    def speedup(self) -> float | None:
        """The baseline's step over this plan's; None: there is no baseline."""
        return None if self.baseline is None else self.baseline.step_time / self.step_time

    @property
    def peak_memory_bytes(self) -> Bytes:
        """Bytes of HBM in use on the fullest rank: tables, dense model, activations."""
        return max(rank.memory.total for rank in self.ranks)

    @property
    def fullest(self) -> RankReport:
        """The rank with most bytes of tables."""
        return max(self.ranks, key=lambda rank: rank.memory.tables)

    @property
    def free_share(self) -> float:
        """Share of the memory for tables that the fullest rank has free."""
        return 1 - self.fullest.memory.tables / self.usable_bytes if self.usable_bytes > 0 else 0.0

    @property
    def imbalance(self) -> float:
        """Lookup time of the busiest rank over the mean; 1 is perfect."""
        times = [rank.lookup for rank in self.ranks]
        mean = sum(times) / len(times)
        return max(times) / mean if mean else 1.0

    @property
    def num_nodes(self) -> int:
        """Number of nodes of the job."""
        replicas = self.replicas
        local = self.local_world_size if replicas is None else replicas.ranks_per_node
        return self.num_ranks // local


def make_report(
    workload: Workload,
    topology: Topology,
    plan: ShardingPlan,
    timeline: Timeline,
    confidence: Confidence,
) -> Report:
    """Return the report of a simulated plan; the caller adds the search and the baseline."""
    memory = memory_per_rank(workload, topology, plan)
    modelled = Modelled(timeline.step_time)
    timeline = timeline.stretched(confidence.step_time)
    return Report(
        workload=workload.name,
        num_tables=len(workload.tables),
        weight_bytes=workload.weight_bytes,
        local_batch_size=workload.local_batch_size,
        gradient_accumulation_steps=workload.gradient_accumulation_steps,
        hardware=topology.hardware.name,
        world_size=topology.world_size,
        local_world_size=topology.local_world_size,
        replicas=topology.replicas,
        averaging_time=_averaging_time(timeline, topology),
        averaging_critical=_averaging_critical(timeline),
        modelled=modelled,
        confidence=confidence,
        notes=tuple(notes_on(workload, topology)),
        breakdown=timeline.breakdown(),
        extrapolated=extrapolations(timeline, host_assumed=not is_calibrated(topology.hardware)),
        ranks=rank_reports(timeline, memory),
        usable_bytes=usable_bytes(workload, topology),
        tables=tuple(
            TableReport(
                sharding=plan.table(table.name),
                weight_bytes=table.weight_bytes,
            )
            for table in workload.tables
        ),
    )


def _averaging_time(timeline: Timeline, topology: Topology) -> Seconds:
    """Return the seconds that averaging replicas takes at once, of which every step has a share."""
    if topology.replicas is None:
        return 0.0
    groups = [
        group for group in timeline.graph.groups() if group.first.resource == ProcessGroup.REPLICAS
    ]
    return topology.replicas.sync_interval * float(timeline.work_times(groups).max(initial=0.0))


def _averaging_critical(timeline: Timeline) -> Seconds:
    """Return the seconds of the critical path in which replicas are averaged."""
    path = [(segment, timeline.graph.nodes[segment.node]) for segment in timeline.critical_path()]
    return sum(
        segment.seconds
        for segment, node in path
        if node.resource == ProcessGroup.REPLICAS and segment.stage is node.stage
    )


def rank_reports(timeline: Timeline, memory: Sequence[RankMemory]) -> tuple[RankReport, ...]:
    """Return what every rank does in the last step of a timeline."""
    groups = [group for group in timeline.graph.groups() if group.first.kind in DEVICE_KINDS]

    def work(*stages: Stage, kinds: Sequence[NodeKind] = DEVICE_KINDS) -> Array:
        some = [each for each in groups if each.first.stage in stages and each.first.kind in kinds]
        return timeline.work_times(some)

    columns = {
        "lookup": work(Stage.LOOKUP_FORWARD, Stage.LOOKUP_BACKWARD),
        "lookup_forward": work(Stage.LOOKUP_FORWARD),
        "lookup_backward": work(Stage.LOOKUP_BACKWARD),
        "communication": work(*COLLECTIVE_STAGES, kinds=(NodeKind.COLLECTIVE,)),
        "waiting": timeline.waiting_times,
        "idle": timeline.idle_times,
    }
    by_rank = zip(*(column.tolist() for column in columns.values()), strict=True)
    return tuple(
        RankReport(rank=rank, memory=held, **dict(zip(columns, times, strict=True)))
        for rank, (held, times) in enumerate(zip(memory, by_rank, strict=True))
    )
