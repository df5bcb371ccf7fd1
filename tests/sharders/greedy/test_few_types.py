from collections import Counter

import pytest

from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.validity import check_plan
from costmodel.memory.rank_memory import check_memory
from planner.examples import example_problem, example_workload
from sharders.greedy.few_types import is_small, of_type, plan_preferring, plans_of_few_types


def test_types_that_are_wanted_are_used_wherever_they_may_be() -> None:
    problem = example_problem(example_workload(20))
    kind = ShardingType.TABLE_ROW_WISE
    plan = plan_preferring(problem, of_type(kind))
    for table in problem.workload.tables:
        allowed = {option.sharding_type for option in problem.options[table.name]}
        assert (plan.table(table.name).sharding_type is kind) == (kind in allowed)


def test_every_type_has_a_plan_and_no_plan_comes_twice() -> None:
    problem = example_problem(example_workload(4))
    plans = list(plans_of_few_types(problem))
    assert len(set(plans)) == len(plans)
    uniform = Counter(table.sharding_type for plan in plans for table in plan.tables)
    offered = {option.sharding_type for some in problem.options.values() for option in some}
    assert set(uniform) == offered
    for plan in plans:
        check_plan(problem.workload, problem.topology, plan)
        check_memory(problem.workload, problem.topology, plan)


@pytest.mark.parametrize(("num_tables", "small"), [(4, True), (40, False)])
def test_few_tables_have_few_options(num_tables: int, small: bool) -> None:  # noqa: FBT001
    assert is_small(example_problem(example_workload(num_tables))) is small


def test_a_type_stands_for_all_its_kernels() -> None:
    assert len(of_type(ShardingType.ROW_WISE)) == len(ComputeKernel)
