"""Dividing a command's time limit between the search and the stages after it.

The limit is wall time from when the command began (``Search.began``), reading files included. A
share of the time is kept for the stages after the search, and each of them looks at the clock
itself.
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
"""Share of the time left when the search begins that is kept for the stages after it."""
LATE_SHARE, LATE_TIME = 0.1, 1.0
"""A command may take longer than its limit by this share of it plus these seconds."""
LEAST_TIME: Seconds = 0.2
"""Seconds that each stage after the search may take at least, if the limit leaves them."""
PASSES = 7.0
"""Time that the stages after the search take at least, as a multiple of the time of the first plan:
the only work of the workload's size that was measured on this machine before."""
REPORT_PASSES = 1.7
"""Part of ``PASSES`` that the report takes. It is counted once more for batches of accumulated
gradients that the search did not write."""
OPTION_TIME: Seconds = 1e-4
"""Seconds that the first bound takes for each option of a table: 5,000 tables on 64 GPUs have
72,429, and it takes 7 CPU seconds."""
BATCH_TIME: Seconds = 0.07
"""Seconds that the first bound takes at least for each batch of a step after the first."""
EARLY_SHARE = 0.15
"""The first bound is computed before the search if that takes at most this share of the command's
time, or half of what is left of it after choosing a group size, by ``OPTION_TIME`` and
``BATCH_TIME``, and ends there: after a search that took what there was, 5,000 tables on 1,024 GPUs
had no bound but the step without embeddings."""
NUM_EARLY = 2
"""Number of bounds computed before the search: the step without embeddings, and the first with
them."""
COUNTED_BOUNDS = 12
"""Number of bounds computed where plans are counted and no clock ends them."""
CLOSE = 1e-4
"""A bound within this share of the best plan's step is not improved any more."""


def may_take(limit: Seconds) -> Seconds:
    """Return the seconds that a command with a time limit may take."""
    return limit * (1 + LATE_SHARE) + LATE_TIME


@dataclass(frozen=True, slots=True)
class _Share:
    """How long a stage after the search may take: the smaller of two shares of time."""

    of_taken: float
    """Share of the time taken so far: after a short search nobody waits long."""
    of_left: float
    """Share of the time that the limit leaves."""
    least: Seconds = 0.0
    """Smallest number of seconds for the first of these shares."""
    passes_after: float = 0.5
    """Time that later stages take at least, in times of the first plan (``PASSES``)."""
    passes: float = 0.0
    """Time that the stage itself takes at least, in the same unit; with less it is left out."""


class PlanningStage(Enum):
    """A stage after the search, by its name on the progress line."""

    BASELINE = "baseline"
    CHOICE = "choice among the best"
    BOUND = "bound"
    REPORT = "report"


_SHARES = {
    PlanningStage.BASELINE: _Share(0.1, 0.3, passes_after=PASSES),
    PlanningStage.CHOICE: _Share(0.6, 0.7, least=2.0, passes_after=2.6, passes=4.6),
    PlanningStage.BOUND: _Share(0.15, 0.7, least=1.0, passes_after=2.6),
    PlanningStage.REPORT: _Share(1.0, 1.0, passes=2.0),
}


class Stages:
    """The stages of planning, by one clock, and the bound that two of them improve."""

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
        """Return how to search: until when, and down to which step."""
        search, now = self._search, self._search.clock()
        left = self._deadline - now
        early = min(EARLY_SHARE * (self._deadline - self._began), left / 2)
        if early >= self._early_time:
            self._end = now + early
            for bound in islice(self._bounds, NUM_EARLY):
                self._improve(bound)
        left = max(0.0, self._deadline - search.clock())
        limit = search.time_limit if left == inf else (1 - REPORT_SHARE) * left
        enough = self._bound * (1 + search.gap)
        return replace(search, time_limit=limit, enough=enough, deadline=self._search_end)

    @property
    def _early_time(self) -> Seconds:
        """Seconds that the first bound takes at least."""
        batches = self._problem.workload.gradient_accumulation_steps
        return OPTION_TIME * self._problem.num_options * batches + BATCH_TIME * (batches - 1)

    def _search_end(self, first_plan: Seconds) -> Seconds:
        """Return the time of the clock when the search ends, from its first plan's seconds."""
        return self._deadline - (PASSES + self._more_passes) * first_plan

    def begin(self, stage: PlanningStage, attempts: Sequence[Attempt]) -> None:
        """Begin a stage after the search: give it its time, and show its name."""
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
        """Return whether a stage and those after it would end before the command has to."""
        limit, share = self._deadline - self._began, _SHARES[stage]
        passes = share.passes + share.passes_after + self._more_passes
        needed = passes * self._pass_time
        return self._search.clock() + needed <= self._began + may_take(limit)

    def time_left(self, passes: float = 0.0) -> Seconds:
        """Return the seconds that the stage has left, less ``passes`` times the first plan's."""
        if self._search.interrupted():
            return 0.0
        return self._end - self._search.clock() - passes * self._pass_time

    def bound(self) -> Seconds:
        """Return a lower bound of all plans' steps, in seconds, as high as time allows."""
        counted = self._search.max_plans is not None
        for bound in islice(self._bounds, COUNTED_BOUNDS if counted else None):
            self._improve(bound)
            if self.time_left() <= 0 or self._bound >= self._best * (1 - CLOSE):
                break
        return self._bound

    @property
    def is_bare(self) -> bool:
        """Whether there is no other bound than the step without any embedding work."""
        return self._num_bounds <= 1

    def _improve(self, bound: Seconds) -> None:
        self._num_bounds += 1
        self._bound = max(self._bound, bound)
