"""Models with few constants, family by family: fitted to some records, they predict others."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from bench.gpu_study.correction import PhaseSeconds, Predict, Records, Rivals, taught
from bench.gpu_study.points import (
    InteractionPoint,
    LayerKind,
    LayerPoint,
    OptimizerPoint,
    TypedOperatorPoint,
)
from costmodel.base.arrays import Array
from costmodel.domain.hardware import Gpu
from costmodel.domain.time_correction import NO_CORRECTION, TimeCorrection
from costmodel.domain.workload import DataType, OptimizerImplementation
from costmodel.kernels.gemm import gemm_time
from costmodel.kernels.pointwise import (
    batched_product_time,
    concat_time,
    index_backward_time,
    index_time,
    pointwise_time,
    view_concat_time,
)
from costmodel.step.optimizer import IMPLEMENTATIONS
from planner.calibration.curves import Form, alpha_beta
from planner.calibration.fit_embedding import (
    EmbeddingFit,
    fit_lookups,
    fit_uvm,
    predicted_lookups,
)
from planner.calibration.fit_gemm import Products, fit_measured
from planner.calibration.fit_operators import MOVED
from planner.calibration.fit_stream import StreamSetting, fit_stream, streams
from planner.calibration.lookup_data import NO_CORRECTIONS, LookupSetting
from planner.calibration.points import EmbeddingPoint, GemmPoint, OperatorPoint
from planner.calibration.records import Record


class Roofline(Protocol):
    """A model whose constants have a meaning."""

    def fit(self, records: Records) -> Rivals:
        """Fit the constants; return what predicts the same phases of other records."""
        ...


@dataclass(frozen=True, slots=True)
class LookupRoofline:
    """Lookups in HBM: `planner calibrate`'s own fit."""

    setting: LookupSetting

    def fit(self, records: Records) -> Rivals:
        """Fit the constants of the embedding roofline, and learn its corrections."""
        fit = fit_lookups(records, self.setting)
        plain, learned = (replace(fit, corrections=each) for each in (NO_CORRECTIONS, fit.learned))
        return Rivals(
            roofline=lambda asked: _lookup_seconds(asked, plain, self.setting, 1.0),
            corrected=lambda asked: _lookup_seconds(asked, learned, self.setting, 1.0),
        )


@dataclass(frozen=True, slots=True)
class KnownLookups:
    """Replicated tables: by the constants of fused lookups; nothing is fitted to them."""

    constants: EmbeddingFit
    setting: LookupSetting

    def fit(self, records: Records) -> Rivals:
        """Return the constants' prediction."""
        return taught(
            lambda asked: _lookup_seconds(asked, self.constants, self.setting, 1.0), records
        )


@dataclass(frozen=True, slots=True)
class UvmRoofline:
    """Tables in host memory: one bandwidth beside the constants of lookups in HBM."""

    constants: EmbeddingFit
    setting: LookupSetting

    def fit(self, records: Records) -> Rivals:
        """Fit the bandwidth; endless where none can be told."""
        found = fit_uvm(records, self.constants, self.setting)
        bandwidth = found.bandwidth if found else np.inf
        return taught(
            lambda asked: _lookup_seconds(asked, self.constants, self.setting, bandwidth), records
        )


def _lookup_seconds(
    asked: Records, fit: EmbeddingFit, setting: LookupSetting, bandwidth: float
) -> PhaseSeconds:
    points = [record.point for record in asked if isinstance(record.point, EmbeddingPoint)]
    forward, backward = predicted_lookups(points, fit, setting, bandwidth)
    return {"forward": forward, "backward": backward}


@dataclass(frozen=True, slots=True)
class ProductRoofline:
    """Matrix products of one type: `planner calibrate`'s own fit."""

    gpu: Gpu
    data_type: DataType

    def fit(self, records: Records) -> Rivals:
        """Fit the constants of the tiling model, with the peak that the records ask for."""
        shapes, times = _shapes(records), np.array([r.seconds["product"] for r in records])
        products = Products(shapes=shapes, times=times, origin="")
        constants = fit_measured(products, self.data_type, self.gpu).constants
        gpu = replace(self.gpu, gemm={self.data_type.value: constants})

        def predict(asked: Records) -> PhaseSeconds:
            m, n, k = _shapes(asked).T
            return {"product": gemm_time(m, n, k, self.data_type, gpu)}

        return taught(predict, records)


def _shapes(records: Records) -> Array:
    points = [record.point for record in records if isinstance(record.point, GemmPoint)]
    return np.array([[point.m, point.n, point.k] for point in points], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class StreamRoofline:
    """Copies, sums, concatenations: `planner calibrate`'s own fit."""

    setting: StreamSetting

    def fit(self, records: Records) -> Rivals:
        """Fit latency and bandwidths, and learn their correction."""
        fit = fit_stream(records, self.setting)

        def predicting(correction: TimeCorrection) -> Predict:
            return lambda asked: {"operator": fit.predicted(list(streams(asked)), correction)}

        return Rivals(roofline=predicting(NO_CORRECTION), corrected=predicting(fit.learned))


@dataclass(frozen=True, slots=True)
class Line:
    """Latency and rate for every kind of operator, by how much each has to do."""

    amount: Callable[[Any, str], float]
    """Returns how much a point has to do in a phase: bytes, or seconds by the product's model."""
    kind: Callable[[Any], Hashable]

    def fit(self, records: Records) -> Rivals:
        """Fit a line for every kind and phase; kinds that were not seen have one of all."""
        groups: dict[Hashable, list[Record]] = defaultdict(list)
        for record in records:
            groups[self.kind(record.point)].append(record)
            groups[_EVERY].append(record)
        phases = tuple(records[0].seconds)
        lines = {
            (kind, phase): self._line(some, phase)
            for kind, some in groups.items()
            for phase in phases
        }

        def predict(asked: Records) -> PhaseSeconds:
            return {
                phase: np.array([
                    float(self._of(lines, record, phase)(self._amounts([record], phase))[0])
                    for record in asked
                ])
                for phase in phases
            }

        return taught(predict, records)

    def _of(self, lines: Mapping[tuple[Hashable, str], Form], record: Record, phase: str) -> Form:
        own = lines.get((self.kind(record.point), phase))
        return own or lines[_EVERY, phase]

    def _amounts(self, records: Records, phase: str) -> Array:
        return np.array([self.amount(record.point, phase) for record in records])

    def _line(self, records: Records, phase: str) -> Form:
        amounts = self._amounts(records, phase)
        times = np.array([record.seconds[phase] for record in records])
        if len(np.unique(amounts)) == 1:
            rate = float(np.median(times / amounts))
            return lambda asked: rate * asked
        order = np.argsort(amounts)
        return alpha_beta(amounts[order], times[order], np.ones(len(times)))


_EVERY = "every kind"


def operator_bytes(point: OperatorPoint | TypedOperatorPoint, phase: str) -> float:
    """Return the bytes that an operator moves, as `planner calibrate` has them; at least one."""
    del phase
    width = point.data_type.num_bytes if isinstance(point, TypedOperatorPoint) else 4.0
    return max(1.0, MOVED[point.operator] * width / 4.0 * point.num_elements)


def layer_work(point: LayerPoint, phase: str) -> float:
    """Return the FLOP of a layer, forward, of which its backward has about twice as many."""
    del phase
    positions = float(point.num_samples * point.length)
    if point.layer is LayerKind.ATTENTION:
        return 2.0 * positions * point.length * point.width
    return 18.0 * positions * point.length * point.width**2


def optimizer_work(point: OptimizerPoint, phase: str) -> float:
    """Return the bytes of a dense optimizer's passes, and 100 kB for each tensor's operators."""
    del phase
    kernels = IMPLEMENTATIONS[OptimizerImplementation.FOR_LOOP][point.optimizer]
    held = 4.0 * point.num_tensors * point.num_elements
    return kernels.passes * held + 1e5 * kernels.num_ops * point.num_tensors


@dataclass(frozen=True, slots=True)
class InteractionAmount:
    """PhaseSeconds of the dot interaction's kernels by the product's models."""

    gpu: Gpu

    def __call__(self, point: InteractionPoint, phase: str) -> float:
        """Add up the kernels that ``costmodel.step.interaction`` has for them."""
        gpu, batch = self.gpu, point.num_samples
        vectors, dim = point.num_features + 1, point.embedding_dim
        pairs, columns = vectors * (vectors - 1) // 2, vectors * dim
        inputs, fp32 = dim + pairs, DataType.FP32

        def product(m: int, n: int, k: int) -> float:
            return batched_product_time(batch, m, n, k, fp32, gpu)

        if phase == "forward":
            copies = concat_time(8.0 * batch * columns, gpu) + concat_time(
                8.0 * batch * inputs, gpu
            )
            return copies + product(vectors, vectors, dim) + index_time(batch * pairs, 4.0, gpu)
        return (
            concat_time(8.0 * batch * inputs, gpu)
            + pointwise_time(4.0 * batch * vectors**2, gpu)
            + index_backward_time(batch * pairs, gpu)
            + product(vectors, dim, vectors)
            + product(dim, vectors, vectors)
            + pointwise_time(12.0 * batch * columns, gpu)
            + view_concat_time(8.0 * batch * columns, gpu)
        )
