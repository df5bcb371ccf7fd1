"""A learned correction of a roofline that keeps it monotone.

With r the roofline's time and x the features of a point, the corrected time is

    log t = log r - s clip(log r) + g(log r, x)

where g are gradient-boosted trees (scikit-learn's ``HistGradientBoostingRegressor``) that may only
rise with r and with the sizes in x, and clip keeps to the range of the records taught. As s is
between 0 and 1, t rises with r and with every size, as r itself does: more samples, ids, rows or
columns never take less time. Within the range the correction may still fall, at most like r^-s;
beyond, it is constant. The loss is squared: scikit-learn 1.9 sets the leaves of an absolute one
without regard to the constraints.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from bench.gpu_study.points import (
    AttentionPoint,
    InteractionPoint,
    PointwisePoint,
    ReductionPoint,
    TransferPoint,
)
from bench.gpu_study.rooflines import PhaseSeconds, Predict
from costmodel.domain.workload import DataType, Pooling
from planner.calibration.curves import Array
from planner.calibration.points import EmbeddingPoint, GemmPoint, Point, StreamPoint
from planner.calibration.records import Record

_FEWEST_RECORDS = 20
"""To teach anything but a constant."""
_SEED = 0
_SLACK = 0.3
"""s: how steeply a correction may fall with the roofline's time."""
_TYPES = tuple(DataType)


@dataclass(frozen=True, slots=True)
class Features:
    """What trees look at: sizes, with which time only rises, and kinds."""

    sizes: tuple[float, ...]
    kinds: tuple[float, ...] = ()


def features(point: Point) -> Features:
    """Return a point's features; sizes are logarithms."""
    if isinstance(point, EmbeddingPoint):
        return _lookup_features(point)
    sizes: tuple[float, ...]
    kinds: tuple[float, ...]
    if isinstance(point, GemmPoint):
        sizes, kinds = (point.m, point.n, point.k), (_place(point.data_type),)
    elif isinstance(point, StreamPoint):
        sizes, kinds = (point.num_bytes,), (_order(point.op),)
    elif isinstance(point, PointwisePoint):
        sizes, kinds = (point.num_elements,), (_order(point.op), _place(point.data_type))
    elif isinstance(point, ReductionPoint):
        sizes, kinds = (point.rows, point.columns), (_order(point.op), _place(point.data_type))
    elif isinstance(point, InteractionPoint):
        sizes, kinds = (point.num_samples, point.num_features, point.embedding_dim), ()
    elif isinstance(point, AttentionPoint):
        sizes = (point.num_sequences * point.num_heads, point.length, point.head_dim)
        kinds = (_place(point.data_type),)
    elif isinstance(point, TransferPoint):
        sizes, kinds = (point.num_bytes,), (_order(point.direction), float(point.pinned))
    else:
        raise TypeError(f"no features are known of {point}")
    return Features(tuple(np.log(np.array(sizes, dtype=np.float64)).tolist()), kinds)


def _lookup_features(point: EmbeddingPoint) -> Features:
    tables = point.tables
    dims = np.array(tables.embedding_dims, dtype=np.float64)
    lookups = point.num_samples * np.array(point.pooling_factors)
    sizes = (
        float(lookups.sum()),
        float(lookups @ dims),
        float(point.num_samples * dims.sum()),
        float(np.sum(tables.num_embeddings)),
        float(np.max(point.pooling_factors)),
        float(len(dims)),
        float(lookups @ dims / lookups.sum()),
    )
    kinds = (
        float(np.average(point.zipf, weights=lookups)),
        _order(tables.optimizer),
        _place(tables.data_type),
        _order(tables.compute_kernel),
        float(tables.cache_load_factor),
        float(tables.pooling is Pooling.NONE),
        float(point.weighted),
    )
    return Features(tuple(np.log(sizes).tolist()), kinds)


@dataclass(frozen=True, slots=True)
class Correction:
    """The correction of one phase."""

    trees: Any
    range: tuple[float, float]
    """Lowest and highest logarithm of the roofline's times that were taught."""

    def log_factor(self, matrix: Array) -> Array:
        """Return the logarithm of corrected over roofline time, for rows of ``inputs``."""
        with _one_thread():
            raised = self.trees.predict(matrix)
        factor: Array = raised - _SLACK * np.clip(matrix[:, 0], *self.range)
        return factor


@dataclass(frozen=True, slots=True)
class Corrected:
    """A roofline with a correction of every phase."""

    roofline: Predict
    corrections: Mapping[str, Correction]

    def __call__(self, records: Sequence[Record]) -> PhaseSeconds:
        """Predict seconds by phase."""
        rough = self.roofline(records)
        return {
            phase: seconds * np.exp(self.corrections[phase].log_factor(inputs(records, seconds)))
            if phase in self.corrections
            else seconds
            for phase, seconds in rough.items()
        }


def taught(roofline: Predict, records: Sequence[Record]) -> Corrected:
    """Teach a correction on the records that the roofline was fitted to; too few teach nothing."""
    rough = roofline(records) if len(records) >= _FEWEST_RECORDS else {}
    corrections = {}
    for phase, seconds in rough.items():
        measured = np.array([record.seconds[phase] for record in records])
        matrix = inputs(records, seconds)
        goal = np.log(measured / seconds) + _SLACK * matrix[:, 0]
        corrections[phase] = Correction(
            trees=_fitted(matrix, goal, records),
            range=(float(matrix[:, 0].min()), float(matrix[:, 0].max())),
        )
    return Corrected(roofline=roofline, corrections=corrections)


def inputs(records: Sequence[Record], rough: Array) -> Array:
    """Return the matrix that trees see: roofline's time, sizes, kinds."""
    rows = [features(record.point) for record in records]
    known = [(*row.sizes, *row.kinds) for row in rows]
    matrix: Array = np.column_stack((np.log(rough), np.array(known, dtype=np.float64)))
    return matrix


def _fitted(matrix: Array, goal: Array, records: Sequence[Record]) -> Any:  # noqa: ANN401 - scikit-learn is untyped
    from sklearn.ensemble import HistGradientBoostingRegressor

    num_sizes = 1 + len(features(records[0].point).sizes)
    rises = [1] * num_sizes + [0] * (matrix.shape[1] - num_sizes)
    trees = HistGradientBoostingRegressor(
        loss="squared_error",
        monotonic_cst=rises,
        max_iter=200,
        learning_rate=0.08,
        max_leaf_nodes=15,
        min_samples_leaf=max(5, len(goal) // 100),
        l2_regularization=1.0,
        early_stopping=False,
        random_state=_SEED,
    )
    with _one_thread():
        return trees.fit(matrix, goal)


def _one_thread() -> Any:  # noqa: ANN401 - threadpoolctl is untyped
    """Keep OpenMP from sharing trees of few rows: on busy cores its threads only wait."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=1, user_api="openmp")


def _order(member: Enum) -> float:
    return float(list(type(member)).index(member))


def _place(data_type: DataType) -> float:
    return float(_TYPES.index(data_type))
