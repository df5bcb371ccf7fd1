"""Running sharders: in this process or several, together or apart."""

from collections.abc import Sequence

from planner.search.in_turn import run_in_turn, until_interrupted
from planner.search.search import Attempt, Search
from sharders.problem.room import check_room
from sharders.problem.sharding_problem import ShardingProblem


def run_sharders(
    names: Sequence[str], problem: ShardingProblem, search: Search
) -> tuple[Attempt, ...]:
    """Return what each sharder finds, run one after the other within one time limit.

    Sharders run until one has a plan, even if the time is over. The first Ctrl-C ends the search as
    soon as there is a plan, and the best plan so far is returned. A second Ctrl-C raises
    ``KeyboardInterrupt`` only if no sharder has returned a plan. With ``search.jobs`` above 1,
    several processes search (``planner.search.parallel``).

    Raises
    ------
    PlannerError
        What the first sharder raised, if none finds a plan.

    """
    if search.jobs == 1:
        return run_in_turn(names, problem, search)
    from planner.search.parallel import run_in_parallel

    check_room(problem.groundwork)
    with until_interrupted(search) as heeding:
        return run_in_parallel(names, problem, heeding)
