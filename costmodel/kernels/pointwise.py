"""Memory-bound kernels: elementwise, copies, concatenation, batched small products."""

from math import ceil

from costmodel.base.units import Bytes, Seconds
from costmodel.domain.hardware import Gpu
from costmodel.domain.workload import DataType
from costmodel.kernels.gemm import batched_gemm_time, gemm_constants

CONCAT_EFFICIENCY = 0.76
"""Share of the memory bandwidth that ``cat`` reaches: 57 MB in 91 us on a V100
(v100_dlrm_kernels.csv, CatArrayBatchedCopy)."""
CORE_VECTOR_BYTES = 64.0
"""A vector register of AVX-512, which a row of a small product fills as often as it takes."""
CORE_INDEX_UPDATES = 2.1e8
"""Elements per second that the backward of an index expression adds on a CPU's core, which sorts
nothing: 43 k in 0.20 ms (x86-64 at 2.6 GHz, torch 2.13, profiled 2026-11-21)."""
INDEX_UPDATES_PER_BYTE = 2.2e9 / 817e9
"""Elements per second that the backward of an index expression writes, per byte per second of
memory bandwidth: 719 k elements in 320 us and 74 k in 38 us on a V100 of 817 GB/s
(v100_dlrm_kernels.csv, indexing_backward_kernel); scaled with bandwidth for want of others."""
GATHERS_PER_THREAD = 4
"""Elements per thread of PyTorch's index kernel, index_elementwise_kernel<128, 4>."""
DRAM_LATENCY: Seconds = 600e-9
"""Jia et al., Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking, 2018."""
INDEX_BYTES = 8


def pointwise_time(num_bytes: Bytes, gpu: Gpu) -> Seconds:
    """Time of a kernel that streams that many bytes, read plus written."""
    return _stream_time(num_bytes, 1.0, gpu)


def concat_time(num_bytes: Bytes, gpu: Gpu) -> Seconds:
    """Time to concatenate or split tensors along columns; bytes read plus written."""
    efficiency = gpu.concat_efficiency if gpu.is_core else CONCAT_EFFICIENCY
    return _stream_time(num_bytes, efficiency, gpu)


def view_concat_time(num_bytes: Bytes, gpu: Gpu) -> Seconds:
    """Time to concatenate columns of a tensor in another order; bytes read plus written.

    What the backward of a split is. A GPU's kernel takes strides as they come; PyTorch on a CPU
    copies block by block, and a row of a block is too short to be streamed.
    """
    if not gpu.is_core:
        return concat_time(num_bytes, gpu)
    return _stream_time(num_bytes, gpu.view_efficiency, gpu)


def batched_product_time(
    num_products: float, m: int, n: int, k: int, data_type: DataType, gpu: Gpu
) -> Seconds:
    """Time of that many independent products C[m, n] = A[m, k] B[k, n].

    On a GPU as ``batched_gemm_time`` says. A CPU's core makes C in vectors of w = 16 (FP32)
    numbers of a row, each of which takes ``vector_time`` to begin and to end:

        t = latency + N m ceil(n / w) (t_vector + 2 w k / rate) + bytes / bandwidth

    So X'G, with many short rows, takes twice as long as GX of the same arithmetic.
    """
    if not gpu.is_core:
        return batched_gemm_time(num_products, m, n, k, data_type, gpu)
    constants = gemm_constants(data_type, gpu)
    width = CORE_VECTOR_BYTES / data_type.num_bytes
    vectors = num_products * m * ceil(n / width)
    rate = constants.peak * constants.max_efficiency
    moved = num_products * data_type.num_bytes * (m * k + k * n + m * n)
    busy = vectors * (constants.vector_time + 2.0 * width * k / rate)
    return constants.latency + busy + moved / gpu.memory_bandwidth


def index_time(num_elements: float, element_bytes: Bytes, gpu: Gpu) -> Seconds:
    """Time to gather that many elements by two indices, as ``x[:, i, j]`` does.

    A thread gathers ``GATHERS_PER_THREAD`` elements one after the other, each an index read and
    then the element it names; both indices come from the L2, where all samples read the same ones:

        t = t0 + 4 x 2 t_DRAM + n (2 i / BW_L2 + 2 e / BW)

    A core reads indices from its cache, and hides them: it streams the elements.
    """
    streamed = 2.0 * num_elements * element_bytes
    if gpu.is_core:
        return pointwise_time(streamed, gpu)
    ids = 2.0 * num_elements * INDEX_BYTES
    chain = GATHERS_PER_THREAD * 2 * DRAM_LATENCY
    return pointwise_time(streamed, gpu) + chain + ids / gpu.l2_bandwidth


def index_backward_time(num_elements: float, gpu: Gpu) -> Seconds:
    """Time to scatter gradients back through an index expression such as ``x[:, i, j]``."""
    rate = INDEX_UPDATES_PER_BYTE * gpu.memory_bandwidth
    return gpu.kernel_latency + num_elements / (CORE_INDEX_UPDATES if gpu.is_core else rate)


def _stream_time(num_bytes: Bytes, efficiency: float, gpu: Gpu) -> Seconds:
    """Return what ``times.stream_seconds`` says, of a share of the bandwidth."""
    rough = gpu.kernel_latency + num_bytes / (efficiency * gpu.memory_bandwidth)
    return float(gpu.stream_correction.corrected(rough))
