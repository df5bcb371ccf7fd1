"""Costs of options alone, on the test machine: 1 TB/s of HBM, 100 GB/s links, W = 4, P = 2."""

from dataclasses import replace

import pytest
from machines import machine, topology
from plans import BATCH, table, workload

from costmodel.base.units import GB
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.workload import EmbeddingTable, Optimizer, Workload
from sharders.problem.option_costs import OptionCost
from sharders.problem.options import TableOption
from sharders.problem.sharding_problem import ShardingProblem

FOUR = topology(4, 2)


def problem(work: Workload, where: Topology = FOUR) -> ShardingProblem:
    return ShardingProblem.of(work, where)


def cost(
    kind: ShardingType, columns: int = 1, one: EmbeddingTable | None = None, where: Topology = FOUR
) -> OptionCost:
    one = one or table()
    dense = kind is ShardingType.DATA_PARALLEL
    option = TableOption(
        sharding_type=kind,
        compute_kernel=ComputeKernel.DENSE if dense else ComputeKernel.FUSED,
        num_column_shards=columns,
    )
    work = workload(one, optimizer=Optimizer.SGD)
    return problem(work, where).groundwork.costs.cost(one, option)


def test_total_is_the_load_of_all_shards() -> None:
    halves = cost(ShardingType.COLUMN_WISE, 2)
    assert halves.total_load == pytest.approx(2 * halves.shard_load)
    whole = cost(ShardingType.TABLE_WISE)
    assert whole.total_load == whole.shard_load


def test_a_column_shard_costs_less_than_the_table_and_all_of_them_more() -> None:
    whole, halves = cost(ShardingType.TABLE_WISE), cost(ShardingType.COLUMN_WISE, 2)
    assert halves.shard_load < whole.shard_load < halves.total_load


def test_row_wise_spreads_the_lookups_and_repeats_the_exchange() -> None:
    # a quarter of the lookups, but the output columns of the whole table on every rank
    assert cost(ShardingType.ROW_WISE).total_load > cost(ShardingType.TABLE_WISE).total_load


def test_a_replica_costs_the_all_reduce_of_its_weights_by_hand() -> None:
    # 8000 rows of 256 bytes at 100 GB/s are 20.48 us, at 50 GB/s twice that; alone there is none
    kind = ShardingType.DATA_PARALLEL
    alone, fast, slow = (
        cost(kind, where=topology(ranks, hardware=machine(link=link))).shard_load
        for ranks, link in ((1, 1.0), (2, 100 * GB), (2, 50 * GB))
    )
    assert slow - fast == pytest.approx(20.48e-6)
    assert alone < fast


def test_the_exchange_by_hand() -> None:
    # 64 columns of 2 x 256 samples x 4 bytes, two all-to-alls, half of it crosses the link:
    # 131,072 bytes at 100 GB/s are 1.31 us, at 50 GB/s twice that
    fast, slow = topology(2), topology(2, hardware=machine(link=50 * GB))
    difference = (
        cost(ShardingType.TABLE_WISE, where=slow).shard_load
        - cost(ShardingType.TABLE_WISE, where=fast).shard_load
    )
    assert difference == pytest.approx(131_072 / (100 * GB))


def test_one_rank_exchanges_nothing() -> None:
    fast, slow = topology(1), topology(1, hardware=machine(link=1 * GB))
    one = cost(ShardingType.TABLE_WISE, where=fast)
    assert one.shard_load == cost(ShardingType.TABLE_WISE, where=slow).shard_load


def test_replication_pays_for_every_row() -> None:
    small = cost(ShardingType.DATA_PARALLEL)
    large = cost(ShardingType.DATA_PARALLEL, one=replace(table(), num_embeddings=800_000))
    assert large.shard_load > 10 * small.shard_load


def test_replication_updates_the_whole_table_densely() -> None:
    # SGD passes three times over 1e8 x 64 numbers: 76.8 ms, and the gradient is as large
    large = cost(ShardingType.DATA_PARALLEL, one=replace(table(), num_embeddings=10**8))
    assert large.shard_load > 3 * 1e8 * 256 / 1e12


def test_a_cost_is_computed_once() -> None:
    one = table()
    costs = problem(workload(one)).groundwork.costs
    option = TableOption(sharding_type=ShardingType.TABLE_WISE)
    assert costs.cost(one, option) is costs.cost(one, option)


@pytest.mark.parametrize("kind", [ShardingType.TABLE_WISE, ShardingType.ROW_WISE])
def test_more_ids_cost_more(kind: ShardingType) -> None:
    few, many = (cost(kind, one=table(ids=ids)) for ids in (BATCH / 8, BATCH))
    assert few.shard_load < many.shard_load
