"""Tables in turn over nodes, rows over their GPUs."""

from dataclasses import replace
from random import Random

from machines import topology

from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import EmbeddingTable, Workload
from sharders.baselines.table_row_wise import TableRowWise
from sharders.problem.sharding_problem import Budget, ShardingProblem

TABLES = tuple(
    EmbeddingTable(name=f"t{i}", num_embeddings=10**5, embedding_dim=64, pooling_factor=1.0 + i)
    for i in range(5)
)


def sharded(tables: tuple[EmbeddingTable, ...], nodes: int) -> list[tuple[str, tuple[int, ...]]]:
    workload = Workload(tables=tables, local_batch_size=64)
    problem = ShardingProblem.of(workload, topology(6, 6 // nodes))
    plan = TableRowWise().shard(problem, Budget(), Random(0)).plan
    return [(each.sharding_type.value, each.ranks) for each in plan.tables]


def test_tables_go_to_the_nodes_in_turn() -> None:
    of_nodes = [(0, 1), (2, 3), (4, 5), (0, 1), (2, 3)]
    assert sharded(TABLES, 3) == [("table_row_wise", ranks) for ranks in of_nodes]


def test_a_node_without_room_is_passed_over() -> None:
    workload = Workload(tables=TABLES, local_batch_size=64)
    capacity = ShardingProblem.of(workload, topology(6, 2)).capacity
    giant = replace(TABLES[0], num_embeddings=int(1.1 * capacity / (64 * 4)))
    whole = sharded((giant, TABLES[1], TABLES[2], replace(giant, name="other")), 3)
    assert [ranks for _, ranks in whole] == [(0, 1), (2, 3), (4, 5), (2, 3)]


def test_tables_that_may_not_be_so_have_rows_everywhere_or_another_type() -> None:
    others = [
        replace(TABLES[0], sharding_types=(ShardingType.TABLE_WISE, ShardingType.ROW_WISE)),
        replace(TABLES[1], sharding_types=(ShardingType.TABLE_WISE,)),
    ]
    kinds = [kind for kind, _ in sharded((*others, *TABLES[2:]), 3)]
    assert kinds == ["row_wise", "table_wise", *["table_row_wise"] * 3]
