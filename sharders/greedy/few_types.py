"""Plans whose tables are all sharded in one or two ways, where descents of small problems start.

Every sharding type in use, and every kernel, costs all ranks launches and collectives that their
tables share. The best plan may therefore differ from another good one by the type, or by the
kernel, of all its tables, which no change of one or two of them leads to.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import TypeAlias

from costmodel.base.errors import InfeasibleError
from costmodel.domain.plan import ComputeKernel, ShardingPlan, ShardingType
from sharders.greedy.cost_greedy import place_by_load
from sharders.problem.options import TableOption
from sharders.problem.sharding_problem import ShardingProblem

Kinds: TypeAlias = frozenset[tuple[ShardingType, ComputeKernel]]


FEW_OPTIONS = 100
"""Number of options of all tables up to which descents from all these plans take seconds."""


def is_small(problem: ShardingProblem) -> bool:
    """Return whether a problem is so small that descents from many plans pay."""
    return problem.num_options <= FEW_OPTIONS


def of_type(sharding_type: ShardingType) -> Kinds:
    """Return one type with all kernels."""
    return frozenset((sharding_type, kernel) for kernel in ComputeKernel)


def plan_preferring(problem: ShardingProblem, wanted: Kinds) -> ShardingPlan:
    """Return a plan with wanted types and kernels, where a table allows them and there is room.

    Raises
    ------
    InfeasibleError
        No plan is found that fits.

    """
    candidates = [
        sorted(
            problem.groundwork.costs.all_of(table),
            key=lambda cost: (_kind(cost.option) not in wanted, cost.total_load),
        )
        for table in problem.workload.tables
    ]
    return place_by_load(problem, candidates)


def plans_of_few_types(problem: ShardingProblem) -> Iterator[ShardingPlan]:
    """Yield plans of every type with every kernel, and of every two types, each plan once."""
    seen = set[ShardingPlan]()
    for wanted in _kinds(problem):
        try:
            plan = plan_preferring(problem, wanted)
        except InfeasibleError:
            continue
        if plan not in seen:
            seen.add(plan)
            yield plan


def _kinds(problem: ShardingProblem) -> Iterator[Kinds]:
    """Yield sets of a type and kernel, or of two types, that tables have options of."""
    offered = {_kind(option) for options in problem.options.values() for option in options}
    for kind in sorted(offered):
        yield frozenset({kind})
    for first, second in combinations(sorted({sharding_type for sharding_type, _ in offered}), 2):
        yield of_type(first) | of_type(second)


def _kind(option: TableOption) -> tuple[ShardingType, ComputeKernel]:
    return option.sharding_type, option.compute_kernel
