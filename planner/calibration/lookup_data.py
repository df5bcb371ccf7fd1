"""Measured lookups as arrays, and their times by a roofline with given constants."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from costmodel.base.arrays import Array
from costmodel.base.units import BytesPerSecond, Seconds
from costmodel.domain.time_correction import NO_CORRECTION, TimeCorrection
from costmodel.domain.workload import DataType, EmbeddingTable
from costmodel.inputs.distribution import Zipf
from costmodel.kernels.embedding import combine, kernel_times
from costmodel.kernels.lookup_shards import LookupShard, LookupShards
from costmodel.kernels.shard_traffic import Caches, shard_traffics
from costmodel.kernels.times import LookupRates, weight_gradient_times
from costmodel.kernels.traffic import BACKWARD_KERNELS
from planner.calibration.points import EmbeddingPoint, TableSet
from planner.calibration.records import Record

Folds: TypeAlias = np.ndarray[tuple[int], np.dtype[np.intp]]
NUM_FOLDS = 5


class Constants(NamedTuple):
    """The fitted constants, in SI units."""

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
    """0: the latency of each of the backward's kernels."""
    sort_latency: Seconds = 0.0
    forward_latency: Seconds = 0.0
    """0: the latency of one kernel."""
    bag_time: Seconds = 0.0
    forward_turn_time: Seconds = 0.0
    backward_turn_time: Seconds = 0.0

    def rates(
        self,
        latency: Seconds,
        uvm_bandwidth: BytesPerSecond = 1.0,
        corrections: "LookupCorrections | None" = None,
    ) -> LookupRates:
        """Return the rates of a device whose kernels take at least ``latency``.

        ``uvm_bandwidth`` counts only for lookups in host memory.
        """
        using = corrections or NO_CORRECTIONS
        least = self.backward_latency or BACKWARD_KERNELS * latency
        first = self.forward_latency or latency
        fitted = self._replace(backward_latency=least, forward_latency=first)._asdict()
        return LookupRates(
            latency=latency,
            uvm_bandwidth=uvm_bandwidth,
            forward_knots=using.forward.array,
            backward_knots=using.backward.array,
            **fitted,
        )


@dataclass(frozen=True, slots=True)
class LookupCorrections:
    """Corrections of kernels, without the host's part and rows in host memory."""

    forward: TimeCorrection = NO_CORRECTION
    backward: TimeCorrection = NO_CORRECTION


NO_CORRECTIONS = LookupCorrections()


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupSetting:
    """Facts known before lookups are fitted."""

    caches: Caches
    latency: Seconds
    """Seconds of a kernel that does nothing."""
    forward_host: Seconds = 0.0
    """Host's seconds in a measurement: all of issuing where kernels run on the host's thread."""
    backward_host: Seconds = 0.0


@dataclass(frozen=True, slots=True)
class LookupData:
    """Measured points as arrays."""

    traffic: Array
    weighted: Array
    """1 where the backward makes gradients of weights, too; else 0."""
    forward: Array
    backward: Array
    fold: Folds

    def part(self, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> "LookupData":
        """Return the points for which ``chosen`` is true."""
        return LookupData(
            self.traffic[chosen],
            self.weighted[chosen],
            self.forward[chosen],
            self.backward[chosen],
            self.fold[chosen],
        )


def lookup_data(records: Sequence[Record], caches: Caches) -> LookupData:
    """Return measured points as arrays; those of one set of tables are in one fold."""
    numbers: dict[object, int] = {}
    sets = [numbers.setdefault(tables_of(record), len(numbers)) for record in records]
    points = [point_of(record) for record in records]
    return LookupData(
        np.array([point_traffic(point, caches) for point in points]),
        weighted_points(points, caches),
        np.array([record.seconds["forward"] for record in records]),
        np.array([record.seconds["backward"] for record in records]),
        np.array(sets) % NUM_FOLDS,
    )


def lookup_errors(
    constants: Constants,
    data: LookupData,
    setting: LookupSetting,
    uvm_bandwidth: float = 1.0,
    corrections: LookupCorrections = NO_CORRECTIONS,
) -> tuple[Array, Array]:
    """Return signed relative errors of forward and backward."""
    forward, backward = lookup_times(
        constants, data.traffic, data.weighted, setting, uvm_bandwidth, corrections
    )
    return forward / data.forward - 1, backward / data.backward - 1


def lookup_times(
    constants: Constants,
    traffic: Array,
    weighted: Array,
    setting: LookupSetting,
    uvm_bandwidth: float,
    corrections: LookupCorrections = NO_CORRECTIONS,
) -> tuple[Array, Array]:
    """Return seconds of forward and backward, including the host's part."""
    rates = constants.rates(setting.latency, uvm_bandwidth, corrections)
    forward = setting.forward_host + kernel_times(traffic, rates, backward=False)
    backward = setting.backward_host + kernel_times(traffic, rates, backward=True)
    return forward, backward + weighted * weight_gradient_times(traffic, rates)


def weighted_points(points: Sequence[EmbeddingPoint], caches: Caches) -> Array:
    """Return 1 where a GPU's backward makes gradients of weights, else 0."""
    return np.array([float(point.weighted and caches.warp_bytes > 0) for point in points])


def point_traffic(point: EmbeddingPoint, caches: Caches) -> Array:
    """Return the traffic of a point's kernel, of shape (NUM_TRAFFIC,)."""
    rows = table_traffics(point, caches)
    total: Array = combine(rows, np.zeros(len(rows), dtype=np.intp), 1)[0]
    return total


def table_traffics(point: EmbeddingPoint, caches: Caches) -> Array:
    """Return the traffic of each table of a point's kernel, of shape (tables, NUM_TRAFFIC)."""
    return shard_traffics(
        point_shards(point),
        optimizer=point.tables.optimizer,
        output_type=DataType.FP32,
        caches=caches,
    )


def point_shards(point: EmbeddingPoint) -> LookupShards:
    """Return the tables of a point's kernel."""
    tables = point.tables
    return LookupShards.of([
        LookupShard.whole(
            table, float(point.num_samples), tables.compute_kernel, tables.cache_load_factor
        )
        for table in _embedding_tables(point)
    ])


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


def point_of(record: Record) -> EmbeddingPoint:
    """Return a record's point, which must be of a lookup."""
    if not isinstance(record.point, EmbeddingPoint):
        raise TypeError(f"not an embedding point: {record.point}")
    return record.point


def tables_of(record: Record) -> TableSet:
    """Return the set of tables of a measured lookup."""
    return point_of(record).tables
