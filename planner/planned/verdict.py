"""What a choice of a plan rests on, as data (``planner.decision.judging`` finds it)."""

from collections import Counter
from dataclasses import dataclass

from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingPlan, ShardingType

SAME_STEP = 0.01
"""Expected steps that differ by less are one: no model here is that good."""
LIKELY = 2.0
"""Standard deviations that an assumption may well be off by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """An assumption, and where another plan would be the faster one."""

    assumption: str
    """One of ``ASSUMPTIONS``."""
    factor: float
    """What it would have to be multiplied by."""
    deviations: float
    """How far that is from what is assumed, in standard deviations."""
    value: Seconds | None
    """What a host operation takes now, on the CPU; None of other assumptions."""
    rival: str
    """The other plan, by its sharding types."""
    rival_ahead: bool
    """Whether the other plan is the faster one until there, as predicted."""
    rival_plan: ShardingPlan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrowBlocks:
    """Tables that are cut into blocks of few columns, and what speaks for it."""

    tables: tuple[str, ...]
    longer: float | None
    """By what share the predicted step is longer with blocks twice as wide; None: they may not be,
    or do not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanVerdict:
    """What a choice was made among, and what it rests on."""

    num_candidates: int
    num_equal: int
    """Candidates that the models cannot tell from the chosen plan, itself included."""
    spread: float
    """By what share the slowest candidate's expected step is longer than the fastest one's."""
    simplest_longer: float
    """By what share the simplest plan (``choice.SIMPLEST``) takes longer than the chosen one, as
    predicted."""
    within_bound: float | None
    """By what share the simplest plan is above the bound; None: there is no bound."""
    host_time: Seconds
    """The host's part of the critical path, as predicted."""
    runner_up: str | None
    """Its sharder."""
    runner_up_types: str | None
    """And its sharding types; ``another`` before those of the chosen plan."""
    probability_faster: float | None
    """That the chosen plan is faster than the runner-up."""
    ahead: float
    """By what share the runner-up's expected step is longer."""
    free_batch: int | None
    """Largest local batch up to which more samples hardly take longer; None: more take longer."""
    turn: Turn | None
    """The assumption that decides: the likeliest to turn the choice; None: none could."""
    num_rivals: int
    """Plans of other sharding types that were looked at for that."""
    narrow: NarrowBlocks | None = None
    """None: there are none."""

    @property
    def hardly_matters(self) -> bool:
        """Whether all plans found are as good, or even the simplest one can hardly be beaten."""
        close = self.within_bound is not None and self.within_bound <= SAME_STEP
        alike = max(self.spread, self.simplest_longer) <= SAME_STEP
        return close or (self.num_candidates > 1 and alike)


def kinds_text(plan: ShardingPlan) -> str:
    """Return a plan's sharding types, those of most tables first: ``24 table_wise, 2 row_wise``."""
    counts = Counter(sharding.sharding_type for sharding in plan.tables)
    order = sorted(counts, key=lambda kind: (-counts[kind], list(ShardingType).index(kind)))
    return ", ".join(f"{counts[kind]} {kind}" for kind in order)
