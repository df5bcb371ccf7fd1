from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from strategies import cases

from costmodel.errors import InputError
from costmodel.hardware import Topology
from costmodel.plan import ComputeKernel, ShardingPlan, ShardingType
from costmodel.workload import EmbeddingTable, Pipeline, Pooling, Workload
from planner.testing import example_hardware
from sharders.options import TableOption, first_shard, make_sharding, table_options

TABLE = EmbeddingTable(name="t", num_embeddings=100, embedding_dim=64)


def topology(world_size: int, local_world_size: int) -> Topology:
    return Topology(
        hardware=example_hardware(), world_size=world_size, local_world_size=local_world_size
    )


def options(
    table: EmbeddingTable,
    ranks: tuple[int, int] = (4, 4),
    pipeline: Pipeline = Pipeline.SPARSE_DIST,
) -> tuple[TableOption, ...]:
    workload = Workload(tables=(table,), pipeline=pipeline)
    return table_options(workload, topology(*ranks), table)


def test_one_node_of_four() -> None:
    # columns: 2 x 32 or 4 x 16, for column_wise and table_column_wise; grid needs two nodes
    assert Counter(option.sharding_type for option in options(TABLE)) == {
        ShardingType.DATA_PARALLEL: 1,
        ShardingType.TABLE_WISE: 1,
        ShardingType.ROW_WISE: 1,
        ShardingType.COLUMN_WISE: 2,
        ShardingType.TABLE_ROW_WISE: 1,
        ShardingType.TABLE_COLUMN_WISE: 2,
    }


def test_grid_splits_columns_over_nodes() -> None:
    grids = [o for o in options(TABLE, (8, 2)) if o.sharding_type is ShardingType.GRID_SHARD]
    assert [option.num_column_shards for option in grids] == [2, 4]


def test_kernels_are_dense_or_fused_unless_listed() -> None:
    kernels = {option.sharding_type: option.compute_kernel for option in options(TABLE)}
    assert kernels.pop(ShardingType.DATA_PARALLEL) is ComputeKernel.DENSE
    assert set(kernels.values()) == {ComputeKernel.FUSED}


def test_listed_kernels_replace_the_default() -> None:
    listed = (ComputeKernel.FUSED_UVM, ComputeKernel.FUSED_UVM_CACHING)
    table = replace(TABLE, compute_kernels=listed, sharding_types=(ShardingType.TABLE_WISE,))
    kernels = dict.fromkeys(option.compute_kernel for option in options(table))
    assert tuple(kernels) == listed


def test_data_parallel_needs_the_dense_kernel() -> None:
    table = replace(TABLE, compute_kernels=(ComputeKernel.FUSED,))
    assert ShardingType.DATA_PARALLEL not in {o.sharding_type for o in options(table)}


def test_unpooled_tables_have_four_types() -> None:
    assert {o.sharding_type for o in options(replace(TABLE, pooling=Pooling.NONE), (8, 2))} == {
        ShardingType.DATA_PARALLEL,
        ShardingType.TABLE_WISE,
        ShardingType.ROW_WISE,
        ShardingType.COLUMN_WISE,
    }


def test_plain_dlrm_is_table_wise() -> None:
    (option,) = options(TABLE, pipeline=Pipeline.DLRM)
    assert option == TableOption(sharding_type=ShardingType.TABLE_WISE)


def test_min_shard_dim_limits_column_splits() -> None:
    table = replace(TABLE, min_shard_dim=32, sharding_types=(ShardingType.COLUMN_WISE,))
    assert [option.num_column_shards for option in options(table)] == [2]


def test_one_rank_splits_no_columns() -> None:
    assert all(option.num_column_shards == 1 for option in options(TABLE, (1, 1)))


def test_a_type_asked_for_by_name_is_offered_even_if_it_splits_nothing() -> None:
    table = replace(TABLE, sharding_types=(ShardingType.COLUMN_WISE,))
    assert [option.num_column_shards for option in options(table, (1, 1))] == [1]


def test_contradicting_constraints_are_refused_by_name() -> None:
    table = replace(TABLE, sharding_types=(ShardingType.ROW_WISE,))
    with pytest.raises(InputError, match=r"`t` cannot be sharded.*row_wise.*`dlrm`"):
        options(table, pipeline=Pipeline.DLRM)


def test_the_number_of_ranks_is_checked() -> None:
    option = TableOption(sharding_type=ShardingType.COLUMN_WISE, num_column_shards=2)
    with pytest.raises(ValueError, match="needs 2 ranks, got 1"):
        make_sharding(TABLE, topology(4, 4), option, (0,))


@pytest.mark.parametrize("ranks", [(1, 1), (4, 4), (8, 2)])
def test_num_shards_is_what_is_made(ranks: tuple[int, int]) -> None:
    for option in options(TABLE, ranks):
        sharding = make_sharding(TABLE, topology(*ranks), option, (0,) * option.num_ranks)
        assert len(sharding.shards) == option.num_shards(topology(*ranks))


@given(cases())
@settings(max_examples=30, deadline=None)
def test_no_shard_is_larger_than_the_first(case: tuple[Workload, Topology, ShardingPlan]) -> None:
    workload, ranks, _ = case
    for table in workload.tables:
        for option in table_options(workload, ranks, table):
            whole = make_sharding(table, ranks, option, (0,) * option.num_ranks)
            assert first_shard(table, ranks, option).shards[0] == whole.shards[0]
            assert max(s.num_rows * s.num_columns for s in whole.shards) == (
                whole.shards[0].num_rows * whole.shards[0].num_columns
            )
            assert len(whole.shards) == option.num_shards(ranks)
