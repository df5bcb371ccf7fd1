"""Fitting the backward of a core's lookups by other optimizers and types, unpooled, and dense.

FBGEMM has a CPU kernel for each optimizer and type of weights, others where each id has a row of
its own, and one that makes the gradient of a replicated table. The times of ``UpdateCost`` are
fitted to a few points of each, none below 0, in relative error; all else is as fitted to the full
grid.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from costmodel.base.arrays import Array
from costmodel.base.units import Bytes
from costmodel.domain.hardware import UpdateCost
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType, Pooling
from costmodel.kernels.shard_traffic import DENSE_BACKWARD, update_features, update_key
from planner.calibration.curves import Accuracy, accuracy, rounded
from planner.calibration.fit_embedding import EmbeddingFit
from planner.calibration.lookup_data import LookupSetting, point_of, point_shards, tables_of
from planner.calibration.points import EmbeddingPoint, TableSet
from planner.calibration.records import Record

_OF_UPDATES = ("id_time", "row_time", "id_column_time", "row_column_time", "row_pair_time")
_OF_DENSE = (
    "id_column_time", "bag_time", "bag_column_time", "miss_time", "miss_column_time",
    "element_time",
)  # fmt: skip
"""Fields of ``UpdateCost`` that are fitted. The dense backward sorts nothing: it fills a gradient
with zeros and adds every id's to its row, bag by bag."""
_FEWEST = 8
"""Fewest points that they are fitted to."""
MOST_POINTS = 24
"""Most points that are measured of a backward that is not of the full grid."""
_BEYOND_CACHE = 4.0
"""Size of the largest replicated tables, over the cache: of smaller ones what a miss takes, most of
a large one's backward, is not seen."""
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
        elif tables.compute_kernel is ComputeKernel.DENSE:
            key = DENSE_BACKWARD
        found.setdefault(key, []).append(record)
    others = {
        key: some
        for key, some in found.items()
        if key and (len(some) <= MOST_POINTS or _is_apart(tables_of(some[0])))
    }
    if not found.keys() - others.keys() - {""}:
        return Lookups(records, {})  # few points of all: nothing else is known
    plain = [each for key, some in found.items() if key not in others for each in some]
    return Lookups(plain, others)


def _is_apart(tables: TableSet) -> bool:
    """Return whether a backward is of no full grid, however many points it has."""
    return tables.pooling is Pooling.NONE or tables.compute_kernel is ComputeKernel.DENSE


def fit_updates(
    others: Mapping[str, Sequence[Record]], lookups: EmbeddingFit, setting: LookupSetting
) -> dict[str, UpdateFit]:
    """Return the costs of each backward of which enough points were measured."""
    return {
        key: _fitted(some, lookups, setting, dense=key == DENSE_BACKWARD)
        for key, some in others.items()
        if len(some) >= _FEWEST and lookups.constants.row_update_time
        if key != DENSE_BACKWARD or _largest(some) >= _BEYOND_CACHE * lookups.caches.l2_bytes
    }


def _largest(records: Sequence[Record]) -> Bytes:
    """Return the bytes of the largest set of tables."""
    return max(tables_of(record).num_bytes for record in records)


def _fitted(
    records: Sequence[Record], lookups: EmbeddingFit, setting: LookupSetting, *, dense: bool
) -> UpdateFit:
    points = [point_of(record) for record in records]
    counted = np.array([_features(point, lookups) for point in points])
    fields = _OF_DENSE if dense else _OF_UPDATES
    features = counted[:, [UpdateCost._fields.index(field) for field in fields]]
    measured = np.array([record.seconds["backward"] for record in records])
    rates = lookups.constants.rates(setting.latency)
    known = np.full(len(records), setting.backward_host + rates.backward_latency)
    if not dense:
        known += counted[:, 0] / rates.sort_rate
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
        cost=UpdateCost(**dict(zip(fields, map(rounded, costs.tolist()), strict=True))),
        errors=accuracy(missed),
        num_points=len(records),
    )


def _costs(features: Array, left: Array, measured: Array) -> Array:
    """Return the times of ``UpdateCost`` that explain what is left, in relative error."""
    scale = np.maximum(features.max(axis=0), 1e-300)
    found, _ = nnls(features / scale / measured[:, None], left / measured)
    costs: Array = found / scale
    return costs


def _features(point: EmbeddingPoint, lookups: EmbeddingFit) -> Array:
    """Return what the times of ``UpdateCost`` are multiplied with, of all tables together."""
    counted: Array = update_features(point_shards(point), lookups.caches).sum(axis=0)
    return counted
