"""What the choice of a plan rests on, as data; ``planner.decision.judging`` finds it."""

from collections import Counter
from dataclasses import dataclass

from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingPlan, ShardingType

SAME_STEP = 0.01
"""Share by which expected steps must differ to count as different: no model here is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """An assumption, and how far it must be off for the rival to be faster by the models."""

    assumption: str
    """One of ``ASSUMPTIONS``."""
    factor: float
    """Factor by which the assumed quantity would have to be multiplied."""
    probability: float
    """Probability that it is off so far."""
    value: Seconds | None
    """Seconds that a host operation takes on the CPU as assumed; None for other assumptions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """The plan that a chosen one is weighed against: TorchRec's, or a simple one if that is faster.

    It is made by rule, not found (``planning``), so that two searches are weighed against
    the same one.
    """

    sharder: str
    types: str
    """Its sharding types, as ``kinds_text``."""
    plan: ShardingPlan
    longer: float
    """Share by which its expected step is longer than the chosen plan's."""
    probability_slower: float
    """Probability that the chosen plan is the faster one."""
    turn: Turn | None
    """The assumption that would soonest make it the faster one by the models; None: none alone."""

    @property
    def is_as_good(self) -> bool:
        """Whether the models cannot tell its expected step from the chosen plan's."""
        return self.longer <= SAME_STEP


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrowBlocks:
    """Tables that are cut into blocks of few columns, and how much that gains."""

    tables: tuple[str, ...]
    longer: float | None
    """Share by which the predicted step is longer with blocks twice as wide; None: such blocks are
    not allowed or do not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutSmall:
    """Small tables that are cut, and how much that gains."""

    tables: tuple[str, ...]
    longer: float | None
    """Share by which the step is longer by the models with all of them whole, or all tables, if
    that is shorter; None: that is not allowed, or does not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fuller:
    """A plan that leaves less of a rank's memory free than asked, and the best one that does."""

    is_chosen: bool
    """Whether it is the chosen plan: the other one then is surely slower, or there is none."""
    of_group: bool = False
    """Whether other plans were looked for in groups of the chosen size alone."""
    longer: float | None = None
    """Share by which the other one's expected step is longer; None: none was found."""
    probability_slower: float | None = None
    """Probability that the other one is slower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanVerdict:
    """What the choice of a plan rests on."""

    rival: Rival | None
    """None: there was no time to weigh one, or it was not asked for."""
    host_time: Seconds
    """Seconds of the critical path in which the host launches."""
    free_batch: int | None
    """Largest local batch with which the step is hardly longer; None: none larger than asked
    for."""
    narrow: NarrowBlocks | None = None
    """None: there are none."""
    small: CutSmall | None = None
    """None: all small tables are whole."""
    fuller: Fuller | None = None
    """None: every rank has as much memory free as was asked for, and less would gain nothing."""


def kinds_text(plan: ShardingPlan) -> str:
    """Return a plan's sharding types, those of most tables first: ``24 table_wise, 2 row_wise``."""
    counts = Counter(sharding.sharding_type for sharding in plan.tables)
    order = sorted(counts, key=lambda kind: (-counts[kind], list(ShardingType).index(kind)))
    return ", ".join(f"{counts[kind]} {kind}" for kind in order)
