"""The constants of the embedding roofline, fitted to measured lookups."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.optimize import least_squares

from costmodel.base.units import BytesPerSecond, Seconds
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType, EmbeddingTable
from costmodel.inputs.distribution import Zipf
from costmodel.kernels.embedding import combine, kernel_times
from costmodel.kernels.shard_traffic import Caches, LookupShard, LookupShards, shard_traffics
from costmodel.kernels.times import LookupRates, weight_gradient_times
from costmodel.kernels.traffic import BACKWARD_KERNELS, Traffic
from planner.calibration.curves import Accuracy, Array, accuracy
from planner.calibration.enough import check_enough
from planner.calibration.points import EmbeddingPoint, Family, TableSet
from planner.calibration.records import Record

Folds: TypeAlias = np.ndarray[tuple[int], np.dtype[np.intp]]
NUM_FOLDS = 5
_IN_HOST_MEMORY = (ComputeKernel.FUSED_UVM, ComputeKernel.FUSED_UVM_CACHING)
_FEWEST_SETS = 2
"""Sets of tables: one is held out, one is fitted to."""
_OUTLIER = 0.15
"""Residual, in log time, from which on the robust loss grows linearly."""
_CACHED_SHARES = (0.25, 0.5, 1.0)
"""Shares of the cache that rows may turn out to have: the rest is others' or output's."""


class Constants(NamedTuple):
    """What is fitted, in SI."""

    lookup_bandwidth: float
    update_bandwidth: float
    gather_bandwidth: float
    sort_rate: float
    overlap: float
    lookup_time: Seconds
    row_read_time: Seconds
    row_update_time: Seconds
    gradient_time: Seconds = 0.0
    backward_latency: Seconds = 0.0
    """0: that of the backward's kernels, each doing nothing."""
    sort_latency: Seconds = 0.0

    def rates(self, latency: Seconds, uvm_bandwidth: BytesPerSecond = 1.0) -> LookupRates:
        """Return the rates of a device whose kernels take so long at the least.

        ``uvm_bandwidth`` counts only for lookups in host memory.
        """
        least = self.backward_latency or BACKWARD_KERNELS * latency
        fitted = self._replace(backward_latency=least)._asdict()
        return LookupRates(latency=latency, uvm_bandwidth=uvm_bandwidth, **fitted)


_START = Constants(
    lookup_bandwidth=1e10,
    update_bandwidth=1e10,
    gather_bandwidth=1e11,
    sort_rate=1e8,
    overlap=0.5,
    lookup_time=1e-9,
    row_read_time=1e-9,
    row_update_time=1e-9,
)
_LARGER_START = Constants(
    lookup_bandwidth=1e12,
    update_bandwidth=1e12,
    gather_bandwidth=3e12,
    sort_rate=1e10,
    overlap=1.0,
    lookup_time=0.0,
    row_read_time=0.0,
    row_update_time=0.0,
)
_WARPS_START = _LARGER_START._replace(gradient_time=1e-10, backward_latency=1e-4, sort_latency=4e-5)
_LEAST, _MOST = 1e-3, 1e3
"""How far a constant may go from where it starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupSetting:
    """What is known of the machine before lookups are fitted."""

    caches: Caches
    latency: Seconds
    """What a kernel takes that does nothing."""
    forward_host: Seconds = 0.0
    """Host's part of the measured time: all of issuing where kernels run on the host's thread."""
    backward_host: Seconds = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingFit:
    """Fitted constants, and what they miss on sets of tables they were not given."""

    constants: Constants
    caches: Caches
    num_points: int
    forward: Accuracy
    backward: Accuracy
    by_kind: Mapping[str, Accuracy]
    """Backward by optimizer; ``forward dense`` and ``backward dense`` of replicated tables, to
    which nothing is fitted."""
    lookups: tuple[float, float]
    """Fewest and most ids of a batch that were measured."""
    embedding_dim: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class UvmFit:
    """Bandwidth of rows that come from host memory, and what it misses."""

    bandwidth: BytesPerSecond
    num_points: int
    errors: Accuracy
    """Forward and backward, each predicted from the other folds' bandwidth."""


@dataclass(frozen=True, slots=True)
class _Data:
    """Measured points as arrays."""

    traffic: Array
    weighted: Array
    """1 where the backward makes gradients of weights, too; else 0."""
    forward: Array
    backward: Array
    fold: Folds

    def part(self, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> "_Data":
        return _Data(
            self.traffic[chosen],
            self.weighted[chosen],
            self.forward[chosen],
            self.backward[chosen],
            self.fold[chosen],
        )


def fit_lookups(records: Sequence[Record], setting: LookupSetting) -> EmbeddingFit:
    """Fit forward and backward together, in relative error; judge on folds of whole table sets.

    On a GPU, whose warps gather rows, the larger of HBM and on-chip time and a time per id in the
    backward are fitted; on a core that larger one alone and the general form compete. Shares of the
    cache compete, too: the smallest mean error on held-out points wins.

    Raises
    ------
    TooFewPointsError
        Fewer than two sets of tables were measured.

    """
    fused = [r for r in records if _tables(r).compute_kernel is ComputeKernel.FUSED]
    sets = {_tables(record) for record in fused}
    check_enough(Family.EMBEDDING, len(sets), _FEWEST_SETS, "sets of tables with fused lookups")
    starts = (_WARPS_START,) if setting.caches.warp_bytes else (_START, _LARGER_START)
    shares = [
        setting.caches._replace(l2_bytes=share * setting.caches.l2_bytes)
        for share in _CACHED_SHARES
    ]
    data_of = {caches: _data(fused, caches) for caches in shares}
    rivals = list(product(starts, shares))
    judged = [_held_out(data_of[caches], start, setting) for start, caches in rivals]
    best = min(range(len(rivals)), key=lambda i: float(np.mean(np.abs(np.concatenate(judged[i])))))
    start, caches = rivals[best]
    constants = _fitted(data_of[caches], start, setting)
    forward, backward = judged[best]
    kinds = np.array([_tables(record).optimizer.value for record in fused])
    by_kind = {f"backward {kind}": accuracy(backward[kinds == kind]) for kind in sorted(set(kinds))}
    dense = [r for r in records if _tables(r).compute_kernel is ComputeKernel.DENSE]
    if dense:
        missed = _errors(constants, _data(dense, caches), setting)
        by_kind |= {"forward dense": accuracy(missed[0]), "backward dense": accuracy(missed[1])}
    lookups = data_of[caches].traffic[:, Traffic.LOOKUPS]
    dims = [dim for record in fused for dim in _tables(record).embedding_dims]
    return EmbeddingFit(
        constants=constants,
        caches=caches,
        num_points=len(fused),
        forward=accuracy(forward),
        backward=accuracy(backward),
        by_kind=by_kind,
        lookups=(float(lookups.min()), float(lookups.max())),
        embedding_dim=(float(min(dims)), float(max(dims))),
    )


def fit_uvm(
    records: Sequence[Record], lookups: EmbeddingFit, setting: LookupSetting
) -> UvmFit | None:
    """Fit the bandwidth of host memory to lookups there, beside the constants of ``lookups``.

    A lookup's bandwidth is its bytes from host memory over the time that the other constants do
    not explain; the median counts. None where no lookup has such bytes and such time.
    """
    some = [r for r in records if _tables(r).compute_kernel in _IN_HOST_MEMORY]
    if not some:
        return None
    data = _data(some, lookups.caches)
    rates = _implied_bandwidths(lookups.constants, data, setting)
    known = np.isfinite(rates)
    if not known.any():
        return None
    errors: list[Array] = []
    for fold in np.unique(data.fold):
        out = data.fold == fold
        taught = rates[~out & known] if (~out & known).any() else rates[known]
        bandwidth = float(np.median(taught))
        errors += _errors(lookups.constants, data.part(out), setting, bandwidth)
    return UvmFit(
        bandwidth=float(np.median(rates[known])),
        num_points=len(some),
        errors=accuracy(np.concatenate(errors)),
    )


def predicted_lookups(
    points: Sequence[EmbeddingPoint],
    fit: EmbeddingFit,
    setting: LookupSetting,
    uvm_bandwidth: BytesPerSecond = 1.0,
) -> tuple[Array, Array]:
    """Return seconds of forward and backward of lookups, host's part included."""
    traffic = np.array([point_traffic(point, fit.caches) for point in points])
    weighted = _weighted(points, fit.caches)
    return _times(fit.constants, traffic, weighted, setting, uvm_bandwidth)


def _weighted(points: Sequence[EmbeddingPoint], caches: Caches) -> Array:
    """Return 1 where a GPU's backward makes gradients of weights, else 0."""
    return np.array([float(point.weighted and caches.warp_bytes > 0) for point in points])


def _embedding_tables(point: EmbeddingPoint) -> Iterator[EmbeddingTable]:
    tables = point.tables
    for i, size in enumerate(tables.num_embeddings):
        yield EmbeddingTable(
            name=f"t{i}",
            num_embeddings=size,
            embedding_dim=tables.embedding_dims[i],
            pooling_factor=point.pooling_factors[i],
            data_type=tables.data_type,
            pooling=tables.pooling,
            weighted=point.weighted,
            inputs=Zipf(exponent=point.zipf[i]),
        )


def point_traffic(point: EmbeddingPoint, caches: Caches) -> Array:
    """Return the traffic of a point's kernel."""
    tables = point.tables
    shards = [
        LookupShard(
            table=table,
            first_row=0,
            num_rows=table.num_embeddings,
            num_columns=table.embedding_dim,
            num_samples=float(point.num_samples),
            compute_kernel=tables.compute_kernel,
            cache_load_factor=tables.cache_load_factor or table.cache_share,
        )
        for table in _embedding_tables(point)
    ]
    rows = shard_traffics(
        LookupShards.of(shards),
        optimizer=tables.optimizer,
        output_type=DataType.FP32,
        caches=caches,
    )
    total: Array = combine(rows, np.zeros(len(rows), dtype=np.intp), 1)[0]
    return total


def _held_out(data: _Data, start: Constants, setting: LookupSetting) -> tuple[Array, Array]:
    """Return relative errors of forward and backward, each point predicted without its fold."""
    forward, backward = np.zeros(len(data.forward)), np.zeros(len(data.forward))
    for fold in np.unique(data.fold):
        out = data.fold == fold
        constants = _fitted(data.part(~out), start, setting)
        forward[out], backward[out] = _errors(constants, data.part(out), setting)
    return forward, backward


def _fitted(data: _Data, start: Constants, setting: LookupSetting) -> Constants:
    """Minimise robust log errors over the logarithms of the constants that are not fixed."""
    first = np.array(start)
    free = (first > 0) & ~((first == 1.0) & (np.array(Constants._fields) == "overlap"))

    def constants(logs: Array) -> Constants:
        values = first.copy()
        values[free] = first[free] * np.exp(logs)
        made = Constants(*values.tolist())
        return made._replace(overlap=min(1.0, made.overlap))

    def miss(logs: Array) -> Array:
        forward, backward = _errors(constants(logs), data, setting)
        return np.log1p(np.concatenate((forward, backward)))

    limits = np.full(int(free.sum()), np.log(_MOST))
    guess = np.zeros(int(free.sum()))
    found = least_squares(miss, guess, bounds=(-limits, limits), loss="soft_l1", f_scale=_OUTLIER)
    return constants(found.x)


def _errors(
    constants: Constants, data: _Data, setting: LookupSetting, uvm_bandwidth: float = 1.0
) -> tuple[Array, Array]:
    """Return signed relative errors of forward and backward."""
    forward, backward = _times(constants, data.traffic, data.weighted, setting, uvm_bandwidth)
    return forward / data.forward - 1, backward / data.backward - 1


def _times(
    constants: Constants,
    traffic: Array,
    weighted: Array,
    setting: LookupSetting,
    uvm_bandwidth: float,
) -> tuple[Array, Array]:
    rates = constants.rates(setting.latency, uvm_bandwidth)
    forward = setting.forward_host + kernel_times(traffic, rates, backward=False)
    backward = setting.backward_host + kernel_times(traffic, rates, backward=True)
    return forward, backward + weighted * weight_gradient_times(traffic, rates)


def _implied_bandwidths(constants: Constants, data: _Data, setting: LookupSetting) -> Array:
    """Return the bandwidth that makes each lookup take its time, forward and backward together.

    NaN where nothing comes from host memory, or the rest explains all of the time.
    """
    rest = sum(_times(constants, data.traffic, data.weighted, setting, np.inf))
    left = data.forward + data.backward - rest
    moved = data.traffic[:, [Traffic.FORWARD_UVM, Traffic.BACKWARD_UVM]].sum(axis=1)
    return np.where((left > 0) & (moved > 0), moved / np.where(left > 0, left, 1.0), np.nan)


def _data(records: Sequence[Record], caches: Caches) -> _Data:
    numbers: dict[object, int] = {}
    sets = [numbers.setdefault(_tables(record), len(numbers)) for record in records]
    points = [_point(record) for record in records]
    return _Data(
        np.array([point_traffic(point, caches) for point in points]),
        _weighted(points, caches),
        np.array([record.seconds["forward"] for record in records]),
        np.array([record.seconds["backward"] for record in records]),
        np.array(sets) % NUM_FOLDS,
    )


def _point(record: Record) -> EmbeddingPoint:
    if not isinstance(record.point, EmbeddingPoint):
        raise TypeError(f"not an embedding point: {record.point}")
    return record.point


def _tables(record: Record) -> TableSet:
    return _point(record).tables
