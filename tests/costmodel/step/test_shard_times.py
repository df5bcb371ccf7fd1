"""Seconds of single shards, on the test machine: 1 TB/s of HBM, 100 GB/s links, W = 4, P = 2."""

from dataclasses import replace

import pytest
from machines import machine, topology
from plans import BATCH, sharding, table, workload

from costmodel.base.units import GB
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.workload import EmbeddingTable, Pipeline
from costmodel.inputs.distribution import Zipf
from costmodel.kernels.embedding import lookup_time
from costmodel.kernels.lookup_shards import LookupShard, LookupShards
from costmodel.step.loads import shard_loads
from costmodel.step.shard_times import ShardTime, ShardTimer
from sharders.problem.options import make_sharding
from sharders.problem.sharding_problem import ShardingProblem

FOUR = topology(4, 2)


def times(
    kind: ShardingType, one: EmbeddingTable | None = None, where: Topology = FOUR
) -> list[ShardTime]:
    one = one or table()
    ranks = tuple(range(where.world_size)) if kind.everywhere else (0,)
    return ShardTimer(workload(one), where).of([sharding(one, kind, ranks, where)])[0]


def test_every_option_has_the_load_that_searches_compare() -> None:
    tables = table("a"), table("b", dim=128, weighted=True), table("c", ids=0.5)
    problem = ShardingProblem.of(workload(*tables), FOUR)
    arrays = problem.groundwork.arrays
    options = [
        (one, option) for one in problem.workload.tables for option in problem.options[one.name]
    ]
    found = ShardTimer(problem.workload, FOUR).of([
        make_sharding(one, FOUR, option, [0] * option.num_ranks) for one, option in options
    ])
    largest = [max(each.load for each in own) for own in found]
    assert len({option.sharding_type for _, option in options}) == len(ShardingType)
    assert largest == pytest.approx(arrays.shard_load.tolist())


def test_both_passes_of_a_lookup_are_its_kernels_without_their_latency() -> None:
    # a forward kernel and fourteen of the backward, of 2 us each
    one = table()
    (found,) = times(ShardingType.TABLE_WISE, one)
    whole = LookupShards.of([LookupShard.whole(one, 4 * BATCH, ComputeKernel.FUSED)])
    traffic = shard_loads(workload(one), FOUR, whole).traffic
    kernels = float(lookup_time(traffic, FOUR.hardware, weighted=False)[0])
    assert found.forward + found.backward == pytest.approx(kernels - 15 * 2e-6)
    assert 0 < found.forward < found.backward


def test_the_exchanges_by_hand() -> None:
    # of 64 columns of 2 x 256 samples x 4 bytes half crosses the link, once each way:
    # 65,536 bytes at 50 GB/s are 1.31 us, 0.66 us more than at 100 GB/s; of 10 ids
    # of 8 bytes 20,480
    fast, slow = (
        times(ShardingType.TABLE_WISE, where=topology(2, hardware=machine(link=link)))[0]
        for link in (100 * GB, 50 * GB)
    )
    more = 65_536 / (100 * GB)
    assert slow.forward_exchange - fast.forward_exchange == pytest.approx(more)
    assert slow.backward_exchange - fast.backward_exchange == pytest.approx(more)
    assert slow.input_exchange - fast.input_exchange == pytest.approx(20_480 / (100 * GB))
    assert (slow.forward, slow.backward) == (fast.forward, fast.backward)


@pytest.mark.parametrize("kind", [each for each in ShardingType if not each.within_node])
def test_one_rank_exchanges_nothing(kind: ShardingType) -> None:
    for each in times(kind, where=topology(1)):
        assert each.forward_exchange == each.backward_exchange == each.input_exchange == 0
        assert each.forward > 0


def test_a_replica_is_updated_and_all_reduced_and_sends_no_outputs() -> None:
    small, large = (
        times(ShardingType.DATA_PARALLEL, replace(table(), num_embeddings=rows))
        for rows in (8_000, 800_000)
    )
    assert len(small) == len(large) == 4
    assert len({*large}) == 1
    assert large[0].forward_exchange == large[0].input_exchange == 0
    assert large[0].backward_exchange > 50 * small[0].backward_exchange
    assert large[0].backward > 10 * small[0].backward


def test_rows_that_are_not_hashed_cost_what_their_ids_are() -> None:
    first = Zipf(exponent=1.2, hot_rows_first=True)
    hot, *cold = times(ShardingType.ROW_WISE, replace(table(ids=1000.0), inputs=first))
    assert hot.input_exchange > 3 * max(each.input_exchange for each in cold)
    assert hot.forward > max(each.forward for each in cold)
    assert all(each.forward_exchange == hot.forward_exchange for each in cold)


def test_rows_come_into_a_cache_apart_only_where_they_are_prefetched() -> None:
    one = replace(table(), compute_kernels=(ComputeKernel.FUSED_UVM_CACHING,))
    placed = replace(
        sharding(one, ShardingType.TABLE_WISE, (0,), FOUR),
        compute_kernel=ComputeKernel.FUSED_UVM_CACHING,
        cache_load_factor=0.1,
    )
    found = {
        pipeline: ShardTimer(workload(one, pipeline=pipeline), FOUR).of([placed])[0][0]
        for pipeline in (Pipeline.SPARSE_DIST, Pipeline.PREFETCH)
    }
    assert found[Pipeline.SPARSE_DIST].prefetch == 0
    assert found[Pipeline.PREFETCH].prefetch > 0


def test_no_shardings_have_no_times() -> None:
    assert ShardTimer(workload(table()), FOUR).of([]) == []
