"""How long a matrix product takes: the best of a few tilings, or memory if that is slower."""

from dataclasses import replace
from functools import lru_cache
from math import ceil
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costmodel.domain.hardware import Bound, Estimate, GemmEfficiency, Gpu, Source
from costmodel.domain.workload import DataType

_Shape: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]

TILES = ((128, 256), (256, 128), (128, 128), (64, 64), (16, 64), (64, 16))
"""Rows and columns of C that one thread block computes: sizes that CUTLASS instantiates."""
_KIND_OF_TILE = (0, 0, 1, 2, 3, 3)
"""Which entry of ``GemmEfficiency.tile_efficiency`` a tile has: equal areas are equal."""
SPLITS = (1, 2, 4, 8, 16, 32)
"""Numbers of slices into which k is cut when there are too few tiles to fill the GPU."""
_DEPTH = 32
"""k is padded to the depth of one main-loop iteration."""
_CORE_DEPTH = 8
"""The same of a CPU's core."""
BATCHED_TILES = (*zip(TILES, _KIND_OF_TILE, strict=True), ((32, 128), 2), ((128, 32), 2))
"""Tiles of batched products, with their kinds: cuBLAS has 32 x 128 besides (volta_sgemm_32x128 in
v100_dlrm_kernels.csv), of the area of 64 x 64."""
BATCHED_DEPTH = 61.0
"""k that takes a block as long as its first loads and last stores do. Blocks of other products on
the same SM work meanwhile, so it counts where k is smaller. Fitted to the interaction's backward
of 27 vectors on a V100, 242 us (v100_dlrm_kernels.csv); that of 9 vectors asks for 56."""
ALIGNED_BYTES = 16
"""What the length of rows must be a multiple of for the fastest kernels (``UnalignedRows``)."""
STAND_IN = (DataType.BF16, DataType.FP16, DataType.FP32)
"""Whose efficiency stands in for a type without one (fp8, int8), best first."""


def gemm_time(
    m: ArrayLike, n: ArrayLike, k: ArrayLike, data_type: DataType, gpu: Gpu
) -> NDArray[np.float64]:
    """Time of C[m, n] = A[m, k] B[k, n].

    The library is taken to choose, of all tiles (a, b) and splits s of k, the fastest, on P SMs:

        t = latency + max(t_math, t_memory)
        t_math   = min over (a, b), s of  ceil(T / P) t_tile + t_split log2 s
        T        = ceil(m/a) ceil(n/b) s                        tiles of work
        t_tile   = 2 a b (k/s + k_0) / (peak e e_ab / P)        one tile, with its prologue k_0
        t_memory = min(S, L2) / (e_L2 beta_L2) + max(S - L2, 0) / (e_M beta_M)
        S        = (m k + k n + m n) bytes per element

    A core does not move data while it multiplies, so there t = latency + t_math + t_memory: the
    median error on held-out products of bench/results/cpu_profile.measurements.jsonl is 10% so,
    13% with the larger of the two.

    Where ``row_alignment`` is less than 16 bytes, ``GemmEfficiency.unaligned`` says which share of
    e and of both beta is left, and by how much the latency is more. Of 110 products of each type
    on an H200 the mean error on shapes held out is 14% so for tf32, 11% for fp16 and 12% for bf16;
    with one set of constants for all alignments it is 23, 43 and 44% (`python -m bench.gpu_study
    --only judge` on bench/results/gpu_study_h200_2026-11-26).

    Every term grows with m, n and k, and so does the least of them, among products of one
    alignment: a multiple of 16 bytes can take less time than any number below it.

    Parameters
    ----------
    m, n, k
        Rows of A, columns of B, the inner dimension; they broadcast.
    data_type
        Of A, B and C. TF32 is FP32 in memory.
    gpu
        ``gemm`` holds the fitted constants; ``fp8`` and ``int8`` without any use bf16's.

    Notes
    -----
    Operands that fit in the L2 cache are taken to be there: in a training step the kernel before
    has just written them. The measurements fitted to repeat one product, and have it so too.

    References
    ----------
    Tile and wave quantization: NVIDIA, Matrix Multiplication Background User's Guide.

    """
    constants = gemm_constants(data_type, gpu)
    shape = _shape(m, n, k)
    if not constants.unaligned:
        return constants.correction.corrected(_rough_time(shape, data_type, constants, gpu))
    alignment = row_alignment(m, n, k, data_type)
    seconds = np.empty_like(shape[0])
    for each in np.unique(alignment):
        some = alignment == each
        own = at_alignment(constants, int(each))
        m_, n_, k_ = (size[some] for size in shape)
        seconds[some] = _rough_time((m_, n_, k_), data_type, own, gpu)
    return constants.correction.corrected(seconds)


def row_alignment(
    m: ArrayLike, n: ArrayLike, k: ArrayLike, data_type: DataType
) -> NDArray[np.int64]:
    """Return the most bytes, up to 16, that divide the length of every row of A and of B.

    A's rows are k numbers long, B's n: both are taken to be stored as they are, as all products are
    that GPUs are fitted to. A column of B by itself (n = 1) is read as a row, so there
    the k numbers count: the last layer of a click model runs the kernels of aligned rows (H200,
    PyTorch 2.11: bench/results/gpu_study_h200_2026-11-26/traces.tar.xz).

    Parameters
    ----------
    m, n, k
        Rows of A, columns of B, the inner dimension; they broadcast.
    data_type
        Of A and B.

    """
    _, columns, depth = _shape(m, n, k)
    of_b = np.where(columns == 1, depth, columns)
    element: int = int(data_type.num_bytes)
    lengths = [np.round(length).astype(np.int64) * element for length in (depth, of_b)]
    found: NDArray[np.int64] = np.gcd(np.gcd(*lengths), ALIGNED_BYTES)
    return found


def at_alignment(constants: GemmEfficiency, alignment_bytes: int) -> GemmEfficiency:
    """Return the constants of products whose rows are multiples of so many bytes.

    Those of the most aligned entry of ``unaligned`` that asks for no more, else of the last one.
    """
    if alignment_bytes >= ALIGNED_BYTES or not constants.unaligned:
        return constants
    last = constants.unaligned[-1]
    loss = next((u for u in constants.unaligned if u.alignment_bytes <= alignment_bytes), last)
    return replace(
        constants,
        max_efficiency=constants.max_efficiency * loss.efficiency,
        l2_efficiency=constants.l2_efficiency * loss.bandwidth_efficiency,
        memory_efficiency=constants.memory_efficiency * loss.bandwidth_efficiency,
        latency=constants.latency + loss.latency,
    )


def _rough_time(
    shape: _Shape, data_type: DataType, constants: GemmEfficiency, gpu: Gpu
) -> NDArray[np.float64]:
    """Return times before their correction, with the constants of the products' alignment."""
    math = _math_time(shape, constants, gpu)
    memory = _memory_time(_bytes(shape, data_type), constants, gpu)
    both: NDArray[np.float64] = math + memory if gpu.is_core else np.maximum(math, memory)
    rough: NDArray[np.float64] = constants.latency + both
    return rough


def batched_gemm_time(
    num_products: float, m: int, n: int, k: int, data_type: DataType, gpu: Gpu
) -> float:
    """Time of that many independent products C[m, n] = A[m, k] B[k, n] in one kernel.

    Tiles of all products share the SMs, k is not split, and several blocks are on every SM:

        t_math = min over (a, b) of  ceil(T / P) t_tile     T = products ceil(m/a) ceil(n/b)
        t_tile = 2 a b max(k, k_b) / (peak e e_ab / P)

    with the constants fitted to single products of the same ``row_alignment``, and k_b =
    ``BATCHED_DEPTH`` in place of their prologue. Memory as in ``gemm_time``.
    """
    alignment = int(row_alignment(m, n, k, data_type))
    constants = at_alignment(gemm_constants(data_type, gpu), alignment)
    depth = max(ceil(k / _DEPTH) * _DEPTH, BATCHED_DEPTH)
    rate = constants.peak * constants.max_efficiency / gpu.num_sms
    math = min(
        ceil(num_products * ceil(m / rows) * ceil(n / columns) / gpu.num_sms)
        * (2 * rows * columns * depth / (rate * constants.tile_efficiency[kind]))
        for (rows, columns), kind in BATCHED_TILES
    )
    size = num_products * _bytes(_shape(m, n, k), data_type)
    return constants.latency + max(math, float(_memory_time(size, constants, gpu)))


def gemm_estimate(m: float, n: float, k: float, data_type: DataType, gpu: Gpu) -> Estimate:
    """Predict one product, and say what bounds it; arguments as in ``gemm_time``."""
    alignment = int(row_alignment(m, n, k, data_type))
    constants = at_alignment(gemm_constants(data_type, gpu), alignment)
    shape = _shape(m, n, k)
    size = _bytes(shape, data_type)
    bounds = {
        Bound.KERNEL_LATENCY: constants.latency,
        Bound.ARITHMETIC: float(_math_time(shape, constants, gpu)),
        Bound.L2_BANDWIDTH if size <= gpu.l2_bytes else Bound.HBM_BANDWIDTH: float(
            _memory_time(size, constants, gpu)
        ),
    }
    return Estimate(
        seconds=float(gemm_time(m, n, k, data_type, gpu)),
        bound_by=max(bounds, key=bounds.__getitem__),
        source=Source.FITTED,
        extrapolated=not _is_covered((m, n, k), constants),
    )


def gemm_constants(data_type: DataType, gpu: Gpu) -> GemmEfficiency:
    """Return the constants of a data type, or of the one that stands in for it."""
    for candidate in (data_type, *STAND_IN):
        if candidate in gpu.gemm:
            return gpu.gemm[candidate]
    raise ValueError(f"{gpu.name} has no matrix-product constants")


def _is_covered(shape: tuple[float, float, float], constants: GemmEfficiency) -> bool:
    """Tell whether a product's sizes lie among the measured ones; m and n may change places."""
    m, n, k = shape
    return any(
        bool(constants.shapes)
        and all(
            low <= size <= high for size, (low, high) in zip(sizes, constants.shapes, strict=True)
        )
        for sizes in ((m, n, k), (n, m, k))
    )


def _math_time(shape: _Shape, constants: GemmEfficiency, gpu: Gpu) -> NDArray[np.float64]:
    """Return the seconds of arithmetic of every product, by the fastest of all tilings."""
    rows, columns, kind, splits = _tilings()
    m, n, k = (size[..., None] for size in shape)
    efficiency = constants.max_efficiency * np.array(constants.tile_efficiency)[kind]
    tiles = np.ceil(m / rows) * np.ceil(n / columns) * splits
    unit = _CORE_DEPTH if gpu.is_core else _DEPTH
    depth = np.ceil(k / splits / unit) * unit + constants.prologue_depth
    tile_time = 2 * rows * columns * depth / (constants.peak / gpu.num_sms * efficiency)
    total = np.ceil(tiles / gpu.num_sms) * tile_time + constants.split_time * np.log2(splits)
    fastest: NDArray[np.float64] = total.min(axis=-1)
    return fastest


def _memory_time(
    size: NDArray[np.float64], constants: GemmEfficiency, gpu: Gpu
) -> NDArray[np.float64]:
    """Return the seconds in which every product moves its operands and its result once."""
    cached = np.minimum(size, gpu.l2_bytes)
    streamed = size - cached
    return cached / (constants.l2_efficiency * gpu.l2_bandwidth) + streamed / (
        constants.memory_efficiency * gpu.memory_bandwidth
    )


def _bytes(shape: _Shape, data_type: DataType) -> NDArray[np.float64]:
    """Return the bytes of both operands and the result, of each shape."""
    m, n, k = shape
    return data_type.num_bytes * (m * k + k * n + m * n)


def _shape(m: ArrayLike, n: ArrayLike, k: ArrayLike) -> _Shape:
    """Return m, n and k as numbers of one shape."""
    sizes = (np.asarray(size, dtype=np.float64) for size in (m, n, k))
    rows, columns, depth = np.broadcast_arrays(*sizes)
    return rows, columns, depth


@lru_cache(maxsize=1)
def _tilings() -> tuple[
    NDArray[np.float64], NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]
]:
    """Rows, columns, kind of tile and split of every tiling, in flat arrays."""
    tiles = zip(TILES, _KIND_OF_TILE, strict=True)
    tilings = [(*tile, kind, split) for tile, kind in tiles for split in SPLITS]
    rows, columns, kinds, splits = np.array(tilings, dtype=np.float64).T
    return rows, columns, kinds.astype(np.int64), splits
