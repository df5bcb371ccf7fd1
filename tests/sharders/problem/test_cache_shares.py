from dataclasses import replace
from random import Random

import pytest
from machines import machine, topology
from table_options import table_options

from costmodel.base.units import GIB
from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.validity import check_plan
from costmodel.domain.workload import DenseModel, EmbeddingTable, Workload
from costmodel.inputs.distribution import Zipf, unique_curve
from costmodel.memory.rank_memory import check_memory
from sharders.baselines.ilp import Ilp
from sharders.greedy.cost_greedy import CostGreedy
from sharders.problem.cache_shares import NEARLY_ALL, cache_shares
from sharders.problem.options import make_sharding, option_of
from sharders.problem.sharding_problem import Budget, ShardingProblem

TABLE = EmbeddingTable(
    name="t",
    num_embeddings=4_000_000,
    embedding_dim=32,
    pooling_factor=10.0,
    sharding_types=(ShardingType.TABLE_WISE,),
    compute_kernels=(ComputeKernel.FUSED_UVM_CACHING,),
    inputs=Zipf(exponent=1.05),
)

EITHER = replace(TABLE, compute_kernels=(ComputeKernel.FUSED, ComputeKernel.FUSED_UVM_CACHING))


def _workload(*tables: EmbeddingTable) -> Workload:
    return Workload(
        tables=tables, dense=DenseModel(bottom_mlp=(16,), top_mlp=(16, 1)), local_batch_size=1024
    )


@pytest.mark.parametrize("exponent", [0.6, 0.9, 1.05, 1.3])
def test_shares_leave_what_they_may_and_the_next_smaller_leave_more(exponent: float) -> None:
    table = replace(EITHER, inputs=Zipf(exponent=exponent))
    ((own, *shares),) = cache_shares(_workload(table), topology(2), [table])
    assert own is None
    curve = unique_curve(table.inputs, table.num_embeddings)
    lookups = 2 * 1024 * 10.0
    for share in shares:
        assert share is not None
        missed = curve.warm_misses(lookups, share * table.num_embeddings)
        smaller = curve.warm_misses(lookups, share / 2**0.5 * table.num_embeddings)
        assert missed <= 0.5 * curve.unique_rows(lookups)
        assert smaller > missed


def test_hotter_rows_need_smaller_caches() -> None:
    largest = []
    for exponent in (1.2, 0.9):
        table = replace(EITHER, inputs=Zipf(exponent=exponent))
        (shares,) = cache_shares(_workload(table), topology(2), [table])
        largest.append(max(filter(None, shares)))
    assert largest[0] < largest[1]


def test_nearly_all_rows_are_cached_of_tables_that_may_not_be_in_hbm_as_a_whole() -> None:
    tables = [
        TABLE, replace(EITHER, name="either"), replace(TABLE, name="given", cache_load_factor=0.2)
    ]  # fmt: skip
    only, either, given = cache_shares(_workload(*tables), topology(2), tables)
    assert only == (*either, NEARLY_ALL)
    assert given == (None,)


def test_shardings_keep_the_size_of_their_cache() -> None:
    ranks = topology(2)
    options = table_options(_workload(TABLE), ranks, TABLE)
    assert len({option.cache_load_factor for option in options}) == len(options) > 1
    for option in options:
        assert option_of(make_sharding(TABLE, ranks, option, (0,)), TABLE) == option


def test_the_program_caches_more_where_hbm_has_room_for_more() -> None:
    # both tables are in host memory; 0.5 GiB each
    tables = tuple(replace(TABLE, name=name) for name in "ab")
    workload = _workload(*tables)
    cached = []
    for memory in (0.3, 2.0):
        ranks = topology(2, 2, machine(memory=memory * GIB))
        problem = ShardingProblem.of(workload, ranks)
        start = CostGreedy().shard(problem, Budget(), Random(0)).plan
        solution = Ilp().solve(problem, Budget(), start)
        assert solution is not None
        check_plan(workload, ranks, solution.plan)
        check_memory(workload, ranks, solution.plan)
        shares = [each.cache_load_factor or TABLE.cache_share for each in solution.plan.tables]
        cached.append(sum(shares))
    assert cached[0] < cached[1]
