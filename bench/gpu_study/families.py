"""The study's records family by family: what model each has, and what is held out together."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bench.gpu_study.points import (
    InteractionPoint,
    LayerPoint,
    OptimizerPoint,
    StudyFamily,
    TypedOperatorPoint,
)
from bench.gpu_study.rooflines import (
    InteractionAmount,
    KnownLookups,
    Line,
    LookupRoofline,
    ProductRoofline,
    Roofline,
    StreamRoofline,
    UvmRoofline,
    layer_work,
    operator_bytes,
    optimizer_work,
)
from costmodel.domain.hardware import Gpu
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType
from planner.calibration.fit_embedding import fit_lookups
from planner.calibration.lookup_data import LookupSetting
from planner.calibration.points import EmbeddingPoint, Family, GemmPoint, OperatorPoint, StreamPoint
from planner.calibration.profile import Calibrated
from planner.calibration.records import Record

_IN_HOST_MEMORY = (ComputeKernel.FUSED_UVM, ComputeKernel.FUSED_UVM_CACHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyTask:
    """Records of one family, the model that is fitted to them, and how they are held out."""

    name: str
    roofline: Roofline
    records: Sequence[Record]
    group: Callable[[Any], Hashable]
    """Returns what of a point is on the same side of every split."""

    @property
    def groups(self) -> list[Hashable]:
        """The group of every record."""
        return [self.group(record.point) for record in self.records]


def tasks(records: Sequence[Record], calibrated: Calibrated) -> Iterator[FamilyTask]:
    """Yield every family that was measured; ``calibrated`` is the profile fitted to them."""
    gpu = calibrated.profile.gpu
    yield from _lookups(records, calibrated.setting)
    yield from _products(records, gpu)
    for name, kind, roofline, group in (
        (
            Family.STREAM, StreamPoint, StreamRoofline(calibrated.memory),
            lambda point: point.num_bytes,
        ),
        *_lines(gpu),
    ):  # fmt: skip
        some = [record for record in records if isinstance(record.point, kind)]
        if some:
            yield FamilyTask(name=name, roofline=roofline, records=some, group=group)


def _lookups(records: Sequence[Record], setting: LookupSetting) -> Iterator[FamilyTask]:
    fused = _of_kernels(records, (ComputeKernel.FUSED,))
    if not fused:
        return
    known = fit_lookups(fused, setting)
    rooflines: tuple[tuple[str, tuple[ComputeKernel, ...], Roofline], ...] = (
        ("embedding", (ComputeKernel.FUSED,), LookupRoofline(setting)),
        ("embedding, replicated", (ComputeKernel.DENSE,), KnownLookups(known, setting)),
        ("embedding, host memory", _IN_HOST_MEMORY, UvmRoofline(known, setting)),
    )
    for name, kernels, roofline in rooflines:
        some = _of_kernels(records, kernels)
        if some:
            yield FamilyTask(name=name, roofline=roofline, records=some, group=_tables)


def _products(records: Sequence[Record], gpu: Gpu) -> Iterator[FamilyTask]:
    for data_type in DataType:
        some = [
            record
            for record in records
            if isinstance(record.point, GemmPoint)
            and record.point.data_type is data_type
            and record.point.num_products == 1
        ]
        if some:
            yield FamilyTask(
                name=f"{Family.GEMM.value} {data_type.value}",
                roofline=ProductRoofline(gpu, data_type),
                records=some,
                group=lambda point: (point.m, point.n, point.k),
            )


def _lines(gpu: Gpu) -> Iterator[tuple[str, type, Roofline, Callable[[Any], Hashable]]]:
    yield (
        Family.OPERATOR, OperatorPoint,
        Line(operator_bytes, lambda p: p.operator), lambda p: p.num_elements,
    )  # fmt: skip
    yield (
        StudyFamily.TYPED_OPERATOR, TypedOperatorPoint,
        Line(operator_bytes, lambda p: (p.operator, p.data_type)), lambda p: p.num_elements,
    )  # fmt: skip
    yield (
        StudyFamily.LAYER, LayerPoint,
        Line(layer_work, lambda p: (p.layer, p.data_type)), lambda p: (p.width, p.length),
    )  # fmt: skip
    yield (
        StudyFamily.OPTIMIZER, OptimizerPoint,
        Line(optimizer_work, lambda p: p.optimizer), lambda p: (p.num_tensors, p.num_elements),
    )  # fmt: skip
    yield (
        StudyFamily.INTERACTION, InteractionPoint,
        Line(InteractionAmount(gpu), lambda _: None), lambda p: (p.num_features, p.embedding_dim),
    )  # fmt: skip


def _of_kernels(records: Sequence[Record], kernels: tuple[ComputeKernel, ...]) -> list[Record]:
    return [
        record
        for record in records
        if isinstance(record.point, EmbeddingPoint)
        and record.point.tables.compute_kernel in kernels
    ]


def _tables(point: Any) -> Hashable:  # noqa: ANN401 - an EmbeddingPoint
    tables: Hashable = point.tables
    return tables
