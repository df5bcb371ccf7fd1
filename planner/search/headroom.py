"""Searching so that every rank keeps a share of its memory free, where that costs nothing sure.

Tables grow, and what else a rank holds is estimated: a full rank is a risk. So sharders are given
less memory than there is. Where no plan fits in that, they search again with all of it. Where
memory may decide, ``auto`` goes on with all of it from the plans found, and the choice
(``planner.decision.choice``) takes a fuller plan only if it is surely the faster one.
"""

from collections.abc import Sequence
from dataclasses import replace

from costmodel.base.errors import InfeasibleError
from costmodel.base.units import Bytes
from costmodel.domain.hardware import Topology
from costmodel.memory.rank_memory import fits, rank_rooms, whole_table_bytes
from costmodel.memory.storage import RESERVE_SHARE
from planner.search.plugins import TORCHREC
from planner.search.running import run_sharders
from planner.search.search import Attempt, Search, SearchEnd
from sharders.problem.groundwork import Groundwork
from sharders.problem.sharding_problem import ShardingProblem

FULLER_SHARE = 0.25
"""Share of the limit in which plans are looked for that fill ranks further, where memory is
tight."""
TIGHT = 0.5
"""Memory is tight if all tables, whole, take more than this share of all ranks' memory."""
FULLER = "annealing"
"""The sharder that looks for fuller plans: it gains most per second."""
OWN_RESERVE = ("torchrec_port", TORCHREC)
"""Sharders that leave free what TorchRec's planner does, and no more."""


def with_less_hbm(topology: Topology, hbm_bytes: Sequence[Bytes]) -> Topology:
    """Return the topology whose ranks have so many bytes less for tables, shape (ranks,)."""
    before = topology.withheld_bytes or (0.0,) * topology.world_size
    withheld = tuple(
        old + new / (1 - RESERVE_SHARE) for old, new in zip(before, hbm_bytes, strict=True)
    )
    return replace(topology, withheld_bytes=withheld)


def leaving(problem: ShardingProblem, headroom: float) -> ShardingProblem:
    """Return the problem whose ranks keep a share of their memory free.

    It is the problem itself for a share of 0, and where no known plan leaves so much.
    """
    if not headroom:
        return problem
    workload = problem.workload
    kept = [headroom * room for room in rank_rooms(workload, problem.topology)]
    topology = with_less_hbm(problem.topology, kept)
    known = tuple(plan for plan in problem.known if fits(workload, topology, plan))
    if problem.known and not known:
        return problem
    return replace(problem, groundwork=Groundwork(workload, topology), known=known)


def run_with_headroom(
    names: Sequence[str], problem: ShardingProblem, search: Search, *, fuller: bool
) -> tuple[ShardingProblem, tuple[Attempt, ...]]:
    """Return the problem that was solved, and what each sharder found (``run_sharders``).

    Parameters
    ----------
    names, problem
        Sharders, and the problem with all memory.
    search
        How to search; its headroom is what ranks keep free if any plan does.
    fuller
        Whether to look for fuller plans, too, where memory is tight.

    """
    roomy = problem if set(names) <= set(OWN_RESERVE) else leaving(problem, search.headroom)
    if roomy is problem:
        return problem, run_sharders(names, problem, search)
    began = search.clock()
    go_on = fuller and _is_tight(roomy)
    first = _part(search, 1 - FULLER_SHARE) if go_on else search
    try:
        attempts = run_sharders(names, roomy, first)
    except InfeasibleError:
        left = max(0.0, search.time_limit - (search.clock() - began))
        return problem, run_sharders(names, problem, replace(search, time_limit=left))
    is_over = attempts[-1].early in {SearchEnd.BOUND, SearchEnd.INTERRUPTED}
    if not go_on or is_over or search.interrupted():
        return roomy, attempts
    known = (*problem.known, *(plan for attempt in attempts for plan in attempt.plans))
    rest = replace(_part(search, FULLER_SHARE), known_took=attempts[-1].gained_for)
    more = run_sharders((FULLER,), replace(problem, known=known), rest)
    took = attempts[-1].first_plan  # of a search that had no plan to begin with
    return roomy, (*attempts, *(replace(each, first_plan=took) for each in more))


def _part(search: Search, share: float) -> Search:
    """Return a search that has a share of another one's time, or of its plans."""
    plans = None if search.max_plans is None else max(1, round(share * search.max_plans))
    return replace(search, time_limit=share * search.time_limit, max_plans=plans)


def _is_tight(problem: ShardingProblem) -> bool:
    """Return whether memory may decide: of all tables together, or of the largest one."""
    workload, topology = problem.workload, problem.topology
    whole = [whole_table_bytes(workload, topology, table) for table in workload.tables]
    return sum(whole) > TIGHT * problem.total_capacity or max(whole) > problem.capacity
