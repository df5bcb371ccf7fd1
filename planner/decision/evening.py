"""Evening out memory by a search whose ranks have little more of it than an even plan needs.

Descents (``planner.decision.robust``) change a table or two at a time, and end where evener memory
needs more: several tables of the fullest rank against several others of as many lookups.
"""

from dataclasses import replace

from costmodel.base.units import Bytes
from costmodel.domain.plan import ShardingPlan
from costmodel.memory.rank_memory import memory_per_rank, rank_rooms
from planner.decision.robust import MOVES
from planner.search.headroom import with_less_hbm
from sharders.annealing.plan_editor import PlanEditor
from sharders.annealing.schedule import COLD, HEAT
from sharders.problem.groundwork import Groundwork
from sharders.problem.options import option_of
from sharders.problem.sharding_problem import ShardingProblem

ROOM = 1.1
"""Bytes that a rank may hold, over the mean of all."""
BESIDE = 1.05
"""Bytes that it may hold at least, over the largest shard: small tables go beside it."""


def evened(problem: ShardingProblem, plan: ShardingPlan) -> ShardingPlan:
    """Return the best plan of a short annealing run with little room, or the plan if it fits there.

    The plan that is returned fits the problem, but may take longer, or fill a rank further.
    """
    workload, rooms = problem.workload, rank_rooms(problem.workload, problem.topology)
    held = [each.tables for each in memory_per_rank(workload, problem.topology, plan)]
    most = max(ROOM * sum(held) / len(held), BESIDE * _largest_shard(problem, plan))
    if max(held) <= most:
        return plan
    less = with_less_hbm(problem.topology, [max(0.0, room - most) for room in rooms])
    editor = PlanEditor(
        replace(problem, groundwork=Groundwork(workload, less, one_block=True), known=())
    )
    editor.start(plan)
    tables = len(workload.tables)
    return editor.annealed(MOVES * tables, HEAT / tables, COLD)


def _largest_shard(problem: ShardingProblem, plan: ShardingPlan) -> Bytes:
    """Return the bytes of the largest shard of a plan."""
    tables = [(problem.workload.table(each.table), each) for each in plan.tables]
    options = [(table, option_of(sharding, table)) for table, sharding in tables]
    return max(
        float(held.total)
        for table, option in options
        for held in problem.groundwork.option_bytes(table, option)
    )
