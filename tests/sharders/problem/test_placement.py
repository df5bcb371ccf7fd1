from dataclasses import replace
from random import Random

import pytest
from load_objective import with_room

from costmodel.base.errors import InfeasibleError
from costmodel.base.units import GB
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ComputeKernel, ShardingPlan, ShardingType
from costmodel.domain.workload import EmbeddingTable, Optimizer, Workload
from costmodel.inputs.distribution import Zipf
from planner.examples import example_hardware, example_problem, example_workload
from sharders.greedy.one_pass import LookupGreedy, SizeGreedy
from sharders.problem.sharding_problem import Budget, ShardingProblem

TABLE = EmbeddingTable(name="a", num_embeddings=10_000_000, embedding_dim=64)
"""2.56 GB."""


def problem(*tables: EmbeddingTable, room: float, ranks: int = 4) -> ShardingProblem:
    """Give every rank ``room`` bytes for tables."""
    workload = Workload(tables=tables, local_batch_size=16, optimizer=Optimizer.SGD)
    topology = Topology(hardware=example_hardware(), world_size=ranks, local_world_size=2)
    return with_room(workload, topology, room)


def plan_of(posed: ShardingProblem) -> ShardingPlan:
    return SizeGreedy().shard(posed, Budget(), Random(0)).plan


def test_a_table_that_fits_stays_whole() -> None:
    assert plan_of(problem(TABLE, room=3 * GB)).tables[0].sharding_type is ShardingType.TABLE_WISE


def test_a_large_table_is_split_by_columns_first() -> None:
    (sharding,) = plan_of(problem(TABLE, room=2 * GB)).tables
    assert sharding.sharding_type is ShardingType.COLUMN_WISE
    assert len(set(sharding.ranks)) == 2


def test_a_table_that_must_not_be_narrower_is_split_by_rows() -> None:
    (sharding,) = plan_of(problem(replace(TABLE, min_shard_dim=64), room=2 * GB)).tables
    assert sharding.sharding_type is ShardingType.TABLE_ROW_WISE


def test_host_memory_is_used_only_where_hbm_has_no_room() -> None:
    kernels = (ComputeKernel.FUSED, ComputeKernel.FUSED_UVM)
    tables = [replace(TABLE, name=name, compute_kernels=kernels) for name in "abcde"]
    plan = plan_of(problem(*tables, room=2.6 * GB))
    used = sorted(sharding.compute_kernel for sharding in plan.tables)
    assert used == [ComputeKernel.FUSED] * 4 + [ComputeKernel.FUSED_UVM]


def test_only_allowed_types_are_used() -> None:
    table = replace(TABLE, sharding_types=(ShardingType.ROW_WISE,))
    assert plan_of(problem(table, room=3 * GB)).tables[0].sharding_type is ShardingType.ROW_WISE


def test_memory_may_force_the_order_by_size() -> None:
    # by lookups, the four small tables go first, one to each rank, and leave no room for the
    # large ones; by size all fit
    whole = (ShardingType.TABLE_WISE,)
    small = [
        replace(
            TABLE, name=f"s{i}", num_embeddings=2_000_000, pooling_factor=9, sharding_types=whole
        )
        for i in range(4)
    ]
    large = [replace(TABLE, name=f"l{i}", sharding_types=whole) for i in range(2)]
    posed = problem(*small, *large, room=2.6 * GB)
    plan = LookupGreedy().shard(posed, Budget(), Random(0)).plan
    assert {plan.table("l0").ranks, plan.table("l1").ranks} == {(0,), (1,)}


def test_the_table_without_room_is_named() -> None:
    table = replace(TABLE, sharding_types=(ShardingType.TABLE_WISE,))
    with pytest.raises(
        InfeasibleError, match=r"table `a` needs 2.4 GiB, and at most 1.9 GiB is free"
    ):
        plan_of(problem(table, room=2 * GB))


def test_too_many_tables_are_refused_by_their_sum() -> None:
    tables = [replace(TABLE, name=str(index)) for index in range(5)]
    with pytest.raises(
        InfeasibleError, match=r"the tables need 11.9 GiB, and 4 × example leave 7.5"
    ):
        plan_of(problem(*tables, room=2 * GB))


@pytest.mark.parametrize("hashed", [True, False])
def test_sizes_of_options_are_sums_over_all_shards(*, hashed: bool) -> None:
    workload = example_workload(12, seed=1)
    kernels = (ComputeKernel.FUSED, ComputeKernel.FUSED_UVM_CACHING)
    tables = tuple(
        replace(
            table,
            inputs=Zipf(exponent=1.1, hot_rows_first=not hashed),
            compute_kernels=kernels if number % 2 else (),
        )
        for number, table in enumerate(workload.tables)
    )
    posed = example_problem(replace(workload, tables=tables), world_size=16, num_nodes=2)
    arrays = posed.groundwork.arrays
    for number, option in enumerate(arrays.flat):
        table = posed.workload.tables[arrays.codes.table[number]]
        expected = [float(size.total) for size in posed.groundwork.option_bytes(table, option)]
        assert arrays.total_bytes[number] == pytest.approx(sum(expected))
        assert arrays.largest_bytes[number] == max(expected)
