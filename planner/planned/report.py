"""Reports: what was planned and what it costs, as plain data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from costmodel.base.arrays import Array
from costmodel.base.units import Bytes, Seconds
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan, TableSharding
from costmodel.domain.workload import Workload
from costmodel.memory.rank_memory import RankMemory, memory_per_rank, usable_bytes
from costmodel.step.graph import NodeKind, Stage
from costmodel.step.timeline import DEVICE_KINDS, Timeline
from costmodel.uncertainty.error_model import is_calibrated
from planner.planned.extrapolation import Extrapolation, extrapolations
from planner.planned.notes import notes_on
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
    """What one rank does during a step: each time is no more than the step.

    What runs at the same time, on several streams, counts once.
    """

    rank: int
    lookup: Seconds
    """Forward or backward lookups at work."""
    lookup_forward: Seconds
    lookup_backward: Seconds
    communication: Seconds
    """At least one collective at work, from when its last member is ready."""
    waiting: Seconds
    """At least one collective waits for slower ranks."""
    idle: Seconds
    """The compute stream does nothing."""
    memory: RankMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """One table, and where it went."""

    sharding: TableSharding
    weight_bytes: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPoint:
    """When a better plan was found."""

    time: Seconds
    """From when the command began, by the clock that the time limit is measured by."""
    step_time: Seconds
    """As predicted."""
    sharder: str
    """The sharder that found it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchReport:
    """How the plan was found."""

    sharder: str
    """The sharder whose plan it is."""
    requested: str
    """What was asked for: the same, or ``auto``."""
    seed: int
    status: str
    evaluated: int
    """Plans looked at, by all sharders that ran."""
    time: Seconds
    bound: Seconds | None = None
    """No valid plan is faster than this under the model; None: not known."""
    is_bare: bool = False
    """Whether there was time for no other bound than the step without any embedding work."""
    proof: Proof | None = None
    """What a sharder proved that minimised something else than the step."""
    compiled: bool = True
    """Whether the search ran compiled, not interpreted (``planner.environment.compiled``)."""
    first_plan: Seconds = 0.0
    """From when the command began to when there was a plan: no limit makes that any shorter."""
    end: str | None = None
    """Why the search went on no longer (``planner.search.search.SearchEnd``)."""
    history: tuple[SearchPoint, ...] = ()
    """Every gain worth waiting for, in time order, and when the search ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Another sharder's step time, to compare with."""

    sharder: str
    step_time: Seconds
    reason: str | None = None
    """Why it may not be the plan that the sharder makes."""
    plan: ShardingPlan | None = None
    expected: Seconds | None = None
    """Its mean step over the models' errors, as ``Confidence.expected``."""
    probability_beaten: float | None = None
    """That the plan it is compared with is faster, given how far off the models have been."""

    @property
    def quoted(self) -> Seconds:
        """The step to quote: the expected one, or the predicted one where errors are unknown."""
        return self.step_time if self.expected is None else self.expected


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """How sure a predicted step time is, by the errors its models had on held-out measurements."""

    level: float
    interval: tuple[Seconds, Seconds]
    """Holds the step time with that probability."""
    expected: Seconds
    """The mean: more than predicted, as ranks wait for the slowest one, whichever that is."""
    optimism: float = 0.0
    """By what share a plan picked for its prediction is under-estimated: not in the others."""
    num_candidates: int = 1
    """Plans that it was picked from, or is compared with, itself included."""
    probability_fastest: float = 1.0
    """That it is the fastest of them."""
    probability_beaten: float = 0.5
    """That the first of them is faster; a half for the first itself."""
    regret: Seconds = 0.0
    """By how much the fastest of them is expected to be faster."""
    causes: Mapping[str, float]
    """Share of the variance by what errors are of, largest first; the rest are single kernels'."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A plan's predicted step: how long, why, and with how much memory."""

    workload: str
    num_tables: int
    weight_bytes: Bytes
    local_batch_size: int
    hardware: str
    world_size: int
    local_world_size: int
    step_time: Seconds
    """As predicted, were the models exact."""
    breakdown: Mapping[Stage, Seconds]
    """Time of every stage on the critical path; sums to the step time."""
    ranks: tuple[RankReport, ...]
    usable_bytes: Bytes
    """Memory of one GPU that is left for tables."""
    tables: tuple[TableReport, ...]
    gradient_accumulation_steps: int = 1
    """Batches of ``local_batch_size`` in the step."""
    hardware_assumed: bool | None = None
    """Whether nobody chose the hardware, so that the default was taken; None: of a plan file, which
    does not say."""
    confidence: Confidence | None = None
    search: SearchReport | None = None
    baseline: Baseline | None = None
    notes: tuple[str, ...] = ()
    """What is asked of the machine that its profile does not have."""
    verdict: PlanVerdict | None = None
    """What the choice of the plan rests on, where it was chosen among some."""
    extrapolated: tuple[Extrapolation, ...] = ()
    """What rests on kernels outside what was measured, the most critical first."""

    @property
    def interval(self) -> tuple[Seconds, Seconds] | None:
        """Where the step time lies with 90% probability, if that was asked."""
        return None if self.confidence is None else self.confidence.interval

    @property
    def expected(self) -> Seconds:
        """The step time to quote: the mean over the models' errors, if these are known."""
        return self.step_time if self.confidence is None else self.confidence.expected

    @property
    def gap(self) -> float | None:
        """By what share the step as predicted is above the bound; None: there is none."""
        bound = None if self.search is None else self.search.bound
        return self.step_time / bound - 1 if bound else None

    @property
    def samples_per_second(self) -> float:
        """Throughput of all GPUs together, at the step time to quote."""
        samples = self.local_batch_size * self.gradient_accumulation_steps
        return samples * self.world_size / self.expected

    @property
    def speedup(self) -> float | None:
        """Step of the baseline over this plan's: expected ones, or else predicted ones."""
        if self.baseline is None:
            return None
        if self.baseline.expected is not None:
            return self.baseline.expected / self.expected
        return self.baseline.step_time / self.step_time

    @property
    def peak_memory_bytes(self) -> Bytes:
        """HBM in use on the fullest rank: tables, dense model, activations."""
        return max(rank.memory.total for rank in self.ranks)

    @property
    def fullest(self) -> RankReport:
        """The rank whose tables take most memory."""
        return max(self.ranks, key=lambda rank: rank.memory.tables)

    @property
    def imbalance(self) -> float:
        """Lookup time of the busiest rank over the mean; 1 is perfect."""
        times = [rank.lookup for rank in self.ranks]
        mean = sum(times) / len(times)
        return max(times) / mean if mean else 1.0

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.world_size // self.local_world_size


def make_report(
    workload: Workload,
    topology: Topology,
    plan: ShardingPlan,
    timeline: Timeline,
) -> Report:
    """Judge a simulated plan; who found it, and what it beats, is for the caller to add."""
    memory = memory_per_rank(workload, topology, plan)
    return Report(
        workload=workload.name,
        num_tables=len(workload.tables),
        weight_bytes=workload.weight_bytes,
        local_batch_size=workload.local_batch_size,
        gradient_accumulation_steps=workload.gradient_accumulation_steps,
        hardware=topology.hardware.name,
        world_size=topology.world_size,
        local_world_size=topology.local_world_size,
        step_time=timeline.step_time,
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
