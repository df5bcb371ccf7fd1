"""Making a ``HardwareProfile`` of a validated profile file."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from costmodel.base.errors import InputError
from costmodel.base.units import US
from costmodel.domain.hardware import (
    CollectiveCurve,
    CollectiveOp,
    Device,
    GemmEfficiency,
    Gpu,
    HardwareProfile,
    Host,
    KernelFamily,
    Link,
    Spine,
    UnalignedRows,
    UpdateCost,
)
from costmodel.domain.traced import KernelTime, OperatorOverheads, TracedTimes
from planner.files.kinds import FileKind, check_kind
from planner.files.profile_yaml import OVERHEADS
from planner.files.source import Document
from planner.files.validator import Validator, in_order

if TYPE_CHECKING:
    from pydantic import BaseModel

    from planner.files import profile_schema as schema

_SECTIONS = {
    "gpu": "gpu",
    "embedding": "gpu",
    "host": "host",
    "intra_node": "intra_node",
    "inter_node": "inter_node",
    "spine": "spine",
}
"""Field of ``HardwareProfile`` for each section of numbers with sources."""


def profile_from_document(document: Document) -> HardwareProfile:
    """Build the profile that a document describes.

    Raises
    ------
    InputError
        With every problem of the file.

    """
    from planner.files.profile_schema import ProfileFile

    check_kind(document, FileKind.PROFILE)
    validator = Validator(document)
    values = validator.whole(ProfileFile, document.data, ())
    curves = () if values is None else tuple(_curves(values["collectives"], validator))
    if values is None or validator.problems:
        raise InputError(document.source, in_order(validator.problems), document.text)
    gemm = {name.value: _gemm(entry) for name, entry in values["gemm"].items()}
    families = {
        name.value: KernelFamily(**dict(entry))
        for name, entry in values.get("families", {}).items()
    }
    gpu = {**_numbers(values["gpu"]), **_numbers(values["embedding"])}
    own = dict(_own_times(values))
    gpu |= {field: read for field, (_, read) in own.items()}
    numbers = dict(_sourced(values))
    return HardwareProfile(
        name=values["name"],
        device=values.get("device", Device.CUDA),
        gpus_per_node=values["gpus_per_node"].value,
        gpu=Gpu(name=values["gpu"].name, gemm=gemm, **gpu),
        host=Host(**_numbers(values["host"])),
        intra_node=Link(**_numbers(values["intra_node"])),
        inter_node=Link(**_numbers(values["inter_node"])),
        spine=Spine(**_numbers(values["spine"])) if values.get("spine") else None,
        curves=curves,
        sources={
            **{name: entry.source for name, entry in numbers.items()},
            **{f"gpu.gemm.{name}": entry.source for name, entry in values["gemm"].items()},
            **{f"gpu.{field}": section.source for field, (section, _) in own.items()},
        },
        kinds={
            **{name: kind for name, each in numbers.items() if (kind := each.known_kind)},
            **{f"gpu.{field}": each.kind for field, (each, _) in own.items() if each.kind},
        },
        families=families,
        traced=_traced(values["traced"]) if "traced" in values else TracedTimes(),
    )


def _own_times(values: Mapping[str, Any]) -> Iterator[tuple[str, tuple[Any, Mapping[str, Any]]]]:
    """Yield fields of ``Gpu`` that have a section, that section, and their values by name."""
    operators, updates = values.get("operators"), values.get("updates")
    if operators is not None:
        yield "element_times", (operators, operators.element_times)
    if updates is not None:
        costs = {name: UpdateCost(**dict(each)) for name, each in updates.update_costs.items()}
        yield "update_costs", (updates, costs)


def _curves(
    entries: "tuple[schema.CurveEntry, ...]", validator: Validator
) -> Iterator[CollectiveCurve]:
    seen: set[tuple[CollectiveOp, int, int]] = set()
    for number, entry in enumerate(entries):
        place = entry.op, entry.num_ranks, entry.num_nodes
        if place in seen:
            message = f"a second {entry.op} curve for as many ranks and nodes"
            validator.note(message, ("collectives", number))
        seen.add(place)
        values = {name: value for name, value in entry if name not in {"bytes", "us"}}
        knots = tuple((b, t * US) for b, t in zip(entry.bytes, entry.us, strict=True))
        try:
            yield CollectiveCurve(**values, knots=knots)
        except ValueError as error:
            validator.note(str(error), ("collectives", number))


def _gemm(entry: "schema.GemmEntry") -> GemmEfficiency:
    from planner.files.profile_quantities import kind_of

    values = {name: value for name, value in entry if name != "source" and value is not None}
    values["unaligned"] = tuple(UnalignedRows(**dict(rows)) for rows in entry.unaligned)
    kind = entry.kind or kind_of(entry.source)
    return GemmEfficiency(**(values if kind is None else {**values, "kind": kind}))


def _traced(section: "schema.TracedSection") -> TracedTimes:
    operators = {
        row.name: OperatorOverheads(
            name=row.name,
            count=row.count,
            **{field: getattr(row, short) * US for short, field in OVERHEADS.items()},
        )
        for row in section.operators
    }
    kernels = {
        row.name: KernelTime(name=row.name, count=row.count, median=row.us * US)
        for row in section.kernels
    }
    return TracedTimes(operators=operators, kernels=kernels)


def _numbers(section: "BaseModel") -> dict[str, Any]:
    """Return the numbers that a section gives, without their sources."""
    entries = {name: getattr(section, name) for name in section.model_fields_set - {"name"}}
    return {name: entry.value for name, entry in entries.items() if entry is not None}


def _sourced(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (dotted name in a ``HardwareProfile``, entry) of every number that has a source."""
    yield from _named("", {"gpus_per_node": values["gpus_per_node"]})
    for section, owner in _SECTIONS.items():
        yield from _named(f"{owner}.", dict(values.get(section) or {}))


def _named(prefix: str, entries: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, entry in entries.items():
        if getattr(entry, "source", None) is not None:
            yield prefix + name, entry
