"""Table-batched embedding (TBE) kernels: forward lookup, backward fused with the optimizer.

A roofline over additive traffic. Every shard contributes a vector of ``Traffic``; one kernel
serves all shards of a group on a rank, so the vectors add up (``CHAIN`` takes the maximum) and
the time is a function of the sum:

    forward  = t0 + max(hbm / (BW eff_r), l2 / BW_l2, chain) + uvm / BW_uvm
    backward = n_k t0 + keys / sort_rate + max(hbm / (BW eff_w), l2 / BW_l2) + uvm / BW_uvm

On a CPU's core less is hidden behind something else, and a profile says so: a share ``1 - overlap``
of the smaller of HBM and L2 time is added to the larger, and every id (``lookup_time``) and every
distinct row (``row_read_time``, ``row_update_time``) takes time beyond its bytes. Profiles of GPUs
leave these at 1 and 0.

HBM sees every distinct row the L2 cannot keep (``UniqueCurve.cold_misses``), ids, offsets and
outputs; backward reads and writes every distinct row with its optimizer state, and reads the
gradients once.

References
----------
Lin et al., section III-C (reuse factors of one batch); Yang et al., the roofline of embedding
bags; FBGEMM ``split_embeddings`` kernels for what is read and written; ``embedding.csv`` anchors
(V100, H100) for the efficiencies: see the profiles.

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
ROW_GATHER_TIME: Seconds = 150e-9
"""Time a warp needs per row of its own bag: DRAM latency of about 600 ns (Jia et al., Dissecting
the NVIDIA Volta GPU Architecture via Microbenchmarking, 2018) over four loads in flight."""
BAGS_PER_BLOCK = 32
"""Warps of a block of 1,024 threads, one bag each (FBGEMM's forward kernels)."""
OFFSET_BYTES = 8
KEY_BYTES = 8
UVM_UPDATE_RATIO = 0.71
"""Time to read and write a row over PCIe, both ways at once, over the time to gather it: 5.63 ms
against 7.93 ms for the same 433,722 rows on an H100 (embedding.csv)."""


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
    """What may hold rows that a kernel reads again."""

    l2_bytes: Bytes
    l1_bytes: Bytes = 0.0
    """L1 cache of one SM; 0: none."""
    num_sms: int = 1
    bags_per_block: int = BAGS_PER_BLOCK
    """Bags that one block of threads, hence one SM, serves."""


def gpu_caches(gpu: Gpu) -> Caches:
    """Return the caches of a GPU."""
    return Caches(l2_bytes=gpu.l2_bytes, l1_bytes=gpu.l1_bytes, num_sms=gpu.num_sms)


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
    gathered = keys * row_bytes
    output = bags * shard.num_columns * output_type.num_bytes
    ids = keys * KEY_BYTES + shard.num_samples * table.num_features * OFFSET_BYTES
    ids += 4.0 * keys if table.weighted else 0.0
    per_row = _sectors(optimizer.state_bytes_per_row(0))
    state = _sectors(optimizer.state_bytes_per_row(shard.num_columns)) - per_row
    read, update = misses * row_bytes, 2.0 * unique * (row_bytes + state + per_row)
    gradients = output * (3.0 if shard.is_mean else 1.0)
    host_read = host_update = 0.0
    if shard.compute_kernel is ComputeKernel.FUSED_UVM:
        host_read, host_update = unique * row_bytes, UVM_UPDATE_RATIO * unique * (row_bytes + state)
        read, update = 0.0, 2.0 * unique * per_row
    elif shard.compute_kernel is ComputeKernel.FUSED_UVM_CACHING:
        # the cache holds weights; states of every element stay in host memory (FBGEMM's
        # ``cacheable=False``), and the H100's forward takes as long with Adam as with SGD
        # (embedding.csv); one number for a row is in HBM, cached or not
        # (split_table_batched_embeddings_ops_training.py 196-205, 1228-1240)
        host_read = row_bytes * curve.warm_misses(lookups, shard.cache_load_factor * shard.num_rows)
        host_update = UVM_UPDATE_RATIO * unique * state
        read, update = read + 2.0 * host_read, 2.0 * unique * (row_bytes + per_row)
    elif shard.compute_kernel is ComputeKernel.DENSE:
        # the gradient has the type of the weights: zeros, then the rows that were hit
        row = float(shard.num_columns * table.data_type.num_bytes)
        update = shard.num_rows * row + 2.0 * unique * row
    bag_rows = keys / bags if bags else 0.0
    return (
        read + ids + output,
        max(misses, _l1_misses(shard, curve, caches)) * row_bytes + ids + output,
        host_read,
        update + gradients,
        gathered + gradients + update,
        host_update,
        keys,
        bag_rows * ROW_GATHER_TIME,
        unique,
    )


def _sectors(num_bytes: Bytes) -> Bytes:
    """Return the bytes that DRAM moves for so many."""
    return float(-(-num_bytes // SECTOR_BYTES) * SECTOR_BYTES)


def _l1_misses(shard: LookupShard, curve: UniqueCurve, caches: Caches) -> float:
    """Return the reads of rows that reach the L2.

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
        l2_bandwidth=gpu.l2_bandwidth,
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
                cache_load_factor=table.cache_load_factor,
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
    gpu, host = hardware.gpu, hardware.host
    terms = {
        Bound.HBM_BANDWIDTH: traffic[Traffic.FORWARD_HBM]
        / (gpu.memory_bandwidth * gpu.lookup_efficiency),
        Bound.L2_BANDWIDTH: traffic[Traffic.FORWARD_L2] / gpu.l2_bandwidth,
        Bound.LONGEST_BAG: traffic[Traffic.CHAIN],
        Bound.HOST_MEMORY: traffic[Traffic.FORWARD_UVM] / host.uvm_bandwidth,
        Bound.KERNEL_LATENCY: gpu.kernel_latency,
        Bound.IDS: traffic[Traffic.LOOKUPS] * gpu.lookup_time,
        Bound.ROW_LATENCY: traffic[Traffic.ROWS] * gpu.row_read_time,
    }
    return max(terms, key=terms.__getitem__)


def backward_bound(traffic: NDArray[np.float64], hardware: HardwareProfile) -> Bound:
    """Return what bounds the backward kernels of that traffic."""
    gpu, host = hardware.gpu, hardware.host
    terms = {
        Bound.HBM_BANDWIDTH: traffic[Traffic.BACKWARD_HBM]
        / (gpu.memory_bandwidth * gpu.update_efficiency),
        Bound.L2_BANDWIDTH: traffic[Traffic.BACKWARD_L2] / gpu.l2_bandwidth,
        Bound.KEY_SORT: traffic[Traffic.LOOKUPS] / gpu.sort_rate,
        Bound.HOST_MEMORY: traffic[Traffic.BACKWARD_UVM] / host.uvm_bandwidth,
        Bound.KERNEL_LATENCY: BACKWARD_KERNELS * gpu.kernel_latency,
        Bound.ROW_LATENCY: traffic[Traffic.ROWS] * gpu.row_update_time,
    }
    return max(terms, key=terms.__getitem__)
