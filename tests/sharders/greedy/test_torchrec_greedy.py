from random import Random

import pytest
from machines import machine, topology

from costmodel.base.units import GIB
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import EmbeddingTable, Workload
from costmodel.memory.rank_memory import check_memory
from planner.examples import example_problem, example_workload
from sharders.greedy.torchrec_greedy import TorchRecGreedy, shard_cost
from sharders.problem.options import TableOption
from sharders.problem.sharding_problem import Budget, ShardingProblem

TABLE = EmbeddingTable(name="t0", num_embeddings=1000, embedding_dim=64, pooling_factor=10.0)


def _problem(ranks: int, nodes: int = 1) -> ShardingProblem:
    workload = Workload(tables=(TABLE,), local_batch_size=1024)
    where = topology(ranks, ranks // nodes, machine())
    return ShardingProblem.of(workload, where)


def test_by_hand() -> None:
    # 4 x 1024 samples look up 10 rows of 256 bytes and an id of 8 each, and make 256 bytes;
    # three times over 897 GiB/s, and the outputs twice over 600 GiB/s
    moved = 4096 * (10 * (256 + 8) + 256)
    exchange = 2 * 4096 * 256 / (600 * GIB)
    whole = TableOption(sharding_type=ShardingType.TABLE_WISE)
    cost = shard_cost(_problem(4), TABLE, whole)
    assert cost == pytest.approx(3 * moved / (897 * GIB) + exchange)


def test_nodes_exchange_at_the_slow_link() -> None:
    whole = TableOption(sharding_type=ShardingType.TABLE_WISE)
    assert shard_cost(_problem(4, nodes=2), TABLE, whole) > 2 * shard_cost(
        _problem(4), TABLE, whole
    )


def test_replicas_are_reduced_at_the_slow_link_even_in_one_node() -> None:
    copies = TableOption(sharding_type=ShardingType.DATA_PARALLEL)
    assert shard_cost(_problem(4), TABLE, copies) > 1000 * 64 * 4 / (12.5 * GIB)


def test_one_rank_exchanges_nothing() -> None:
    whole = TableOption(sharding_type=ShardingType.TABLE_WISE)
    moved = 1024 * (10 * (256 + 8) + 256)
    assert shard_cost(_problem(1), TABLE, whole) == pytest.approx(3 * moved / (897 * GIB))


@pytest.mark.slow
def test_goes_on_past_combinations_that_do_not_fit() -> None:
    problem = example_problem(example_workload(40, seed=2), fill=0.9)
    plan = TorchRecGreedy().shard(problem, Budget(), Random(0)).plan
    check_memory(problem.workload, problem.topology, plan)
