"""What a shard costs by TorchRec's estimators: time from bytes over constant bandwidths, and bytes.

Times are in milliseconds and summed in their order, not ours: where two options or ranks cost the
same, the last bit decides, and theirs is to be met.

References
----------
torchrec 1.9.2, distributed/planner: constants.py; estimator/estimator.py (the evaluators of the
sharding types); estimator/types.py (``ShardPerfContext``); types.py (``BasicCommsBandwidths``);
shard_estimators.py (``calculate_shard_storages``). modules/embedding_modules.py: what a collection
does not keep in fp32 it keeps in fp16, whatever the table's data type.

"""

from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.workload import DataType, EmbeddingTable, Optimizer, Pooling, Workload

HBM_BANDWIDTH = 897 * 1024 * 1024 * 1024 / 1000
"""Bytes per millisecond, as in constants.py for any machine."""
HOST_LINK_BANDWIDTH = 32 * 1024 * 1024 * 1024 / 1000
INTRA_NODE_BANDWIDTH = 600 * 1024 * 1024 * 1024 / 1000
CROSS_NODE_BANDWIDTH = 12.5 * 1024 * 1024 * 1024 / 1000
CACHED_SHARE = 0.2
"""``UVM_CACHING_RATIO``: share of rows cached if none is given."""
BACKWARD_FACTOR = 2
"""``BWD_COMPUTE_MULTIPLIER``: a backward takes as many times as long as a forward."""
WEIGHTED_FACTOR = 1.1
"""``WEIGHTED_KERNEL_MULTIPLIER``: gradients of weights take as many times as long as a forward."""
COPY_FACTOR = 2.455
"""``BATCHED_COPY_PERF_FACTOR``: factor on the gathered gradients of row shards."""
REPLICA_FACTOR = 9.22
"""``DP_ELEMENTWISE_KERNELS_PERF_FACTOR``: times the optimizer reads or writes a replica."""
_FULL_BLOCK, _HALF_BLOCK, _LEAST_COLUMNS = 128, 64, 32
_HALF_PENALTY, _QUARTER_PENALTY = 1.15, 1.75
_ID_BYTES = 8
_BANDWIDTHS = {
    ComputeKernel.DENSE: 0.5 * HBM_BANDWIDTH,
    ComputeKernel.FUSED: 1 * HBM_BANDWIDTH,
    ComputeKernel.FUSED_UVM: HOST_LINK_BANDWIDTH / 10,
    ComputeKernel.FUSED_UVM_CACHING: (
        CACHED_SHARE * HBM_BANDWIDTH + (1 - CACHED_SHARE) * HOST_LINK_BANDWIDTH
    )
    / 10,
}
"""``kernel_bw_lookup`` of constants.py on GPUs, without a prefetching pipeline."""
_ROW_TYPES = (ShardingType.ROW_WISE, ShardingType.TABLE_ROW_WISE, ShardingType.GRID_SHARD)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCounts:
    """Number of ranks in all, and on a host."""

    world_size: int
    local_world_size: int

    def rows_over(self, kind: ShardingType) -> int:
        """Return the number of ranks that a type spreads a table's rows, and ids, over."""
        if kind is ShardingType.ROW_WISE:
            return self.world_size
        return self.local_world_size if kind in _ROW_TYPES else 1

    def batches(self, kind: ShardingType) -> int:
        """Return the number of ranks whose batches read a shard."""
        return 1 if kind is ShardingType.DATA_PARALLEL else self.world_size

    @property
    def bandwidth(self) -> float:
        """Bandwidth of a collective of all ranks, in bytes per millisecond.

        All-reduces have another one.
        """
        one_host = self.world_size <= self.local_world_size
        return INTRA_NODE_BANDWIDTH if one_host else CROSS_NODE_BANDWIDTH


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTable:
    """Properties of a table, and of one rank's reads of it, that the estimators use."""

    num_embeddings: int
    embedding_dim: int
    element_bytes: int
    ids: float
    """Ids of all the table's features."""
    outputs: float
    """Vectors after pooling; of features with less than an id per bag, as many as have one."""
    pooled: bool
    weighted: bool
    state_share: float
    """Optimizer state over weights."""

    @classmethod
    def of(cls, table: EmbeddingTable, workload: Workload) -> "SeenTable":
        """Return the properties that TorchRec knows of a table by its parameter and constraints."""
        length, poolings = table.pooling_factor / table.num_bags, table.bags_per_sample
        samples, features = workload.local_batch_size, range(table.num_features)
        ids: float = sum(length * poolings * samples for _ in features)
        bags: float = sum(min(1.0, length) * poolings * samples for _ in features)
        pooled = table.pooling is not Pooling.NONE
        return cls(
            num_embeddings=table.num_embeddings,
            embedding_dim=table.embedding_dim,
            element_bytes=4 if table.data_type is DataType.FP32 else 2,
            ids=ids,
            outputs=bags if pooled else ids,
            pooled=pooled,
            weighted=table.weighted,
            state_share=_state_share(workload.optimizer_of(table), table.embedding_dim),
        )

    @property
    def weight_bytes(self) -> int:
        """Bytes of the whole table."""
        return self.num_embeddings * self.embedding_dim * self.element_bytes

    def shard_ids(self, kind: ShardingType, ranks: RankCounts) -> float:
        """Return the ids of all batches that a shard looks up."""
        return self.ids / ranks.rows_over(kind) * ranks.batches(kind)

    def output_bytes(self, kind: ShardingType, num_columns: int, ranks: RankCounts) -> float:
        """Return the bytes of embeddings that a shard outputs."""
        outputs = self.outputs if self.pooled else self.ids / ranks.rows_over(kind)
        return outputs * ranks.batches(kind) * num_columns * self.element_bytes


class Perf(NamedTuple):
    """Milliseconds of a shard; prefetching, which needs statistics of a cache, is 0."""

    forward: float
    forward_exchange: float
    backward: float
    backward_exchange: float

    @property
    def total(self) -> float:
        """The sum of all, in the order of ``Perf.total`` of types.py."""
        return self.forward + self.backward + self.forward_exchange + self.backward_exchange

    def plus(self, other: "Perf") -> "Perf":
        """Return the sum of both, component by component."""
        return Perf(
            self.forward + other.forward,
            self.forward_exchange + other.forward_exchange,
            self.backward + other.backward,
            self.backward_exchange + other.backward_exchange,
        )


def shard_perf(
    seen: SeenTable, kind: ShardingType, kernel: ComputeKernel, columns: int, ranks: RankCounts
) -> Perf:
    """Return the milliseconds of a shard of so many columns in a step, for any rows.

    The bytes of ids, rows and outputs over the kernel's bandwidth, and the outputs and their
    gradients over the network's; shards of whole rows narrower than 128 columns pay a penalty.
    """
    bandwidth = _BANDWIDTHS[kernel]
    ids = seen.shard_ids(kind, ranks)
    outputs = seen.output_bytes(kind, columns, ranks)
    penalty, read_columns = 1.0, columns
    if kind not in {*_ROW_TYPES, ShardingType.DATA_PARALLEL}:
        penalty, read_columns = _block_penalty(columns), max(columns, _LEAST_COLUMNS)
    id_bytes = ceil(ids * _ID_BYTES) * (2 if seen.weighted else 1)
    moved = id_bytes + ids * read_columns * seen.element_bytes + outputs
    forward = moved * penalty / bandwidth
    backward = forward * BACKWARD_FACTOR + (forward * WEIGHTED_FACTOR if seen.weighted else 0.0)
    exchanges = _exchanges(seen, kind, columns, outputs, ranks)
    copied = 0.0
    if kind in _ROW_TYPES:
        copied = outputs * COPY_FACTOR / bandwidth
    elif kind is ShardingType.DATA_PARALLEL:
        copied = seen.weight_bytes * REPLICA_FACTOR / bandwidth
    return Perf(forward, exchanges[0], backward, exchanges[1] + copied)


def _block_penalty(columns: int) -> float:
    if columns >= _FULL_BLOCK:
        return 1.0
    return _HALF_PENALTY if columns >= _HALF_BLOCK else _QUARTER_PENALTY


def _exchanges(
    seen: SeenTable, kind: ShardingType, columns: int, outputs: float, ranks: RankCounts
) -> tuple[float, float]:
    """Return the milliseconds of the collectives, forward and backward."""
    if kind is ShardingType.DATA_PARALLEL:
        return 0.0, _all_reduce(seen.weight_bytes, ranks)
    if kind not in {ShardingType.TABLE_ROW_WISE, ShardingType.GRID_SHARD}:
        return outputs / ranks.bandwidth, outputs / ranks.bandwidth
    within = outputs / INTRA_NODE_BANDWIDTH
    hosts = ranks.world_size // ranks.local_world_size
    between = 0.0
    if hosts > 1:
        between = seen.outputs * hosts * columns * seen.element_bytes / CROSS_NODE_BANDWIDTH
    return within + between, between + within


def _all_reduce(table_bytes: int, ranks: RankCounts) -> float:
    """Return the milliseconds of a replica's all-reduce, with one network card per rank."""
    hosts = min(ranks.world_size / ranks.local_world_size, 2)
    bandwidth = CROSS_NODE_BANDWIDTH * ranks.local_world_size
    time = table_bytes * (2 * hosts - 1) / hosts / bandwidth
    return time * 2 if ranks.world_size > 2 * ranks.local_world_size else time


class Storage(NamedTuple):
    """Bytes of a shard as TorchRec estimates them."""

    hbm: int
    host: int


def shard_storage(
    seen: SeenTable,
    kind: ShardingType,
    kernel: ComputeKernel,
    shape: tuple[int, int],
    ranks: RankCounts,
) -> Storage:
    """Return the bytes of a shard of so many rows and columns.

    Weights and optimizer state, both scaled from the whole table's; in HBM the ids and outputs of a
    batch, too, and of a cached table its share, and 7.2 bytes a row that say which rows are cached.
    """
    rows, columns = shape
    weights = seen.weight_bytes
    on_host = kernel in {ComputeKernel.FUSED_UVM, ComputeKernel.FUSED_UVM_CACHING}
    cached = kernel is ComputeKernel.FUSED_UVM_CACHING
    kept = round(weights * CACHED_SHARE) if cached else 0 if on_host else weights

    def held(stored: int) -> int:
        part = stored
        if kind is not ShardingType.DATA_PARALLEL:
            part = ceil(stored * (rows * columns) / (seen.num_embeddings * seen.embedding_dim))
        return part + ceil(part * seen.state_share)

    buffers = 0
    if rows:
        buffers = ceil(seen.shard_ids(kind, ranks) * _ID_BYTES)
        buffers += ceil(seen.output_bytes(kind, columns, ranks))
    bookkeeping = ceil(rows * (4 + CACHED_SHARE * 16)) if cached else 0
    return Storage(bookkeeping + held(kept) + buffers, held(weights) if on_host else 0)


def _state_share(optimizer: Optimizer, embedding_dim: int) -> float:
    """Return optimizer state over weights (``_get_optimizer_multipler``)."""
    known = {
        Optimizer.SGD: 0,
        Optimizer.ADAM: 2,
        Optimizer.ROWWISE_ADAGRAD: 1 / embedding_dim,
    }
    return known.get(optimizer, 1)
