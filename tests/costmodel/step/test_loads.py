from dataclasses import replace

import numpy as np
import pytest
from machines import topology
from plans import BATCH, plan, table, workload

from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.workload import DataType, EmbeddingTable, Optimizer, Pooling
from costmodel.kernels.traffic import Traffic
from costmodel.step.loads import GroupLoad, PlanLoads

FOUR = topology(4, 2)
LOOKUPS = BATCH * 4 * 10
"""Ids of one table in the global batch."""


def load(kind: ShardingType, *ranks: int, one: EmbeddingTable | None = None) -> GroupLoad:
    work = workload(one or table())
    (group,) = PlanLoads(work, FOUR).groups(plan(work, FOUR, {"t": (kind, ranks)}))
    return group


def test_table_wise_is_all_on_its_rank() -> None:
    group = load(ShardingType.TABLE_WISE, 2)
    assert group.ids.tolist() == [0, 0, LOOKUPS, 0]
    assert group.columns.tolist() == [0, 0, 64, 0]
    assert group.features.tolist() == [0, 0, 1, 0]
    assert (group.sent_ids, group.sent_features) == (LOOKUPS / 4, 1)


def test_column_wise_sends_the_ids_to_every_owner() -> None:
    group = load(ShardingType.COLUMN_WISE, 0, 3)
    assert group.ids.tolist() == [LOOKUPS, 0, 0, LOOKUPS]
    assert group.columns.tolist() == [32, 0, 0, 32]
    assert group.sent_ids == 2 * LOOKUPS / 4


def test_row_wise_spreads_ids_and_repeats_columns() -> None:
    group = load(ShardingType.ROW_WISE)
    assert group.ids == pytest.approx(np.full(4, LOOKUPS / 4))
    assert group.columns.tolist() == [64] * 4
    assert group.features.tolist() == [1] * 4
    assert group.sent_ids == pytest.approx(LOOKUPS / 4)


def test_table_row_wise_stays_in_its_node() -> None:
    group = load(ShardingType.TABLE_ROW_WISE, 2)
    assert group.ids == pytest.approx([0, 0, LOOKUPS / 2, LOOKUPS / 2])
    assert group.columns.tolist() == [0, 0, 64, 64]


def test_grid_shard_is_column_blocks_over_nodes() -> None:
    group = load(ShardingType.GRID_SHARD, 0, 2)
    assert group.ids == pytest.approx(np.full(4, LOOKUPS / 2))
    assert group.columns.tolist() == [32] * 4


def test_data_parallel_looks_up_its_own_batch() -> None:
    group = load(ShardingType.DATA_PARALLEL)
    assert group.ids == pytest.approx(np.full(4, LOOKUPS / 4))
    assert list(group.parameter_bytes.values()) == [8000 * 64 * 4]


def test_unpooled_output_has_a_row_per_id() -> None:
    group = load(ShardingType.TABLE_WISE, 0, one=table(pooling=Pooling.NONE))
    assert group.columns.tolist() == [640, 0, 0, 0]
    assert group.table_columns == 640


def test_unpooled_rows_come_from_where_they_are() -> None:
    group = load(ShardingType.ROW_WISE, one=table(pooling=Pooling.NONE))
    assert group.columns == pytest.approx(np.full(4, 640 / 4))


def test_a_group_adds_up_its_tables() -> None:
    work = workload(table("a"), table("b", dim=32, ids=2))
    both = plan(
        work, FOUR, {"a": (ShardingType.TABLE_WISE, (1,)), "b": (ShardingType.TABLE_WISE, (1,))}
    )
    (group,) = PlanLoads(work, FOUR).groups(both)
    assert group.columns.tolist() == [0, 96, 0, 0]
    assert group.ids[1] == BATCH * 4 * 12
    (traffic,) = group.traffic.values()
    assert traffic[1, Traffic.LOOKUPS] == BATCH * 4 * 12


def test_modules_types_and_weights_make_groups() -> None:
    work = workload(table("a"), table("b", weighted=True), table("c", pooling=Pooling.NONE))
    kinds = {one.name: (ShardingType.TABLE_WISE, (0,)) for one in work.tables}
    assert len(PlanLoads(work, FOUR).groups(plan(work, FOUR, kinds))) == 3
    kinds["a"] = (ShardingType.ROW_WISE, ())
    assert len(PlanLoads(work, FOUR).groups(plan(work, FOUR, kinds))) == 3


def test_one_kernel_per_data_type() -> None:
    work = workload(table("a"), table("b", data_type=DataType.FP16))
    kinds = {one.name: (ShardingType.TABLE_WISE, (0,)) for one in work.tables}
    (group,) = PlanLoads(work, FOUR).groups(plan(work, FOUR, kinds))
    assert len(group.traffic) == 2


def test_tables_of_two_optimizers_have_a_kernel_each() -> None:
    own = replace(table("b"), optimizer=Optimizer.ADAM)
    work = workload(table("a"), own)
    kind = ShardingType.TABLE_WISE
    (load,) = PlanLoads(work, FOUR).groups(plan(work, FOUR, {"a": (kind, (0,)), "b": (kind, (0,))}))
    written = {key.optimizer: row[0][Traffic.BACKWARD_HBM] for key, row in load.traffic.items()}
    # Adam reads and writes two moments beside each weight
    assert written["adam"] > 1.5 * written[""]
    again = replace(work, optimizer=Optimizer.ADAM)
    (load,) = PlanLoads(again, FOUR).groups(
        plan(again, FOUR, {"a": (kind, (0,)), "b": (kind, (0,))})
    )
    assert len(load.traffic) == 1


def test_what_was_loaded_before_changes_nothing() -> None:
    work = workload(table("a"), table("b"))
    kinds = [
        {"a": (ShardingType.ROW_WISE, ()), "b": (ShardingType.TABLE_WISE, (1,))},
        {"a": (ShardingType.DATA_PARALLEL, ()), "b": (ShardingType.COLUMN_WISE, (1, 2))},
        {"a": (ShardingType.TABLE_WISE, (3,)), "b": (ShardingType.TABLE_ROW_WISE, (0,))},
    ]
    plans = [plan(work, FOUR, each) for each in kinds]
    for kernel, share in ((ComputeKernel.FUSED_UVM_CACHING, 0.1), (ComputeKernel.FUSED_UVM, None)):
        first = replace(plans[0].tables[1], compute_kernel=kernel, cache_load_factor=share)
        plans.append(replace(plans[0], tables=(plans[0].tables[0], first)))
    known = PlanLoads(work, FOUR)
    for each in (*plans, *plans):
        for one, alone in zip(known.groups(each), PlanLoads(work, FOUR).groups(each), strict=True):
            for name in GroupLoad.__dataclass_fields__:
                np.testing.assert_equal(getattr(one, name), getattr(alone, name))
