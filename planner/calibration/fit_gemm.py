"""Fitting the constants of the matrix-product model to measured products."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from scipy.optimize import minimize

from costmodel.base.arrays import Array
from costmodel.base.units import US, Seconds
from costmodel.domain.hardware import GemmEfficiency, Gpu, UnalignedRows
from costmodel.domain.workload import DataType
from costmodel.kernels.gemm import ALIGNED_BYTES, gemm_time, row_alignment
from costmodel.kernels.pointwise import batched_product_time
from planner.calibration.correction import learned_correction
from planner.calibration.curves import Accuracy, accuracy, rounded
from planner.calibration.enough import check_enough
from planner.calibration.points import Family, GemmPoint
from planner.calibration.records import Record

Folds: TypeAlias = np.ndarray[tuple[int], np.dtype[np.intp]]
HOLDOUT_SHARE = 0.2
SEED = 0
NUM_STARTS = 4
PEAK_OVER_BEST = 1.4
"""Peak of a GPU without a datasheet, over the best rate measured: even the best product waits for
its first loads and its last wave."""
ITERATIONS = 500
"""Steps of a descent over the thousands of public products."""
MORE_ITERATIONS = 2000
"""Steps of a descent over the hundred products measured on a GPU: constants of several alignments
need more steps, which take seconds."""
ALIGNMENTS = (4, 2)
"""Alignments of ``UnalignedRows`` in bytes: 4 are the fewest that an asynchronous copy moves."""
_FEWEST_OF_AN_ALIGNMENT = 8
"""Fewest products of an alignment that its three constants are fitted to."""
_CONSTANTS_OF_AN_ALIGNMENT = (0.0, 1.0, -1.0)
"""Where the descent of an alignment's constants begins: shares of 0.5 and 0.73, 0.4 us."""
_NUM_CONSTANTS = 9
"""Number of parameters for products of one alignment."""
_VECTOR_TIMES = tuple(map(float, np.geomspace(1e-10, 1e-6, 185)))
"""Times of a vector that are tried, in seconds, 5% apart."""
_FEWEST_SHAPES = 3
"""Fewest shapes: of three, ``held_out_shapes`` holds one out, of fewer none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Products:
    """Measured products: m, n, k, and seconds."""

    shapes: Array
    times: Array
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmFit:
    """Fitted constants, and their errors on the shapes held out."""

    constants: GemmEfficiency
    source: str
    num_points: int
    errors: Accuracy


def fit_gemm(
    records: Sequence[Record], gpu: Gpu, origin: str
) -> tuple[dict[str, GemmEfficiency], dict[str, str], dict[str, Accuracy]]:
    """Return constants by data type, their sources, and errors of a core's batched products.

    The peak is the best measured rate, on a GPU some more.
    """
    peak = "the best" if gpu.is_core else f"{PEAK_OVER_BEST:g} x the best"
    single = [record for record in records if _product(record).num_products == 1]
    check_enough(Family.GEMM, len(single), 1, "products")
    constants: dict[str, GemmEfficiency] = {}
    sources, errors = {}, {}
    for data_type in dict.fromkeys(_product(record).data_type for record in single):
        some = [record for record in single if _product(record).data_type is data_type]
        products = _products(some, origin)
        fit = fit_measured(products, data_type, gpu)
        constants[data_type.value] = corrected_products(fit, products, data_type, gpu).constants
        sources[f"gpu.gemm.{data_type}"] = (
            f"fitted to {len(some)} products: {origin}; peak: {peak} of them"
        )
    batched = [record for record in records if _product(record).num_products > 1]
    if batched:
        counts = np.array([float(_product(record).num_products) for record in batched])
        core = replace(gpu, gemm=constants)
        vectors = fit_vectors(counts, _products(batched, origin), DataType.FP32, core)
        constants["fp32"] = replace(constants["fp32"], vector_time=vectors.time)
        sources["gpu.gemm.fp32"] += f"; vector_time: {len(batched)} batched products"
        errors["batched products"] = vectors.errors
    return constants, sources, errors


def fit_products(
    measured: Products,
    data_type: DataType,
    gpu: Gpu,
    peak: float,
    prior: GemmEfficiency | None,
    *,
    iterations: int = ITERATIONS,
) -> GemmFit:
    """Return constants fitted on 80% of the shapes, and judged on the rest.

    They minimise the mean absolute log error. ``prior`` pulls towards another fit (for the 60 V100
    points, fewer than seven for each constant). Without one, products on a GPU whose rows are no
    multiple of 16 bytes get constants of their own (``GemmEfficiency.unaligned``) where enough were
    measured.

    Raises
    ------
    TooFewPointsError
        Fewer shapes were measured than it takes to hold one of them out.

    """
    num_shapes = len(np.unique(measured.shapes, axis=0))
    check_enough(Family.GEMM, num_shapes, _FEWEST_SHAPES, f"shapes of {data_type} products")
    held_out = held_out_shapes(measured.shapes)
    known = replace(measured, shapes=measured.shapes[~held_out], times=measured.times[~held_out])
    alignments = () if prior or gpu.is_core else _alignments(known.shapes, data_type)
    best = _fitted(_Problem(known, data_type, gpu, peak, alignments, iterations), prior)
    times = _times_by(best, measured.shapes[held_out], data_type, gpu)
    found = accuracy(times / measured.times[held_out] - 1)
    lowest, highest = measured.shapes.min(axis=0), measured.shapes.max(axis=0)
    constants = replace(
        best,
        error=found.median,
        error_p90=found.p90,
        num_points=len(measured.times),
        shapes=tuple((float(a), float(b)) for a, b in zip(lowest, highest, strict=True)),
    )
    return GemmFit(
        constants=constants,
        source=f"fitted: {measured.origin}, {len(measured.times)} points; peak of the datasheet",
        num_points=len(measured.times),
        errors=found,
    )


def fit_measured(measured: Products, data_type: DataType, gpu: Gpu) -> GemmFit:
    """Return constants of a device without a datasheet, as ``fit_products`` does."""
    iterations = ITERATIONS if gpu.is_core else MORE_ITERATIONS
    peak = peak_of(measured, gpu)
    return fit_products(measured, data_type, gpu, peak, None, iterations=iterations)


@dataclass(frozen=True, slots=True)
class _Problem:
    """Products to fit, and which alignments have constants of their own."""

    known: Products
    data_type: DataType
    gpu: Gpu
    peak: float
    alignments: tuple[int, ...]
    iterations: int


def _fitted(problem: _Problem, prior: GemmEfficiency | None) -> GemmEfficiency:
    """Return the constants with the smallest error, from several starts."""
    own = _CONSTANTS_OF_AN_ALIGNMENT * len(problem.alignments)
    first = _encode(prior) if prior else np.array([1.5, 2.0, 0, 0, 0, 0, 0, 1.5, 0])
    start = np.concatenate([first, own])
    pull = 2e-3 if prior else 0.0
    known = problem.known

    def loss(parameters: Array) -> float:
        constants = _decode(parameters, problem.peak, problem.alignments)
        times = _times_by(constants, known.shapes, problem.data_type, problem.gpu)
        miss = np.abs(np.log(times / known.times))
        wild = np.maximum(np.abs(parameters) - 3, 0)
        near = pull * np.sum((parameters - start) ** 2)
        return float(np.mean(miss) + 1e-3 * np.sum(wild**2) + near)

    rng = np.random.default_rng(SEED)
    starts = [start] + [start + 0.8 * rng.normal(size=start.size) for _ in range(NUM_STARTS - 1)]
    best = min((_descend(loss, each, problem.iterations) for each in starts), key=loss)
    return _decode(best, problem.peak, problem.alignments)


def _alignments(shapes: Array, data_type: DataType) -> tuple[int, ...]:
    """Return those of ``ALIGNMENTS`` with enough products, if enough are fully aligned, too."""
    m, n, k = shapes.T
    found = row_alignment(m, n, k, data_type)
    if np.sum(found == ALIGNED_BYTES) < _FEWEST_OF_AN_ALIGNMENT:
        return ()
    above = [ALIGNED_BYTES, *ALIGNMENTS]
    return tuple(
        least
        for least, most in zip(ALIGNMENTS, above, strict=False)
        if np.sum((found >= least) & (found < most)) >= _FEWEST_OF_AN_ALIGNMENT
    )


def peak_of(measured: Products, gpu: Gpu) -> float:
    """Return the arithmetic peak for a fit, in FLOP/s; on a core, the best measured rate."""
    best = float(np.max(2 * measured.shapes.prod(axis=1) / measured.times))
    return rounded(best if gpu.is_core else PEAK_OVER_BEST * best)


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorFit:
    """Seconds of a vector of results in small products on a core, and the errors of that."""

    time: Seconds
    errors: Accuracy
    """Errors of every other product, predicted from the rest, and the reverse."""


def fit_vectors(
    num_products: Array, measured: Products, data_type: DataType, gpu: Gpu
) -> VectorFit:
    """Return ``GemmEfficiency.vector_time`` fitted to batched products, other constants given.

    It minimises the mean absolute log error over a grid of times.
    """
    single = gpu.gemm[data_type.value]

    def miss(time: Seconds, rows: Folds) -> Array:
        core = replace(gpu, gemm={data_type.value: replace(single, vector_time=time)})
        made = [
            batched_product_time(float(num_products[row]), m, n, k, data_type, core)
            for row in rows
            for m, n, k in [[int(size) for size in measured.shapes[row]]]
        ]
        errors: Array = np.array(made) / measured.times[rows] - 1
        return errors

    def best(rows: Folds) -> Seconds:
        return min(
            _VECTOR_TIMES, key=lambda time: float(np.mean(np.abs(np.log1p(miss(time, rows)))))
        )

    every = np.arange(len(num_products))
    halves = (every[every % 2 == 0], every[every % 2 == 1])
    errors = [miss(best(one), other) for one, other in (halves, halves[::-1])]
    return VectorFit(time=rounded(best(every)), errors=accuracy(np.concatenate(errors)))


def corrected_products(fit: GemmFit, measured: Products, data_type: DataType, gpu: Gpu) -> GemmFit:
    """Return the fit with a learned correction, if that errs less on the shapes held out."""
    held_out = held_out_shapes(measured.shapes)
    rough = _times_by(fit.constants, measured.shapes, data_type, gpu)
    learned = learned_correction(rough[~held_out], measured.times[~held_out])
    missed = learned.corrected(rough[held_out]) / measured.times[held_out] - 1
    found = accuracy(missed)
    if not learned.knots or found.mape >= fit.errors.mape:
        return fit
    constants = replace(
        fit.constants,
        correction=learned,
        error=found.median,
        error_p90=found.p90,
    )
    return replace(fit, constants=constants, errors=found)


def _times_by(constants: GemmEfficiency, shapes: Array, data_type: DataType, gpu: Gpu) -> Array:
    """Return seconds of products by some constants."""
    m, n, k = shapes.T
    return gemm_time(m, n, k, data_type, replace(gpu, gemm={data_type: constants}))


def held_out_shapes(shapes: Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which products have one of the shapes held out, a fifth of the distinct ones."""
    _, shape_of = np.unique(shapes, axis=0, return_inverse=True)
    chosen = np.random.default_rng(SEED).random(shape_of.max() + 1) < HOLDOUT_SHARE
    result: np.ndarray[tuple[int], np.dtype[np.bool_]] = chosen[shape_of]
    return result


def _descend(loss: Callable[[Array], float], first: Array, iterations: int) -> Array:
    """Return the end of Nelder-Mead, run once more from where it stopped."""
    point = first
    for _ in range(2):
        found = minimize(
            loss,
            point,
            method="Nelder-Mead",
            options={"maxiter": iterations, "xatol": 1e-3, "fatol": 1e-5, "adaptive": True},
        )
        point = np.asarray(found.x, dtype=np.float64)
    return point


def _decode(parameters: Array, peak: float, alignments: tuple[int, ...]) -> GemmEfficiency:
    """Return constants from unbounded parameters.

    Shares go through a logistic, smaller tiles and rows of fewer bytes being less efficient;
    latency is at least 1 us, the shortest kernel there is (an empty one takes as long:
    v100_dlrm_kernels.csv, memsets).
    """
    share = 1 / (1 + np.exp(-parameters))
    scale = np.exp(parameters)
    tiles = np.cumprod([1.0, *share[1:4]])
    return GemmEfficiency(
        peak=peak,
        max_efficiency=rounded(float(share[0])),
        tile_efficiency=(1.0, *(rounded(float(tile)) for tile in tiles[1:])),  # type: ignore[arg-type]
        prologue_depth=rounded(float(100 * scale[4])),
        split_time=rounded(float(US * scale[5])),
        l2_efficiency=rounded(float(share[6])),
        memory_efficiency=rounded(float(share[7])),
        latency=rounded(float(US * (1 + scale[8]))),
        unaligned=_decoded_rows(parameters[_NUM_CONSTANTS:].reshape(-1, 3), alignments),
    )


def _decoded_rows(parameters: Array, alignments: tuple[int, ...]) -> tuple[UnalignedRows, ...]:
    """Return the constants of each alignment from three parameters: two shares and a latency."""
    shares = np.cumprod(1 / (1 + np.exp(-parameters[:, :2])), axis=0)
    latencies = np.cumsum(US * np.exp(parameters[:, 2]))
    return tuple(
        UnalignedRows(
            alignment_bytes=float(alignment),
            efficiency=rounded(float(efficiency)),
            bandwidth_efficiency=rounded(float(bandwidth)),
            latency=rounded(float(latency)),
        )
        for alignment, (efficiency, bandwidth), latency in zip(
            alignments, shares, latencies, strict=True
        )
    )


def _encode(constants: GemmEfficiency) -> Array:
    """Return unbounded parameters from constants: the inverse of ``_decode``."""
    tiles = np.array(constants.tile_efficiency)
    shares = np.array([
        constants.max_efficiency,
        *(tiles[1:] / tiles[:-1]),
        constants.l2_efficiency,
        constants.memory_efficiency,
    ])
    logits = np.log(shares / (1 - shares))
    scales = np.log([
        constants.prologue_depth / 100,
        constants.split_time / US,
        constants.latency / US - 1,
    ])
    return np.array([*logits[:4], scales[0], scales[1], logits[4], logits[5], scales[2]])


def _products(records: Sequence[Record], origin: str) -> Products:
    points = map(_product, records)
    return Products(
        shapes=np.array([[point.m, point.n, point.k] for point in points], float),
        times=np.array([record.seconds["product"] for record in records]),
        origin=origin,
    )


def _product(record: Record) -> GemmPoint:
    if not isinstance(record.point, GemmPoint):
        raise TypeError(f"not a product: {record.point}")
    return record.point
