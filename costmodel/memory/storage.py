"""Bytes that one shard of a table takes on its rank, and what every rank needs besides.

Notation: E rows of the table, D columns, e and d rows and columns of the shard, L ids per sample,
F features, B local batch, W ranks, S = W B samples (B for data_parallel), p the share of the
table's ids that reach the shard (1 unless rows are split).

* weights: ``e d w``; with UVM in host memory, with UVM caching a share c of the rows also in HBM,
  and ``e (4 + 16 c)`` of bookkeeping;
* optimizer state: as the weights, but FBGEMM keeps what it has once per row in HBM;
* gradients: ``e d w`` for dense kernels, and again where DDP copies them to its buckets; the
  sort of the backward, 52 bytes an id;
* inputs: ids and per-sample weights, ``p S L (i + 4)``, and lengths, ``4 S F``, for each batch in
  flight;
* outputs: ``S F d o`` (``p S L d o`` unpooled), as often as ``output_copies`` says; the backward
  reuses the space for the gradients received.

References
----------
torchrec 1.9.2, distributed/planner/estimator and shard_estimators: the same terms, but for the
sort and for lengths; 2 batches of inputs in flight under ``TRAIN_SPARSE_DIST``; cache state of
4 bytes a row and 16 a slot. FBGEMM, split_table_batched_embeddings_ops_training.py,
``construct_split_state``: where optimizer state lies; split_embeddings_utils
``transpose_embedding_input``: buffers of the sort (ids 8 + 8, infos 4 + 4, runs 8 + 4 + 4).

"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias

from costmodel.base.units import Bytes
from costmodel.domain.dense_layers import activation_bytes, dense_model_bytes
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ComputeKernel, Shard, ShardingType, TableSharding
from costmodel.domain.workload import DataType, EmbeddingTable, Pipeline, Pooling, Workload
from costmodel.inputs.distribution import is_hashed, lookup_share

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers: TypeAlias = float | NDArray[np.float64]

LENGTH_BYTES = 4
"""A length of a KeyedJaggedTensor on the wire: int32."""
SORT_BYTES_PER_ID = 52
"""Buffers of FBGEMM's backward sort, int64 ids: 40 (see the module's references), and CUB's
alternate buffers, 12 (embedding_backward_split_template.cu 852). Dense kernels sort, too."""
CACHE_BYTES_PER_ROW, CACHE_BYTES_PER_SLOT = 4, 16
"""FBGEMM's ``cache_index_table_map``; ``lxu_cache_state`` and ``lru_state``."""
RESERVE_SHARE = 0.10
"""Share of HBM left to the CUDA context, NCCL's buffers and the allocator's fragmentation: a
choice, 8 GiB of 80. TorchRec's default is 15% (planners.py, ``HeuristicalStorageReservation``),
but it counts neither activations nor the sort."""

_DENSE = ComputeKernel.DENSE
_CACHING = ComputeKernel.FUSED_UVM_CACHING


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardBytes:
    """What shards take: one number each, or an array over shards."""

    weights: "Numbers"
    optimizer_state: "Numbers"
    gradients: "Numbers"
    inputs: "Numbers"
    outputs: "Numbers"
    host: "Numbers"
    """In the node's host memory; not part of ``total``."""

    @property
    def total(self) -> "Numbers":
        """Bytes of HBM."""
        return self.weights + self.optimizer_state + self.gradients + self.inputs + self.outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFactors:
    """What the bytes of a table's shards depend on besides their rows, columns and p.

    One number each, or an array over shards.
    """

    element_bytes: "Numbers"
    cache_columns: "Numbers"
    """Columns that a row has at least in HBM."""
    hbm_share: "Numbers"
    """Share of the weights in HBM."""
    host_share: "Numbers"
    row_bytes: "Numbers"
    """Cache bookkeeping for each row."""
    state_element_bytes: "Numbers"
    state_row_bytes: "Numbers"
    state_host_share: "Numbers"
    """Share of the per-element state in host memory."""
    gradient_copies: "Numbers"
    sort_bytes: "Numbers"
    """Sort of all the table's ids."""
    id_bytes: "Numbers"
    """All the table's ids, every batch in flight."""
    length_bytes: "Numbers"
    column_output_bytes: "Numbers"
    """Outputs for each column, buffers included."""
    unpooled: "Numbers"
    """1 where outputs are spread over row shards as ids are."""

    def taken(self, places: "NDArray[np.intp]") -> "ShardFactors":
        """Return those of other shards: the ones at these places of the arrays."""
        arrays: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        return ShardFactors(**{name: array[places] for name, array in arrays.items()})


def shard_bytes(
    factors: ShardFactors, num_rows: "Numbers", num_columns: "Numbers", share: "Numbers"
) -> ShardBytes:
    """Bytes of shards from their rows, columns and share of the table's ids.

    The module's docstring has the equations. Shards without rows take nothing.
    """
    import numpy as np

    elements = num_rows * num_columns
    weights = elements * factors.element_bytes
    element_state = elements * factors.state_element_bytes
    present = np.minimum(num_rows, 1.0)
    output_share = 1 + factors.unpooled * (share - 1)
    columns_held = np.maximum(num_columns, factors.cache_columns)
    held = num_rows * columns_held * factors.element_bytes * factors.hbm_share
    return ShardBytes(
        weights=held + num_rows * factors.row_bytes,
        optimizer_state=(
            element_state * (1 - factors.state_host_share) + num_rows * factors.state_row_bytes
        ),
        gradients=weights * factors.gradient_copies + share * factors.sort_bytes,
        inputs=(share * factors.id_bytes + factors.length_bytes) * present,
        outputs=output_share * num_columns * factors.column_output_bytes * present,
        host=weights * factors.host_share + element_state * factors.state_host_share,
    )


def shard_factors(
    workload: Workload,
    topology: Topology,
    table: EmbeddingTable,
    sharding_type: ShardingType,
    compute_kernel: ComputeKernel,
    cache_load_factor: float | None = None,
) -> ShardFactors:
    """Return what is the same for all shards of a table that is sharded in this way."""
    replicated = sharding_type is ShardingType.DATA_PARALLEL
    samples = workload.local_batch_size * (1 if replicated else topology.world_size)
    ids = samples * table.pooling_factor
    dense = compute_kernel is _DENSE
    in_hbm = dense or compute_kernel is ComputeKernel.FUSED
    cached = cache_load_factor or table.cache_share
    caching = compute_kernel is _CACHING
    optimizer = workload.dense.optimizer if dense else workload.optimizer
    row_state = optimizer.state_bytes_per_row(0)
    batches = 2 if workload.pipeline is Pipeline.SPARSE_DIST else 1
    buckets = replicated and topology.world_size > 1
    output = samples * table.output_rows_per_sample * workload.output_type.num_bytes
    return ShardFactors(
        element_bytes=table.data_type.num_bytes,
        cache_columns=float(workload.cache_columns(table)) if caching else 0.0,
        hbm_share=1.0 if in_hbm else cached if caching else 0.0,
        host_share=0.0 if in_hbm else 1.0,
        row_bytes=CACHE_BYTES_PER_ROW + CACHE_BYTES_PER_SLOT * cached if caching else 0.0,
        state_element_bytes=optimizer.state_bytes_per_row(1) - row_state,
        state_row_bytes=row_state,
        state_host_share=0.0 if in_hbm else 1.0,
        gradient_copies=float(dense) * (2 if buckets else 1),
        sort_bytes=ids * SORT_BYTES_PER_ID,
        id_bytes=batches * ids * (workload.index_bytes + (4 if table.weighted else 0)),
        length_bytes=batches * samples * table.num_features * LENGTH_BYTES,
        column_output_bytes=output * output_copies(workload, topology, table, sharding_type)
        + _divisor_bytes(workload, table, sharding_type),
        unpooled=float(table.pooling is Pooling.NONE),
    )


def output_copies(
    workload: Workload, topology: Topology, table: EmbeddingTable, sharding_type: ShardingType
) -> float:
    """Return how many times a rank holds the outputs of its shards for all samples, at the peak.

    Once in a reduce-scatter, which reads the lookup's output and whose gradients are gathered into
    the tensor that the backward reads; twice in an all-to-all, which has a send buffer. Clamping
    for FP16 or BF16 takes another copy, and a half; decoded gradients, beside those received, 1.5
    in all. Between nodes there are three tensors of the node's sums.

    References
    ----------
    torchrec 1.9.2, distributed/comm_ops.py 1537-1543, 2637-2668, 2720-2745; fbgemm_gpu 1.8.0,
    quantize_utils.py 212-217. FBGEMM's mean pooling scales gradients into a copy.

    """
    exchanged = topology.world_size > 1 and sharding_type is not ShardingType.DATA_PARALLEL
    summed = sharding_type.splits_rows and table.pooling is not Pooling.NONE
    if not exchanged:
        return 2.0 if table.pooling is Pooling.MEAN else 1.0
    copies = 1.0 if summed else 2.0
    if workload.comms_backward is not None:
        copies = max(copies, 1.5)
    clamped = {DataType.FP16, DataType.BF16, *((DataType.FP8,) if summed else ())}
    if workload.comms_forward in clamped:
        copies = 2.5
    if summed and sharding_type.within_node and topology.num_nodes > 1:
        copies += 3.0 / topology.local_world_size
    return copies


def _divisor_bytes(workload: Workload, table: EmbeddingTable, sharding_type: ShardingType) -> Bytes:
    """Return bytes of the divisors of a column for mean pooling over row shards, FP32.

    One for every sample of the rank, of two batches (torchrec 1.9.2, embeddingbag.py 2670-2680).
    """
    divided = sharding_type in {ShardingType.ROW_WISE, ShardingType.TABLE_ROW_WISE}
    if table.pooling is not Pooling.MEAN or not divided:
        return 0.0
    return 2 * 4.0 * workload.local_batch_size * table.num_features


def stacked_factors(factors: Sequence[ShardFactors], repeats: Sequence[int]) -> ShardFactors:
    """Return factors as arrays over shards: the i-th ones repeated ``repeats[i]`` times."""
    import numpy as np

    names = [field.name for field in fields(ShardFactors)]
    rows = np.array([[getattr(each, name) for name in names] for each in factors])
    columns = np.repeat(rows, repeats, axis=0).T
    return ShardFactors(**dict(zip(names, columns, strict=True)))


def id_shares(
    table: EmbeddingTable, sharding_type: ShardingType, shards: Sequence[Shard]
) -> list[float]:
    """Return p of every shard: the share of the table's ids that its rows receive."""
    if not sharding_type.splits_rows:
        return [1.0] * len(shards)
    rows = table.num_embeddings
    if is_hashed(table.inputs):
        return [shard.num_rows / rows for shard in shards]
    return [
        lookup_share(table.inputs, rows, shard.row_offset, shard.num_rows)
        if shard.num_rows
        else 0.0
        for shard in shards
    ]


def table_shard_bytes(
    workload: Workload, topology: Topology, sharding: TableSharding
) -> tuple[ShardBytes, ...]:
    """Bytes of every shard of one table."""
    table = workload.table(sharding.table)
    factors = shard_factors(
        workload,
        topology,
        table,
        sharding.sharding_type,
        sharding.compute_kernel,
        sharding.cache_load_factor,
    )
    shares = id_shares(table, sharding.sharding_type, sharding.shards)
    known: dict[tuple[int, int, float], ShardBytes] = {}  # most shards are alike
    sizes = []
    for shard, share in zip(sharding.shards, shares, strict=True):
        alike = shard.num_rows, shard.num_columns, share
        if alike not in known:
            known[alike] = shard_bytes(factors, *alike)
        sizes.append(known[alike])
    return tuple(sizes)


def local_batch_bytes(workload: Workload) -> Bytes:
    """Bytes of the inputs of a rank's own batch, before distribution, for each batch in flight.

    Ids, lengths and weights of all features, dense inputs and labels. TrainPipelineSparseDist
    holds the batch it trains to the end, has distributed the next one and copied that after it
    before forward; the permuted features of the one distributed live as long as its requests
    (torchrec 1.9.2, train_pipelines.py 900-905, 935, dist_data.py 720-760). TrainPipelineBase
    holds two. Plain DLRM has no distribution, its ids come to the rank that owns the table.
    """
    dense = 4.0 * (workload.dense.num_dense_features + 1)
    sparse = sum(
        table.pooling_factor * (workload.index_bytes + (4 if table.weighted else 0))
        + LENGTH_BYTES * table.num_features
        for table in workload.tables
    )
    batches = {Pipeline.SPARSE_DIST: 3, Pipeline.NONE: 2, Pipeline.DLRM: 1}[workload.pipeline]
    held = batches * dense
    if workload.pipeline is not Pipeline.DLRM:
        held += (batches + 1) * sparse
    return workload.local_batch_size * held


def fixed_bytes(workload: Workload) -> tuple[Bytes, Bytes]:
    """Bytes of the dense model, and of activations with local inputs, whatever the plan."""
    return dense_model_bytes(workload), activation_bytes(workload) + local_batch_bytes(workload)
