"""Lookup kernels. On the test machine 1 MB of HBM traffic takes 1 us, of L2 traffic 0.25 us, 1 MB
over PCIe 100 us; a kernel 2 us at the least; 10,000 keys are sorted in 1 us.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import machine

from costmodel.base.units import US
from costmodel.domain.hardware import HardwareProfile, Source
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType, EmbeddingTable, Optimizer, Pooling
from costmodel.inputs.distribution import Zipf, lookup_share, unique_curve
from costmodel.kernels.embedding import (
    backward_bound,
    backward_time,
    combine,
    embedding_estimate,
    forward_bound,
    forward_time,
    lookup_rates,
)
from costmodel.kernels.lookup_shards import LookupShard, LookupShards
from costmodel.kernels.shard_traffic import (
    BAG_START_ROWS,
    CORE_ROW_TIME,
    LINE_BYTES,
    MISS_BYTES,
    ROW_GATHER_TIME,
    SMALL_ROW_BYTES,
    UVM_UPDATE_RATIO,
    WARP_BYTES,
    Caches,
    fetch_times,
    gpu_caches,
    shard_traffic,
)
from costmodel.kernels.traffic import (
    NUM_TRAFFIC,
    Traffic,
)
from planner.files.profiles import load_profile

ONE_ROW = EmbeddingTable(
    name="t", num_embeddings=1, embedding_dim=64, pooling_factor=4.0, inputs=Zipf(exponent=0.0)
)
"""Every lookup hits the same 256 bytes."""
WIDE = EmbeddingTable(
    name="t", num_embeddings=10**9, embedding_dim=64, pooling_factor=4.0, inputs=Zipf(exponent=0.0)
)
"""No two lookups hit the same row."""


def shard(
    table: EmbeddingTable, kernel: ComputeKernel = ComputeKernel.FUSED, **more: object
) -> LookupShard:
    whole = LookupShard(
        table=table,
        first_row=0,
        num_rows=table.num_embeddings,
        num_columns=table.embedding_dim,
        num_samples=1000.0,
        compute_kernel=kernel,
        cache_load_factor=0.2,
    )
    return replace(whole, **more)  # type: ignore[arg-type]


L2_ALONE = Caches(l2_bytes=1e6)
WARPS = gpu_caches(machine().gpu)._replace(l2_bytes=1e6)
"""Of a GPU with an L2 of 1 MB and no L1."""


def traffic(
    table: EmbeddingTable,
    kernel: ComputeKernel = ComputeKernel.FUSED,
    optimizer: Optimizer = Optimizer.SGD,
    caches: Caches = L2_ALONE,
    **more: object,
) -> np.ndarray:
    return np.array(
        shard_traffic(
            shard(table, kernel, **more),
            optimizer=optimizer,
            output_type=DataType.FP32,
            caches=caches,
        )
    )


OUTPUT = 1000 * 256
IDS = 4000 * 8 + 1000 * 8


def test_forward_traffic_of_one_row_by_hand() -> None:
    # HBM sees the row once; ids, offsets, and 1000 outputs of 256 bytes
    got = traffic(ONE_ROW)
    assert got[Traffic.FORWARD_HBM] == pytest.approx(256 + IDS + OUTPUT)
    assert got[Traffic.FORWARD_L2] == pytest.approx(4000 * 256 + IDS + OUTPUT)
    assert got[Traffic.LOOKUPS] == 4000


def test_forward_traffic_without_reuse_reads_every_row() -> None:
    got = traffic(WIDE)
    assert got[Traffic.FORWARD_HBM] == pytest.approx(4000 * 256 + IDS + OUTPUT, rel=1e-3)


def test_backward_reads_and_writes_every_distinct_row_with_its_state() -> None:
    # Adam keeps 2 x 64 numbers a row
    sgd = traffic(WIDE)[Traffic.BACKWARD_HBM]
    adam = traffic(WIDE, optimizer=Optimizer.ADAM)[Traffic.BACKWARD_HBM]
    assert sgd == pytest.approx(2 * 4000 * 256 + OUTPUT, rel=1e-3)
    assert adam - sgd == pytest.approx(2 * 4000 * 512, rel=1e-3)


def test_a_row_s_state_is_at_least_one_sector() -> None:
    sgd = traffic(WIDE)[Traffic.BACKWARD_HBM]
    adagrad = traffic(WIDE, optimizer=Optimizer.ROWWISE_ADAGRAD)[Traffic.BACKWARD_HBM]
    assert adagrad - sgd == pytest.approx(2 * 4000 * 32, rel=1e-3)


def test_narrow_rows_cost_whole_sectors() -> None:
    widths = LookupShards.of([shard(WIDE, num_columns=4), shard(WIDE, num_columns=12)])
    assert widths.row_bytes.tolist() == [32, 64]


def test_rows_of_int8_are_read_with_their_scale_and_offset() -> None:
    int8 = replace(WIDE, data_type=DataType.INT8)
    rows = LookupShards.of([shard(int8, num_columns=width) for width in (24, 28)])
    assert rows.row_bytes.tolist() == [32, 64]  # 24 + 8 and 28 + 8, in whole sectors


def test_weighted_ids_carry_four_bytes_more() -> None:
    weighted = traffic(replace(WIDE, weighted=True))
    more = weighted[Traffic.FORWARD_HBM] - traffic(WIDE)[Traffic.FORWARD_HBM]
    assert more == pytest.approx(4 * 4000)


def test_without_pooling_there_is_an_output_row_per_id() -> None:
    got = traffic(replace(WIDE, pooling=Pooling.NONE))
    assert got[Traffic.FORWARD_HBM] == pytest.approx(4000 * 256 * 2 + IDS, rel=1e-3)
    assert got[Traffic.CHAIN] == CORE_ROW_TIME


def test_a_warp_reads_what_it_needs_before_its_bag_s_first_row() -> None:
    got = traffic(WIDE, caches=WARPS)
    assert got[Traffic.CHAIN] == pytest.approx((4 + BAG_START_ROWS) * ROW_GATHER_TIME)


def on_chip(num_columns: int, data_type: DataType = DataType.FP32) -> float:
    """Return what a row takes on chip."""
    table = replace(WIDE, data_type=data_type)
    got = traffic(table, caches=WARPS, num_columns=num_columns)
    return float(got[Traffic.FORWARD_L2] - IDS - 1000 * num_columns * 4) / 4000


def test_a_row_takes_a_line_or_its_bytes_or_its_warp_s_lanes() -> None:
    assert on_chip(4) == LINE_BYTES
    assert on_chip(32, DataType.FP16) == LINE_BYTES
    assert on_chip(128) == 512
    # 160 columns are 320 bytes of FP16, and two turns of a warp of 32 lanes with four columns each
    assert on_chip(160, DataType.FP16) == pytest.approx(2 * WARP_BYTES)


@given(st.integers(1, 500), st.sampled_from([DataType.FP16, DataType.FP32]))
def test_wider_rows_never_take_less(quarter: int, data_type: DataType) -> None:
    assert on_chip(4 * quarter, data_type) <= on_chip(4 * quarter + 4, data_type)


def test_gradients_that_fit_in_the_l2_are_read_from_hbm_once() -> None:
    # 1000 samples of 64 columns are 256 kB of gradients: an L2 of 1 MB keeps them
    got = traffic(ONE_ROW, caches=WARPS)
    assert got[Traffic.BACKWARD_HBM] == pytest.approx(2 * 256 + OUTPUT)
    assert got[Traffic.BACKWARD_L2] == pytest.approx(4000 * 256 + OUTPUT + 2 * 256)


def test_gradients_beyond_the_l2_are_read_again_for_every_id() -> None:
    # an L2 of 64 kB keeps a quarter: 1/4 x 1000 + 3/4 x 4000 gradients of 256 bytes
    got = traffic(ONE_ROW, caches=WARPS._replace(l2_bytes=64e3))
    assert got[Traffic.BACKWARD_HBM] == pytest.approx(2 * 256 + 3250 * 256)


def test_every_unpooled_id_has_a_gradient_of_its_own() -> None:
    got = traffic(replace(ONE_ROW, pooling=Pooling.NONE), caches=WARPS._replace(l2_bytes=1e3))
    assert got[Traffic.BACKWARD_HBM] == pytest.approx(2 * 256 + 4000 * 256)


def test_uvm_moves_distinct_rows_over_pcie() -> None:
    got = traffic(WIDE, ComputeKernel.FUSED_UVM)
    rows = 4000 * 256
    assert got[Traffic.FORWARD_UVM] == pytest.approx(rows, rel=1e-3)
    assert got[Traffic.BACKWARD_UVM] == pytest.approx(UVM_UPDATE_RATIO * rows, rel=1e-3)
    assert got[Traffic.FORWARD_HBM] == pytest.approx(IDS + OUTPUT)


def test_a_uvm_cache_leaves_the_misses() -> None:
    # a fifth of the rows is cached, and uniform ids miss four times out of five
    got = traffic(WIDE, ComputeKernel.FUSED_UVM_CACHING)
    each = UVM_UPDATE_RATIO * 256 + MISS_BYTES
    assert got[Traffic.FORWARD_UVM] == pytest.approx(0.8 * 4000 * each, rel=0.02)
    assert got[Traffic.BACKWARD_UVM] == 0.0


def test_a_uvm_cache_is_prefetched_whether_or_not_ids_miss() -> None:
    small = replace(WIDE, num_embeddings=1000)
    whole = {"caches": WARPS, "cache_load_factor": 1.0}
    cached = traffic(small, ComputeKernel.FUSED_UVM_CACHING, **whole)
    plain = traffic(small, caches=WARPS)
    prefetched = 364 * 4000 + 384 * plain[Traffic.ROWS]
    for column in (Traffic.FORWARD_HBM, Traffic.FORWARD_L2):
        assert cached[column] - plain[column] == pytest.approx(prefetched)


def test_rows_without_a_place_in_the_cache_are_read_and_updated_in_host_memory() -> None:
    # 4000 rows a batch and 3000 places: a thousand rows of this batch, or, where those of the
    # batch in training are locked, of two batches every one keeps 1500
    small = {"cache_load_factor": 3000 / WIDE.num_embeddings}
    alone = traffic(WIDE, ComputeKernel.FUSED_UVM_CACHING, **small)
    locked = traffic(WIDE, ComputeKernel.FUSED_UVM_CACHING, batches_in_cache=2, **small)
    for got, without_place in ((alone, 1000), (locked, 2500)):
        updated = UVM_UPDATE_RATIO * without_place * 256
        assert got[Traffic.BACKWARD_UVM] == pytest.approx(updated, rel=0.02)
    # in HBM the others are, and one number of 32 bytes for every row; gradients of 1000 bags
    adagrad = traffic(WIDE, ComputeKernel.FUSED_UVM_CACHING, Optimizer.ROWWISE_ADAGRAD, **small)
    updated = 2 * (3000 * 256 + 4000 * 32) + 1000 * 256
    assert adagrad[Traffic.BACKWARD_HBM] == pytest.approx(updated, rel=1e-3)
    moved = 256 * (UVM_UPDATE_RATIO * 3000 + 1000) + 4000 * MISS_BYTES
    assert alone[Traffic.FORWARD_UVM] == pytest.approx(moved, rel=0.02)
    # locked, the 1500 that find a place come apart from the lookup
    assert locked[Traffic.FORWARD_UVM] == pytest.approx(2500 * (256 + MISS_BYTES), rel=0.02)


def test_rows_that_come_apart_from_the_lookup_take_what_they_took_in_it() -> None:
    # a fifth of the rows is cached, as many as two batches need
    within, apart = (
        shard(WIDE, ComputeKernel.FUSED_UVM_CACHING, batches_in_cache=batches) for batches in (1, 2)
    )
    rates = lookup_rates(machine())
    bytes_of = [
        np.array(
            shard_traffic(each, optimizer=Optimizer.SGD, output_type=DataType.FP32, caches=WARPS)
        )
        for each in (within, apart)
    ]
    host, memory = (
        bytes_of[0][column] - bytes_of[1][column]
        for column in (Traffic.FORWARD_UVM, Traffic.FORWARD_HBM)
    )
    assert host == pytest.approx(0.8 * 4000 * (UVM_UPDATE_RATIO * 256 + MISS_BYTES), rel=0.02)
    assert memory > 2 * 0.8 * 4000 * 256
    expected = host / rates.uvm_bandwidth + memory / rates.lookup_bandwidth
    seconds = [fetch_times(LookupShards.of([each]), WARPS, rates)[0] for each in (within, apart)]
    assert seconds == [0.0, pytest.approx(expected)]


def test_the_uvm_cache_holds_weights_and_not_states() -> None:
    sgd = traffic(WIDE, ComputeKernel.FUSED_UVM_CACHING)
    adam = traffic(WIDE, ComputeKernel.FUSED_UVM_CACHING, Optimizer.ADAM)
    assert adam[Traffic.FORWARD_UVM] == sgd[Traffic.FORWARD_UVM]
    states = UVM_UPDATE_RATIO * 4000 * 512
    assert adam[Traffic.BACKWARD_UVM] == pytest.approx(states, rel=1e-3)


def test_state_of_one_number_a_row_is_updated_in_hbm_wherever_the_row_is() -> None:
    # row-wise Adagrad: one sector for each distinct row, read and written
    uvm = traffic(WIDE, ComputeKernel.FUSED_UVM, Optimizer.ROWWISE_ADAGRAD)
    plain = traffic(WIDE, ComputeKernel.FUSED_UVM)
    assert uvm[Traffic.BACKWARD_UVM] == plain[Traffic.BACKWARD_UVM]
    assert uvm[Traffic.BACKWARD_HBM] - plain[Traffic.BACKWARD_HBM] == pytest.approx(
        2 * uvm[Traffic.ROWS] * 32
    )
    cached = traffic(WIDE, ComputeKernel.FUSED_UVM_CACHING, Optimizer.ROWWISE_ADAGRAD)
    assert cached[Traffic.BACKWARD_UVM] == 0


def test_mean_pooling_scales_a_copy_of_the_gradients() -> None:
    # written and read once more; not for row shards, whose module divides
    output = 1000 * 64 * 4
    mean, plain = replace(WIDE, pooling=Pooling.MEAN), WIDE
    more = traffic(mean)[Traffic.BACKWARD_HBM] - traffic(plain)[Traffic.BACKWARD_HBM]
    assert more == 2 * output
    half = {"num_rows": WIDE.num_embeddings // 2}
    assert (traffic(mean, **half) == traffic(plain, **half)).all()


def test_gradients_have_the_type_of_the_outputs() -> None:
    def backward(output_type: DataType) -> float:
        one = shard_traffic(
            shard(WIDE), optimizer=Optimizer.SGD, output_type=output_type, caches=L2_ALONE
        )
        return one[Traffic.BACKWARD_HBM]

    assert backward(DataType.FP32) - backward(DataType.FP16) == 1000 * 64 * 2


def test_a_full_cache_has_no_misses() -> None:
    small = replace(WIDE, num_embeddings=1000)
    got = traffic(small, ComputeKernel.FUSED_UVM_CACHING, cache_load_factor=1.0)
    assert got[Traffic.FORWARD_UVM] == pytest.approx(0.0, abs=1e-6 * 4000 * 256)


def test_replicated_tables_write_a_gradient_of_the_whole_table() -> None:
    small = replace(WIDE, num_embeddings=100_000)
    got = traffic(small, ComputeKernel.DENSE)
    assert got[Traffic.BACKWARD_HBM] >= 100_000 * 256


def test_a_core_adds_gradients_of_replicated_tables_to_their_rows_unsorted() -> None:
    fused, dense = (traffic(WIDE, kernel) for kernel in (ComputeKernel.FUSED, ComputeKernel.DENSE))
    assert (fused[Traffic.KEYS], dense[Traffic.KEYS]) == (4000, 0)
    # a row of 256 bytes is read with every id's gradient, and written
    added = dense[Traffic.BACKWARD_L2] - dense[Traffic.BACKWARD_HBM]
    assert added == pytest.approx(3 * 4000 * 256)
    on_gpu = traffic(WIDE, ComputeKernel.DENSE, caches=WARPS)
    assert on_gpu[Traffic.KEYS] == 4000
    assert dense[Traffic.BAGS] == on_gpu[Traffic.BAGS] == 0  # no ids are checked


def rows_over_pcie(table: EmbeddingTable, caches: Caches) -> float:
    """Return the rows of 256 bytes that a forward reads from host memory."""
    return float(traffic(table, ComputeKernel.FUSED_UVM, caches=caches)[Traffic.FORWARD_UVM]) / 256


def test_host_rows_stay_in_the_l1_of_every_multiprocessor_by_hand() -> None:
    # 1000 bags are 31.25 blocks of 32: on 8 SMs each reads the one row once
    with_l1 = WARPS._replace(l1_bytes=1e5, num_sms=8)
    assert rows_over_pcie(ONE_ROW, with_l1) == pytest.approx(8)
    many = with_l1._replace(num_sms=100)
    assert rows_over_pcie(ONE_ROW, many) == pytest.approx(31.25)


def test_an_l1_keeps_nothing_of_rows_that_are_read_once() -> None:
    with_l1 = WARPS._replace(l1_bytes=1e5, num_sms=80)
    assert rows_over_pcie(WIDE, with_l1) == pytest.approx(4000, rel=1e-4)


@settings(max_examples=50)
@given(st.floats(0, 2), st.integers(100, 10**7), st.floats(0.5, 100))
def test_a_larger_l1_saves_traffic_over_pcie(skew: float, rows: int, pooling: float) -> None:
    table = replace(WIDE, num_embeddings=rows, pooling_factor=pooling, inputs=Zipf(exponent=skew))
    sizes = (0.0, 1e4, 1e5, 1e6)
    found = [rows_over_pcie(table, Caches(1e6, size, 100)) for size in sizes]
    assert all(more <= less * 1.001 for less, more in pairwise(found))


def test_rows_that_the_l2_holds_are_read_once() -> None:
    some = replace(WIDE, num_embeddings=1000)
    misses = unique_curve(some.inputs, 1000).cold_misses(4000, 500)
    got = traffic(some, caches=Caches(l2_bytes=500 * 256))
    assert 1000 < misses < 4000
    assert got[Traffic.FORWARD_HBM] == pytest.approx(misses * 256 + IDS + OUTPUT)


def test_a_whole_table_is_a_shard_of_all_its_rows() -> None:
    table = replace(WIDE, cache_load_factor=0.3)
    kernel = ComputeKernel.FUSED_UVM_CACHING
    assert LookupShard.whole(table, 1000, kernel) == shard(table, kernel, cache_load_factor=0.3)
    given_share = LookupShard.whole(table, 1000, kernel, cache_load_factor=0.4)
    assert given_share == shard(table, kernel, cache_load_factor=0.4)
    one_id = traffic(table, num_samples=0.25)
    assert one_id[Traffic.KEYS] == 1.0


def test_an_empty_shard_has_no_traffic() -> None:
    assert not traffic(WIDE, num_rows=0).any()


def kernel(**values: float) -> np.ndarray:
    made = np.zeros(NUM_TRAFFIC)
    for name, value in values.items():
        made[Traffic[name]] = value
    made[Traffic.KEYS] = made[Traffic.LOOKUPS]
    return made


def gpu(**more: float) -> HardwareProfile:
    hardware = machine()
    return replace(hardware, gpu=replace(hardware.gpu, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("forward", "backward", "amounts", "rates"),
    [
        # 30 us of HBM, 10 of L2, 5 of the longest bag, 100 of PCIe; nothing backward but latency
        ("host memory", "kernel latency",
         {"FORWARD_HBM": 30e6, "FORWARD_L2": 40e6, "FORWARD_UVM": 1e6, "CHAIN": 5 * US}, {}),
        ("HBM bandwidth", "HBM bandwidth", {"FORWARD_HBM": 30e6, "BACKWARD_HBM": 400e6}, {}),
        ("L2 bandwidth", "L2 bandwidth", {"FORWARD_L2": 40e6, "BACKWARD_L2": 400e6}, {}),
        ("longest bag", "host memory", {"CHAIN": 5 * US, "BACKWARD_UVM": 1e6}, {}),
        # a million ids: 100 us to sort at 10 a ns, or 500 at 0.5 ns to add each's gradient
        ("kernel latency", "key sort", {"LOOKUPS": 1e6}, {}),
        ("ids", "ids", {"LOOKUPS": 1e6}, {"gradient_time": 0.5e-9, "lookup_time": 1e-9}),
        ("row latency", "row latency", {"ROWS": 1e6, "UPDATES": 1e6},
         {"row_read_time": 1e-9, "row_update_time": 1e-9}),
        ("bags", "bags", {"BAGS": 1e6}, {"bag_time": 1e-9}),
    ],
)  # fmt: skip
def test_the_longest_term_bounds_a_lookup(
    forward: str, backward: str, amounts: Mapping[str, float], rates: Mapping[str, float]
) -> None:
    work = kernel(**{"LOOKUPS": 1.0, **amounts})
    assert forward_bound(work, gpu(**rates)) == forward
    assert backward_bound(work, gpu(**rates)) == backward


def test_narrower_rows_wait_for_the_widest_of_their_launch() -> None:
    # two tables of 1,000 ids, one of which needs two turns more: as many without a row
    rows = [kernel(LOOKUPS=1e3), kernel(LOOKUPS=1e3, TURNS=2e3, WIDEST=2.0)]
    mixed = combine(np.array(rows), np.array([0, 0]), 1)
    alone = combine(np.array(rows[1:]), np.array([0]), 1)
    slow = gpu(forward_turn_time=10e-9, backward_turn_time=30e-9)
    for work, forward, backward in ((mixed, 20 * US, 60 * US), (alone, 0.0, 0.0)):
        assert forward_time(work, slow) - forward_time(work, machine()) == pytest.approx(forward)
        assert backward_time(work, slow) - backward_time(work, machine()) == pytest.approx(backward)
    assert forward_bound(mixed[0], slow) == backward_bound(mixed[0], slow) == "widest table"


@pytest.mark.parametrize(
    ("optimizer", "weight"),
    [
        (Optimizer.SGD, 0.5),
        (Optimizer.ADAGRAD, 0.5),
        (Optimizer.ROWWISE_ADAGRAD, 1.0),
        (Optimizer.PARTIAL_ROWWISE_ADAM, 1.0),
        (Optimizer.ADAM, 3.75),  # 64 columns
    ],
)
def test_rows_take_longer_to_update_by_what_sums_and_by_two_moments(
    optimizer: Optimizer, weight: float
) -> None:
    got = traffic(WIDE, optimizer=optimizer, caches=WARPS)
    assert got[Traffic.UPDATES] == pytest.approx(weight * got[Traffic.ROWS])


def test_the_moments_of_short_rows_take_longer_beyond_their_bytes() -> None:
    def weight(columns: int) -> float:
        table = replace(WIDE, embedding_dim=columns)
        got = traffic(table, optimizer=Optimizer.ADAM, caches=WARPS)
        return float(got[Traffic.UPDATES] / got[Traffic.ROWS])

    assert weight(8) > weight(64) > weight(128) > 1.0
    assert weight(256) == weight(128)


def test_warps_take_wide_rows_in_several_turns() -> None:
    turns = [Traffic.TURNS, Traffic.WIDEST]
    assert traffic(WIDE, caches=WARPS)[turns].tolist() == [0.0, 0.0]
    assert traffic(replace(WIDE, embedding_dim=320), caches=WARPS)[turns].tolist() == [8000.0, 2.0]
    assert not traffic(replace(WIDE, embedding_dim=320))[turns].any()  # a core


def test_narrow_rows_without_pooling_take_a_kernel_of_their_own() -> None:
    narrow = replace(WIDE, embedding_dim=32, pooling=Pooling.NONE)
    wider = replace(narrow, embedding_dim=36)
    own, common = (traffic(table, caches=WARPS)[Traffic.FORWARD_L2] for table in (narrow, wider))
    assert own - common > 4000 * (SMALL_ROW_BYTES - 240) - 4000 * 32


def test_nothing_to_look_up_takes_no_time() -> None:
    assert forward_time(kernel(), machine()) == 0.0
    assert backward_time(kernel(), machine()) == 0.0


def test_shards_of_a_kernel_add_up_and_share_the_longest_bag() -> None:
    rows = np.array([kernel(LOOKUPS=1.0, CHAIN=3.0), kernel(LOOKUPS=2.0, CHAIN=5.0)])
    total = combine(rows, np.array([1, 1]), 2)
    assert total[1, Traffic.LOOKUPS] == 3.0
    assert total[1, Traffic.CHAIN] == 5.0
    assert not total[0].any()


TABLES = st.builds(
    EmbeddingTable,
    name=st.just("t"),
    num_embeddings=st.sampled_from([10, 1000, 100_000]),
    embedding_dim=st.sampled_from([4, 64, 256]),
    pooling_factor=st.sampled_from([0.5, 1.0, 50.0]),
    inputs=st.sampled_from([Zipf(exponent=0.0), Zipf(exponent=1.05)]),
)


def seconds(
    tables: tuple[EmbeddingTable, ...], num_samples: int, hardware: HardwareProfile
) -> tuple[float, float]:
    forward, backward = embedding_estimate(
        tables, num_samples=num_samples, optimizer=Optimizer.ADAGRAD, hardware=hardware
    )
    return forward.seconds, backward.seconds


@given(TABLES)
@settings(max_examples=30)
def test_one_kernel_costs_less_than_one_per_table(table: EmbeddingTable) -> None:
    alone = seconds((table,), 1000, machine())
    both = seconds((table, replace(table, name="u")), 1000, machine())
    assert both[0] < 2 * alone[0]
    assert both[1] < 2 * alone[1]


@given(TABLES)
@settings(max_examples=30)
def test_hbm_never_moves_more_than_without_a_cache(table: EmbeddingTable) -> None:
    got = traffic(table)
    assert got[Traffic.FORWARD_HBM] <= got[Traffic.FORWARD_L2] * (1 + 1e-9)


def test_the_h100_anchor() -> None:
    # embedding.csv: H100, 10 x 104,857 unpooled ids of a power law, the lookup's kernel alone, by
    # rates of an H200: 25% too long forward, 12% backward
    tables = tuple(
        EmbeddingTable(
            name=f"t{i}", num_embeddings=1_677_721, embedding_dim=128, pooling=Pooling.NONE,
            inputs=Zipf(exponent=1.05),
        )
        for i in range(10)
    )  # fmt: skip
    profile = load_profile("h100-sxm")
    alone = replace(profile, gpu=replace(profile.gpu, forward_latency=0.0, bag_time=0.0))
    forward, backward = embedding_estimate(
        tables, num_samples=104_857, optimizer=Optimizer.SGD, hardware=alone
    )
    assert forward.seconds == pytest.approx(345 * US, rel=0.3)
    assert backward.seconds == pytest.approx(614 * US, rel=0.15)
    assert forward.source is Source.ROOFLINE


def test_ids_bags_and_bytes_of_shards_by_hand() -> None:
    """All 8000 rows, the first quarter, and none; hashed, and with hot rows first."""
    hashed = replace(WIDE, num_embeddings=8000, feature_names=("f", "g"), stash_weights=True)
    hot = replace(hashed, inputs=Zipf(exponent=1.0, hot_rows_first=True))
    for table, share in ((hashed, 0.25), (hot, lookup_share(hot.inputs, 8000, 0, 2000))):
        parts = LookupShards.of([
            shard(table, fullness=1.5), shard(table, num_rows=2000), shard(table, num_rows=0),
        ])  # fmt: skip
        assert parts.table_lookups.tolist() == [6000, 4000, 4000]
        assert parts.num_lookups == pytest.approx([6000, 4000 * share, 0])
        assert parts.num_bags.tolist() == [2000] * 3
        assert parts.stashed_bytes.tolist() == [8000 * 256, 2000 * 256, 0]
        rows = parts.curves.unique_rows(np.full(3, 4000.0))
        curve = unique_curve(table.inputs, 8000, 0, 2000)
        assert rows[:2] == pytest.approx([
            unique_curve(table.inputs, 8000).unique_rows(4000), curve.unique_rows(4000)
        ])  # fmt: skip
    unfused = LookupShards.of([shard(hashed, ComputeKernel.FUSED_UVM)])
    assert unfused.stashed_bytes.tolist() == [0]
