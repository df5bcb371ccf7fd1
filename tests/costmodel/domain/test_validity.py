from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_options import table_options

from costmodel.base.errors import InputError, PlanMismatchError
from costmodel.domain.hardware import Device, Topology
from costmodel.domain.plan import ComputeKernel, Shard, ShardingPlan, ShardingType, TableSharding
from costmodel.domain.validity import check_plan, fixed_block_ranks, plan_problems
from costmodel.domain.workload import DataType, EmbeddingTable, Pipeline, Pooling, Workload
from planner.examples import example_hardware
from sharders.problem.options import (
    TableOption,
    make_plan,
    make_sharding,
    options_by_name,
)

TOPOLOGY = Topology(hardware=example_hardware(), world_size=4, local_world_size=2)
TABLE = EmbeddingTable(name="ads", num_embeddings=10, embedding_dim=16)
WORKLOAD = Workload(tables=(TABLE,))
TW, RW, CW = ShardingType.TABLE_WISE, ShardingType.ROW_WISE, ShardingType.COLUMN_WISE
TWRW, TWCW = ShardingType.TABLE_ROW_WISE, ShardingType.TABLE_COLUMN_WISE


def shard(rank: int, rows: tuple[int, int] = (0, 10), columns: tuple[int, int] = (0, 16)) -> Shard:
    return Shard(
        rank=rank,
        row_offset=rows[0],
        num_rows=rows[1] - rows[0],
        column_offset=columns[0],
        num_columns=columns[1] - columns[0],
    )


def plan_of(kind: ShardingType, *shards: Shard, table: str = "ads") -> ShardingPlan:
    kernel = ComputeKernel.FUSED
    if kind is ShardingType.DATA_PARALLEL:
        kernel = ComputeKernel.DENSE
    return make_plan(
        TOPOLOGY,
        [TableSharding(table=table, sharding_type=kind, compute_kernel=kernel, shards=shards)],
    )


def problem_of(kind: ShardingType, *shards: Shard) -> str:
    (problem,) = plan_problems(WORKLOAD, TOPOLOGY, plan_of(kind, *shards))
    return problem


def test_a_whole_table_on_a_rank_is_valid() -> None:
    check_plan(WORKLOAD, TOPOLOGY, plan_of(ShardingType.TABLE_WISE, shard(3)))


def test_a_shard_wider_than_gpu_kernels_take() -> None:
    workload = Workload(tables=(replace(TABLE, embedding_dim=4096),))
    plan = plan_of(ShardingType.TABLE_WISE, shard(3, columns=(0, 4096)))
    cpu = replace(TOPOLOGY, hardware=replace(TOPOLOGY.hardware, device=Device.CPU))
    (problem,) = plan_problems(workload, TOPOLOGY, plan)
    assert problem == (
        "table `ads`: FBGEMM's GPU kernels take 2048 columns at most, not shards of 4096"
    )
    assert not plan_problems(workload, cpu, plan)
    halves = [shard(rank, columns=(2048 * rank, 2048 * (rank + 1))) for rank in (0, 1)]
    check_plan(workload, TOPOLOGY, plan_of(ShardingType.COLUMN_WISE, *halves))


def test_missing_and_foreign_tables_are_both_named() -> None:
    plan = plan_of(ShardingType.TABLE_WISE, shard(0), table="adds")
    with pytest.raises(
        PlanMismatchError, match=r"`ads` is not planned; .*`adds` is not in"
    ) as error:
        check_plan(WORKLOAD, TOPOLOGY, plan)
    assert error.value.hint


def test_a_table_planned_twice() -> None:
    once = plan_of(ShardingType.TABLE_WISE, shard(0)).tables
    assert plan_problems(WORKLOAD, TOPOLOGY, make_plan(TOPOLOGY, once * 2)) == (
        "table `ads` is planned twice",
    )


def test_a_plan_for_other_ranks() -> None:
    plan = replace(plan_of(ShardingType.TABLE_WISE, shard(0)), world_size=8, local_world_size=8)
    assert (
        "for 8 ranks, 8 a node, not for 4 ranks, 2 a node"
        in plan_problems(WORKLOAD, TOPOLOGY, plan)[0]
    )


@pytest.mark.parametrize(
    ("kind", "shards", "problem"),
    [
        (ShardingType.TABLE_WISE, (), "no shards"),
        (ShardingType.TABLE_WISE, (shard(4),), "rank 4 is out of range"),
        (ShardingType.TABLE_WISE, (shard(-1),), "rank -1 is out of range"),
        (ShardingType.TABLE_WISE, (shard(0, (0, 9)),), "hold 144 of 160"),
        (ShardingType.TABLE_WISE, (shard(0, (0, 11)),), "reaches outside"),
        (ShardingType.TABLE_WISE, (shard(0), shard(1)), "overlap"),
        (ShardingType.TABLE_WISE, (shard(0), shard(1, columns=(16, 16))), "reaches outside"),
        (ShardingType.TABLE_WISE, (shard(0, (0, 5)), shard(1, (5, 10))), "shape of table_wise"),
        (
            ShardingType.TABLE_WISE,
            (shard(0, columns=(0, 8)), shard(1, columns=(8, 16))),
            "shape of table_wise",
        ),
        (ShardingType.ROW_WISE, (shard(0, (0, 5)), shard(1, (5, 10))), "shape of row_wise"),
        (ShardingType.TABLE_ROW_WISE, (shard(1, (0, 5)), shard(2, (5, 10))), "one node"),
        (
            ShardingType.COLUMN_WISE,
            (shard(0, columns=(0, 4)), shard(1, columns=(4, 16))),
            "equal column blocks",
        ),
        (
            ShardingType.COLUMN_WISE,
            (shard(0, columns=(8, 16)), shard(1, columns=(0, 8))),
            "not listed in order, by column",
        ),
        (
            ShardingType.TABLE_COLUMN_WISE,
            (shard(1, columns=(0, 8)), shard(2, columns=(8, 16))),
            "one node",
        ),
        (ShardingType.DATA_PARALLEL, (shard(0), shard(1)), "full copy on every rank"),
        # as many elements as the table, but one part twice and one part never
        (
            ShardingType.COLUMN_WISE,
            (shard(0, columns=(0, 8)), shard(1, columns=(0, 8))),
            "equal column blocks",
        ),
    ],
)
def test_wrong_shards_are_described(
    kind: ShardingType, shards: tuple[Shard, ...], problem: str
) -> None:
    assert problem in problem_of(kind, *shards)


def test_dense_is_for_data_parallel_and_unconstrained_tables() -> None:
    dense = TableSharding(
        table="ads",
        sharding_type=ShardingType.TABLE_WISE,
        compute_kernel=ComputeKernel.DENSE,
        shards=(shard(0),),
    )
    assert not plan_problems(WORKLOAD, TOPOLOGY, make_plan(TOPOLOGY, [dense]))
    uvm = replace(dense, compute_kernel=ComputeKernel.FUSED_UVM)
    assert (
        "`fused_uvm` is not allowed"
        in plan_problems(WORKLOAD, TOPOLOGY, make_plan(TOPOLOGY, [uvm]))[0]
    )


@pytest.mark.parametrize(
    "workload",
    [
        Workload(tables=(replace(TABLE, sharding_types=(ShardingType.TABLE_WISE,)),)),
        Workload(tables=(replace(TABLE, pooling=Pooling.NONE),)),
        Workload(tables=(TABLE,), pipeline=Pipeline.DLRM),
    ],
)
def test_constraints_pooling_and_pipeline_forbid_types(workload: Workload) -> None:
    plan = plan_of(ShardingType.TABLE_ROW_WISE, shard(2, (0, 5)), shard(3, (5, 10)))
    assert "`table_row_wise` is not allowed here" in plan_problems(workload, TOPOLOGY, plan)[0]


def test_what_is_left_of_types_and_kernels_may_be_nothing() -> None:
    unpooled = replace(TABLE, pooling=Pooling.NONE, sharding_types=(TWRW,))
    plan = plan_of(TWRW, shard(2, (0, 5)), shard(3, (5, 10)))
    (problem,) = plan_problems(Workload(tables=(unpooled,)), TOPOLOGY, plan)
    assert problem.endswith("is not allowed here, only nothing")
    fused = Workload(tables=(replace(TABLE, compute_kernels=(ComputeKernel.FUSED,)),))
    replicas = plan_of(ShardingType.DATA_PARALLEL, *map(shard, range(4)))
    (problem,) = plan_problems(fused, TOPOLOGY, replicas)
    assert problem.endswith("is not allowed for data_parallel, only none")


@pytest.mark.parametrize(("share", "fits"), [(0.0, False), (1e-9, True), (1.0, True), (1.1, False)])
def test_a_cache_holds_a_share_of_the_rows(*, share: float, fits: bool) -> None:
    (whole,) = plan_of(ShardingType.TABLE_WISE, shard(0)).tables
    cached = replace(whole, compute_kernel=ComputeKernel.FUSED_UVM_CACHING, cache_load_factor=share)
    work = Workload(tables=(replace(TABLE, compute_kernels=(cached.compute_kernel,)),))
    assert (not plan_problems(work, TOPOLOGY, make_plan(TOPOLOGY, [cached]))) == fits


def test_long_lists_are_cut() -> None:
    tables = tuple(replace(TABLE, name=f"t{index}") for index in range(20))
    with pytest.raises(PlanMismatchError, match="and 8 more problems"):
        check_plan(Workload(tables=tables), TOPOLOGY, make_plan(TOPOLOGY, []))
    with pytest.raises(PlanMismatchError, match=r"`t9` is not planned$"):
        check_plan(Workload(tables=tables[:12]), TOPOLOGY, make_plan(TOPOLOGY, []))


@given(
    rows=st.integers(1, 50),
    dim=st.sampled_from((4, 16, 48, 128)),
    world=st.sampled_from(((1, 1), (4, 4), (4, 2), (6, 3))),
    data=st.data(),
)
def test_every_option_on_legal_ranks_is_valid(
    rows: int, dim: int, world: tuple[int, int], data: st.DataObject
) -> None:
    table = EmbeddingTable(name="t", num_embeddings=rows, embedding_dim=dim)
    workload = Workload(tables=(table,))
    topology = Topology(hardware=TOPOLOGY.hardware, world_size=world[0], local_world_size=world[1])
    option = data.draw(st.sampled_from(table_options(workload, topology, table)))
    ranks = data.draw(legal_ranks(option, topology))
    plan = make_plan(topology, [make_sharding(table, topology, option, ranks)])
    assert plan_problems(workload, topology, plan) == ()


def legal_ranks(option: TableOption, topology: Topology) -> st.SearchStrategy[list[int]]:
    ranks = st.integers(0, topology.world_size - 1)
    if option.sharding_type is ShardingType.TABLE_COLUMN_WISE:
        local = topology.local_world_size
        return ranks.flatmap(
            lambda rank: st.lists(
                st.integers(rank // local * local, rank // local * local + local - 1),
                min_size=option.num_ranks,
                max_size=option.num_ranks,
            )
        )
    return st.lists(ranks, min_size=option.num_ranks, max_size=option.num_ranks)


@pytest.mark.parametrize(
    ("kind", "ranks", "named", "blocks"),
    [
        (TW, (3,), False, (3,)), (TW, (4,), False, None), (TW, (0, 1), False, None),
        (RW, (0, 1, 2, 3), False, ()), (RW, (0, 1, 2), False, None),
        # 16 columns make 2 or 4 blocks, or one where the type is asked for by name
        (CW, (2, 1), False, (2, 1)), (CW, (0, 1, 2), False, None), (CW, (0, 4), False, None),
        (CW, (1,), False, None), (CW, (1,), True, (1,)),
        (TWCW, (2, 3), False, (2, 3)), (TWCW, (1, 2), False, None),
        # all ranks of a node, or one for all where such a type is asked for by name
        (TWRW, (2, 3), False, (2,)), (TWRW, (3,), False, None), (TWRW, (3,), True, (2,)),
        (TWRW, (0, 1, 2, 3), False, None),
        (ShardingType.GRID_SHARD, (0, 1, 2, 3), False, (0, 2)),
    ],
)  # fmt: skip
def test_ranks_that_are_fixed_by_hand(
    *, kind: ShardingType, ranks: tuple[int, ...], named: bool, blocks: tuple[int, ...] | None
) -> None:
    table = replace(TABLE, ranks=ranks, sharding_types=(kind,) if named else ())
    assert fixed_block_ranks(WORKLOAD, TOPOLOGY, table, kind) == blocks


@pytest.mark.parametrize(
    ("fixed", "kind", "ranks", "problem"),
    [
        ((3,), ShardingType.TABLE_WISE, (3,), None),
        ((3,), ShardingType.TABLE_WISE, (2,), "`table_wise` on rank 2 is not on its rank 3"),
        ((1, 2), ShardingType.COLUMN_WISE, (1, 2), None),
        ((2, 1), ShardingType.COLUMN_WISE, (1, 2), "on ranks 1, 2 is not on its ranks 2, 1"),
        ((1, 2), ShardingType.ROW_WISE, (), "on ranks 0, 1, 2, 3 is not on its ranks 1, 2"),
        ((0, 1, 2, 3), ShardingType.ROW_WISE, (), None),
        ((2, 3), ShardingType.TABLE_ROW_WISE, (3,), None),
        ((2,), ShardingType.TABLE_ROW_WISE, (3,), "on ranks 2, 3 is not on its rank 2"),
    ],
)
def test_a_table_is_where_the_user_wants_it(
    fixed: tuple[int, ...], kind: ShardingType, ranks: tuple[int, ...], problem: str | None
) -> None:
    option = TableOption(sharding_type=kind, num_column_shards=max(1, len(ranks)))
    sharding = make_sharding(TABLE, TOPOLOGY, option, ranks)
    workload = Workload(tables=(replace(TABLE, ranks=fixed),))
    problems = plan_problems(workload, TOPOLOGY, make_plan(TOPOLOGY, [sharding]))
    assert (problem is None) == (not problems)
    assert problem is None or problem in problems[0]


@pytest.mark.parametrize(
    "kind", [ShardingType.ROW_WISE, ShardingType.TABLE_ROW_WISE, ShardingType.GRID_SHARD]
)
def test_int8_communication_refuses_row_shards_and_offers_none(kind: ShardingType) -> None:
    int8 = replace(WORKLOAD, comms_backward=DataType.INT8)
    option = next(o for o in table_options(WORKLOAD, TOPOLOGY, TABLE) if o.sharding_type is kind)
    sharding = make_sharding(TABLE, TOPOLOGY, option, (0,) * option.num_ranks)
    (problem,) = plan_problems(int8, TOPOLOGY, make_plan(TOPOLOGY, [sharding]))
    assert f"`{kind}` sums outputs on the way, which int8 communication cannot" in problem
    assert kind not in {o.sharding_type for o in table_options(int8, TOPOLOGY, TABLE)}
    with pytest.raises(InputError) as refused:
        table_options(int8, TOPOLOGY, replace(TABLE, sharding_types=(kind,)))
    assert "int8 communication cannot sum row shards" in str(refused.value.problems[0].hint)


@pytest.mark.parametrize("data_type", [DataType.INT8, DataType.FP8])
def test_dense_kernels_hold_no_weights_of_a_byte_and_are_not_offered(data_type: DataType) -> None:
    table = replace(TABLE, data_type=data_type)
    work = Workload(tables=(table,))
    option = TableOption(
        sharding_type=ShardingType.DATA_PARALLEL, compute_kernel=ComputeKernel.DENSE
    )
    plan = make_plan(TOPOLOGY, [make_sharding(table, TOPOLOGY, option)])
    (problem,) = plan_problems(work, TOPOLOGY, plan)
    assert f"kernel `dense` cannot hold weights of {data_type}" in problem
    assert {o.compute_kernel for o in table_options(work, TOPOLOGY, table)} == {ComputeKernel.FUSED}
    beside = replace(TABLE, name="fp32")
    both = options_by_name(replace(work, tables=(table, beside)), TOPOLOGY)
    assert option in both["fp32"]
    assert option not in both[table.name]


def test_int8_communication_takes_row_shards_of_unpooled_tables() -> None:
    rows = replace(TABLE, pooling=Pooling.NONE, sharding_types=(ShardingType.ROW_WISE,))
    int8 = replace(WORKLOAD, tables=(rows,), comms_forward=DataType.INT8)
    assert table_options(int8, TOPOLOGY, rows)
