"""Mixed-integer programming: options, memory tiers and ranks of all tables at once."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from random import Random

from costmodel.base.errors import InfeasibleError
from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingPlan, ShardingType
from sharders.annealing.polish import LAST_DESCENTS, Polisher
from sharders.baselines.ilp_model import IlpModel, ProgramSolution
from sharders.baselines.ilp_relaxation import option_shares
from sharders.baselines.solvers import Limits, check_pulp
from sharders.greedy.cost_greedy import CostGreedy, place_by_load
from sharders.greedy.few_types import is_small, plans_of_few_types
from sharders.problem.sharding_problem import (
    Budget,
    Progress,
    Proof,
    SearchResult,
    SearchStatus,
    ShardingProblem,
)

MOST_VARIABLES = 6000
"""Number of binaries up to which HiGHS finds better plans than rounding does, within a minute (on
the instances of bench/plan_quality.py)."""
MAX_NODES = 8
"""Most nodes of the solver's tree, where the budget has no clock."""
TIME_LIMIT: Seconds = 60.0
SHARE_OF_TIME = 0.6
"""Share of the time left for each run of the solver."""
FEW_VARIABLES = 200
"""Number of binaries up to which every set of sharding types gets a program of its own, solved in
some hundredths of a second."""


@dataclass(frozen=True, slots=True)
class Ilp:
    """Minimises the makespan of separable costs exactly where that is tractable, then the step.

    Type, split and compute kernel of every table (so also what stays in HBM and what goes to host
    memory, behind a cache or not: RecShard, Sethi et al., ASPLOS 2022) and its ranks are decided by
    one program, solved by HiGHS, from the best plan of ``cost_greedy`` on. Beyond
    ``MOST_VARIABLES`` binaries the program is relaxed to fractions of options over the mean rank;
    tables get the largest one, and are placed by longest processing time.

    Separable costs do not know that every further sharding type costs all ranks something, so
    the program is solved for several sets of types: those of the greedy's plan, all, and then every
    other set, the small ones first. From each solution a descent under the exact
    objective (``polish``) makes up for what separable costs leave out; in small problems also from
    plans of few types and kernels (``few_types``). Optimal means: for
    these costs and all types, not for the step; ``SearchResult.proof`` has their makespan, the
    solver's bound on it, and the gap. Deterministic without a time limit.
    """

    gap: float = 5e-3
    max_variables: int = MOST_VARIABLES

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        """Return the best plan when the gap is closed or the time is up."""
        check_pulp("ilp")
        start = CostGreedy().shard(problem, replace(budget, max_evaluations=_most(budget)), rng)
        best, status = start, SearchStatus.LIMIT
        polisher = Polisher(problem, budget, start.evaluated)
        ends: list[tuple[ShardingPlan, Seconds]] = []
        for types in _sets_of_types(problem, start.plan):
            if budget.spent(best.evaluated):
                status = SearchStatus.LIMIT
                break
            solution = self.solve(problem, budget, start.plan, types)
            if solution is None:
                continue
            if types == frozenset(ShardingType):
                status = SearchStatus.OPTIMAL if solution.optimal else SearchStatus.LIMIT
                best = replace(best, proof=Proof(value=solution.makespan, bound=solution.bound))
            ends.append(polisher.descend(solution.plan, pairs=False))
            best = _better(best, ends[-1], polisher.evaluated, budget)
        for plan in plans_of_few_types(problem) if is_small(problem) else ():
            if budget.spent(best.evaluated):
                break
            ends.append(polisher.descend(plan, pairs=False))
            best = _better(best, ends[-1], polisher.evaluated, budget)
        ends.sort(key=lambda end: end[1])
        for plan, _ in ends[:LAST_DESCENTS]:
            if not budget.spent(best.evaluated):
                end = polisher.descend(plan)
                best = _better(best, end, polisher.evaluated, budget)
        return replace(best, status=status)

    def solve(
        self,
        problem: ShardingProblem,
        budget: Budget,
        start: ShardingPlan,
        types: frozenset[ShardingType] = frozenset(ShardingType),
    ) -> ProgramSolution | None:
        """Return the program's solution, with its own objective and bound."""
        model = IlpModel(problem, types)
        left = budget.time_left()
        timed = left < float("inf")
        limits = Limits(
            time=max(0.1, min(TIME_LIMIT, SHARE_OF_TIME * left)) if timed else None,
            gap=self.gap,
            max_nodes=None if timed else MAX_NODES,
        )
        if model.num_variables > self.max_variables:
            return _rounded(model, limits)
        return model.solve(start, limits)


def _sets_of_types(
    problem: ShardingProblem, start: ShardingPlan
) -> Iterator[frozenset[ShardingType]]:
    """Yield sets of sharding types to solve for; no more than two where a program is large."""
    used = frozenset(sharding.sharding_type for sharding in start.tables)
    every = frozenset(ShardingType)
    yield used
    if used != every:
        yield every
    if IlpModel(problem).num_variables > FEW_VARIABLES:
        return
    offered = sorted({o.sharding_type for options in problem.options.values() for o in options})
    for size in range(1, len(offered)):
        for types in map(frozenset, combinations(offered, size)):
            if types != used:
                yield types


def _better(
    best: SearchResult, end: tuple[ShardingPlan, Seconds], evaluated: int, budget: Budget
) -> SearchResult:
    """Return the better of a result and a descent's end, and report progress."""
    if end[1] < best.step_time:
        best = replace(best, plan=end[0], step_time=end[1])
    budget.report(Progress(evaluated=evaluated, best=best.step_time))
    return replace(best, evaluated=evaluated)


def _most(budget: Budget) -> int | None:
    """Return the number of plans that descents may look at: two fewer than the budget's."""
    return None if budget.max_evaluations is None else max(1, budget.max_evaluations - 2)


def _rounded(model: IlpModel, limits: Limits) -> ProgramSolution | None:
    """Return the plan of the relaxed program's largest shares, placed greedily."""
    candidates = [
        [
            candidate.cost
            for _, candidate in sorted(
                zip(some, candidates, strict=True), key=lambda pair: -pair[0]
            )
        ]
        for some, candidates in zip(option_shares(model, limits), model.candidates, strict=True)
    ]
    try:
        plan = place_by_load(model.problem, candidates)
    except InfeasibleError:
        return None
    return ProgramSolution(plan=plan, makespan=model.makespan(plan), bound=None, optimal=False)
