"""Bytes, ids and distinct rows that the lookup of shards moves, of many shards at once.

HBM sees every distinct row the L2 cannot keep (``UniqueCurves.cold_misses``), ids, offsets and
outputs; backward reads and writes every distinct row with its optimizer state. It reads an output's
gradient for every id, ordered by row: from HBM again where the gradients of one feature, B D of
them, do not fit in the L2. On chip a row takes the lanes of a warp that its columns need, and a
cache line at least. Host memory is cached by the L1 of a multiprocessor only.

``kernels.embedding`` turns them into times.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from costmodel.base.arrays import Array, Mask
from costmodel.base.units import Bytes, Seconds
from costmodel.domain.hardware import Gpu, UpdateCost
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType, Optimizer
from costmodel.kernels.lookup_shards import KERNELS, LookupShard, LookupShards, sectors
from costmodel.kernels.times import LookupRates
from costmodel.kernels.traffic import NUM_TRAFFIC, Traffic

ROW_GATHER_TIME: Seconds = 600e-9
"""Time a warp needs per row of its own bag: one load from DRAM after the other. Fitted to the eight
small lookups of the 8 x V100 trace, bags of up to 100 rows, 66 us (``bench.lookup_fit``); the DRAM
latency itself (Jia et al., Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking)."""
BAG_START_ROWS = 5.0
"""What a warp reads before the first row of its bag, in rows: offsets, the table's place and width,
ids. Fitted with ``ROW_GATHER_TIME``."""
CORE_ROW_TIME: Seconds = 150e-9
"""Seconds per row of a bag on a CPU's core, which has several loads in flight."""
LINE_BYTES = 128
"""A row takes at least one cache line on chip."""
WARP_COLUMNS = 128
"""Columns that a warp reads at once: 32 lanes of four (FBGEMM's ``Vec4T``)."""
WARP_BYTES = 240.0
"""Bytes that a GPU gathers on chip while all lanes of a warp take one row's ``WARP_COLUMNS``.
Fitted to FP16 rows of 160 columns, which take two turns (``bench.lookup_fit``)."""
SMALL_COLUMNS = 32
"""Columns up to which unpooled rows have a kernel of their own (FBGEMM's ``nobag_small``)."""
SMALL_ROW_BYTES, SMALL_BAG_BYTES = 1130.0, 3450.0
"""What a row and a bag take there of the rate at which a device gathers on chip, whatever the row's
width: 93 ps a row and 0.31 ns a bag beyond what others take on an H200. Fitted to 36 lookups of 8
to 32 columns (gpu_study_h200_2026-11-26), which are 17% off with tables held out, 49% before."""
DENSE_BACKWARD = "dense"
"""Name in ``Gpu.update_costs`` of the backward that makes a replicated table's gradient."""
BAGS_PER_BLOCK = 32
"""Warps of a block of 1,024 threads, one bag each (FBGEMM's forward kernels)."""
OFFSET_BYTES = 8
KEY_BYTES = 8
UVM_UPDATE_RATIO = 1.13
"""Time to read and write a row over PCIe, both ways at once, over the time to gather it once: 5.2
of the 5.63 ms of a backward for 415 k rows of 512 bytes, on an H100 that gathers 46 GB/s
(embedding.csv)."""
MISS_BYTES = 400.0
"""What looking for a place in the UVM cache for a missing row takes, as bytes over PCIe. With the
other traffic of prefetches it leaves 2% of the 54 ns that a miss takes with rows of 2 KiB (29 ms
for 536 k of them, torchrec_steps.csv) and 1% of 24 ns with rows of 512 bytes (2.96 of 3.36 ms for
126 k of them, embedding.csv). Held out: 41 ms of prefetch for 714 k rows of 2 KiB, 8% less; 27 ms
for as many of which half find no place, 17% less."""


PREFETCH_ID_BYTES, PREFETCH_ROW_BYTES = 364.0, 384.0
"""What a cache's prefetch moves for an id, and for a distinct one, whether or not it misses: makes
them linear (8 + 8) and sorts them (8 in, and 4 passes of 8 + 8, as row numbers have up to 32 bits),
finds the distinct ones (8 + 12), looks each up in its set of 32 tags of 8 bytes (8 + 256 + 4),
sorts these by set (4 passes of 12 + 12), inserts what is missing (8); and looks all ids up (8 + 256
+ 4). fbgemm_gpu 1.8.0, split_table_batched_embeddings_ops_training.py 2983-3101, FBGEMM
src/split_embeddings_cache/lru_cache_populate.cu, linearize_cache_indices.cu,
lxu_cache.cu. Not fitted: of an H100's 3.36 ms for 1.05 M ids, misses and rows give 3.07 and this
0.25 (embedding.csv). The launches of these ten or so kernels are left out."""


class Caches(NamedTuple):
    """Properties of a device that decide how much its kernels move.

    The defaults are a CPU core's.
    """

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
    """Seconds per row of the longest bag."""
    start_rows: float = 0.0
    """Time before a bag's first row, in rows."""
    update_costs: tuple[tuple[str, UpdateCost], ...] = ()
    """``Gpu.update_costs`` of a core, over the time in which it updates a row by row-wise Adagrad:
    what ``Traffic.UPDATES`` counts."""


def gpu_caches(gpu: Gpu) -> Caches:
    """Return the caches of a GPU, or of a CPU's core."""
    if gpu.is_core:
        return Caches(l2_bytes=gpu.l2_bytes, update_costs=tuple(_in_updates(gpu)))
    return warp_caches(
        gpu.l2_bytes, l1_bytes=gpu.l1_bytes, num_sms=gpu.num_sms, row_time=gpu.bag_row_time
    )


def _in_updates(gpu: Gpu) -> Iterator[tuple[str, UpdateCost]]:
    """Yield a core's costs of updates in updates of rows by row-wise Adagrad."""
    for name, cost in gpu.update_costs.items() if gpu.row_update_time else ():
        yield name, UpdateCost(*(seconds / gpu.row_update_time for seconds in cost))


def warp_caches(
    l2_bytes: Bytes, *, l1_bytes: Bytes = 0.0, num_sms: int, row_time: Seconds = 0.0
) -> Caches:
    """Return the caches of a device whose warps gather rows: any GPU."""
    return Caches(
        l2_bytes=l2_bytes,
        l1_bytes=l1_bytes,
        num_sms=num_sms,
        warp_bytes=WARP_BYTES,
        row_time=row_time or ROW_GATHER_TIME,
        start_rows=BAG_START_ROWS,
    )


def shard_traffics(
    shards: LookupShards, *, optimizer: Optimizer, output_type: DataType, caches: Caches
) -> Array:
    """Return the traffic of every shard, shape (shards, NUM_TRAFFIC); zeros without lookups.

    ``Traffic`` names the columns; ``optimizer`` is of tables that have none of their own.
    """
    keys, row_bytes, bags = shards.num_lookups, shards.row_bytes, shards.num_bags
    unique = shards.curves.unique_rows(shards.table_lookups)
    misses = shards.curves.cold_misses(shards.table_lookups, caches.l2_bytes / row_bytes)
    output = bags * shards.num_columns * output_type.num_bytes
    offsets = shards.num_samples * shards.table_bags
    ids = keys * KEY_BYTES + offsets * OFFSET_BYTES
    ids += 4.0 * keys * shards.is_weighted
    once, per_column = _state_bytes(shards, optimizer)
    per_row = sectors(once)
    state = sectors(once + per_column * shards.num_columns) - per_row
    gradients, added = _gradient_bytes(shards, caches, output_type)
    gradients += 2.0 * output * shards.is_mean
    update = 2.0 * unique * (row_bytes + state + per_row)
    traffic = np.zeros((len(keys), NUM_TRAFFIC))
    traffic[:, Traffic.FORWARD_HBM] = misses * row_bytes
    traffic[:, Traffic.BACKWARD_HBM] = update
    traffic[:, Traffic.KEYS] = keys
    traffic[:, Traffic.BAGS] = offsets
    streamed = ids + output
    for kernel, change in _KERNEL_TRAFFIC.items():
        places = np.flatnonzero(shards.kernel == KERNELS[kernel])
        if len(places):
            rows = _Rows(unique[places], misses[places], state[places], per_row[places])
            moved = change(shards.taken(places), rows, caches)
            traffic[places, Traffic.FORWARD_HBM] *= moved.read
            traffic[places, Traffic.FORWARD_HBM] += moved.read_more
            traffic[places, Traffic.BACKWARD_HBM] = moved.update
            traffic[places, Traffic.FORWARD_UVM] = moved.host_read
            traffic[places, Traffic.BACKWARD_UVM] = moved.host_update
            streamed[places] += moved.prefetched
            added[places] += moved.added
            traffic[places, Traffic.KEYS] *= moved.sorted_share
            traffic[places, Traffic.BAGS] *= moved.checked_share
    traffic[:, Traffic.FORWARD_HBM] += streamed
    gathered = keys * _on_chip_row_bytes(shards, caches)
    traffic[:, Traffic.FORWARD_L2] = (
        gathered + streamed + offsets * _on_chip_bag_bytes(shards, caches)
    )
    update = traffic[:, Traffic.BACKWARD_HBM].copy()
    traffic[:, Traffic.BACKWARD_HBM] += gradients
    traffic[:, Traffic.BACKWARD_L2] = added + gradients + update
    traffic[:, Traffic.LOOKUPS] = keys
    longest = np.where(shards.is_unpooled, 0.0, shards.longest_bag * shards.id_share)
    bag_rows = np.maximum(keys / np.maximum(bags, 1e-300), longest)
    traffic[:, Traffic.CHAIN] = (bag_rows + caches.start_rows) * caches.row_time
    if caches.warp_bytes:
        more = np.maximum(np.ceil(shards.num_columns / WARP_COLUMNS) - 1.0, 0.0)
        traffic[:, Traffic.TURNS], traffic[:, Traffic.WIDEST] = keys * more, more
    traffic[:, Traffic.ROWS] = unique
    traffic[:, Traffic.UPDATES] = unique * _update_weights(
        once, per_column, shards.num_columns, caches
    )
    _put_costs(traffic, shards, optimizer, caches)
    traffic[keys <= 0] = 0.0
    return traffic


def update_key(optimizer: Optimizer, *, half: bool, unpooled: bool) -> str:
    """Return the name under which a core's backward has a cost of its own.

    ``half``: weights are of FP16.
    """
    return optimizer.value + " fp16" * half + " unpooled" * unpooled


def _put_costs(traffic: Array, shards: LookupShards, optimizer: Optimizer, caches: Caches) -> None:
    """Put a core's own costs of some shards' backward in place of bytes and rows."""
    costs = dict(caches.update_costs)
    if not costs:
        return
    names = _backward_names(shards, optimizer)
    known = [place for place, name in enumerate(names) if name in costs]
    if known:
        places = np.array(known)
        each = np.array([costs[names[place]] for place in known])
        own = (update_features(shards.taken(places), caches) * each).sum(axis=1)
        traffic[places, Traffic.BACKWARD_HBM] = traffic[places, Traffic.BACKWARD_L2] = 0.0
        traffic[places, Traffic.UPDATES] = own


def _backward_names(shards: LookupShards, optimizer: Optimizer) -> list[str]:
    """Return the name in ``Gpu.update_costs`` of every shard's backward; empty: it has none."""
    kernels = {number: kernel for kernel, number in KERNELS.items()}
    names = []
    for own, unpooled, size, number in zip(
        shards.optimizer.tolist(),
        shards.is_unpooled.tolist(),
        shards.element_bytes.tolist(),
        shards.kernel.tolist(),
        strict=True,
    ):
        half = size == DataType.FP16.num_bytes
        fused = kernels[number] is ComputeKernel.FUSED
        dense = DENSE_BACKWARD if kernels[number] is ComputeKernel.DENSE else ""
        key = update_key(own or optimizer, half=half, unpooled=unpooled)
        names.append(key if fused else dense)
    return names


def update_features(shards: LookupShards, caches: Caches) -> Array:
    """Return how many of what each time of ``UpdateCost`` is of, in every shard's backward.

    Shape (shards, fields of ``UpdateCost``).
    """
    keys, columns, bags = shards.num_lookups, shards.num_columns, shards.num_bags
    unique = shards.curves.unique_rows(shards.table_lookups)
    misses = shards.curves.cold_misses(shards.table_lookups, caches.l2_bytes / shards.row_bytes)
    counted: dict[str, Array] = {
        "id_time": keys,
        "row_time": unique,
        "id_column_time": keys * columns,
        "row_column_time": unique * columns,
        "row_pair_time": unique**2,
        "bag_time": bags,
        "bag_column_time": bags * columns,
        "miss_time": misses,
        "miss_column_time": misses * columns,
        "element_time": shards.num_rows * columns,
    }
    return np.stack([counted[name] for name in UpdateCost._fields], axis=1)


def shard_traffic(
    shard: LookupShard, *, optimizer: Optimizer, output_type: DataType, caches: Caches
) -> tuple[float, ...]:
    """Return the traffic of one shard."""
    alone = LookupShards.of([shard])
    traffic = shard_traffics(alone, optimizer=optimizer, output_type=output_type, caches=caches)
    return tuple(traffic[0].tolist())


def replica_bytes(shards: LookupShards, optimizer: Optimizer | None) -> Array:
    """Return weights and optimizer state of fused shards: what groups of ranks keep in step.

    Without an optimizer, the weights alone. Replicated tables are ``dense``: their gradients are
    all-reduced, and their weights are not.
    """
    once = per_column = np.zeros(len(shards.num_rows))
    if optimizer is not None:
        once, per_column = _state_bytes(shards, optimizer)
    fused = shards.kernel != KERNELS[ComputeKernel.DENSE]
    held: Array = (
        fused * shards.num_rows * (shards.held_row_bytes + once + per_column * shards.num_columns)
    )
    return held


def _state_bytes(shards: LookupShards, optimizer: Optimizer) -> tuple[Array, Array]:
    """Return bytes of a row's optimizer state: independent of its columns, and per column."""
    used = [own or optimizer for own in shards.optimizer.tolist()]
    known = {each: each.state_bytes_per_row(0) for each in set(used)}
    more = {each: each.state_bytes_per_row(1) - once for each, once in known.items()}
    return np.array([known[each] for each in used]), np.array([more[each] for each in used])


def _update_weights(
    once: Array, per_column: Array, columns: Array, caches: Caches
) -> Array | float:
    """Return how much longer a row's update takes than by row-wise Adagrad.

    ``once`` and ``per_column``: bytes of state of a row; ``columns``: of its weights. Fitted to 650
    lookups on an H200: a row takes 0.12 ns by SGD and 0.22 by row-wise Adagrad, whose one number is
    a sum over the row's gradient. Adam has two numbers beside each of the weights, in arrays of
    their own, and fetches short rows of them at a cost beyond their bytes: 1.2 ns where rows have 8
    columns, 0.9 with 64, 0.4 from 128 on (47 launches of more than 200,000 rows: 12% off, 16% with
    one time for all widths; one of 128 columns on an H100, in NVIDIA's recsys-examples, which
    nothing is fitted to, is 7% too slow, with one time 28%). Two updates by Adagrad in traces of
    DCNv2 (735 k and 2.65 M rows) leave 0.4 and 0.6 of row-wise Adagrad's time beside their bytes.
    """
    if not caches.warp_bytes:
        return 1.0
    has_sum, has_two = once > 0, per_column > DataType.FP32.num_bytes
    short = 1.0 - 0.7 * np.minimum(1.0, columns / WARP_COLUMNS)
    return 0.5 + 0.5 * has_sum + 5.0 * short * has_two


class _Rows(NamedTuple):
    """Distinct rows of a batch, their reads that miss the L2, and bytes of state beside each."""

    unique: Array
    misses: Array
    """Rows that forward reads from memory."""
    state: Array
    per_row: Array


class _Moved(NamedTuple):
    """Bytes that a kernel other than ``fused`` moves."""

    update: Array
    """Bytes of HBM in backward."""
    read: float = 1.0
    """Factor on the bytes of rows that ``fused`` reads in forward."""
    read_more: Array | float = 0.0
    host_read: Array | float = 0.0
    host_update: Array | float = 0.0
    prefetched: Array | float = 0.0
    added: Array | float = 0.0
    """Bytes that backward moves on chip beyond its gradients and updates."""
    sorted_share: float = 1.0
    """Share of the ids that backward sorts."""
    checked_share: float = 1.0
    """Share of the bags whose ids are checked."""


def _uvm(shards: LookupShards, rows: _Rows, caches: Caches) -> _Moved:
    """Return the bytes moved if weights and their state are in host memory."""
    return _Moved(
        read=0.0,
        update=2.0 * rows.unique * rows.per_row,
        host_read=np.maximum(rows.unique, l1_misses(shards, caches)) * shards.row_bytes,
        host_update=UVM_UPDATE_RATIO * rows.unique * (shards.row_bytes + rows.state),
    )


def _uvm_caching(shards: LookupShards, rows: _Rows, caches: Caches) -> _Moved:
    """Return what is moved where a share of the rows is in HBM.

    The cache holds weights; states of every element stay in host memory (FBGEMM's
    ``cacheable=False``), and the H100's forward takes as long with Adam as with SGD
    (embedding.csv); one number for a row is in HBM, cached or not
    (split_table_batched_embeddings_ops_training.py 196-205, 1228-1240). A row comes in while
    another goes back: every cached row has been updated.
    """
    inserted, bypassing, reads = _cache_rows(shards)
    row_bytes = shards.row_bytes
    fetched = _fetched(shards, inserted, rows.unique, caches)
    within = ~_fetches_ahead(shards)
    return _Moved(
        read_more=fetched.rows * within,
        update=2.0 * (rows.unique * (row_bytes + rows.per_row) - bypassing * row_bytes),
        host_read=fetched.host * within + reads * row_bytes + bypassing * MISS_BYTES,
        host_update=UVM_UPDATE_RATIO * (rows.unique * rows.state + bypassing * row_bytes),
        prefetched=fetched.bookkeeping * within,
    )


class _Fetched(NamedTuple):
    """Bytes that move while a batch's rows come into a UVM cache."""

    host: Array
    rows: Array
    """In HBM, for the rows that come and those that go back."""
    bookkeeping: Array
    """In HBM, to find out which rows."""


def _fetched(shards: LookupShards, inserted: Array, unique: Array, caches: Caches) -> _Fetched:
    """Return the bytes that inserted rows move over the link and in HBM, of every shard."""
    row_bytes = shards.row_bytes
    found = PREFETCH_ID_BYTES * shards.num_lookups + PREFETCH_ROW_BYTES * unique
    return _Fetched(
        host=inserted * (UVM_UPDATE_RATIO * row_bytes + MISS_BYTES),
        rows=2.0 * inserted * row_bytes,
        # a core reads host memory as any
        bookkeeping=found if caches.warp_bytes else np.zeros_like(found),
    )


def _fetches_ahead(shards: LookupShards) -> Mask:
    """Return which shards' rows come into caches apart from lookups, while others are locked."""
    ahead: Mask = shards.batches_in_cache > 1
    return ahead


def fetch_times(shards: LookupShards, caches: Caches, rates: LookupRates) -> Array:
    """Return, of every shard, the seconds in which rows come into UVM caches apart from lookups.

    Zero where they do not. They are of the host's link and of HBM, one after the other as in a
    lookup that does both; they add up over the shards of a rank.
    """
    seconds = np.zeros(len(shards.num_rows))
    cached = shards.kernel == KERNELS[ComputeKernel.FUSED_UVM_CACHING]
    places = np.flatnonzero(cached & _fetches_ahead(shards))
    if len(places):
        own = shards.taken(places)
        inserted, _, _ = _cache_rows(own)
        fetched = _fetched(own, inserted, own.curves.unique_rows(own.table_lookups), caches)
        moved = fetched.host / rates.uvm_bandwidth
        moved += (fetched.rows + fetched.bookkeeping) / rates.lookup_bandwidth
        seconds[places] = np.where(own.num_lookups > 0, moved, 0.0)
    return seconds


def _dense(shards: LookupShards, rows: _Rows, caches: Caches) -> _Moved:
    """Return the bytes of a gradient of the weights' type: zeros, then the rows that were hit.

    A core adds every id's gradient to its row, and sorts nothing.
    """
    row = shards.num_columns * shards.element_bytes
    update = shards.num_rows * row + 2.0 * rows.unique * row
    if caches.warp_bytes:
        return _Moved(update=update, checked_share=0.0)
    return _Moved(
        update=update + 2.0 * (rows.misses - rows.unique) * row,
        added=2.0 * shards.num_lookups * row,
        sorted_share=0.0,
        checked_share=0.0,
    )


_KERNEL_TRAFFIC = {
    ComputeKernel.FUSED_UVM: _uvm,
    ComputeKernel.FUSED_UVM_CACHING: _uvm_caching,
    ComputeKernel.DENSE: _dense,
}


def _cache_rows(shards: LookupShards) -> tuple[Array, Array, Array]:
    """Return a batch's rows that come into the UVM cache, those without a place, and their reads.

    FBGEMM reads rows without a place from host memory in the forward and updates them there in the
    backward. With ``PrefetchTrainPipelineSparseDist`` rows of the batch in training are locked
    while the next one's come in, so that a cache of less than two batches' rows has such rows:
    18 ms of lookup in a cache of 1 M rows for 0.89 M distinct rows a batch, 1.1 ms in one of 2 M
    (torchrec_steps.csv, prefetch_emo). Every id of a row without a place reads it.

    The step with 1 M rows was published as 182 ms longer than with all rows in HBM and, of a run of
    the day before, as 51 ms longer; this gives 51. Sets of 32 places that overflow are left out:
    Poisson counts leave 3.0% of a batch's rows without a place, 1.3% with 2 M, less than 3 ms.
    """
    lookups, places = shards.table_lookups, shards.cache_load_factor * shards.num_rows
    unique = shards.curves.unique_rows(lookups)
    missing = shards.curves.warm_misses(lookups, places)
    kept = shards.curves.kept_rows(lookups, places, shards.batches_in_cache)
    kept = np.maximum(kept, unique - missing)
    bypassing = reads = unique - kept
    if bypassing.any():
        reads = bypassing * shards.curves.warm_reads(lookups, places) / np.maximum(missing, 1e-300)
    return kept - (unique - missing), bypassing, reads


def _on_chip_row_bytes(shards: LookupShards, caches: Caches) -> Array:
    """Return the bytes of a row at the rate at which a device gathers on chip.

    A warp serves a bag with the lanes its columns need: 8 or 16 of them read up to 32 and 64
    columns, all 32 of them ``WARP_COLUMNS`` at a time.
    """
    if not caches.warp_bytes:
        return shards.row_bytes
    columns = shards.num_columns
    turns = np.where(columns > 32, 0.5, 0.25)
    turns = np.where(columns > 64, np.ceil(columns / WARP_COLUMNS), turns)
    gathered = np.maximum(np.maximum(LINE_BYTES, shards.row_bytes), turns * caches.warp_bytes)
    return np.where(_is_small(shards), SMALL_ROW_BYTES, gathered)


def _on_chip_bag_bytes(shards: LookupShards, caches: Caches) -> Array:
    """Return the bytes of a bag, beside its rows, at the same rate."""
    return np.where(_is_small(shards) & (caches.warp_bytes > 0), SMALL_BAG_BYTES, 0.0)


def _is_small(shards: LookupShards) -> Mask:
    """Return which shards' rows are unpooled and narrow."""
    return shards.is_unpooled & (shards.num_columns <= SMALL_COLUMNS)


def _gradient_bytes(
    shards: LookupShards, caches: Caches, output_type: DataType
) -> tuple[Array, Array]:
    """Return the bytes of gradients that backward reads from HBM, and those it adds up on chip.

    Ids are ordered by row, so that every row comes by all samples of its feature again: with B D
    gradients of a feature in an L2 of C bytes, a share min(1, C / (4 B D)) of them is still there.
    """
    keys, width = shards.num_lookups, shards.num_columns * output_type.num_bytes
    if not caches.warp_bytes:
        return shards.num_bags * width, keys * shards.row_bytes
    once = np.minimum(keys, shards.num_bags) * width
    kept = np.minimum(1.0, caches.l2_bytes / (shards.num_samples * width))
    kept = np.where(shards.is_unpooled, 1.0, kept)
    return kept * once + (1.0 - kept) * keys * width, keys * width


def l1_misses(shards: LookupShards, caches: Caches) -> Array:
    """Return the reads of rows that an L1 does not serve: those that reach host memory.

    A kernel's blocks walk through one table after another, so the S multiprocessors that its bags
    occupy share a table's n lookups evenly, and each starts it with an L1 that has none of its
    rows: S cold(n / S, L1). Over L2 bytes counted on a V100 (embedding.csv, ten launches on small
    tables, with those kernels' blocks) this gives 0.89 to 0.98; all bytes gathered, 1.03 to 1.81.
    """
    if caches.l1_bytes <= 0:
        return shards.num_lookups
    blocks = np.maximum(1.0, shards.num_bags / caches.bags_per_block)
    occupied = np.minimum(float(caches.num_sms), blocks)
    lookups = shards.table_lookups / occupied
    missed = occupied * shards.curves.cold_misses(lookups, caches.l1_bytes / shards.row_bytes)
    return np.minimum(shards.num_lookups, missed)
