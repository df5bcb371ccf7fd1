"""Ending a search that has gained nothing for a while."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf

from costmodel.base.units import Seconds
from planner.environment.compiled import SLOWDOWN, interpreted_modules
from planner.search.search import Attempt, Search, SearchEnd
from sharders.problem.sharding_problem import Progress, ShardingProblem

LEAST_QUIET: Seconds = 0.5
QUIET_SHARE = 0.2
"""Smallest share of the time limit for which nothing is gained before a search ends. Of DCNv2 on
256 GPUs, three seconds pass between plans of 17.0 ms, found at once, and of 14.5."""
QUIET_PASSES = 5.0
"""The same, as a multiple of the time the first plan took: on a busy machine seconds alone say
little."""
FEW_OPTIONS = 1_000
FEW_RANKS = 32
"""A problem with at most so many options of all tables, on at most so many ranks, is small, and
ends after a shorter quiet."""
SMALL_QUIET_SHARE, SMALL_QUIET_PASSES = 0.03, 15.0
"""``QUIET_SHARE`` and ``QUIET_PASSES`` of a small problem."""
WORTH_WAITING = 1e-3
"""A plan is a gain if it shortens the step by at least this share."""


def is_small(problem: ShardingProblem) -> bool:
    """Return whether a problem has few options and ranks."""
    few = problem.num_options <= FEW_OPTIONS
    return few and problem.topology.world_size <= FEW_RANKS


@dataclass(slots=True)
class Gains:
    """The last gain of all sharders of a search, and whether to go on searching."""

    search: Search
    is_small: bool = False
    """Whether the problem has few options and ranks."""
    best: Seconds = inf
    start: Seconds = field(init=False)
    """Time of the clock from which the time limit counts."""
    began: Seconds = field(init=False)
    """Time of the clock when searching began, modules being loaded."""
    work_began: Seconds = field(init=False)
    """``Search.work`` then."""
    last: Seconds = field(init=False)
    """``Search.work`` at the last gain, or at the first plan of the sharder that searches now; at
    least when it comes as far as the known plans (``Search.known_took``)."""
    first_plan: Seconds = field(default=0.0, init=False)
    """Seconds that making and timing the first plan took; 0: there is none yet."""
    sharder: str = field(default="", init=False)
    quiet: bool = field(default=False, init=False)
    """Whether nothing was gained for too long."""

    def __post_init__(self) -> None:
        self.start = self.search.clock()
        self.begin()

    def begin(self) -> None:
        """Count the quiet from now on: loading modules is not searching."""
        self.began = self.search.clock()
        self.work_began = self.search.work()
        self.last = self.work_began + self.search.known_took

    def watch(self, sharder: str, progress: Progress) -> None:
        """Note a sharder's progress, and pass it on with the best step of all sharders."""
        self.first_plan = self.first_plan or self.search.clock() - self.began
        if sharder != self.sharder or progress.best < self.best * (1 - WORTH_WAITING):
            self.sharder, self.last = sharder, max(self.last, self.search.work())
        self.best = min(self.best, progress.best)
        self.search.watch(sharder, replace(progress, best=self.best))

    def end(self, attempt: Attempt) -> None:
        """Note what a sharder found, as some report no progress."""
        if attempt.plan is not None:
            self.first_plan = self.first_plan or attempt.time

    def deadline(self) -> Seconds:
        """Return the time of the clock when the search ends; sooner after a slow first plan."""
        return min(self.start + self.search.seconds, self.search.deadline(self.first_plan))

    @property
    def gained_for(self) -> Seconds:
        """Seconds of work until the last gain, or until the known plans are reached again."""
        return self.last - self.work_began

    @property
    def least_quiet(self) -> Seconds:
        """Seconds of work without a gain after which the search may end at the earliest."""
        limit = self.search.time_limit
        limit = limit if limit < inf else 0.0
        if self.is_small:
            quiet = max(SMALL_QUIET_SHARE * limit, SMALL_QUIET_PASSES * self.first_plan)
        else:
            quiet = max(LEAST_QUIET, QUIET_SHARE * limit, QUIET_PASSES * self.first_plan)
        return quiet * SLOWDOWN if interpreted_modules() else quiet

    def over(self, sharder: str | None = None) -> bool:
        """Return whether to end the search: the time is over or going on is not worth it.

        A sharder that has reported no plan yet goes on until it has one.
        """
        if self.best <= self.search.enough:
            return True
        counted = self.search.max_plans is not None
        if sharder == self.sharder and not self.quiet and not counted:
            if self.search.clock() > self.deadline():
                return True
            patience = self.search.patience * self.gained_for + self.least_quiet
            self.quiet = self.search.work() - self.last > patience
        return self.quiet

    @property
    def early(self) -> SearchEnd | None:
        """Why going on is not worth it; None: it is."""
        if self.best <= self.search.enough:
            return SearchEnd.BOUND
        return SearchEnd.QUIET if self.quiet else None

    def end_of(self, sharder: str) -> Callable[[], bool]:
        """Return a function that tells a sharder whether to end: interrupted, or not worth more."""
        return lambda: self.search.interrupted() or self.over(sharder)
