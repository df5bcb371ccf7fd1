"""The constants of the embedding roofline, fitted to measured lookups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from costmodel.base.units import Bytes, Seconds
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType, EmbeddingTable
from costmodel.inputs.distribution import Zipf
from costmodel.kernels.embedding import Caches, LookupShard, combine, kernel_times, shard_traffic
from costmodel.kernels.times import LookupRates
from costmodel.kernels.traffic import BACKWARD_KERNELS, Traffic
from planner.calibration.curves import Accuracy, Array, accuracy
from planner.calibration.enough import check_enough
from planner.calibration.points import EmbeddingPoint, Family, TableSet
from planner.calibration.records import Record

NUM_FOLDS = 5
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

    def rates(self, latency: Seconds) -> LookupRates:
        """Return the rates of a device whose kernels take so long at the least; none use PCIe."""
        return LookupRates(
            latency=latency,
            backward_latency=BACKWARD_KERNELS * latency,
            gradient_time=0.0,
            uvm_bandwidth=1.0,
            **self._asdict(),
        )


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
_GPU_START = Constants(
    lookup_bandwidth=1e12,
    update_bandwidth=1e12,
    gather_bandwidth=3e12,
    sort_rate=1e10,
    overlap=1.0,
    lookup_time=0.0,
    row_read_time=0.0,
    row_update_time=0.0,
)
_LEAST, _MOST = 1e-3, 1e3
"""How far a constant may go from where it starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupSetting:
    """What is known of the machine before lookups are fitted."""

    l2_bytes: Bytes
    latency: Seconds
    """What a kernel takes that does nothing."""
    forward_host: Seconds = 0.0
    """Host's part of the measured time: all of issuing where kernels run on the host's thread."""
    backward_host: Seconds = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingFit:
    """Fitted constants, and what they miss on sets of tables they were not given."""

    constants: Constants
    l2_bytes: Bytes
    num_points: int
    forward: Accuracy
    backward: Accuracy
    by_kind: Mapping[str, Accuracy]
    """Backward by optimizer; ``forward dense`` and ``backward dense`` of replicated tables, to
    which nothing is fitted."""
    lookups: tuple[float, float]
    """Fewest and most ids of a batch that were measured."""
    embedding_dim: tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Data:
    """Measured points as arrays."""

    traffic: Array
    forward: Array
    backward: Array
    fold: np.ndarray[tuple[int], np.dtype[np.intp]]

    def part(self, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> "_Data":
        return _Data(
            self.traffic[chosen], self.forward[chosen], self.backward[chosen], self.fold[chosen]
        )


def fit_lookups(records: Sequence[Record], setting: LookupSetting) -> EmbeddingFit:
    """Fit forward and backward together, in relative error; judge on folds of whole table sets.

    The form of GPUs (the larger of HBM and L2 time, nothing per id or row) and the general one
    compete, as do shares of the cache: the smallest mean error on held-out points wins.

    Raises
    ------
    TooFewPointsError
        Fewer than two sets of tables were measured.

    """
    fused = [r for r in records if _tables(r).compute_kernel is ComputeKernel.FUSED]
    sets = {_tables(record) for record in fused}
    check_enough(Family.EMBEDDING, len(sets), _FEWEST_SETS, "sets of tables with fused lookups")
    rivals = [
        (start, share * setting.l2_bytes)
        for start in (_START, _GPU_START)
        for share in _CACHED_SHARES
    ]
    judged = [_held_out(fused, start, l2, setting) for start, l2 in rivals]
    best = min(range(len(rivals)), key=lambda i: float(np.mean(np.abs(np.concatenate(judged[i])))))
    start, l2_bytes = rivals[best]
    constants = _fitted(_data(fused, l2_bytes), start, setting)
    forward, backward = judged[best]
    kinds = np.array([_tables(record).optimizer.value for record in fused])
    by_kind = {f"backward {kind}": accuracy(backward[kinds == kind]) for kind in sorted(set(kinds))}
    dense = [r for r in records if _tables(r).compute_kernel is ComputeKernel.DENSE]
    if dense:
        missed = _errors(constants, _data(dense, l2_bytes), setting)
        by_kind |= {"forward dense": accuracy(missed[0]), "backward dense": accuracy(missed[1])}
    lookups = _data(fused, l2_bytes).traffic[:, Traffic.LOOKUPS]
    dims = [dim for record in fused for dim in _tables(record).embedding_dims]
    return EmbeddingFit(
        constants=constants,
        l2_bytes=l2_bytes,
        num_points=len(fused),
        forward=accuracy(forward),
        backward=accuracy(backward),
        by_kind=by_kind,
        lookups=(float(lookups.min()), float(lookups.max())),
        embedding_dim=(float(min(dims)), float(max(dims))),
    )


def point_traffic(point: EmbeddingPoint, l2_bytes: Bytes) -> Array:
    """Return the traffic of a point's kernel."""
    tables = point.tables
    rows = []
    for i, size in enumerate(tables.num_embeddings):
        table = EmbeddingTable(
            name=f"t{i}",
            num_embeddings=size,
            embedding_dim=tables.embedding_dims[i],
            pooling_factor=point.pooling_factors[i],
            data_type=tables.data_type,
            inputs=Zipf(exponent=point.zipf[i]),
        )
        shard = LookupShard(
            table=table,
            first_row=0,
            num_rows=size,
            num_columns=table.embedding_dim,
            num_samples=float(point.num_samples),
            compute_kernel=tables.compute_kernel,
            cache_load_factor=table.cache_load_factor,
        )
        rows.append(
            shard_traffic(
                shard,
                optimizer=tables.optimizer,
                output_type=DataType.FP32,
                caches=Caches(l2_bytes=l2_bytes),
            )
        )
    total: Array = combine(np.array(rows), np.zeros(len(rows), dtype=np.intp), 1)[0]
    return total


def _held_out(
    records: Sequence[Record], start: Constants, l2_bytes: Bytes, setting: LookupSetting
) -> tuple[Array, Array]:
    """Return relative errors of forward and backward, each point predicted without its fold."""
    data = _data(records, l2_bytes)
    forward, backward = np.zeros(len(records)), np.zeros(len(records))
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


def _errors(constants: Constants, data: _Data, setting: LookupSetting) -> tuple[Array, Array]:
    """Return signed relative errors of forward and backward."""
    rates = constants.rates(setting.latency)
    forward = setting.forward_host + kernel_times(data.traffic, rates, backward=False)
    backward = setting.backward_host + kernel_times(data.traffic, rates, backward=True)
    return forward / data.forward - 1, backward / data.backward - 1


def _data(records: Sequence[Record], l2_bytes: Bytes) -> _Data:
    numbers: dict[object, int] = {}
    sets = [numbers.setdefault(_tables(record), len(numbers)) for record in records]
    traffic = map(partial(point_traffic, l2_bytes=l2_bytes), map(_point, records))
    return _Data(
        np.array(list(traffic)),
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
