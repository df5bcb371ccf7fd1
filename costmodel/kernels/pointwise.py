"""Memory-bound kernels: elementwise, copies, concatenation, batched small products."""

from math import ceil

from costmodel.base.units import Bytes, Seconds
from costmodel.domain.hardware import Gpu
from costmodel.domain.workload import DataType
from costmodel.kernels.gemm import batched_gemm_time, gemm_constants

CONCAT_EFFICIENCY = 0.76
"""Share of the memory bandwidth that ``cat`` reaches: 57 MB in 91 us on a V100
(v100_dlrm_kernels.csv, CatArrayBatchedCopy)."""
CONCAT_SM_BANDWIDTH = 22e9
"""Bytes per second that ``cat`` moves on one SM where memory could deliver more: 1,745 MB in 592 us
and 126 MB in 44 us on 132 SMs of an H200 (gpu_study_h200_2026-11-26, traces of dlrm 65536)."""
CORE_VECTOR_BYTES = 64.0
"""A vector register of AVX-512, which a row of a small product fills as often as it takes."""
CORE_INDEX_UPDATES = 2.1e8
"""Elements per second that the backward of an index expression adds on a CPU's core, which sorts
nothing: 43 k in 0.20 ms (x86-64 at 2.6 GHz, torch 2.13, profiled 2026-11-21)."""
INDEX_UPDATES = 2.2e9
"""Elements per second that the backward of an index expression adds on a V100: 719 k in 320 us and
74 k in 38 us (v100_dlrm_kernels.csv, indexing_backward_kernel)."""
INDEX_UPDATE_SMS = 80
"""SMs of that V100."""
INDEX_UPDATE_SCALING = 1.6
"""Power of the number of SMs by which that rate grows. 132 SMs of an H200 add 23.0 M in 4,682 us,
4.9 a ns (gpu_study_h200_2026-11-26, traces of dlrm 65536, indexing_backward_kernel_stride_1; the
same rate at 1,024 to 16,384 samples), 2.2 times as many, where memory is 5.4 times as fast. That is
the ratio of SMs times clock, 132 at 1.98 GHz over 80 at 1.53; clocks are taken to rise with SMs."""
GATHERS_PER_THREAD = 4
"""Elements per thread of PyTorch's index kernel, index_elementwise_kernel<128, 4>."""
SCALAR_ELEMENTS_PER_SM = 2.7e9
"""Elements per second of an elementwise kernel that is not vectorized, on one SM: PyTorch's
``unrolled_elementwise_kernel``, which converts from FP16 to FP32, and ``elementwise_kernel``, which
takes strides. 226 M converted in 635 us, 218 M copied into columns in 628 us on 132 SMs of an H200
(traces as above). Slower than memory only where that has more than some 16 GB/s for each SM."""
TRANSPOSED_ELEMENTS_PER_SM = 1.35e9
"""The same where one operand is a transpose: 226 M added in 1,281 us, 57 M in 322 us (as above). On
a V100 the 7.1 M of ``v100_dlrm_kernels.csv`` take what their bytes do."""
SUM_LATENCY: Seconds = 2e-6
"""What the sum of a matrix's rows takes beside any kernel, to set and take its semaphores: 6 to 8
us for 1,024 rows on an H200 (as above, sums of linear layers' biases)."""
SUM_ROW_TIME: Seconds = 1e-9
"""Time of a row in it, as one block after another adds its part up: 10 us for 4,096 rows, 22 for
16,384, 51 to 72 for 65,536, of 128 to 512 columns of FP16 (as above)."""
DRAM_LATENCY: Seconds = 600e-9
"""Jia et al., Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking, 2018."""
INDEX_BYTES = 8


def pointwise_time(num_bytes: Bytes, gpu: Gpu) -> Seconds:
    """Time of a kernel that streams that many bytes, read plus written."""
    return _stream_time(num_bytes, 1.0, gpu)


def in_place_time(num_bytes: Bytes, gpu: Gpu) -> Seconds:
    """Time of a kernel that changes a tensor in place; bytes read plus written."""
    return _stream_time(num_bytes, gpu.in_place_efficiency, gpu)


def concat_time(num_bytes: Bytes, gpu: Gpu) -> Seconds:
    """Time to concatenate or split tensors along columns; bytes read plus written."""
    return _stream_time(num_bytes, concat_efficiency(gpu), gpu)


def concat_efficiency(gpu: Gpu) -> float:
    """Return the share of the memory bandwidth that ``cat`` reaches."""
    if gpu.is_core:
        return gpu.concat_efficiency
    return min(CONCAT_EFFICIENCY, CONCAT_SM_BANDWIDTH * gpu.num_sms / gpu.memory_bandwidth)


def scalar_time(
    num_elements: float, num_bytes: Bytes, gpu: Gpu, *, transposed: bool = False
) -> Seconds:
    """Time of an elementwise kernel that takes one element after the other.

    PyTorch's are so where an operand is strided, or of another type than the result: memory or the
    SMs' instructions bound them, whichever are slower. A core streams them.
    """
    streamed = pointwise_time(num_bytes, gpu)
    if gpu.is_core:
        return streamed
    per_sm = TRANSPOSED_ELEMENTS_PER_SM if transposed else SCALAR_ELEMENTS_PER_SM
    return max(streamed, gpu.kernel_latency + num_elements / (per_sm * gpu.num_sms))


def row_sum_time(num_rows: float, num_columns: int, element_bytes: Bytes, gpu: Gpu) -> Seconds:
    """Time to add up the rows of a matrix, as a linear layer's backward does for its bias.

    Blocks of rows are added up side by side, and their sums one after another. One column is in
    one piece, and is read as it is; so is any matrix on a core.
    """
    streamed = pointwise_time(num_rows * num_columns * element_bytes, gpu)
    if gpu.is_core or num_columns == 1:
        return streamed
    return SUM_LATENCY + max(streamed, gpu.kernel_latency + num_rows * SUM_ROW_TIME)


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
    rate = INDEX_UPDATES * (gpu.num_sms / INDEX_UPDATE_SMS) ** INDEX_UPDATE_SCALING
    return gpu.kernel_latency + num_elements / (CORE_INDEX_UPDATES if gpu.is_core else rate)


def _stream_time(num_bytes: Bytes, efficiency: float, gpu: Gpu) -> Seconds:
    """Return what ``times.StreamTimes`` says, of a share of the bandwidth."""
    rough = gpu.kernel_latency + num_bytes / (efficiency * gpu.memory_bandwidth)
    return float(gpu.stream_correction.corrected(rough))
