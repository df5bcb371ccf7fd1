"""Memory-bound kernels: elementwise, copies, concatenation, batched small products."""

from math import ceil

from costmodel.hardware import Gpu, HardwareProfile
from costmodel.kernels.gemm import gemm_constants
from costmodel.units import Bytes, Seconds
from costmodel.workload import DataType

CONCAT_EFFICIENCY = 0.76
"""Share of the memory bandwidth that ``cat`` reaches: 57 MB in 91 us on a V100
(v100_dlrm_kernels.csv, CatArrayBatchedCopy)."""
BATCHED_TILE = (32, 128)
"""Tile of the batched products of small matrices: the V100 steps of v100_dlrm_kernels.csv use
32 x 128 kernels for 27 x 27 outputs."""
CORE_TILE = (6, 16)
"""The same of a CPU's core: products of 6 x 16 numbers fill the registers of AVX-512 (oneDNN)."""
CORE_INDEX_UPDATES = 2.1e8
"""Elements per second that the backward of an index expression adds on a CPU's core, which sorts
nothing: 43 k in 0.20 ms (x86-64 at 2.6 GHz, torch 2.13, profiled 2026-11-21)."""
INDEX_UPDATES_PER_BYTE = 2.2e9 / 817e9
"""Elements per second that the backward of an index expression writes, per byte per second of
memory bandwidth: 719 k elements in 320 us and 74 k in 38 us on a V100 of 817 GB/s
(v100_dlrm_kernels.csv, indexing_backward_kernel); scaled with bandwidth for want of others."""


def pointwise_time(num_bytes: Bytes, gpu: Gpu) -> Seconds:
    """Time of a kernel that streams that many bytes, read plus written."""
    return gpu.kernel_latency + num_bytes / gpu.memory_bandwidth


def concat_time(num_bytes: Bytes, gpu: Gpu) -> Seconds:
    """Time to concatenate or split tensors along columns; bytes read plus written.

    A core copies row by row as fast as anything else: 21.6 GB/s where it clones at 18 to 24 (8,192
    rows of 640 and 1,728 columns, AMD EPYC, torch 2.13, 2026-11-21).
    """
    efficiency = 1.0 if _is_core(gpu) else CONCAT_EFFICIENCY
    return gpu.kernel_latency + num_bytes / (efficiency * gpu.memory_bandwidth)


def host_copy_time(num_bytes: Bytes, hardware: HardwareProfile) -> Seconds:
    """Time of a copy between pinned host memory and the GPU."""
    return hardware.gpu.kernel_latency + num_bytes / hardware.host.pcie_bandwidth


def batched_product_time(
    num_products: float, m: int, n: int, k: int, data_type: DataType, gpu: Gpu
) -> Seconds:
    """Time of that many independent products C[m, n] = A[m, k] B[k, n].

    Every product pads to whole tiles of ``BATCHED_TILE`` (m and n change places where that pads
    less), and at most streams its operands: max(padded FLOP / rate, bytes / bandwidth).
    """
    constants = gemm_constants(data_type, gpu)
    rows, columns = CORE_TILE if _is_core(gpu) else BATCHED_TILE
    padded = min(
        ceil(m / rows) * rows * ceil(n / columns) * columns,
        ceil(n / rows) * rows * ceil(m / columns) * columns,
    )
    rate = constants.peak * constants.max_efficiency
    arithmetic = 2.0 * num_products * padded * k / rate
    moved = num_products * data_type.num_bytes * (m * k + k * n + m * n)
    return constants.latency + max(arithmetic, moved / gpu.memory_bandwidth)


def index_backward_time(num_elements: float, gpu: Gpu) -> Seconds:
    """Time to scatter gradients back through an index expression such as ``x[:, i, j]``."""
    rate = INDEX_UPDATES_PER_BYTE * gpu.memory_bandwidth
    return gpu.kernel_latency + num_elements / (CORE_INDEX_UPDATES if _is_core(gpu) else rate)


def _is_core(gpu: Gpu) -> bool:
    """Tell a CPU's core from a GPU: it is one of its kind."""
    return gpu.num_sms == 1
