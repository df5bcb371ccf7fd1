"""The port as a sharder; ``tests/planner/with_torchrec`` holds it to TorchRec's planner."""

from dataclasses import replace
from random import Random

import pytest
from made_candidates import candidates, whole

from costmodel.base.errors import InfeasibleError
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import EmbeddingTable, Workload
from planner.examples import example_problem, example_workload
from sharders.problem.sharding_problem import Budget, SearchStatus, ShardingProblem
from sharders.torchrec.attempts import Counter, Memory
from sharders.torchrec.costs import RankCounts
from sharders.torchrec.partitioner import Partitioner
from sharders.torchrec.port import TorchRecPort, _best


def planned(problem: ShardingProblem, budget: Budget | None = None) -> dict[str, ShardingType]:
    plan = TorchRecPort().shard(problem, budget or Budget(), Random(0)).plan
    return {table.table: table.sharding_type for table in plan.tables}


def test_small_tables_are_replicated_and_large_ones_are_not() -> None:
    # gradients of 26 kB are reduced in less than a microsecond, those of 4 GB in 80 ms
    small = EmbeddingTable(name="small", num_embeddings=100, embedding_dim=64)
    large = EmbeddingTable(name="large", num_embeddings=16_000_000, embedding_dim=64)
    problem = example_problem(Workload(tables=(small, large)), world_size=4, fill=0.5)
    kinds = planned(problem)
    assert kinds["small"] is ShardingType.DATA_PARALLEL
    assert kinds["large"] is not ShardingType.DATA_PARALLEL


def test_it_ends_by_itself_and_is_the_same_again() -> None:
    problem = example_problem(example_workload(12), world_size=4)
    results = [TorchRecPort().shard(problem, Budget(), Random(seed)) for seed in (0, 1)]
    assert results[0] == results[1]
    assert results[0].status is SearchStatus.CONVERGED
    assert results[0].step_time == problem.objective.step_time(results[0].plan)


def test_the_plan_is_in_the_order_of_the_workload() -> None:
    first, second, *others = example_workload(4).tables
    tables = (replace(first, weighted=True), second, *others)
    problem = example_problem(Workload(tables=tables), world_size=2)
    assert list(planned(problem)) == [table.name for table in tables]


def test_a_first_plan_is_looked_for_whatever_the_budget() -> None:
    # a shard of 9 bytes, which comes first, has no room; of 5 and 4 the first one is taken
    found = candidates([whole(1.0, 9), whole(2.0, 5), whole(3.0, 4)])
    partitioner = Partitioner(
        found, RankCounts(world_size=4, local_world_size=2), Memory(hbm=8, host=0)
    )
    counter = Counter(Budget(should_stop=lambda: True))
    best = _best(found, partitioner, counter)
    assert best is not None
    assert best.chosen.tolist() == [1]
    assert (counter.proposed, counter.spent) == (2, True)


def test_where_nothing_has_room_it_says_whose_planner_found_none() -> None:
    problem = example_problem(example_workload(), fill=1.5)
    with pytest.raises(InfeasibleError, match="TorchRec's planner finds no plan"):
        planned(problem)
