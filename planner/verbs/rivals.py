"""Rivals of a plan made earlier, searched for again, and the assumption that would turn it."""

from dataclasses import replace
from typing import TYPE_CHECKING

from costmodel.base.errors import PlannerError
from costmodel.uncertainty.step_samples import sample_steps
from planner.decision.choice import SIMPLEST, placed
from planner.decision.judging import deciding
from planner.planned.verdict import Turn, kinds_text
from planner.search.plugins import AUTO
from planner.search.running import run_sharders
from planner.search.search import Search, sharders_for
from sharders.problem.sharding_problem import ShardingProblem

if TYPE_CHECKING:
    from costmodel.domain.plan import ShardingPlan
    from planner.planned.planned import Planned

SHARE = 0.1
"""Share of an explanation's time for the search for rivals; comparing them takes up to half of
it."""
MOST_RIVALS = 6
"""Number of plans with other sharding types that are timed under the models' errors."""


def turn_of(planned: "Planned", search: Search) -> Turn | None:
    """Return the assumption that decides between a plan and its rivals; None: none does.

    A plan file keeps no rivals, so that plans with other sharding types are searched for.
    """
    workload, topology = planned.workload, planned.topology
    own = replace(search, time_limit=SHARE * search.time_limit, began=None)
    problem = ShardingProblem.of(workload, topology)
    try:
        attempts = run_sharders(sharders_for(AUTO), problem, own)
    except PlannerError:
        return None
    attempts = (*attempts, *placed(problem, SIMPLEST))
    found = [found for attempt in attempts for found in attempt.plans]
    found.sort(key=problem.objective.step_time)
    others: dict[str, ShardingPlan] = {kinds_text(planned.plan): planned.plan}
    for each in found:
        others.setdefault(kinds_text(each), each)
    plans = list(others.values())[: 1 + MOST_RIVALS]
    samples = sample_steps(workload, topology, plans)
    end = search.clock() + own.time_limit / 2
    means = [samples.mean(number) for number in range(len(plans))]
    turn, _ = deciding(problem, plans, means, lambda: end - search.clock())
    return turn
