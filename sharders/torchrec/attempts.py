"""Attempts of TorchRec's planner, with different memory, and tables that have given ranks.

They are the same for the planner itself (``planner.torchrec.torchrec_sharder``) and its port.
"""

from collections.abc import Callable
from dataclasses import dataclass

from costmodel.base.errors import InfeasibleError
from costmodel.domain.plan import ShardingPlan, TableSharding
from costmodel.domain.workload import EmbeddingTable
from costmodel.memory.rank_memory import check_memory, infeasible
from sharders.problem.options import TableOption, make_plan, make_sharding
from sharders.problem.sharding_problem import (
    Budget,
    Progress,
    SearchResult,
    SearchStatus,
    ShardingProblem,
)

MEMORY_SHARES = (1.0, 0.9, 0.75, 1.15, 1.4)
"""Shares of the memory that TorchRec is given, in this order: it counts a shard's bytes in another
way than ``costmodel.memory``, so that its plan may not fit, or a plan that fits be refused."""


@dataclass(slots=True)
class Counter:
    """Counts proposals over all attempts; every attempt gets at least one."""

    budget: Budget
    reserve: int = len(MEMORY_SHARES) - 1
    """Number of attempts to come, one proposal of the budget being kept for each."""
    proposed: int = 0
    spent: bool = False
    fresh: bool = True
    """Whether this attempt has proposed nothing yet, and may do so whatever the budget."""

    def may_propose(self) -> bool:
        """Return whether one more proposal may be made, and count it."""
        if self.budget.spent(self.proposed + self.reserve) and not self.fresh:
            self.spent = True
            return False
        self.fresh = False
        self.proposed += 1
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory of a rank that a planner is given, in whole bytes."""

    hbm: int
    host: int

    @classmethod
    def of(cls, problem: ShardingProblem, share: float) -> "Memory":
        """Return a share of the fullest rank's memory for tables, and of its part of the host's."""
        return cls(
            hbm=int(min(problem.rooms) * share),
            host=int(problem.host_capacity / problem.topology.local_world_size),
        )


def first_that_fits(
    problem: ShardingProblem,
    budget: Budget,
    planned: Callable[[Memory, Counter], ShardingPlan | str],
) -> SearchResult:
    """Return the first plan that fits, told of one share of the memory after another.

    Parameters
    ----------
    problem, budget
        What is planned, and for how long.
    planned
        Returns the plan for so much memory, or why there is none; counts its proposals, and
        proposes no more once it may not.

    Raises
    ------
    InfeasibleError
        None of them fits.

    """
    counter = Counter(budget)
    plan = _first_plan(problem, counter, planned)
    step_time = problem.objective.step_time(plan)
    budget.report(Progress(evaluated=counter.proposed, best=step_time))
    return SearchResult(
        plan=plan,
        step_time=step_time,
        status=SearchStatus.LIMIT if counter.spent else SearchStatus.CONVERGED,
        evaluated=counter.proposed,
    )


def _first_plan(
    problem: ShardingProblem,
    counter: Counter,
    planned: Callable[[Memory, Counter], ShardingPlan | str],
) -> ShardingPlan:
    """Return the first plan that fits, of tries with ever less memory than there is."""
    refused, said = 0.0, ""
    for share in MEMORY_SHARES:
        if share < refused:
            continue
        counter.fresh = True
        found = planned(Memory.of(problem, share), counter)
        if isinstance(found, str):
            refused, said = share, found
        else:
            plan = with_fixed_tables(problem, found)
            try:
                check_memory(problem.workload, problem.topology, plan)
            except InfeasibleError as error:
                said = said or str(error)
            else:
                return plan
        counter.reserve = max(0, counter.reserve - 1)
    message = f"TorchRec's planner finds no plan: {said}" if said else None
    raise infeasible(problem.workload, problem.topology, message)


def with_fixed_tables(problem: ShardingProblem, plan: ShardingPlan) -> ShardingPlan:
    """Return the plan with tables on their given ranks, of the same type if it may be.

    TorchRec's planner cannot be given ranks.
    """
    return make_plan(
        problem.topology,
        [_as_wanted(problem, table, plan.table(table.name)) for table in problem.workload.tables],
    )


def _as_wanted(
    problem: ShardingProblem, table: EmbeddingTable, sharding: TableSharding
) -> TableSharding:
    """Return a table's sharding moved to its given ranks."""
    if not table.ranks:
        return sharding

    def difference(option: TableOption) -> tuple[bool, bool]:
        return (
            option.sharding_type is not sharding.sharding_type,
            option.compute_kernel is not sharding.compute_kernel,
        )

    nearest = min(problem.options[table.name], key=difference)
    return make_sharding(table, problem.topology, nearest)
