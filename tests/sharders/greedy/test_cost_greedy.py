"""The greedy by predicted cost. That it is valid, deterministic and within memory is tested by the
contract; here is what it chooses."""

from dataclasses import replace
from random import Random

import pytest
from machines import topology
from plans import plan, table, workload

from costmodel.domain.plan import ShardingPlan, ShardingType
from costmodel.domain.workload import EmbeddingTable, Workload
from sharders.greedy.cost_greedy import CostGreedy, GreedyPlans
from sharders.greedy.few_types import of_type, plan_preferring
from sharders.greedy.tuning import NEUTRAL, Parameters, threshold_rules
from sharders.problem.sharding_problem import Budget, Progress, SearchStatus, ShardingProblem

FOUR = topology(4, 2)


def rule(split_above: float, replicate_below: float) -> Parameters:
    return {**NEUTRAL, "split_above": split_above, "replicate_below": replicate_below}


NEVER = rule(float("inf"), 0.0)


def rule_plan(posed: ShardingProblem, parameters: Parameters) -> ShardingPlan:
    greedy = GreedyPlans(posed)
    assert greedy.step_time(parameters) < float("inf")
    return greedy.plan(greedy.choices())


def problem(*tables: EmbeddingTable) -> ShardingProblem:
    work: Workload = replace(workload(*tables), local_batch_size=4096)
    return ShardingProblem.of(work, FOUR)


def large(name: str, **more: object) -> EmbeddingTable:
    return replace(table(name), num_embeddings=10**6, **more)  # type: ignore[arg-type]


def kinds(posed: ShardingProblem, parameters: Parameters) -> list[ShardingType]:
    made = rule_plan(posed, parameters)
    return [sharding.sharding_type for sharding in made.tables]


def test_without_splits_like_tables_go_one_to_a_rank() -> None:
    posed = problem(*(large(name) for name in "abcd"))
    made = rule_plan(posed, NEVER)
    assert {sharding.ranks for sharding in made.tables} == {(0,), (1,), (2,), (3,)}


def test_longest_first() -> None:
    # 80, 60, 40 and 40 ids open the four ranks; 20 joins one of the two with 40
    ids = {"a": 80.0, "b": 60.0, "c": 40.0, "d": 40.0, "e": 20.0}
    posed = problem(*(large(name, pooling_factor=n) for name, n in ids.items()))
    posed = ShardingProblem.of(
        replace(posed.workload, tables=posed.workload.tables[::-1]), posed.topology
    )
    for made in (rule_plan(posed, NEVER), plan_preferring(posed, of_type(ShardingType.TABLE_WISE))):
        on = {sharding.table: sharding.ranks[0] for sharding in made.tables}
        assert len({on[name] for name in "abcd"}) == 4
        assert on["e"] in {on["c"], on["d"]}


def test_a_table_above_the_limit_is_split() -> None:
    posed = problem(large("a", pooling_factor=200.0), large("b", pooling_factor=1.0))
    assert kinds(posed, NEVER) == [ShardingType.TABLE_WISE] * 2
    first, second = kinds(posed, rule(1.0, 0.0))
    assert first is not ShardingType.TABLE_WISE
    assert second is ShardingType.TABLE_WISE


def test_a_tiny_table_is_replicated_where_the_rule_says_so() -> None:
    tiny = replace(table("b", ids=50.0), num_embeddings=10)
    posed = problem(large("a"), tiny)
    assert kinds(posed, rule(float("inf"), 2.0))[1] is ShardingType.DATA_PARALLEL
    assert kinds(posed, NEVER)[1] is ShardingType.TABLE_WISE


def test_constraints_of_a_table_win() -> None:
    posed = problem(large("a", sharding_types=(ShardingType.ROW_WISE,)), large("b"))
    assert kinds(posed, NEVER)[0] is ShardingType.ROW_WISE


def test_it_is_at_least_as_good_as_its_first_rule() -> None:
    posed = problem(large("a", pooling_factor=200.0), *(large(name) for name in "bcd"))
    result = CostGreedy().shard(posed, Budget(), Random(0))
    first = rule_plan(posed, NEVER)
    assert result.step_time <= posed.objective.step_time(first)
    assert result.status is SearchStatus.CONVERGED
    assert result.evaluated == len(list(threshold_rules()))
    assert result.step_time == pytest.approx(posed.objective.step_time(result.plan))


def test_it_beats_all_on_one_rank() -> None:
    posed = problem(*(large(name) for name in "abcd"))
    piled = plan(posed.workload, FOUR, dict.fromkeys("abcd", (ShardingType.TABLE_WISE, (0,))))
    result = CostGreedy().shard(posed, Budget(), Random(0))
    assert result.step_time < posed.objective.step_time(piled)


def test_a_spent_budget_returns_the_best_so_far() -> None:
    seen: list[Progress] = []
    budget = Budget(max_evaluations=2, report=seen.append)
    result = CostGreedy().shard(problem(large("a"), large("b")), budget, Random(0))
    assert (result.evaluated, result.status) == (2, SearchStatus.LIMIT)
    assert [progress.evaluated for progress in seen] == [1, 2]
    assert seen[-1].best == result.step_time
