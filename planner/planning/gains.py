"""When a search has gained nothing for so long that it ends."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf

from costmodel.base.units import Seconds
from planner.planning.search import Search, SearchEnd
from sharders.problem.sharding_problem import Progress

LEAST_QUIET: Seconds = 0.5
"""With these 26 tables on 8 GPUs end after 2 to 3 CPU seconds of 10 with the plan they would end
with (three seeds), 100 on 8 after 5 within 0.4%, 400 on 16 after 8 to 10 within 0.1%; half the
patience loses 2% there."""
QUIET_PASSES = 5.0
"""Times of the first plan that the quiet lasts at least: beside other processes half a second is
little work. On 300 tables and 128 GPUs, with a third of a core, a search ended after a quarter of
its time 14% above the step that it finds with a core of its own."""
WORTH_WAITING = 1e-3
"""Share of the step time that counts as a gain."""


@dataclass(slots=True)
class Gains:
    """When the best plan of all sharders last became better: whether to go on searching."""

    search: Search
    best: Seconds = inf
    start: Seconds = field(init=False)
    last: Seconds = field(init=False)
    """When the last gain was, or the sharder that searches now had its first plan."""
    least_quiet: Seconds = field(default=LEAST_QUIET, init=False)
    sharder: str = field(default="", init=False)
    quiet: bool = field(default=False, init=False)
    """Whether nothing was gained for too long."""

    def __post_init__(self) -> None:
        self.start = self.last = self.search.clock()

    def watch(self, sharder: str, progress: Progress) -> None:
        """Note a sharder's progress, and tell of the best plan of all: each counts from its own."""
        if sharder != self.sharder or progress.best < self.best * (1 - WORTH_WAITING):
            self.sharder, self.last = sharder, self.search.clock()
        self.best = min(self.best, progress.best)
        self.search.watch(sharder, replace(progress, best=self.best))

    def over(self, sharder: str | None = None) -> bool:
        """Return whether it is not worth going on; a sharder without a plan may always go on."""
        if self.best <= self.search.enough:
            return True
        counted = self.search.max_plans is not None
        if sharder == self.sharder and not self.quiet and not counted:
            patience = self.search.patience * (self.last - self.start) + self.least_quiet
            self.quiet = self.search.clock() - self.last > patience
        return self.quiet

    @property
    def early(self) -> SearchEnd | None:
        """Why it is not worth going on; None: it is."""
        if self.best <= self.search.enough:
            return SearchEnd.BOUND
        return SearchEnd.QUIET if self.quiet else None

    def end_of(self, sharder: str) -> Callable[[], bool]:
        """Return what a sharder asks to know whether to end: interrupted, or nothing gained."""
        return lambda: self.search.interrupted() or self.over(sharder)
