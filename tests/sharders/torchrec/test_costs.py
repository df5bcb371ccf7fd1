"""TorchRec's estimates, worked by hand; milliseconds, and GiB per 1000 ms."""

from dataclasses import replace

import pytest

from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.workload import DataType, EmbeddingTable, Optimizer, Pooling, Workload
from sharders.torchrec.costs import Perf, RankCounts, SeenTable, Storage, shard_perf, shard_storage

GIB_A_MS = 2**30 / 1000
HBM, WITHIN, BETWEEN = 897 * GIB_A_MS, 600 * GIB_A_MS, 12.5 * GIB_A_MS
TABLE = EmbeddingTable(name="t", num_embeddings=1000, embedding_dim=64, pooling_factor=10.0)
FOUR = RankCounts(world_size=4, local_world_size=4)
TWO_HOSTS = RankCounts(world_size=4, local_world_size=2)
FUSED, DENSE = ComputeKernel.FUSED, ComputeKernel.DENSE


def seen(table: EmbeddingTable = TABLE, **others: Optimizer) -> SeenTable:
    return SeenTable.of(table, Workload(tables=(table,), local_batch_size=1024, **others))


def perf(
    kind: ShardingType,
    table: EmbeddingTable = TABLE,
    kernel: ComputeKernel = FUSED,
    columns: int = 64,
    ranks: RankCounts = FOUR,
) -> Perf:
    return shard_perf(seen(table), kind, kernel, columns, ranks)


def storage(
    kind: ShardingType,
    table: EmbeddingTable = TABLE,
    kernel: ComputeKernel = FUSED,
    shape: tuple[int, int] = (1000, 64),
    optimizer: Optimizer = Optimizer.SGD,
) -> Storage:
    return shard_storage(seen(table, optimizer=optimizer), kind, kernel, shape, FOUR)


def test_milliseconds_add_up() -> None:
    one, other = Perf(1.0, 20.0, 300.0, 4000.0), Perf(5.0, 60.0, 700.0, 8000.0)
    assert one.total == 4321.0
    assert one.plus(other) == (6.0, 80.0, 1000.0, 12_000.0)


def test_a_whole_table() -> None:
    # 4 x 1024 samples: 10 ids of 8 bytes, 10 rows of 256, an output of 256; 15% more, as 64
    # columns fill half a block; the backward takes two forwards
    outputs = 4096 * 256
    forward = (4096 * 10 * (8 + 256) + outputs) * 1.15 / HBM
    exchange = outputs / WITHIN
    assert perf(ShardingType.TABLE_WISE) == pytest.approx((
        forward, exchange, 2 * forward, exchange,
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "read", "penalty"), [(128, 128, 1.0), (64, 64, 1.15), (32, 32, 1.75), (8, 32, 1.75)]
)
def test_narrow_shards_pay_a_penalty(columns: int, read: int, penalty: float) -> None:
    # rows are read in pieces of 32 columns at least
    moved = 4096 * 10 * (8 + 4 * read) + 4096 * 4 * columns
    found = perf(ShardingType.COLUMN_WISE, columns=columns)
    assert found.forward == pytest.approx(moved * penalty / HBM)


def test_rows_of_all_ranks() -> None:
    # a quarter of the ids each, outputs of all samples; gradients are gathered, and copied
    outputs = 4096 * 256
    forward = (1024 * 10 * (8 + 256) + outputs) / HBM
    backward_exchange = outputs / WITHIN + 2.455 * outputs / HBM
    expected = (forward, outputs / WITHIN, 2 * forward, backward_exchange)
    assert perf(ShardingType.ROW_WISE) == pytest.approx(expected)


def test_rows_of_a_host() -> None:
    # half of the ids each; outputs are summed in the host, and one for each host goes on
    outputs = 4096 * 256
    forward = (2048 * 10 * (8 + 256) + outputs) / HBM
    exchange = outputs / WITHIN + 2 * 1024 * 256 / BETWEEN
    found = perf(ShardingType.TABLE_ROW_WISE, ranks=TWO_HOSTS)
    copied = 2.455 * outputs / HBM
    assert found == pytest.approx((forward, exchange, 2 * forward, exchange + copied))
    assert perf(ShardingType.GRID_SHARD, ranks=TWO_HOSTS) == found


def test_a_replica() -> None:
    # its own ids alone; gradients of 1000 x 256 bytes over four network cards, and the optimizer
    forward = (1024 * 10 * (8 + 256) + 1024 * 256) / (HBM / 2)
    reduced = 256_000 / (4 * BETWEEN) + 9.22 * 256_000 / (HBM / 2)
    found = perf(ShardingType.DATA_PARALLEL, kernel=DENSE)
    assert found == pytest.approx((forward, 0.0, 2 * forward, reduced))


@pytest.mark.parametrize(("world_size", "factor"), [(4, 1.0), (8, 1.5), (12, 3.0)])
def test_replicas_on_several_hosts_are_reduced_in_rings(world_size: int, factor: float) -> None:
    # 3/2 of the bytes for two hosts, and twice that for more
    ranks = RankCounts(world_size=world_size, local_world_size=4)
    found = perf(ShardingType.DATA_PARALLEL, kernel=DENSE, ranks=ranks)
    updated = 9.22 * 256_000 / (HBM / 2)
    assert found.backward_exchange - updated == pytest.approx(factor * 256_000 / (4 * BETWEEN))


def test_several_hosts_exchange_at_the_slow_link() -> None:
    within, between = (perf(ShardingType.TABLE_WISE, ranks=each) for each in (FOUR, TWO_HOSTS))
    assert between.forward == within.forward
    assert between.forward_exchange == pytest.approx(within.forward_exchange * 600 / 12.5)


def test_weights_of_ids_are_read_and_have_gradients() -> None:
    weighted = perf(ShardingType.TABLE_WISE, replace(TABLE, weighted=True))
    more = 4096 * 10 * 8 * 1.15 / HBM
    assert weighted.forward == pytest.approx(perf(ShardingType.TABLE_WISE).forward + more)
    assert weighted.backward == pytest.approx(3.1 * weighted.forward)


def test_host_memory_is_read_at_a_tenth_of_the_link_s_bandwidth() -> None:
    fused = perf(ShardingType.TABLE_WISE).forward
    uvm = perf(ShardingType.TABLE_WISE, kernel=ComputeKernel.FUSED_UVM).forward
    cached = perf(ShardingType.TABLE_WISE, kernel=ComputeKernel.FUSED_UVM_CACHING).forward
    assert uvm == pytest.approx(fused * 897 / 3.2)
    assert cached == pytest.approx(fused * 8970 / (0.2 * 897 + 0.8 * 32))


def test_bags_with_less_than_an_id_make_fewer_outputs() -> None:
    sparse = seen(replace(TABLE, pooling_factor=0.25))
    assert (sparse.ids, sparse.outputs) == (256.0, 256.0)
    assert (seen().ids, seen().outputs) == (10_240.0, 1024.0)


def test_unpooled_tables_have_an_output_for_each_id() -> None:
    unpooled = replace(TABLE, pooling=Pooling.NONE)
    assert seen(unpooled).outputs == 10_240.0
    # of a row shard, for each of its own
    found = perf(ShardingType.ROW_WISE, unpooled)
    assert found.forward_exchange == pytest.approx(10_240 * 256 / WITHIN)


def test_features_with_bags_of_their_own() -> None:
    # two features, three quarters of a bag per sample: 1.5 bags in all, with all ten ids
    shared = replace(TABLE, feature_names=("f", "g"), bags_per_sample=0.75)
    assert (seen(shared).ids, seen(shared).outputs) == pytest.approx((10_240.0, 1536.0))


@pytest.mark.parametrize("data_type", [DataType.FP16, DataType.BF16, DataType.FP8, DataType.INT8])
def test_whatever_is_not_fp32_is_kept_in_two_bytes(data_type: DataType) -> None:
    assert seen(replace(TABLE, data_type=data_type)).element_bytes == 2


def test_bytes_of_a_whole_table() -> None:
    # weights, ids and outputs of a batch
    buffers = 4096 * 10 * 8 + 4096 * 256
    assert storage(ShardingType.TABLE_WISE) == (256_000 + buffers, 0)


@pytest.mark.parametrize(
    ("optimizer", "state"),
    [
        (Optimizer.ROWWISE_ADAGRAD, 4000),
        (Optimizer.ADAGRAD, 256_000),
        (Optimizer.PARTIAL_ROWWISE_ADAM, 256_000),
        (Optimizer.ADAM, 512_000),
    ],
)
def test_bytes_of_optimizer_state(optimizer: Optimizer, state: int) -> None:
    plain = storage(ShardingType.TABLE_WISE)
    assert storage(ShardingType.TABLE_WISE, optimizer=optimizer) == (plain.hbm + state, 0)


def test_bytes_of_row_shards() -> None:
    # a quarter of the rows and ids, outputs of all samples; nothing where there are no rows
    buffers = 1024 * 10 * 8 + 4096 * 256
    assert storage(ShardingType.ROW_WISE, shape=(250, 64)) == (64_000 + buffers, 0)
    assert storage(ShardingType.ROW_WISE, shape=(0, 64)) == (0, 0)


def test_bytes_of_column_shards() -> None:
    assert storage(ShardingType.COLUMN_WISE, shape=(1000, 16)) == (
        64_000 + 4096 * 10 * 8 + 4096 * 64,
        0,
    )


def test_bytes_of_a_replica() -> None:
    found = storage(ShardingType.DATA_PARALLEL, kernel=DENSE)
    assert found == (256_000 + 1024 * 10 * 8 + 1024 * 256, 0)


def test_bytes_in_host_memory() -> None:
    # a cache has a fifth of the weights in HBM, and 7.2 bytes a row
    buffers = 4096 * 10 * 8 + 4096 * 256
    assert storage(ShardingType.TABLE_WISE, kernel=ComputeKernel.FUSED_UVM) == (buffers, 256_000)
    cached = storage(ShardingType.TABLE_WISE, kernel=ComputeKernel.FUSED_UVM_CACHING)
    assert cached == (51_200 + 7200 + buffers, 256_000)
