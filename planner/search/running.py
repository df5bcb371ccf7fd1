"""Running sharders: in this process or several, together or apart."""

from collections.abc import Sequence

from planner.search.in_turn import run_in_turn, until_interrupted
from planner.search.search import Attempt, Search
from sharders.problem.room import check_room
from sharders.problem.sharding_problem import ShardingProblem


def run_sharders(
    names: Sequence[str], problem: ShardingProblem, search: Search
) -> tuple[Attempt, ...]:
    """Run sharders one after the other; the time limit is for all of them together.

    Whether or not time is left, the first one that finds a plan is heard. The first Ctrl-C ends the
    search as soon as there is a plan, and the best one so far is the answer; a second one
    (``KeyboardInterrupt``) is raised only if no sharder has returned a plan. With ``search.jobs``
    all of this happens in so many processes (``planner.search.parallel``).

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
