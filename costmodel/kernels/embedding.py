"""Table-batched embedding (TBE) kernels: forward lookup, backward fused with the optimizer.

A roofline over additive traffic. Every shard contributes a vector of ``Traffic``; one kernel
serves all shards of a group on a rank, so the vectors add up (``CHAIN`` takes the maximum) and
the time is a function of the sum:

    forward  = t0 + max(hbm / (BW eff_r), on_chip / BW_gather, chain) + uvm / BW_uvm
    backward = t0_b + keys / sort_rate + uvm / BW_uvm
               + max(hbm / (BW eff_w), on_chip / BW_gather, keys t_gradient)
    grad_indice_weights = t0 + r (forward - t0)

``t0_b`` is a backward of few ids, some fifteen kernels one after the other; ``t_gradient`` what a
warp takes to add one id's gradient to its row's, which is bound by latency. A weighted lookup's
backward also runs ``grad_indice_weights``, an operator of its own, which gathers the rows again.
The constants, what they were fitted to and what they miss on shapes left out: ``bench.lookup_fit``.

On a CPU's core less is hidden behind something else, and a profile says so: a share ``1 - overlap``
of the smaller of HBM and L2 time is added to the larger, and every id (``lookup_time``) and every
distinct row (``row_read_time``, ``row_update_time``) takes time beyond its bytes. Profiles of GPUs
leave these at 1 and 0.

HBM sees every distinct row the L2 cannot keep (``UniqueCurve.cold_misses``), ids, offsets and
outputs; backward reads and writes every distinct row with its optimizer state. It reads an output's
gradient for every id, ordered by row: from HBM again where the gradients of one feature, B D of
them, do not fit in the L2. On chip a row takes the lanes of a warp that its columns need, and a
cache line at least. Host memory is cached by the L1 of a multiprocessor only.

References
----------
Lin et al., section III-C (reuse factors of one batch); Yang et al., the roofline of embedding
bags; FBGEMM ``split_embeddings`` kernels for what is read and written; ``bench.fitting.launches``
for what was measured.

"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.base.units import Bytes, Seconds
from costmodel.domain.families import is_lookup_covered
from costmodel.domain.hardware import Bound, Estimate, Gpu, HardwareProfile, Source
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType, EmbeddingTable, Optimizer, Pooling
from costmodel.inputs.distribution import UniqueCurve, lookup_share, unique_curve
from costmodel.kernels import times
from costmodel.kernels.times import LookupRates
from costmodel.kernels.traffic import BACKWARD_KERNELS, NUM_TRAFFIC, Traffic

SECTOR_BYTES = 32
"""Smallest unit DRAM and L2 move (NVIDIA, CUDA C++ best practices: 32-byte sectors)."""
ROW_GATHER_TIME: Seconds = 600e-9
"""Time a warp needs per row of its own bag: one load from DRAM after the other. Fitted to the eight
small lookups of the 8 x V100 trace, bags of up to 100 rows, 66 us (``bench.lookup_fit``); the DRAM
latency itself (Jia et al., Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking)."""
BAG_START_ROWS = 5.0
"""What a warp reads before the first row of its bag, in rows: offsets, the table's place and width,
ids. Fitted with ``ROW_GATHER_TIME``."""
CORE_ROW_TIME: Seconds = 150e-9
"""The same on a CPU's core, which has several loads in flight, and nothing to read before."""
LINE_BYTES = 128
"""A row takes at least one cache line on chip."""
WARP_COLUMNS = 128
"""Columns that a warp reads at once: 32 lanes of four (FBGEMM's ``Vec4T``)."""
WARP_BYTES = 240.0
"""Bytes that a GPU gathers on chip while all lanes of a warp take one row's ``WARP_COLUMNS``.
Fitted to FP16 rows of 160 columns, which take two turns (``bench.lookup_fit``)."""
BAGS_PER_BLOCK = 32
"""Warps of a block of 1,024 threads, one bag each (FBGEMM's forward kernels)."""
OFFSET_BYTES = 8
KEY_BYTES = 8
UVM_UPDATE_RATIO = 1.13
"""Time to read and write a row over PCIe, both ways at once, over the time to gather it once: 5.2
of the 5.63 ms of a backward for 415 k rows of 512 bytes, on an H100 that gathers 46 GB/s
(embedding.csv)."""
MISS_BYTES = 400.0
"""What looking for a place in the UVM cache for a missing row takes, as bytes over PCIe. A miss
takes 54 ns with rows of 2 KiB (29 ms of prefetch for 536 k of them, torchrec_steps.csv) and 24 ns
with rows of 512 bytes (2.96 of 3.36 ms for 126 k of them, embedding.csv): this leaves 8% and 10%.
Held out: 27 ms of prefetch for 714 k rows of 2 KiB, half of which find no place, 8% less."""


PREFETCH_ID_BYTES, PREFETCH_ROW_BYTES = 364.0, 384.0
"""What a cache's prefetch moves for an id, and for a distinct one, whether or not it misses: makes
them linear (8 + 8) and sorts them (8 in, and 4 passes of 8 + 8, as row numbers have up to 32 bits),
finds the distinct ones (8 + 12), looks each up in its set of 32 tags of 8 bytes (8 + 256 + 4),
sorts these by set (4 passes of 12 + 12), inserts what is missing (8); and looks all ids up (8 + 256
+ 4). fbgemm_gpu 1.8.0, split_table_batched_embeddings_ops_training.py 2983-3101, FBGEMM
src/split_embeddings_cache/lru_cache_populate.cu, linearize_cache_indices.cu,
lxu_cache.cu. Not fitted: of an H100's 3.36 ms for 1.05 M ids, misses and rows give 3.07 and this
0.25 (embedding.csv). The launches of these ten or so kernels are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupShard:
    """What a TBE kernel needs to know about one shard of a table."""

    table: EmbeddingTable
    first_row: int
    num_rows: int
    num_columns: int
    num_samples: float
    """Samples looked up per step on this rank: the global batch, or the local one if
    data_parallel."""
    compute_kernel: ComputeKernel
    cache_load_factor: float
    batches_in_cache: int = 1
    """Batches whose rows a UVM cache must hold at once (``Pipeline.batches_in_cache``)."""

    @property
    def row_bytes(self) -> float:
        """Bytes one row of the shard occupies in DRAM traffic: whole sectors."""
        exact = self.num_columns * self.table.data_type.num_bytes
        return float(-(-exact // SECTOR_BYTES) * SECTOR_BYTES)

    @property
    def num_lookups(self) -> float:
        """Ids of a step that fall on the shard."""
        table = self.table
        lookups = self.num_samples * table.pooling_factor
        if self.num_rows == table.num_embeddings:
            return lookups
        return lookups * lookup_share(
            table.inputs, table.num_embeddings, self.first_row, self.num_rows
        )

    @property
    def is_mean(self) -> bool:
        """Whether the kernel itself divides by the lengths; of row shards the module does.

        Its backward first writes a scaled copy of the gradients (FBGEMM,
        embedding_backward_split_template.cu 1037-1063).
        """
        whole = self.num_rows == self.table.num_embeddings
        return self.table.pooling is Pooling.MEAN and whole

    @property
    def num_bags(self) -> float:
        """Output rows: one per sample and feature, or one per id without pooling."""
        if self.table.pooling is Pooling.NONE:
            return self.num_lookups
        return self.num_samples * self.table.num_features


class Caches(NamedTuple):
    """What of a device decides how much its kernels move; defaults are those of a CPU's core."""

    l2_bytes: Bytes
    l1_bytes: Bytes = 0.0
    """L1 cache of one SM; 0: none."""
    num_sms: int = 1
    bags_per_block: int = BAGS_PER_BLOCK
    """Bags that one block of threads, hence one SM, serves."""
    warp_bytes: Bytes = 0.0
    """``WARP_BYTES`` of a GPU. 0: a core, which has no warps; its gradients count once, as they did
    when its rates were fitted."""
    row_time: Seconds = CORE_ROW_TIME
    """What a row of the longest bag takes."""
    start_rows: float = 0.0
    """What is read before a bag's first row, in rows."""


def gpu_caches(gpu: Gpu) -> Caches:
    """Return the caches of a GPU, or of a CPU's core."""
    if gpu.is_core:
        return Caches(l2_bytes=gpu.l2_bytes)
    return warp_caches(gpu.l2_bytes, l1_bytes=gpu.l1_bytes, num_sms=gpu.num_sms)


def warp_caches(l2_bytes: Bytes, *, l1_bytes: Bytes = 0.0, num_sms: int) -> Caches:
    """Return the caches of a device whose warps gather rows: any GPU."""
    return Caches(
        l2_bytes=l2_bytes,
        l1_bytes=l1_bytes,
        num_sms=num_sms,
        warp_bytes=WARP_BYTES,
        row_time=ROW_GATHER_TIME,
        start_rows=BAG_START_ROWS,
    )


@lru_cache(maxsize=262144)
def shard_traffic(
    shard: LookupShard, *, optimizer: Optimizer, output_type: DataType, caches: Caches
) -> tuple[float, ...]:
    """Return the traffic vector of one shard (``Traffic`` names the columns)."""
    keys, table = shard.num_lookups, shard.table
    if keys <= 0:
        return (0.0,) * NUM_TRAFFIC
    curve = unique_curve(table.inputs, table.num_embeddings, shard.first_row, shard.num_rows)
    row_bytes, bags = shard.row_bytes, shard.num_bags
    lookups = shard.num_samples * table.pooling_factor
    unique = curve.unique_rows(lookups)
    misses = curve.cold_misses(lookups, caches.l2_bytes / row_bytes)
    output = bags * shard.num_columns * output_type.num_bytes
    ids = keys * KEY_BYTES + shard.num_samples * table.num_features * OFFSET_BYTES
    ids += 4.0 * keys if table.weighted else 0.0
    per_row = _sectors(optimizer.state_bytes_per_row(0))
    state = _sectors(optimizer.state_bytes_per_row(shard.num_columns)) - per_row
    read, update = misses * row_bytes, 2.0 * unique * (row_bytes + state + per_row)
    bag_rows = keys / bags if bags else 0.0
    gradients, added = _gradient_bytes(shard, caches, output_type)
    gradients += 2.0 * output if shard.is_mean else 0.0
    host_read = host_update = prefetched = 0.0
    sorted_keys = keys
    if shard.compute_kernel is ComputeKernel.FUSED_UVM:
        host_read = max(unique, l1_misses(shard, curve, caches)) * row_bytes
        host_update = UVM_UPDATE_RATIO * unique * (row_bytes + state)
        read, update = 0.0, 2.0 * unique * per_row
    elif shard.compute_kernel is ComputeKernel.FUSED_UVM_CACHING:
        # the cache holds weights; states of every element stay in host memory (FBGEMM's
        # ``cacheable=False``), and the H100's forward takes as long with Adam as with SGD
        # (embedding.csv); one number for a row is in HBM, cached or not
        # (split_table_batched_embeddings_ops_training.py 196-205, 1228-1240)
        inserted, bypassing = _cache_rows(shard, curve, lookups)
        # a row comes in while another goes back: every cached row has been updated
        host_read = inserted * UVM_UPDATE_RATIO * row_bytes + bypassing * row_bytes
        host_read += (inserted + bypassing) * MISS_BYTES
        host_update = UVM_UPDATE_RATIO * (unique * state + bypassing * row_bytes)
        read += 2.0 * inserted * row_bytes
        update = 2.0 * (unique * (row_bytes + per_row) - bypassing * row_bytes)
        if caches.warp_bytes:  # a core reads host memory as any other
            prefetched = PREFETCH_ID_BYTES * keys + PREFETCH_ROW_BYTES * unique
    elif shard.compute_kernel is ComputeKernel.DENSE:
        # the gradient has the type of the weights: zeros, then the rows that were hit
        row = float(shard.num_columns * table.data_type.num_bytes)
        update = shard.num_rows * row + 2.0 * unique * row
        if not caches.warp_bytes:  # a core adds every id's gradient to its row, sorting nothing
            update += 2.0 * (misses - unique) * row
            added += 2.0 * keys * row
            sorted_keys = 0.0
    return (
        read + ids + output + prefetched,
        keys * _on_chip_row_bytes(shard, caches) + ids + output + prefetched,
        host_read,
        update + gradients,
        added + gradients + update,
        host_update,
        keys,
        (bag_rows + caches.start_rows) * caches.row_time,
        unique,
        sorted_keys,
    )


def _cache_rows(shard: LookupShard, curve: UniqueCurve, lookups: float) -> tuple[float, float]:
    """Return a batch's rows that come into the UVM cache, and those that find no place there.

    FBGEMM reads rows without a place from host memory in the forward and updates them there in the
    backward. With ``PrefetchTrainPipelineSparseDist`` rows of the batch in training are locked
    while the next one's come in, so that a cache of less than two batches' rows has such rows:
    18 ms of lookup in a cache of 1 M rows for 0.89 M distinct rows a batch, 1.1 ms in one of 2 M
    (torchrec_steps.csv, prefetch_emo). A row without a place is taken to come once a batch.
    """
    places = shard.cache_load_factor * shard.num_rows
    unique = curve.unique_rows(lookups)
    missing = curve.warm_misses(lookups, places)
    kept = max(curve.kept_rows(lookups, places, shard.batches_in_cache), unique - missing)
    return kept - (unique - missing), unique - kept


def _sectors(num_bytes: Bytes) -> Bytes:
    """Return the bytes that DRAM moves for so many."""
    return float(-(-num_bytes // SECTOR_BYTES) * SECTOR_BYTES)


def _on_chip_row_bytes(shard: LookupShard, caches: Caches) -> Bytes:
    """Return what a row takes of the rate at which a device gathers on chip.

    A warp serves a bag with the lanes its columns need: 8 or 16 of them read up to 32 and 64
    columns, all 32 of them ``WARP_COLUMNS`` at a time.
    """
    if not caches.warp_bytes:
        return shard.row_bytes
    columns = shard.num_columns
    turns = -(-columns // WARP_COLUMNS) if columns > 64 else 0.5 if columns > 32 else 0.25
    return max(LINE_BYTES, shard.row_bytes, turns * caches.warp_bytes)


def _gradient_bytes(
    shard: LookupShard, caches: Caches, output_type: DataType
) -> tuple[Bytes, Bytes]:
    """Return the bytes of gradients that backward reads from HBM, and those it adds up on chip.

    Ids are ordered by row, so that every row comes by all samples of its feature again: with B D
    gradients of a feature in an L2 of C bytes, a share min(1, C / (4 B D)) of them is still there.
    """
    width, keys = float(shard.num_columns * output_type.num_bytes), shard.num_lookups
    once = min(keys, shard.num_bags) * width
    if not caches.warp_bytes:
        return shard.num_bags * width, keys * shard.row_bytes
    if shard.table.pooling is Pooling.NONE:
        return once, keys * width
    kept = min(1.0, caches.l2_bytes / (shard.num_samples * width))
    return kept * once + (1.0 - kept) * keys * width, keys * width


def l1_misses(shard: LookupShard, curve: UniqueCurve, caches: Caches) -> float:
    """Return the reads of rows that an L1 does not serve: those that reach host memory.

    A kernel's blocks walk through one table after another, so the S multiprocessors that its bags
    occupy share a table's n lookups evenly, and each starts it with an L1 that has none of its
    rows: S cold(n / S, L1). Over L2 bytes counted on a V100 (embedding.csv, ten launches on small
    tables, with those kernels' blocks) this gives 0.89 to 0.98; all bytes gathered, 1.03 to 1.81.
    """
    if caches.l1_bytes <= 0:
        return shard.num_lookups
    occupied = min(float(caches.num_sms), max(1.0, shard.num_bags / caches.bags_per_block))
    lookups = shard.num_samples * shard.table.pooling_factor / occupied
    missed = occupied * curve.cold_misses(lookups, caches.l1_bytes / shard.row_bytes)
    return min(shard.num_lookups, missed)


def lookup_rates(hardware: HardwareProfile) -> LookupRates:
    """Return the rates of a machine."""
    gpu = hardware.gpu
    return LookupRates(
        latency=gpu.kernel_latency,
        lookup_bandwidth=gpu.memory_bandwidth * gpu.lookup_efficiency,
        update_bandwidth=gpu.memory_bandwidth * gpu.update_efficiency,
        gather_bandwidth=gpu.gather_bandwidth or gpu.l2_bandwidth,
        backward_latency=gpu.backward_latency or BACKWARD_KERNELS * gpu.kernel_latency,
        gradient_time=gpu.gradient_time,
        sort_rate=gpu.sort_rate,
        uvm_bandwidth=hardware.host.uvm_bandwidth,
        overlap=gpu.overlap,
        lookup_time=gpu.lookup_time,
        row_read_time=gpu.row_read_time,
        row_update_time=gpu.row_update_time,
    )


def forward_time(traffic: NDArray[np.float64], hardware: HardwareProfile) -> NDArray[np.float64]:
    """Seconds of the forward kernel for summed traffic of shape (..., NUM_TRAFFIC).

    Zero where there is nothing to look up.
    """
    return kernel_times(traffic, lookup_rates(hardware), backward=False)


def backward_time(traffic: NDArray[np.float64], hardware: HardwareProfile) -> NDArray[np.float64]:
    """Seconds of the fused backward for summed traffic of shape (..., NUM_TRAFFIC)."""
    return kernel_times(traffic, lookup_rates(hardware), backward=True)


def kernel_times(
    traffic: NDArray[np.float64], rates: LookupRates, *, backward: bool
) -> NDArray[np.float64]:
    """Seconds of one kernel for traffic of shape (..., NUM_TRAFFIC); see ``kernels.times``."""
    rows = np.ascontiguousarray(traffic, dtype=np.float64).reshape(-1, NUM_TRAFFIC)
    return times.lookup_times(rows, rates, backward).reshape(traffic.shape[:-1])


def combine(
    traffic: NDArray[np.float64], group: NDArray[np.intp], num_groups: int
) -> NDArray[np.float64]:
    """Add up the traffic of shards, shape (shards, NUM_TRAFFIC), by the kernel that serves them."""
    total = np.zeros((num_groups, NUM_TRAFFIC))
    np.add.at(total, group, traffic)
    total[:, Traffic.CHAIN] = 0.0
    np.maximum.at(total[:, Traffic.CHAIN], group, traffic[:, Traffic.CHAIN])
    return total


def embedding_estimate(
    tables: tuple[EmbeddingTable, ...],
    *,
    num_samples: int,
    optimizer: Optimizer,
    hardware: HardwareProfile,
    output_type: DataType = DataType.FP32,
) -> tuple[Estimate, Estimate]:
    """Estimate one TBE kernel over whole tables: forward, and backward with the optimizer."""
    rows = [
        shard_traffic(
            LookupShard(
                table=table,
                first_row=0,
                num_rows=table.num_embeddings,
                num_columns=table.embedding_dim,
                num_samples=num_samples,
                compute_kernel=(table.compute_kernels or (ComputeKernel.FUSED,))[0],
                cache_load_factor=table.cache_share,
            ),
            optimizer=optimizer,
            output_type=output_type,
            caches=gpu_caches(hardware.gpu),
        )
        for table in tables
    ]
    total = combine(np.array(rows), np.zeros(len(rows), dtype=np.intp), 1)
    lookups, columns = float(total[0, Traffic.LOOKUPS]), [table.embedding_dim for table in tables]

    def estimate(seconds: Seconds, bound_by: Bound, *, backward: bool) -> Estimate:
        covered = is_lookup_covered(hardware, backward=backward, lookups=lookups, columns=columns)
        return Estimate(
            seconds=seconds, bound_by=bound_by, source=Source.ROOFLINE, extrapolated=not covered
        )

    forward = float(forward_time(total, hardware)[0])
    backward = float(backward_time(total, hardware)[0])
    return (
        estimate(forward, forward_bound(total[0], hardware), backward=False),
        estimate(backward, backward_bound(total[0], hardware), backward=True),
    )


def forward_bound(traffic: NDArray[np.float64], hardware: HardwareProfile) -> Bound:
    """Return what bounds the forward kernel of that traffic."""
    rates = lookup_rates(hardware)
    terms = {
        Bound.HBM_BANDWIDTH: traffic[Traffic.FORWARD_HBM] / rates.lookup_bandwidth,
        Bound.L2_BANDWIDTH: traffic[Traffic.FORWARD_L2] / rates.gather_bandwidth,
        Bound.LONGEST_BAG: traffic[Traffic.CHAIN],
        Bound.HOST_MEMORY: traffic[Traffic.FORWARD_UVM] / rates.uvm_bandwidth,
        Bound.KERNEL_LATENCY: rates.latency,
        Bound.IDS: traffic[Traffic.KEYS] * rates.lookup_time,
        Bound.ROW_LATENCY: traffic[Traffic.ROWS] * rates.row_read_time,
    }
    return max(terms, key=terms.__getitem__)


def backward_bound(traffic: NDArray[np.float64], hardware: HardwareProfile) -> Bound:
    """Return what bounds the backward kernels of that traffic."""
    rates = lookup_rates(hardware)
    terms = {
        Bound.HBM_BANDWIDTH: traffic[Traffic.BACKWARD_HBM] / rates.update_bandwidth,
        Bound.L2_BANDWIDTH: traffic[Traffic.BACKWARD_L2] / rates.gather_bandwidth,
        Bound.IDS: traffic[Traffic.LOOKUPS] * rates.gradient_time,
        Bound.KEY_SORT: traffic[Traffic.KEYS] / rates.sort_rate,
        Bound.HOST_MEMORY: traffic[Traffic.BACKWARD_UVM] / rates.uvm_bandwidth,
        Bound.KERNEL_LATENCY: rates.backward_latency,
        Bound.ROW_LATENCY: traffic[Traffic.ROWS] * rates.row_update_time,
    }
    return max(terms, key=terms.__getitem__)


def weight_gradient_time(
    traffic: NDArray[np.float64], hardware: HardwareProfile
) -> NDArray[np.float64]:
    """Seconds of ``grad_indice_weights`` for summed traffic of shape (..., NUM_TRAFFIC).

    The kernel in which the backward of a weighted lookup makes the gradients of the ids' weights:
    it gathers every id's row, as the forward does, and reduces its product with the gradient over
    the lanes of a warp, which takes ``WEIGHT_GRADIENT_RATIO`` times as long.
    """
    rows = np.ascontiguousarray(traffic, dtype=np.float64).reshape(-1, NUM_TRAFFIC)
    seconds = times.weight_gradient_times(rows, lookup_rates(hardware))
    return seconds.reshape(traffic.shape[:-1])


def lookup_time(
    traffic: NDArray[np.float64], hardware: HardwareProfile, *, weighted: NDArray[np.bool_] | bool
) -> NDArray[np.float64]:
    """Seconds of all kernels of a lookup, forward and backward, for traffic as summed.

    ``weighted``: whether ids have weights, shape as the traffic's but for the last axis.
    """
    both = forward_time(traffic, hardware) + backward_time(traffic, hardware)
    return both + weight_gradient_time(traffic, hardware) * weighted
