"""Fitting the backward of a core's lookups by other optimizers and types, and without pooling.

FBGEMM has a CPU kernel for each optimizer and type of weights, and others where each id has a row
of its own. The times of ``UpdateCost`` are fitted to a few points of each, none below 0, in
relative error; all else is as fitted to the full grid.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from costmodel.base.arrays import Array
from costmodel.domain.hardware import UpdateCost
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType, Pooling
from costmodel.kernels.shard_traffic import update_key
from costmodel.kernels.traffic import Traffic
from planner.calibration.curves import Accuracy, accuracy, rounded
from planner.calibration.fit_embedding import EmbeddingFit
from planner.calibration.lookup_data import LookupSetting, point_of, table_traffics, tables_of
from planner.calibration.points import EmbeddingPoint, TableSet
from planner.calibration.records import Record

_FEWEST = 8
"""Fewest points that they are fitted to."""
MOST_POINTS = 24
"""Most points that are measured of a backward that is not of the full grid."""
_LEAST_LEFT = 0.05
"""Smallest share of a measurement that is left to be explained, where sorting takes all of it."""


class Lookups(NamedTuple):
    """Measured lookups: those of the full grid, and of each other backward of a core."""

    plain: Sequence[Record]
    others: Mapping[str, Sequence[Record]]
    """By the name that ``update_key`` gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateFit:
    """What was fitted to one kind of backward."""

    cost: UpdateCost
    errors: Accuracy
    """Errors on sets of tables held out."""
    num_points: int


def backward_of(tables: TableSet) -> str:
    """Return the name of a core's backward of some tables."""
    half, unpooled = tables.data_type is DataType.FP16, tables.pooling is Pooling.NONE
    return update_key(tables.optimizer, half=half, unpooled=unpooled)


def by_backward(records: Sequence[Record], *, on_core: bool) -> Lookups:
    """Return lookups by their backward; on a GPU all are of one kind."""
    if not on_core:
        return Lookups(records, {})
    found: dict[str, list[Record]] = {}
    for record in records:
        tables, key = tables_of(record), ""
        if tables.compute_kernel is ComputeKernel.FUSED:
            key = backward_of(tables)
        found.setdefault(key, []).append(record)
    others = {
        key: some
        for key, some in found.items()
        if key and (len(some) <= MOST_POINTS or tables_of(some[0]).pooling is Pooling.NONE)
    }
    if not found.keys() - others.keys() - {""}:
        return Lookups(records, {})  # few points of all: nothing else is known
    plain = [each for key, some in found.items() if key not in others for each in some]
    return Lookups(plain, others)


def fit_updates(
    others: Mapping[str, Sequence[Record]], lookups: EmbeddingFit, setting: LookupSetting
) -> dict[str, UpdateFit]:
    """Return the costs of each backward of which enough points were measured."""
    return {
        key: _fitted(some, lookups, setting)
        for key, some in others.items()
        if len(some) >= _FEWEST and lookups.constants.row_update_time
    }


def _fitted(records: Sequence[Record], lookups: EmbeddingFit, setting: LookupSetting) -> UpdateFit:
    points = [point_of(record) for record in records]
    features = np.array([_features(point, lookups) for point in points])
    measured = np.array([record.seconds["backward"] for record in records])
    rates = lookups.constants.rates(setting.latency)
    known = setting.backward_host + rates.backward_latency + features[:, 0] / rates.sort_rate
    left = np.maximum(measured - known, _LEAST_LEFT * measured)
    sets = np.array([hash(point.tables) for point in points])
    missed = np.zeros(len(records))
    for each in np.unique(sets):
        out = sets == each
        if not out.all():
            costs = _costs(features[~out], left[~out], measured[~out])
            missed[out] = (known[out] + features[out] @ costs) / measured[out] - 1
    costs = _costs(features, left, measured)
    return UpdateFit(
        cost=UpdateCost(*map(rounded, costs.tolist())),
        errors=accuracy(missed),
        num_points=len(records),
    )


def _costs(features: Array, left: Array, measured: Array) -> Array:
    """Return the times of ``UpdateCost`` that explain what is left, in relative error."""
    scale = np.maximum(features.max(axis=0), 1e-300)
    found, _ = nnls(features / scale / measured[:, None], left / measured)
    costs: Array = found / scale
    return costs


def _features(point: EmbeddingPoint, lookups: EmbeddingFit) -> tuple[float, ...]:
    """Return what the times of ``UpdateCost`` are multiplied with: ids, rows, elements, pairs."""
    rows = table_traffics(point, lookups.caches)
    columns = np.array(point.tables.embedding_dims, dtype=np.float64)
    keys, unique = rows[:, Traffic.LOOKUPS], rows[:, Traffic.ROWS]
    counted = (keys, unique, keys * columns, unique * columns, unique**2)
    return tuple(float(each.sum()) for each in counted)
