"""How to search (``Search``), and what one sharder found (``Attempt``)."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Any

from costmodel.base.errors import PlannerError
from costmodel.base.field_values import make_plain
from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingPlan
from planner.search.plugins import AUTO
from sharders import PORTFOLIO
from sharders.problem.sharding_problem import Progress, Proof, SearchStatus

PATIENCE = 3.0
"""A search ends once it goes on without a gain for so many times as long as all gains took."""


class SearchEnd(StrEnum):
    """Why a search ended."""

    BOUND = "near the bound"
    """A step within ``Search.gap`` of the bound was found, or one as short as was asked for."""
    QUIET = "no more gained"
    """Nothing was gained for as long as ``Search.patience`` says."""
    LIMIT = "limit"
    """The time or the number of plans was spent."""
    INTERRUPTED = "interrupted"
    """The user or a signal ended it."""
    CONVERGED = "nothing left to try"


CUT_SHORT = (SearchEnd.LIMIT, SearchEnd.INTERRUPTED)
"""Ends of searches that would have gone on."""
STOPPED = "stopped"
"""Status of a plan whose search ended before its limit with more to try."""


Watch = Callable[[str, Progress], None]
"""Called with a sharder's name and its progress."""


def _never() -> bool:
    return False


def _without_end(first_plan: Seconds) -> Seconds:
    del first_plan
    return inf


def _unwatched(sharder: str, progress: Progress) -> None:
    del sharder, progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How to search: how long, from which seed, and whom to tell of progress."""

    seed: int = 0
    time_limit: Seconds = 10.0
    max_plans: int | None = None
    """Number of plans to look at, instead of a time limit: the same seed then gives the same plan
    on a machine, whatever its load."""
    interrupted: Callable[[], bool] = _never
    """Called now and then; once it returns true, the best plan so far is the answer."""
    watch: Watch = _unwatched
    clock: Callable[[], Seconds] = time.monotonic
    """Returns the seconds by which the time limit is measured; benches use CPU time. Unless given,
    progress is measured by processor time (``work``)."""
    deadline: Callable[[Seconds], Seconds] = _without_end
    """Returns the time of the clock at which to end, whatever the time limit, given the seconds
    that the first plan took: they tell how long later stages take on this machine, now."""
    began: Seconds | None = None
    """Time of the clock when the command began, from which the limit counts; None: now."""
    gap: float = 0.01
    """The search ends once the step is above the bound by no more than this share."""
    headroom: float = 0.1
    """Share of its memory for tables that every rank keeps free if a plan leaves so much and no
    fuller one is surely faster (``planner.search.headroom``)."""
    enough: Seconds = 0.0
    """The search ends once the step is no longer than these seconds."""
    patience: float = PATIENCE
    """The search ends when nothing was gained in so many times the work of all gains, plus
    ``Gains.least_quiet``; ``inf``: never before its time is up."""
    known_took: Seconds = 0.0
    """Work after which searches before this one had found the problem's known plans: this one has
    to come as far before it can gain."""
    jobs: int = 1
    """Number of processes of this machine that search at once, each from a seed of its own."""
    storage: str | None = None
    """URL of an Optuna storage: searches that name the same one, on any machine, share a study."""

    def __post_init__(self) -> None:
        make_plain(self)
        if self.jobs < 1:
            raise ValueError(f"jobs must be at least 1, got {self.jobs}")
        if self.max_plans is not None and self.max_plans < 1:
            raise ValueError(f"max_plans must be at least 1, got {self.max_plans}")
        if not self.time_limit >= 0:  # nor not a number
            raise ValueError(f"time_limit must be 0 or more seconds, got {self.time_limit}")
        if not 0 <= self.gap <= 1:
            raise ValueError(f"gap must be a share of 0 to 1, got {self.gap}")
        if not 0 <= self.headroom < 1:
            raise ValueError(f"headroom must be a share of 0 to below 1, got {self.headroom}")

    def work(self) -> Seconds:
        """Return the seconds by which progress is measured: on a busy machine fewer pass."""
        return time.process_time() if self.clock is time.monotonic else self.clock()

    @property
    def seconds(self) -> Seconds:
        """Seconds that sharders may take; infinite where plans are counted instead."""
        return self.time_limit if self.max_plans is None else inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The plan that one sharder found, or the error why it found none."""

    sharder: str
    plan: ShardingPlan | None
    step_time: Seconds = float("inf")
    """By our objective, even if the sharder minimised another."""
    status: SearchStatus = SearchStatus.CONVERGED
    bound: Seconds | None = None
    evaluated: int = 0
    time: Seconds = 0.0
    error: PlannerError | None = None
    proof: Proof | None = None
    """What a sharder that minimises another objective proved of it."""
    others: tuple[ShardingPlan, ...] = ()
    """Slower plans that later sharders may start from."""
    first_plan: Seconds = 0.0
    """Seconds that the first plan of the search took, whichever sharder made it; 0: none was made
    yet."""
    gained_for: Seconds = 0.0
    """Work until the last gain, by this sharder or one before it, known plans included."""
    early: SearchEnd | None = None
    """Why no further sharder was run although there was time."""

    @property
    def found(self) -> ShardingPlan:
        """The plan; only of an attempt that has one."""
        if self.plan is None:
            raise ValueError(f"sharder `{self.sharder}` found no plan")
        return self.plan

    @property
    def plans(self) -> tuple[ShardingPlan, ...]:
        """All plans found, the best one first."""
        return (*(() if self.plan is None else (self.plan,)), *self.others)


def fastest(attempts: Iterable[Attempt]) -> Attempt:
    """Return the attempt with the shortest step by the models, the first of several."""
    return min(attempts, key=lambda each: each.step_time)


def several(given: Any) -> tuple[Any, ...]:  # noqa: ANN401 - of anything
    """Return the values given as a tuple, also if a single text, path or number was given."""
    if isinstance(given, Iterable) and not isinstance(given, str):
        return tuple(given)
    return (given,)


def sharders_for(name: str) -> tuple[str, ...]:
    """Return the names of the sharders that a requested name stands for."""
    return PORTFOLIO if name == AUTO else (name,)


def first_plan_time(attempts: Sequence[Attempt]) -> Seconds:
    """Return the seconds that the first plan of a search took, as its last attempts know."""
    return max(each.first_plan for each in attempts)


def search_end(names: Sequence[str], attempts: Sequence[Attempt]) -> SearchEnd:
    """Return why a search with the sharders ``names``, which found ``attempts``, ended."""
    last = attempts[-1]
    if last.early is not None:
        return last.early
    cut = last.status is SearchStatus.LIMIT or len(attempts) < len(names)
    return SearchEnd.LIMIT if cut else SearchEnd.CONVERGED


def plan_status(found: SearchStatus, end: SearchEnd) -> str:
    """Return what is known of a plan, in agreement with why the search with all sharders ended.

    Parameters
    ----------
    found
        What the sharder said that made the plan: that it proved it, or was given it, stands.
    end
        Why the search ended.

    """
    if found in {SearchStatus.OPTIMAL, SearchStatus.GIVEN}:
        return found.value
    own = {SearchEnd.CONVERGED: SearchStatus.CONVERGED, SearchEnd.LIMIT: SearchStatus.LIMIT}
    return own[end].value if end in own else STOPPED
