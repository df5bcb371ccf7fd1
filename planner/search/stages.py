"""How a command's time limit is divided: the search, and what follows it within the limit.

The limit is wall time from when the command began (``Search.began``), reading files included. What
follows the search is known only roughly before: a share of the time is kept for it, and each part
of it looks at the clock itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from math import inf

from costmodel.base.units import Seconds
from costmodel.bounds.lower_bound import improving_bounds
from costmodel.step.synthesis import MOST_WRITTEN
from planner.search.search import Attempt, Search, first_plan_time
from sharders.problem.sharding_problem import Progress, ShardingProblem

REPORT_SHARE = 0.25
"""Share of the time left when the search begins that is kept for what follows it. 2,000 tables on
256 GPUs take 5 s for these."""
LATE_SHARE, LATE_TIME = 0.1, 1.0
"""A command may take longer than its limit by this share of it, and so many seconds."""
LEAST_TIME: Seconds = 0.2
"""What a stage may take of what the limit leaves: one round of the bound at 3 tables and 64 GPUs
takes 0.1 s."""
PASSES = 6.0
"""What follows the search takes at least, in times of its first plan: the simplest plan 1.3,
samples of the chosen one's step 2.3, its report 1.7, the file and the screen 0.9 at 5,000 tables on
1,024 GPUs, and 0.9, 1.4, 1.2, 0.7 at 2,000 on 256. To write the problem as arrays and to make and
time that plan is the one piece of work of the workload's size that every search has done before, on
this machine, beside whatever keeps it busy."""
REPORT_PASSES = 1.7
"""The report's part of it: that, alone of them, is of all batches of a step, where gradients are
accumulated over more than a search writes."""
OPTION_TIME: Seconds = 5e-4
"""What the first bound takes for each option of a table: 0.16 s for the 260 of 26 tables on
8 GPUs."""
BATCH_TIME: Seconds = 0.07
"""What it takes at least for each batch of a step beside the first, all of which it writes and
orders, however few options there are: 0.6 s for the 10 of 2 tables on 4 GPUs."""
EARLY_SHARE = 0.05
"""The first bound comes before the search where what it takes by these two is no more than this
share of the time left."""
MOST_EARLY = 0.3
"""Share of it at which it ends all the same: 26 tables on 8 GPUs take five times as long as said
above where nothing is loaded yet."""
NUM_EARLY = 2
"""Bounds taken before the search: the step without embeddings, and the first with them."""
COUNTED_BOUNDS = 12
"""Bounds taken where plans are counted, and nothing looks at the clock: at 400 tables on 64 GPUs 62
take 56 CPU seconds and say no more."""
CLOSE = 1e-4
"""A bound is as good as it can be where it is within this share of the best plan's step."""


def may_take(limit: Seconds) -> Seconds:
    """Return how long a command of a limit may take."""
    return limit * (1 + LATE_SHARE) + LATE_TIME


@dataclass(frozen=True, slots=True)
class _Share:
    """What a stage that follows the search may take, the less of both."""

    of_taken: float
    """Share of the time taken until then: where the search soon ends, nobody waits for the rest."""
    of_left: float
    """Share of what the limit leaves."""
    least: Seconds = 0.0
    """Not less of the time taken, as long as the limit leaves it."""
    passes_after: float = 0.5
    """What the stages after it take at least, as ``PASSES``."""
    passes: float = 0.0
    """What it takes itself at least, if it is not left out."""


class PlanningStage(Enum):
    """What follows the search, with its name on the progress line."""

    BASELINE = "baseline"
    CHOICE = "choice among the best"
    BOUND = "bound"
    REPORT = "report"


_SHARES = {
    PlanningStage.BASELINE: _Share(0.1, 0.3, passes_after=PASSES),
    PlanningStage.CHOICE: _Share(0.3, 0.5, least=0.5, passes_after=2.6, passes=3.6),
    PlanningStage.BOUND: _Share(0.15, 0.7, least=1.0, passes_after=2.6),
    PlanningStage.REPORT: _Share(1.0, 1.0),
}


class Stages:
    """The stages of planning by one clock, and the bound, which two of them work on."""

    def __init__(self, problem: ShardingProblem, search: Search) -> None:
        began = search.clock() if search.began is None else search.began
        self._problem, self._search = problem, search
        self._began, self._deadline = began, began + search.seconds
        self._end = inf
        self._pass_time = 0.0
        batches = problem.workload.gradient_accumulation_steps
        self._more_passes = REPORT_PASSES * (max(1.0, batches / MOST_WRITTEN) - 1.0)
        self._best = inf
        self._bound = 0.0
        self._num_bounds = 0
        self._bounds = improving_bounds(problem.workload, problem.topology, self.time_left)

    def searching(self) -> Search:
        """Return how to search: for how long, and down to which step."""
        search, now = self._search, self._search.clock()
        left = self._deadline - now
        if left * EARLY_SHARE >= self._early_time:
            self._end = now + MOST_EARLY * left
            for bound in islice(self._bounds, NUM_EARLY):
                self._improve(bound)
        left = max(0.0, self._deadline - search.clock())
        limit = search.time_limit if left == inf else (1 - REPORT_SHARE) * left
        enough = self._bound * (1 + search.gap)
        return replace(search, time_limit=limit, enough=enough, deadline=self._search_end)

    @property
    def _early_time(self) -> Seconds:
        """What the first bound takes at least."""
        batches = self._problem.workload.gradient_accumulation_steps
        return OPTION_TIME * self._problem.num_options * batches + BATCH_TIME * (batches - 1)

    def _search_end(self, first_plan: Seconds) -> Seconds:
        """Return when the search has to end, given what its first plan took."""
        return self._deadline - (PASSES + self._more_passes) * first_plan

    def begin(self, stage: PlanningStage, attempts: Sequence[Attempt]) -> None:
        """Let a stage that follows the search have its time, and say that it begins."""
        now, share = self._search.clock(), _SHARES[stage]
        left = self._deadline - now
        taken = max(share.least, share.of_taken * (now - self._began))
        self._pass_time = first_plan_time(attempts)
        after = (share.passes_after + self._more_passes) * self._pass_time
        allowed = max(LEAST_TIME, min(taken, share.of_left * left))
        self._end = inf if left == inf else now + min(allowed, left - after)
        found = [attempt.step_time for attempt in attempts if attempt.plan is not None]
        self._best = min(found)
        evaluated = sum(attempt.evaluated for attempt in attempts)
        self._search.watch(stage.value, Progress(evaluated=evaluated, best=self._best))

    def fits(self, stage: PlanningStage) -> bool:
        """Return whether a stage, and those after it, would end as soon as a command has to."""
        limit, share = self._deadline - self._began, _SHARES[stage]
        passes = share.passes + share.passes_after + self._more_passes
        needed = passes * self._pass_time
        return self._search.clock() + needed <= self._began + may_take(limit)

    def time_left(self, passes: float = 0.0) -> Seconds:
        """Return what the stage has left, after something that takes so many ``PASSES``."""
        if self._search.interrupted():
            return 0.0
        return self._end - self._search.clock() - passes * self._pass_time

    def bound(self) -> Seconds:
        """Return what no plan undercuts, as far as the stage's time allows and it matters."""
        counted = self._search.max_plans is not None
        for bound in islice(self._bounds, COUNTED_BOUNDS if counted else None):
            self._improve(bound)
            if self.time_left() <= 0 or self._bound >= self._best * (1 - CLOSE):
                break
        return self._bound

    @property
    def is_bare(self) -> bool:
        """Whether time was for one bound only: that of the step without any embedding work."""
        return self._num_bounds <= 1

    def _improve(self, bound: Seconds) -> None:
        self._num_bounds += 1
        self._bound = max(self._bound, bound)
