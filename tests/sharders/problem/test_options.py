from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from strategies import Case, cases, fixed_cases
from table_options import table_options

from costmodel.base.errors import InputError
from costmodel.domain.hardware import Device, HardwareProfile, Topology
from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.validity import check_plan
from costmodel.domain.workload import DataType, EmbeddingTable, Pipeline, Pooling, Workload
from planner.examples import example_hardware
from sharders.problem.options import (
    TableOption,
    make_sharding,
    option_of,
    options_by_name,
    places,
    refusals,
)

TABLE = EmbeddingTable(name="t", num_embeddings=100, embedding_dim=64)
TABLE_0 = replace(TABLE, name="t0")


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
    # columns: 2 x 32 or 4 x 16; table_column_wise is the same here, and grid needs two nodes
    assert Counter(option.sharding_type for option in options(TABLE)) == {
        ShardingType.DATA_PARALLEL: 1,
        ShardingType.TABLE_WISE: 1,
        ShardingType.ROW_WISE: 1,
        ShardingType.COLUMN_WISE: 2,
        ShardingType.TABLE_ROW_WISE: 1,
    }
    only = replace(TABLE, sharding_types=(ShardingType.TABLE_COLUMN_WISE,))
    assert {o.sharding_type for o in options(only)} == {ShardingType.TABLE_COLUMN_WISE}


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
@settings(max_examples=30)
def test_no_shard_is_larger_than_the_first(case: Case) -> None:
    workload, ranks, _ = case
    for table in workload.tables:
        for option in table_options(workload, ranks, table):
            whole = make_sharding(table, ranks, option, (0,) * option.num_ranks)
            assert max(s.num_rows * s.num_columns for s in whole.shards) == (
                whole.shards[0].num_rows * whole.shards[0].num_columns
            )
            assert len(whole.shards) == option.num_shards(ranks)


def fixed(*ranks: int, kinds: tuple[ShardingType, ...] = ()) -> set[str]:
    """Return the options on two nodes of four."""
    table = placed(*ranks, kinds=kinds)
    return {f"{option.sharding_type} {option.ranks}" for option in options(table, (8, 4))}


def placed(*ranks: int, kinds: tuple[ShardingType, ...] = ()) -> EmbeddingTable:
    return replace(TABLE, ranks=ranks, sharding_types=kinds)


def test_on_one_rank_a_table_is_whole() -> None:
    assert fixed(5) == {"table_wise (5,)"}


def test_on_some_ranks_a_table_has_a_block_of_columns_on_each() -> None:
    assert fixed(6, 1) == {"column_wise (6, 1)"}
    assert fixed(2, 1) == {"column_wise (2, 1)", "table_column_wise (2, 1)"}


def test_on_all_ranks_of_a_node_rows_can_be_split_too() -> None:
    blocks = (4, 5, 6, 7)
    assert fixed(*blocks) == {
        f"column_wise {blocks}",
        f"table_column_wise {blocks}",
        "table_row_wise (4,)",
    }


def test_on_all_ranks_a_table_can_be_wherever_nothing_is_to_be_chosen() -> None:
    every = tuple(range(8))
    assert fixed(*every) == {
        "data_parallel ()",
        "row_wise ()",
        f"column_wise {every}",
        "grid_shard (0, 4)",
    }


def test_a_rank_stands_for_its_node_where_only_nodes_can_be_meant() -> None:
    assert fixed(6, kinds=(ShardingType.TABLE_ROW_WISE,)) == {"table_row_wise (4,)"}
    kinds = (ShardingType.TABLE_WISE, ShardingType.TABLE_ROW_WISE)
    assert fixed(6, kinds=kinds) == {"table_wise (6,)"}


def test_one_block_of_columns_only_if_asked_for() -> None:
    assert fixed(3, kinds=(ShardingType.COLUMN_WISE,)) == {"column_wise (3,)"}


@given(fixed_cases())
@settings(max_examples=60)
def test_a_table_can_be_fixed_where_any_plan_has_it(case: Case) -> None:
    workload, ranks, plan = case
    check_plan(workload, ranks, plan)
    assert not refusals(workload, ranks)
    for table in workload.tables:
        option = option_of(plan.table(table.name), table)
        assert option in table_options(workload, ranks, table)
        assert not (table.ranks and option.num_ranks)


@pytest.mark.parametrize(
    ("table", "field", "message", "hint"),
    [
        (
            placed(3, 8, 9),
            "ranks",
            "table `t` cannot be on rank 8, 9: there is none",
            "there are ranks 0 to 7",
        ),
        (
            placed(3, 4, 5, kinds=(ShardingType.TABLE_WISE, ShardingType.ROW_WISE)),
            "ranks",
            "table `t` cannot be on ranks [3, 4, 5] and no others",
            "ranks that types take: table_wise 1; row_wise all 8",
        ),
        (
            placed(3, 4, kinds=(ShardingType.TABLE_COLUMN_WISE,)),
            "ranks",
            "table `t` cannot be on ranks [3, 4] and no others",
            "ranks that types take: table_column_wise 2 or 4 of a node",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    table: EmbeddingTable, field: str, message: str, hint: str
) -> None:
    (refusal,) = refusals(Workload(tables=(TABLE_0, table)), topology(8, 4))
    assert (refusal.table, refusal.field) == ("t", field)
    assert (refusal.problem.message, refusal.problem.hint) == (message, hint)
    with pytest.raises(InputError, match="cannot be on"):
        options(table, (8, 4))


def test_shards_without_rows_are_not_offered_on_cpu() -> None:
    gpu = topology(2, 2)
    cpu = replace(gpu, hardware=replace(gpu.hardware, device=Device.CPU))
    table = replace(TABLE, num_embeddings=1)
    workload = Workload(tables=(table,))
    on_gpu = {option.sharding_type for option in table_options(workload, gpu, table)}
    on_cpu = {option.sharding_type for option in table_options(workload, cpu, table)}
    rows = {ShardingType.ROW_WISE, ShardingType.TABLE_ROW_WISE, ShardingType.GRID_SHARD}
    assert on_gpu & rows
    assert on_cpu == on_gpu - rows
    forced = replace(table, sharding_types=(ShardingType.ROW_WISE,))
    (refusal,) = refusals(Workload(tables=(forced,)), cpu)
    assert "no shards without rows" in str(refusal.problem.hint)
    (put,) = refusals(Workload(tables=(replace(forced, ranks=(0,)),)), cpu)
    assert (put.field, put.problem) == (refusal.field, refusal.problem)  # ranks are not to blame


def test_shards_wider_than_gpu_kernels_take_are_not_offered() -> None:
    gpu = topology(8, 4)
    cpu = replace(gpu, hardware=replace(gpu.hardware, device=Device.CPU))
    wide, widest = (replace(TABLE, embedding_dim=width) for width in (8192, 2048))
    counts = {(o.sharding_type, o.num_column_shards) for o in options(wide, (8, 4))}
    assert counts == {
        (ShardingType.COLUMN_WISE, 4),
        (ShardingType.COLUMN_WISE, 8),
        (ShardingType.TABLE_COLUMN_WISE, 4),
    }
    whole = {ShardingType.DATA_PARALLEL, ShardingType.TABLE_WISE, ShardingType.ROW_WISE}
    assert whole < {option.sharding_type for option in options(widest, (8, 4))}
    on_cpu = table_options(Workload(tables=(wide,)), cpu, wide)
    assert whole < {option.sharding_type for option in on_cpu}


@pytest.mark.parametrize(
    ("table", "ranks", "field", "way"),
    [
        (replace(TABLE, embedding_dim=8192), (2, 2), "embedding_dim", "over 4 ranks or more"),
        (
            replace(TABLE, embedding_dim=8192, sharding_types=(ShardingType.TABLE_WISE,)),
            (8, 8), "sharding_types", "over 4 ranks or more",
        ),
        (
            replace(TABLE, embedding_dim=4096, min_shard_dim=4096),
            (8, 8), "embedding_dim", "with a lower `min_shard_dim`",
        ),
    ],
)  # fmt: skip
def test_a_table_too_wide_for_gpu_kernels_is_refused(
    table: EmbeddingTable, ranks: tuple[int, int], field: str, way: str
) -> None:
    (refusal,) = refusals(Workload(tables=(table,)), topology(*ranks))
    assert refusal.field == field
    assert refusal.problem.hint == (
        "FBGEMM's GPU kernels take shards of at most 2,048 columns: "
        f"split these by `column_wise` {way}"
    )


@pytest.mark.parametrize(
    "hardware", [example_hardware(), replace(example_hardware(), device=Device.CPU)]
)
def test_what_tables_share_is_what_each_has_alone(hardware: HardwareProfile) -> None:
    ranks = Topology(hardware=hardware, world_size=4, local_world_size=2)
    kinds = (
        {},
        {"num_embeddings": 3},
        {"embedding_dim": 32},
        {"min_shard_dim": 32},
        {"pooling": Pooling.NONE},
        {"ranks": (1,)},
        {"sharding_types": (ShardingType.ROW_WISE, ShardingType.TABLE_WISE)},
        {"compute_kernels": (ComputeKernel.FUSED_UVM,)},
        {"compute_kernels": (ComputeKernel.FUSED_UVM_CACHING,)},
        {"compute_kernels": (ComputeKernel.FUSED_UVM_CACHING,), "num_embeddings": 10**7},
    )
    tables = tuple(
        replace(TABLE, name=f"{number} {again}", **kind)  # type: ignore[arg-type]
        for number, kind in enumerate(kinds)
        for again in range(2)
    )
    work = Workload(tables=tables)
    found = options_by_name(work, ranks)
    assert found == {table.name: table_options(work, ranks, table) for table in tables}
    assert found["0 0"] is found["0 1"]


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        (
            {"compute_kernels": (ComputeKernel.DENSE,), "sharding_types": (ShardingType.ROW_WISE,)},
            "`dense` is planned for `data_parallel` alone: allow that, or `fused`",
        ),
        (
            {
                "compute_kernels": (ComputeKernel.FUSED,),
                "sharding_types": (ShardingType.DATA_PARALLEL,),
            },
            "`data_parallel` has no kernel but `dense`: allow that, or `table_wise`",
        ),
        (
            {"data_type": DataType.INT8, "sharding_types": (ShardingType.DATA_PARALLEL,)},
            "`dense`, the only kernel of `data_parallel`, cannot hold int8: allow `fused` shards",
        ),
    ],
)
def test_which_kernels_types_have_is_said(fields: dict[str, Any], hint: str) -> None:
    (refusal,) = refusals(Workload(tables=(replace(TABLE_0, **fields),)), topology(8, 4))
    assert refusal.problem.hint == hint


def test_places_are_distinct_ranks_and_within_a_node_where_they_must_be() -> None:
    ranks = Topology(hardware=example_hardware(), world_size=4, local_world_size=2)
    columns = TableOption(sharding_type=ShardingType.TABLE_COLUMN_WISE, num_column_shards=2)
    rows = TableOption(sharding_type=ShardingType.TABLE_ROW_WISE)
    assert list(places(ranks, columns, range(4))) == [(0, 1), (2, 3)]
    assert list(places(ranks, rows, [3, 1, 0, 2])) == [(2,), (0,)]
