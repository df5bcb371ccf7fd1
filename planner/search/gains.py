"""When a search has gained nothing for so long that it ends."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf

from costmodel.base.units import Seconds
from planner.search.search import Attempt, Search, SearchEnd
from sharders.problem.sharding_problem import Progress

LEAST_QUIET: Seconds = 0.5
QUIET_SHARE = 0.1
"""Share of the time limit that the quiet lasts at least: who gives more time waits longer.

Of 216 runs of ten CPU seconds on 36 drawn problems, those that end so, with ``PATIENCE``, take 3.2
seconds in the mean, and their steps are 0.07% longer than after ten (0.3% in the 90th percentile,
1.4% at worst); with a third of the patience and half of the quiet 1.6 seconds, and 0.21, 0.8 and
4.8%."""
QUIET_PASSES = 5.0
"""Times of the first plan that the quiet lasts at least: beside other processes half a second is
little work. On 300 tables and 128 GPUs, with a third of a core, a search ended after a quarter of
its time 14% above the step that it finds with a core of its own."""
FEW_OPTIONS = 1_000
"""Options of all tables together, up to which the quiet is that of a small problem."""
SMALL_QUIET_SHARE, SMALL_QUIET_PASSES = 0.03, 15.0
"""The same two of a small problem, whose first plan takes a fiftieth of a second and is hardly
improved on later. Of 40 drawn problems of 12, 26 and 40 tables on 2 to 8 GPUs, the steps found so
are 0.006% longer than those after five CPU seconds (0.13% at worst), and the searches take 0.75
seconds in the mean; with the quiet of others 0.003% (0.08%), and 1.43 seconds."""
WORTH_WAITING = 1e-3
"""Share of the step time that counts as a gain."""


@dataclass(slots=True)
class Gains:
    """When the best plan of all sharders last became better: whether to go on searching."""

    search: Search
    is_small: bool = False
    """Whether the problem has few options."""
    best: Seconds = inf
    start: Seconds = field(init=False)
    """What the time limit counts from."""
    began: Seconds = field(init=False)
    """When there was all that it takes to search."""
    last: Seconds = field(init=False)
    """When the last gain was, or the sharder that searches now had its first plan."""
    first_plan: Seconds = field(default=0.0, init=False)
    """What the first plan took, made and timed; 0: there is none yet."""
    sharder: str = field(default="", init=False)
    quiet: bool = field(default=False, init=False)
    """Whether nothing was gained for too long."""

    def __post_init__(self) -> None:
        self.start = self.last = self.began = self.search.clock()

    def begin(self) -> None:
        """Count from now on what is waited by: what was loaded before is no search."""
        self.last = self.began = self.search.clock()

    def watch(self, sharder: str, progress: Progress) -> None:
        """Note a sharder's progress, and tell of the best plan of all: each counts from its own."""
        self.first_plan = self.first_plan or self.search.clock() - self.began
        if sharder != self.sharder or progress.best < self.best * (1 - WORTH_WAITING):
            self.sharder, self.last = sharder, self.search.clock()
        self.best = min(self.best, progress.best)
        self.search.watch(sharder, replace(progress, best=self.best))

    def end(self, attempt: Attempt) -> None:
        """Note what a sharder has found, as not all tell of it on the way."""
        if attempt.plan is not None:
            self.first_plan = self.first_plan or attempt.time

    def deadline(self) -> Seconds:
        """Return when the search has to end: the sooner, the longer the first plan took."""
        return min(self.start + self.search.seconds, self.search.deadline(self.first_plan))

    @property
    def least_quiet(self) -> Seconds:
        """How long nothing is gained, at least, before the search ends."""
        limit = self.search.time_limit
        limit = limit if limit < inf else 0.0
        if self.is_small:
            return max(SMALL_QUIET_SHARE * limit, SMALL_QUIET_PASSES * self.first_plan)
        return max(LEAST_QUIET, QUIET_SHARE * limit, QUIET_PASSES * self.first_plan)

    def over(self, sharder: str | None = None) -> bool:
        """Return whether not to go on, as it is not worth it or too late.

        A sharder that has told of no plan may go on until it has.
        """
        if self.best <= self.search.enough:
            return True
        counted = self.search.max_plans is not None
        if sharder == self.sharder and not self.quiet and not counted:
            now = self.search.clock()
            patience = self.search.patience * (self.last - self.began) + self.least_quiet
            self.quiet = now - self.last > patience
            if now > self.deadline():
                return True
        return self.quiet

    @property
    def early(self) -> SearchEnd | None:
        """Why it is not worth going on; None: it is."""
        if self.best <= self.search.enough:
            return SearchEnd.BOUND
        return SearchEnd.QUIET if self.quiet else None

    def end_of(self, sharder: str) -> Callable[[], bool]:
        """Return what a sharder asks to know whether to end: interrupted, or not worth going on."""
        return lambda: self.search.interrupted() or self.over(sharder)
