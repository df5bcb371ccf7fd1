"""The lookups to measure: a space-filling design over tables, batches and ids."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from costmodel.base.units import Bytes
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType, Optimizer, Pooling
from planner.calibration.points import EmbeddingPoint, TableSet

_SEED = 0
_TABLE_COUNTS = (1, 1, 2, 3, 4, 6, 8, 16)
_SAME_DIM_SHARE = 0.6
"""Share of the sets with several tables whose dimensions are all the same."""
_FEWEST_ROWS = 100
_DIMS = (4, 512)
_MOST_ZIPF = 1.2
_DENSE_SHARE = 0.1
"""Share of the sets that are replicated tables (data_parallel), which must be small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingLimits:
    """Largest lookups of a device, and shares of kinds of lookups."""

    table_bytes: Bytes
    """Most bytes of weights and optimizer state of a set of tables."""
    gathered_bytes: Bytes
    """Most bytes of rows read by one batch, and of its output."""
    num_ids: float
    """Most ids of one batch."""
    rows: tuple[float, float]
    samples: tuple[int, int]
    pooling: tuple[float, float] = (0.1, 200.0)
    data_types: tuple[DataType, ...]
    optimizers: tuple[Optimizer, ...]
    table_counts: tuple[int, ...] = _TABLE_COUNTS
    weighted_share: float = 0.0
    """Share of the fused sets whose ids carry weights."""
    unpooled_share: float = 0.0
    """Share of the fused sets with a row per id; FBGEMM needs tables of one width for them."""
    uvm_share: float = 0.0
    """Share of all sets that are in host memory, half of them behind a cache in HBM."""
    uvm_bytes: Bytes = 0.0
    """Most bytes of weights and optimizer state of such a set."""


def embedding_grid(
    num_sets: int, batches_per_set: int, limits: EmbeddingLimits
) -> tuple[EmbeddingPoint, ...]:
    """Return points that fill the ranges evenly, those of one set of tables together.

    Sobol sequences over the logarithms of rows, columns, ids per sample and samples, over the Zipf
    exponent, and over the choices; where a point is beyond a limit, the rows, then the samples,
    then the ids per sample shrink. The points are the same every time, so that a run can be
    resumed.
    """
    sets = sobol(7, num_sets, _SEED)
    variants = sobol(3, num_sets, _SEED + 2)
    batches = sobol(3, num_sets * batches_per_set, _SEED + 1)
    rng = np.random.default_rng(_SEED)
    points: list[EmbeddingPoint] = []
    for number, place in enumerate(sets):
        tables = _varied(_table_set(place, limits, rng), variants[number], limits)
        weighted = _is_weighted(tables, variants[number], limits)
        part = slice(number * batches_per_set, (number + 1) * batches_per_set)
        made = _points(tables, batches[part], limits, rng)
        points += [replace(point, weighted=weighted) for point in made]
    return tuple(dict.fromkeys(points))


def sobol(
    dimensions: int, count: int, seed: int
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return the first points of a Sobol sequence in the unit cube, (count, dimensions)."""
    from scipy.stats import qmc

    whole = qmc.Sobol(dimensions, seed=seed).random_base2(max(count - 1, 1).bit_length())
    return whole[:count]


def _table_set(
    place: np.ndarray[tuple[int], np.dtype[np.float64]],
    limits: EmbeddingLimits,
    rng: np.random.Generator,
) -> TableSet:
    """Return the tables at a point of the design."""
    count = limits.table_counts[int(place[0] * len(limits.table_counts))]
    dense = place[5] < _DENSE_SHARE
    rows = _between(place[1], limits.rows) * 10.0 ** (float(count > 1) * rng.uniform(-1, 1, count))
    dims = np.full(count, _dim(place[2]))
    if place[6] >= _SAME_DIM_SHARE:
        dims = np.array([_dim(share) for share in rng.random(count)])
    tables = TableSet(
        num_embeddings=_whole(np.clip(rows, _FEWEST_ROWS, limits.rows[1])),
        embedding_dims=_whole(dims),
        data_type=limits.data_types[0]
        if dense
        else limits.data_types[int(place[3] * len(limits.data_types))],
        optimizer=Optimizer.SGD
        if dense
        else limits.optimizers[int(place[4] * len(limits.optimizers))],
        compute_kernel=ComputeKernel.DENSE if dense else ComputeKernel.FUSED,
    )
    return _fitting(tables, limits.table_bytes / (50.0 if dense else 1.0))


def _varied(
    tables: TableSet,
    place: np.ndarray[tuple[int], np.dtype[np.float64]],
    limits: EmbeddingLimits,
) -> TableSet:
    """Return a fused set unchanged, without pooling, or in host memory, by its place."""
    if tables.compute_kernel is ComputeKernel.DENSE:
        return tables
    if place[0] < limits.uvm_share:
        cached = place[0] < limits.uvm_share / 2
        in_host_memory = replace(
            tables,
            compute_kernel=ComputeKernel.FUSED_UVM_CACHING if cached else ComputeKernel.FUSED_UVM,
            cache_load_factor=float(f"{_between(place[1], (0.02, 0.5)):.2g}") if cached else 0.0,
        )
        return _fitting(in_host_memory, limits.uvm_bytes)
    if 0 < place[1] < limits.unpooled_share:
        widths = (tables.embedding_dims[0],) * len(tables.embedding_dims)
        return _fitting(
            replace(tables, pooling=Pooling.NONE, embedding_dims=widths), limits.table_bytes
        )
    return tables


def _is_weighted(
    tables: TableSet,
    place: np.ndarray[tuple[int], np.dtype[np.float64]],
    limits: EmbeddingLimits,
) -> bool:
    """Return whether ids carry weights, as only sums of rows can have."""
    fused = tables.compute_kernel is ComputeKernel.FUSED and tables.pooling is Pooling.SUM
    return fused and bool(place[2] < limits.weighted_share)


def _fitting(tables: TableSet, most: Bytes) -> TableSet:
    """Return the set with as many rows as fit in memory."""
    excess = tables.num_bytes / most
    if excess <= 1:
        return tables
    rows = np.maximum(np.array(tables.num_embeddings) / excess, _FEWEST_ROWS)
    return replace(tables, num_embeddings=_whole(rows))


def _points(
    tables: TableSet,
    places: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    limits: EmbeddingLimits,
    rng: np.random.Generator,
) -> Iterator[EmbeddingPoint]:
    """Yield batches for a set of tables."""
    count = len(tables.num_embeddings)
    several = float(count > 1)
    row_bytes = np.array(tables.embedding_dims) * 4.0
    for place in places:
        samples = _between(place[0], limits.samples)
        pooling = _between(place[1], limits.pooling) * 2.0 ** (several * rng.uniform(-2, 2, count))
        zipf = place[2] * _MOST_ZIPF + several * rng.uniform(-0.3, 0.3, count)
        lookups = samples * pooling
        excess = max(
            float(lookups.sum()) / limits.num_ids,
            float(lookups @ row_bytes) / limits.gathered_bytes,
        )
        fewer = max(1.0, min(excess, samples / limits.samples[0]))
        fewer = max(fewer, samples * float(row_bytes.sum()) / limits.gathered_bytes)
        samples, pooling = samples / fewer, pooling / max(1.0, excess / fewer)
        yield EmbeddingPoint(
            tables=tables,
            num_samples=max(1, round(samples)),
            pooling_factors=tuple(float(f"{p:.3g}") for p in np.maximum(pooling, 0.05)),
            zipf=tuple(round(float(z), 3) for z in np.clip(zipf, 0.0, _MOST_ZIPF)),
        )


def _between(share: float, ends: tuple[float, float]) -> float:
    """Return the number at a share of the way between two ends, on a log scale."""
    low, high = ends
    return float(low * (high / low) ** share)


def _dim(share: float) -> int:
    """Return a dimension, a multiple of four; seven of ten are powers of two."""
    exact = _between(share, _DIMS)
    power = 2.0 ** round(float(np.log2(exact)))
    rounded = power if (share * 97.0) % 1.0 < 0.7 else 4.0 * round(exact / 4.0)
    return int(np.clip(rounded, *_DIMS))


def _whole(values: object) -> tuple[int, ...]:
    """Return values as whole numbers."""
    return tuple(round(float(value)) for value in np.asarray(values).tolist())
