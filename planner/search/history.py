"""When a search found better plans: the curve of a page, and part of the plan file."""

from dataclasses import dataclass, field, replace

from costmodel.base.modelled import Modelled
from costmodel.base.units import Seconds
from planner.planned.report import SearchPoint
from planner.search.gains import WORTH_WAITING
from planner.search.search import Search
from sharders.problem.sharding_problem import Progress


@dataclass(slots=True)
class SearchHistory:
    """Keeps every gain of a search that counts, and passes progress on to the search's watcher."""

    search: Search
    start: Seconds
    """Time of the search's clock when the command began."""
    points: list[SearchPoint] = field(default_factory=list)

    @classmethod
    def of(cls, search: Search) -> "SearchHistory":
        """Begin a history with a search."""
        return cls(search, search.clock() if search.began is None else search.began)

    def ended(self) -> tuple[SearchPoint, ...]:
        """Return all gains, and a last point for the end of the search."""
        if not self.points:
            return ()
        now = self.search.clock() - self.start
        return (*self.points, replace(self.points[-1], time=now))

    def watch(self, sharder: str, progress: Progress) -> None:
        """Note a sharder's progress if its step is shorter by ``WORTH_WAITING``."""
        best = self.points[-1].modelled.seconds if self.points else float("inf")
        if progress.best < best * (1 - WORTH_WAITING):
            at = self.search.clock() - self.start
            step = Modelled(progress.best)
            self.points.append(SearchPoint(time=at, modelled=step, sharder=sharder))
        self.search.watch(sharder, progress)
