"""Bytes that one shard of a table takes on its rank, and what every rank needs besides.

Notation: E rows of the table, D columns, e and d rows and columns of the shard, L ids per sample,
F features, B local batch, W ranks, S = W B samples (B for data_parallel), p the share of the
table's ids that reach the shard (1 unless rows are split).

* weights: ``e d w``, and ``8 e`` more of INT8; with UVM in host memory, with UVM caching a share c
  of the rows also in HBM, and ``e (4 + 16 c)`` of bookkeeping;
* optimizer state: as the weights, but FBGEMM keeps what it has once per row in HBM;
* gradients: ``e d w`` for dense kernels, and again where DDP copies them to its buckets; the
  sort of the backward, as far as it is more than the copies of outputs that are gone by then;
* inputs: ids and per-sample weights, ``p S L (i + 4)``, and lengths, ``4 S F``, as often as
  ``_INPUT_COPIES`` says (replicated tables read the local batch); the lookup's offsets, ``12 S F``;
* stashed: weights of fused kernels in HBM that are in the host's between lookup and backward;
* outputs: ``S F d o`` (``p S L d o`` unpooled), as often as ``output_copies`` says; the backward
  reuses the space for the gradients received.

References
----------
torchrec 1.9.2, distributed/planner/estimator and shard_estimators: the same terms, but for the
sort and for lengths; 2 batches of inputs in flight under ``TRAIN_SPARSE_DIST``; cache state of
4 bytes a row and 16 a slot. FBGEMM, split_table_batched_embeddings_ops_training.py,
``construct_split_state``: where optimizer state lies.

"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from costmodel.base.units import Bytes
from costmodel.domain.codecs import is_clamped, wire_type
from costmodel.domain.dense_layers import (
    activation_bytes,
    dense_model_bytes,
    embedding_bytes,
    input_bytes_per_sample,
    joined_gradient_bytes,
    received_bytes,
)
from costmodel.domain.hardware import Device, Topology
from costmodel.domain.plan import (
    ComputeKernel,
    Shard,
    ShardingPlan,
    ShardingType,
    TableSharding,
)
from costmodel.domain.workload import EmbeddingTable, Pipeline, Pooling, Workload
from costmodel.inputs.distribution import is_hashed, lookup_share
from costmodel.memory.sort_buffers import at_hand_bytes, most_at_hand_bytes, sort_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers: TypeAlias = float | NDArray[np.float64]

LENGTH_BYTES = 4
"""A length of a KeyedJaggedTensor on the wire: int32."""
OFFSET_BYTES = 12
"""Offsets of a KeyedJaggedTensor, int32, and the int64 that a lookup makes of them."""
CACHE_BYTES_PER_ROW, CACHE_BYTES_PER_SLOT = 4, 16
"""FBGEMM's ``cache_index_table_map``; ``lxu_cache_state`` and ``lru_state``."""
RESERVE_SHARE = 0.10
"""Share of HBM left to the CUDA context and libraries (1.0 to 2.5 GB where it is known) and to gaps
between blocks that torch's caching allocator holds. What it reserves is 1.33 to 1.56 times what is
allocated at the peak where nothing presses it, but it gives back free blocks before it fails (torch
2.13, notes/cuda, "Memory management"); pressed, it did with 1.14 (torchrec_steps.csv, pull request
3642). With a tenth, every public plan that counts as fitting has room for that, the tightest by
0.1% (bench/results/anchors.csv, "memory needed of a GPU"): predictions are 7 to 30% above what
these plans allocate. One without that slack would need 15% of 80 GB, which is TorchRec's default
(planners.py, ``HeuristicalStorageReservation``); its planner counts neither activations nor the
sort."""

_INPUT_COPIES = {
    Pipeline.NONE: 2,
    Pipeline.SPARSE_DIST: 3,
    Pipeline.PREFETCH: 4,
    Pipeline.FUSED_SPARSE_DIST: 3,
    Pipeline.SEMI_SYNC: 4,
    Pipeline.DLRM: 1,
}
"""Ids that a rank holds of all samples, in batches: those that it looks up, with
TrainPipelineSparseDist those received for the next step, and the copy of its own ids by
destination, from which they were sent: permuted or bucketized, once per column shard, as many as a
rank receives on average; with PrefetchTrainPipelineSparseDist one more, whose rows come into the
caches; with TrainPipelineSemiSync one more, looked up before this batch's update. The copy lives
as long as its requests (torchrec 1.9.2, dist_data.py 720-760)."""
_DENSE = ComputeKernel.DENSE
_CACHING = ComputeKernel.FUSED_UVM_CACHING


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardBytes:
    """Bytes of shards: one number each, or an array over shards."""

    weights: "Numbers"
    optimizer_state: "Numbers"
    gradients: "Numbers"
    inputs: "Numbers"
    outputs: "Numbers"
    host: "Numbers"
    """In the node's host memory; not part of ``total``."""
    stashed: "Numbers"
    """The part of ``weights`` that is not in HBM during the dense part."""
    at_hand: "Numbers"
    """Further bytes while a CPU sorts this shard's ids: a rank needs them for one shard; not in
    ``total``."""

    @property
    def total(self) -> "Numbers":
        """Bytes of HBM, where the shards are looked up and updated."""
        return self.weights + self.optimizer_state + self.gradients + self.inputs + self.outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReads:
    """Ids and lengths of a table that a batch reads per sample, or arrays over tables."""

    pooling_factor: "Numbers"
    num_bags: "Numbers"
    output_rows: "Numbers"

    @classmethod
    def of(cls, table: EmbeddingTable) -> "TableReads":
        """Return the reads of one table."""
        return cls(
            pooling_factor=table.pooling_factor,
            num_bags=table.num_bags,
            output_rows=table.output_rows_per_sample,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFactors:
    """Factors of the bytes of a table's shards, besides their rows, columns and p.

    They are one number each, or an array over shards.
    """

    element_bytes: "Numbers"
    scale_bytes: "Numbers"
    """Bytes of scale and offset with each row's elements."""
    cache_columns: "Numbers"
    """Columns that a row has at least in HBM."""
    hbm_share: "Numbers"
    """Share of the weights in HBM."""
    host_share: "Numbers"
    stashed_share: "Numbers"
    """1 where weights leave HBM for the dense part."""
    row_bytes: "Numbers"
    """Bytes of cache bookkeeping for each row."""
    state_element_bytes: "Numbers"
    state_row_bytes: "Numbers"
    state_host_share: "Numbers"
    """Share of the per-element state in host memory."""
    gradient_copies: "Numbers"
    sort_bytes: "Numbers"
    """Bytes of sorting all the table's ids."""
    at_hand_bytes: "Numbers"
    """Further bytes while they are sorted."""
    id_bytes: "Numbers"
    """Bytes of all the table's ids, every batch in flight."""
    length_bytes: "Numbers"
    column_output_bytes: "Numbers"
    """Bytes of outputs for each column, buffers included."""
    column_exchange_bytes: "Numbers"
    """Part of these bytes that is not held while the lookup's backward runs."""
    unpooled: "Numbers"
    """1 where outputs are spread over row shards as ids are."""

    def taken(self, places: "NDArray[np.intp]") -> "ShardFactors":
        """Return the factors of the shards at some places of the arrays."""
        arrays: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        return ShardFactors(**{name: array[places] for name, array in arrays.items()})


def shard_bytes(
    factors: ShardFactors, num_rows: "Numbers", num_columns: "Numbers", share: "Numbers"
) -> ShardBytes:
    """Return bytes of shards from their rows, columns and share of the table's ids.

    The module's docstring has the equations. Shards without rows take nothing.
    """
    import numpy as np

    elements = num_rows * num_columns
    scales = num_rows * factors.scale_bytes
    weights = elements * factors.element_bytes + scales
    element_state = elements * factors.state_element_bytes
    present = np.minimum(num_rows, 1.0)
    output_share = 1 + factors.unpooled * (share - 1)
    columns_held = np.maximum(num_columns, factors.cache_columns)
    held = (num_rows * columns_held * factors.element_bytes + scales) * factors.hbm_share
    exchanged = output_share * num_columns * factors.column_exchange_bytes
    sort = share * factors.sort_bytes
    transient = np.maximum(sort, exchanged)
    stashed = weights * factors.stashed_share
    return ShardBytes(
        weights=held + num_rows * factors.row_bytes,
        optimizer_state=(
            element_state * (1 - factors.state_host_share) + num_rows * factors.state_row_bytes
        ),
        gradients=weights * factors.gradient_copies + transient - exchanged,
        inputs=(share * factors.id_bytes + factors.length_bytes) * present,
        outputs=output_share * num_columns * factors.column_output_bytes * present,
        host=(weights * factors.host_share + stashed + element_state * factors.state_host_share),
        stashed=stashed,
        at_hand=np.maximum(sort + share * factors.at_hand_bytes - transient, 0.0),
    )


def shard_factors(
    workload: Workload,
    topology: Topology,
    table: EmbeddingTable,
    sharding_type: ShardingType,
    compute_kernel: ComputeKernel,
    cache_load_factor: "Numbers | None" = None,
    reads: TableReads | None = None,
) -> ShardFactors:
    """Return the factors that are the same for all shards of a table sharded in one way.

    With ``reads``, arrays for tables that differ from this one in these numbers alone.
    """
    replicated = sharding_type is ShardingType.DATA_PARALLEL
    samples = workload.local_batch_size * (1 if replicated else topology.world_size)
    reads = reads or TableReads.of(table)
    ids = samples * reads.pooling_factor
    dense = compute_kernel is _DENSE
    in_hbm = dense or compute_kernel is ComputeKernel.FUSED
    cached = table.cache_share if cache_load_factor is None else cache_load_factor
    caching = compute_kernel is _CACHING
    stashed = table.stash_weights and compute_kernel is ComputeKernel.FUSED
    stashed = stashed and _may_stash(topology)
    optimizer = workload.dense.optimizer.elementwise if dense else workload.optimizer_of(table)
    row_state = optimizer.state_bytes_per_row(0)
    batches = 0 if replicated else _INPUT_COPIES[workload.pipeline]
    buckets = replicated and topology.world_size > 1
    output = samples * reads.output_rows * workload.output_type.num_bytes
    copies = output_copies(workload, topology, table, sharding_type)
    updated = _updated_copies(topology, table, sharding_type)
    sort = ids * sort_bytes(topology, table, sharding_type, compute_kernel)
    # the next batch's outputs are on their way while this one's rows are updated
    held = copies if workload.pipeline is Pipeline.SEMI_SYNC else updated
    return ShardFactors(
        element_bytes=table.data_type.num_bytes,
        scale_bytes=table.data_type.scale_bytes,
        cache_columns=float(workload.cache_columns(table)) if caching else 0.0,
        hbm_share=_hbm_copies(topology, compute_kernel) if in_hbm else cached if caching else 0.0,
        host_share=0.0 if in_hbm else 1.0,
        stashed_share=float(stashed),
        row_bytes=CACHE_BYTES_PER_ROW + CACHE_BYTES_PER_SLOT * cached if caching else 0.0,
        state_element_bytes=optimizer.state_bytes_per_row(1) - row_state,
        state_row_bytes=row_state,
        state_host_share=0.0 if in_hbm else 1.0,
        gradient_copies=float(dense) * (2 if buckets else 1),
        sort_bytes=sort,
        at_hand_bytes=sort * at_hand_bytes(topology, compute_kernel, 1.0),
        id_bytes=batches * ids * (workload.index_bytes + (4 if table.weighted else 0)),
        length_bytes=(batches * LENGTH_BYTES + OFFSET_BYTES) * samples * reads.num_bags,
        column_output_bytes=output * copies
        + _divisor_bytes(workload, table, sharding_type) * reads.num_bags,
        column_exchange_bytes=output * (copies - held),
        unpooled=float(table.pooling is Pooling.NONE),
    )


def _hbm_copies(topology: Topology, compute_kernel: ComputeKernel) -> float:
    """Return how many times weights of a kernel without UVM are in HBM, at the peak.

    Fully sharded replicas leave a part behind in the dense part of the step, which is there beside
    all of the weights while they are scattered and gathered.
    """
    replicas = topology.replicas
    if replicas is None or not replicas.is_fully_sharded or compute_kernel is _DENSE:
        return 1.0
    return 1.0 + 1.0 / replicas.num_groups


def output_copies(
    workload: Workload, topology: Topology, table: EmbeddingTable, sharding_type: ShardingType
) -> float:
    """Return how many times a rank holds its shards' outputs for all samples, at the peak.

    Once in a reduce-scatter, which reads the lookup's output and whose gradients are gathered into
    the tensor that the backward reads; twice in an all-to-all, which has a send buffer. Clamping
    for FP16 or BF16 takes another copy, and a half; decoded gradients, beside those received, 1.5
    in all. gloo, on a CPU, reduces and gathers in a copy, beside the rank's own part. Between nodes
    there are three tensors of the node's sums.

    References
    ----------
    torchrec 1.9.2, distributed/comm_ops.py 1537-1543, 2637-2668, 2720-2745; fbgemm_gpu 1.8.0,
    quantize_utils.py 212-217.

    """
    exchanged = topology.world_size > 1 and sharding_type is not ShardingType.DATA_PARALLEL
    summed = sharding_type.splits_rows and table.pooling is not Pooling.NONE
    if not exchanged:
        return _updated_copies(topology, table, sharding_type)
    copies = 1.0 if summed and topology.hardware.device is Device.CUDA else 2.0
    if summed and topology.hardware.device is Device.CPU:
        within = sharding_type.within_node
        copies += 1 / (topology.local_world_size if within else topology.world_size)
    if wire_type(workload, summed=summed, backward=True) is not None:
        copies = max(copies, 1.5)
    if is_clamped(wire_type(workload, summed=summed, backward=False)):
        copies = 2.5
    if summed and sharding_type.within_node and topology.num_nodes > 1:
        copies += 3.0 / topology.local_world_size
    return max(copies, _updated_copies(topology, table, sharding_type))


def _updated_copies(
    topology: Topology, table: EmbeddingTable, sharding_type: ShardingType
) -> float:
    """Return how many times a rank holds its gradients in a lookup's backward.

    FBGEMM's mean pooling scales them into a copy, on a GPU.
    """
    scaled = table.pooling is Pooling.MEAN and not sharding_type.splits_rows
    return 2.0 if scaled and topology.hardware.device is Device.CUDA else 1.0


def _divisor_bytes(workload: Workload, table: EmbeddingTable, sharding_type: ShardingType) -> Bytes:
    """Return bytes, per column of a bag, of the divisors of mean pooling over row shards, FP32.

    One for every sample of the rank, of two batches (torchrec 1.9.2, embeddingbag.py 2670-2680).
    """
    if table.pooling is not Pooling.MEAN or not sharding_type.divides_after_exchange:
        return 0.0
    return 2 * 4.0 * workload.local_batch_size


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


def _factors_of(workload: Workload, topology: Topology, sharding: TableSharding) -> ShardFactors:
    kernel, cached = sharding.compute_kernel, sharding.cache_load_factor
    table = workload.table(sharding.table)
    return shard_factors(workload, topology, table, sharding.sharding_type, kernel, cached)


def plan_shard_bytes(workload: Workload, topology: Topology, plan: ShardingPlan) -> ShardBytes:
    """Return arrays over all shards of a plan, in the plan's order."""
    import numpy as np

    tables = [workload.table(sharding.table) for sharding in plan.tables]
    factors = [_factors_of(workload, topology, sharding) for sharding in plan.tables]
    distinct = [tuple(sharding.distinct_shards()) for sharding in plan.tables]
    shards = [shard for own in distinct for shard, _ in own]
    shares = [
        share
        for table, sharding, own in zip(tables, plan.tables, distinct, strict=True)
        for share in id_shares(table, sharding.sharding_type, [shard for shard, _ in own])
    ]
    parts = shard_bytes(
        stacked_factors(factors, [len(own) for own in distinct]),
        np.array([shard.num_rows for shard in shards], dtype=np.float64),
        np.array([shard.num_columns for shard in shards], dtype=np.float64),
        np.array(shares),
    )
    copies = [len(ranks) for own in distinct for _, ranks in own]
    return ShardBytes(**{
        name: np.repeat(getattr(parts, name), copies) for name in ShardBytes.__slots__
    })


def local_batch_bytes(workload: Workload) -> Bytes:
    """Return bytes of a rank's own inputs, before distribution, of all batches in flight.

    Ids, lengths and weights of all features, dense inputs and labels. TrainPipelineSparseDist holds
    the batch it trains to the end, has distributed the next one and copied that after it before
    forward (torchrec 1.9.2, train_pipelines.py 900-905, 935). TrainPipelineBase holds two. Plain
    DLRM has no distribution, its ids come to the rank that owns the table.
    """
    batches = {Pipeline.NONE: 2, Pipeline.DLRM: 1}.get(workload.pipeline, 3)
    return batches * (
        workload.local_batch_size * input_bytes_per_sample(workload) + _local_id_bytes(workload)
    )


@lru_cache(maxsize=16)
def _local_id_bytes(workload: Workload) -> Bytes:
    """Return the bytes of ids, weights and lengths of a rank's own batch."""
    if workload.pipeline is Pipeline.DLRM:
        return 0.0
    return workload.local_batch_size * sum(
        table.pooling_factor * (workload.index_bytes + (4 if table.weighted else 0))
        + LENGTH_BYTES * table.num_bags
        for table in workload.tables
    )


def fixed_bytes(workload: Workload, topology: Topology) -> tuple[Bytes, Bytes]:
    """Return bytes of the dense model, and of activations with local inputs, for any plan.

    Activations are those beside tables' weights: where weights are stashed, the dense part holds
    ``dense_peak_bytes`` more.

    A step holds most when the top MLP's backward begins; or before, while outputs are exchanged,
    when the requests of the batch it trains still hold the copy that its ids were sent from; or
    after, while gradients are, when that of the bottom MLP's output is still a view of all the
    interaction's. With TrainPipelineSemiSync there are, besides, the embeddings of the next batch,
    received, and its own, kept for a backward of theirs (torchrec 1.9.2, runtime_forwards.py,
    ``detach_embeddings``). Of a CPU's sort, the table at hand (``costmodel.memory.sort_buffers``).
    """
    activations = _activations_beside_weights(workload, topology)
    if workload.pipeline is Pipeline.SEMI_SYNC:
        activations += 2 * embedding_bytes(workload)
    activations += local_batch_bytes(workload) + most_at_hand_bytes(workload, topology)
    return dense_model_bytes(workload), activations


def dense_peak_bytes(workload: Workload, topology: Topology) -> Bytes:
    """Return bytes of activations held only while stashed weights are in the host's memory.

    It is 0 if no table is stashed. A rank with fewer bytes of stashed weights needs room for the
    rest.
    """
    if not (workload.stashes_weights and _may_stash(topology)):
        return 0.0
    peak = max(activation_bytes(workload), _exchanged_bytes(workload))
    return peak - _activations_beside_weights(workload, topology)


def _may_stash(topology: Topology) -> bool:
    """Return whether weights can be stashed: a CPU's are in host memory already."""
    return topology.hardware.device is Device.CUDA


def _activations_beside_weights(workload: Workload, topology: Topology) -> Bytes:
    """Return the largest bytes of activations at any time when all weights are in HBM.

    Stashed weights are in HBM from the backward of the layer that brings them back on.
    """
    left = workload.restore_site
    if workload.stashes_weights and _may_stash(topology):
        if left is None:
            return _exchanged_bytes(workload)
    else:
        left = None
    return max(activation_bytes(workload, left), _exchanged_bytes(workload))


def _exchanged_bytes(workload: Workload) -> Bytes:
    return received_bytes(workload) + max(
        _local_id_bytes(workload), joined_gradient_bytes(workload)
    )
