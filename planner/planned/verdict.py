"""What the choice of a plan rests on, as data; ``planner.decision.judging`` finds it."""

from collections import Counter
from dataclasses import dataclass

from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingPlan, ShardingType

SAME_STEP = 0.01
"""Share by which expected steps must differ to count as different: no model here is better."""
LIKELY = 2.0
"""Number of standard deviations by which an assumption may well be off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """An assumption, and how far it must be off for another plan to be faster."""

    assumption: str
    """One of ``ASSUMPTIONS``."""
    factor: float
    """Factor by which the assumed quantity would have to be multiplied."""
    deviations: float
    """The same, in standard deviations of the assumption."""
    value: Seconds | None
    """Seconds that a host operation takes on the CPU as assumed; None for other assumptions."""
    rival: str
    """The sharding types of the other plan."""
    rival_ahead: bool
    """Whether the other plan is the faster one as long as the assumption is off by less."""
    rival_plan: ShardingPlan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrowBlocks:
    """Tables that are cut into blocks of few columns, and how much that gains."""

    tables: tuple[str, ...]
    longer: float | None
    """Share by which the predicted step is longer with blocks twice as wide; None: such blocks are
    not allowed or do not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanVerdict:
    """The plans a choice was made among, and what the choice rests on."""

    num_candidates: int
    """Number of plans that were weighed by their errors: the best few of all that the search looked
    at (``SearchReport.evaluated``), one if the limit left no time for others."""
    num_equal: int
    """Number of candidates that the models cannot tell from the chosen plan, itself included."""
    spread: float
    """Share by which the slowest candidate's expected step is longer than the fastest one's."""
    simplest_longer: float
    """Share by which the predicted step of the simplest plan (``choice.SIMPLEST``) is longer than
    the chosen plan's."""
    within_bound: float | None
    """Share by which the simplest plan's step is above the bound; None: there is no bound."""
    host_time: Seconds
    """Seconds of the predicted critical path in which the host launches."""
    runner_up: str | None
    """Name of the runner-up's sharder."""
    runner_up_types: str | None
    """The runner-up's sharding types; if the chosen plan has the same ones, ``another`` comes
    before them."""
    probability_faster: float | None
    """Probability that the chosen plan is faster than the runner-up."""
    ahead: float
    """Share by which the runner-up's expected step is longer."""
    free_batch: int | None
    """Largest local batch with which the step is hardly longer; None: none larger than asked
    for."""
    turn: Turn | None
    """The assumption that is likeliest to turn the choice; None: none could."""
    num_rivals: int
    """Number of plans of other sharding types that were compared for that."""
    narrow: NarrowBlocks | None = None
    """None: there are none."""

    @property
    def hardly_matters(self) -> bool:
        """Whether all plans found are equally good, or the simplest one is close to the bound."""
        close = self.within_bound is not None and self.within_bound <= SAME_STEP
        alike = max(self.spread, self.simplest_longer) <= SAME_STEP
        return close or (self.num_candidates > 1 and alike)


def kinds_text(plan: ShardingPlan) -> str:
    """Return a plan's sharding types, those of most tables first: ``24 table_wise, 2 row_wise``."""
    counts = Counter(sharding.sharding_type for sharding in plan.tables)
    order = sorted(counts, key=lambda kind: (-counts[kind], list(ShardingType).index(kind)))
    return ", ".join(f"{counts[kind]} {kind}" for kind in order)
