"""Parsed YAML to a `HardwareProfile`, collecting every problem on the way."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from enum import StrEnum
from statistics import median
from typing import Any, TypeVar

from costmodel.errors import suggestion
from costmodel.hardware import (
    CollectiveCurve,
    CollectiveOp,
    Device,
    Family,
    GemmEfficiency,
    Gpu,
    HardwareProfile,
    Host,
    Link,
    Source,
)
from costmodel.traced import KernelTime, OperatorOverheads, TracedTimes
from costmodel.units import US
from costmodel.workload import DataType
from planner.io.profile_text import OVERHEADS
from planner.io.profile_units import parse_quantity
from planner.io.source import KeyPath

_T = TypeVar("_T")
_Choice = TypeVar("_Choice", bound=StrEnum)

_TOP = ("name", "gpus_per_node", "gpu", "embedding", "host", "intra_node", "inter_node")
_FITTED = ("gemm", "collectives")
_CURVE = ("op", "num_ranks", "bytes", "us", "source", "origin")
_CURVE_OPTIONAL = ("num_nodes", "error", "error_p90", "num_points", "last_measured")
_GEMM_OPTIONAL = ("error", "error_p90", "num_points", "kind")
_FAMILY = ("source", "origin")
_FAMILY_OPTIONAL = ("num_points", "error", "error_p90", "ranges")
_BEGINNINGS = {
    "assumed": Source.ASSUMED,
    "datasheet": Source.DATASHEET,
    "not measured": Source.DATASHEET,
}
_WHOLE = frozenset({"num_sms", "gpus_per_node", "num_points"})


class ProfileReader:
    """Reads one document; what is wrong with it piles up in ``problems`` as (path, message)."""

    def __init__(self) -> None:
        self.problems: list[tuple[KeyPath, str]] = []
        self._sources: dict[str, str] = {}
        self._kinds: dict[str, Source] = {}

    def profile(self, document: object) -> HardwareProfile | None:
        """Return the profile, or None if there are problems."""
        top = self._mapping(
            document,
            (),
            required=(*_TOP, *_FITTED),
            optional=("device", "errors", "families", "traced"),
        )
        if top is None:
            return None
        values = {
            "name": self._text(top["name"], ("name",)),
            "gpus_per_node": self._number(top["gpus_per_node"], ("gpus_per_node",)),
            "gpu": self._gpu(top),
            "host": self._section(Host, top["host"], ("host",)),
            "intra_node": self._section(Link, top["intra_node"], ("intra_node",)),
            "inter_node": self._section(Link, top["inter_node"], ("inter_node",)),
            "curves": self._curves(top["collectives"]),
            "sources": self._sources,
            "kinds": self._kinds,
            "device": self._choice(Device, top.get("device", Device.CUDA), ("device",)),
            "families": self._families(top.get("families", {})),
            "traced": self._traced(top.get("traced", {})),
        }
        errors = self._values(top.get("errors", {}), ("errors",), None)
        if self.problems:
            return None
        return self._build(HardwareProfile, {**values, "errors": _errors(values, errors)}, ())

    def _gpu(self, top: Mapping[str, Any]) -> Gpu | None:
        """Build the GPU from three sections: ``gpu``, ``embedding`` and ``gemm``."""
        names = {item.name for item in fields(Gpu)} - {"name", "gemm"}
        defaults = {item.name for item in fields(Gpu) if item.default is not MISSING}
        gpu = top["gpu"] if isinstance(top["gpu"], dict) else {}
        values: dict[str, Any] = self._values(top["embedding"], ("embedding",), names)
        rest = {key: value for key, value in gpu.items() if key != "name"}
        values |= self._values(rest, ("gpu",), names)
        for missing in sorted(names - values.keys() - defaults):
            if not any(path[-1:] == (missing,) for path, _ in self.problems):
                self._problem(("gpu",), f"missing field `{missing}`")
        values["name"] = self._text(gpu.get("name"), ("gpu", "name"))
        values["gemm"] = self._gemm(top["gemm"])
        return self._build(Gpu, values, ("gpu",))

    def _gemm(self, section: object) -> dict[str, GemmEfficiency]:
        types = self._mapping(section, ("gemm",), optional=tuple(DataType)) or {}
        constants = {}
        for name, entry in types.items():
            built = self._gemm_entry(entry, ("gemm", name))
            if built is not None:
                constants[name] = built
        return constants

    def _gemm_entry(self, entry: object, path: KeyPath) -> GemmEfficiency | None:
        required = tuple(item.name for item in fields(GemmEfficiency) if item.default is MISSING)
        optional = (*_GEMM_OPTIONAL, "shapes")
        known = self._mapping(entry, path, required=(*required, "source"), optional=optional)
        if known is None:
            return None
        self._sources[".".join(map(str, ("gpu", *path)))] = self._text(known["source"], path)
        tiles = known["tile_efficiency"]
        lists = {"source", "tile_efficiency", "shapes", "kind"}
        plain = {key: known[key] for key in known if key not in lists}
        values: dict[str, Any] = {
            key: self._number(value, (*path, key)) for key, value in plain.items()
        }
        if not (isinstance(tiles, list) and len(tiles) == 4):
            self._problem((*path, "tile_efficiency"), "`tile_efficiency` needs four numbers")
            return None
        values["tile_efficiency"] = tuple(
            self._number(tile, (*path, "tile_efficiency", i)) for i, tile in enumerate(tiles)
        )
        kind = self._kind(known, path)
        if kind is not None:
            values["kind"] = kind
        if "shapes" in known:
            pairs = known["shapes"]
            ranges = dict(zip("mnk", pairs, strict=False)) if isinstance(pairs, list) else pairs
            values["shapes"] = tuple(self._ranges(ranges, (*path, "shapes")).values())
        return self._build(GemmEfficiency, values, path)

    def _curves(self, section: object) -> tuple[CollectiveCurve, ...]:
        if not isinstance(section, list):
            self._problem(("collectives",), "`collectives` must be a list of curves")
            return ()
        curves = (self._curve(entry, ("collectives", i)) for i, entry in enumerate(section))
        return tuple(curve for curve in curves if curve is not None)

    def _curve(self, entry: object, path: KeyPath) -> CollectiveCurve | None:
        known = self._mapping(entry, path, required=_CURVE, optional=_CURVE_OPTIONAL)
        if known is None:
            return None
        op = self._choice(CollectiveOp, known["op"], (*path, "op"))
        source = self._choice(Source, known["source"], (*path, "source"))
        sizes, times = known["bytes"], known["us"]
        if not (_numbers(sizes) and _numbers(times) and len(sizes) == len(times)):
            self._problem(path, "`bytes` and `us` must be lists of numbers, equally long")
            return None
        if op is None or source is None:
            return None
        values = {
            "op": op,
            "num_ranks": known["num_ranks"],
            "num_nodes": known.get("num_nodes", 1),
            "knots": tuple((float(b), t * US) for b, t in zip(sizes, times, strict=True)),
            "source": source,
            "origin": self._text(known["origin"], (*path, "origin")),
            **{name: known[name] for name in _CURVE_OPTIONAL[1:] if name in known},
        }
        return self._build(CollectiveCurve, values, path)

    def _families(self, section: object) -> dict[str, Family]:
        entries = self._mapping(section, ("families",), anything=True) or {}
        read = {name: self._family(entry, ("families", name)) for name, entry in entries.items()}
        return {name: family for name, family in read.items() if family is not None}

    def _family(self, entry: object, path: KeyPath) -> Family | None:
        known = self._mapping(entry, path, required=_FAMILY, optional=_FAMILY_OPTIONAL)
        if known is None:
            return None
        numbers = _FAMILY_OPTIONAL[:-1]
        values = {
            "source": self._choice(Source, known["source"], (*path, "source")),
            "origin": self._text(known["origin"], (*path, "origin")),
            **{name: self._number(known[name], (*path, name)) for name in numbers if name in known},
            "ranges": self._ranges(known.get("ranges", {}), (*path, "ranges")),
        }
        return self._build(Family, values, path)

    def _ranges(self, section: object, path: KeyPath) -> dict[str, tuple[float, float]]:
        """Return pairs of numbers, lowest first."""
        ranges = {}
        for name, pair in (self._mapping(section, path, anything=True) or {}).items():
            if _numbers(pair) and len(pair) == 2 and pair[0] <= pair[1]:
                ranges[str(name)] = (float(pair[0]), float(pair[1]))
            else:
                self._problem((*path, name), f"`{name}` needs the lowest and the highest value")
        return ranges

    def _traced(self, section: object) -> TracedTimes:
        known = self._mapping(section, ("traced",), optional=("operators", "kernels")) or {}
        operators = self._named(known, "operators", OVERHEADS, OperatorOverheads)
        kernels = self._named(known, "kernels", {"us": "median"}, KernelTime)
        return TracedTimes(operators=operators, kernels=kernels)

    def _named(
        self,
        section: Mapping[str, Any],
        part: str,
        times: Mapping[str, str],
        make: Callable[..., _T],
    ) -> dict[str, _T]:
        """Return the entries of a list by name; ``times`` maps numbers in us to fields."""
        path: KeyPath = ("traced", part)
        entries = section.get(part, [])
        if not isinstance(entries, list):
            self._problem(path, f"`{part}` must be a list")
            return {}
        found = {}
        for i, entry in enumerate(entries):
            row = self._mapping(entry, (*path, i), required=("name", "count", *times))
            if row is None:
                continue
            if not _numbers([row[key] for key in ("count", *times)]):
                self._problem((*path, i), f"`count`, {', '.join(times)} must be numbers")
                continue
            values = {field: row[key] * US for key, field in times.items()}
            found[str(row["name"])] = make(name=str(row["name"]), count=int(row["count"]), **values)
        return found

    def _section(self, cls: type[_T], section: object, path: KeyPath) -> _T | None:
        """Build a dataclass from ``field: {value, source}`` entries."""
        names = {item.name for item in fields(cls)}  # type: ignore[arg-type] # all are dataclasses
        values = self._values(section, path, names)
        for missing in sorted(names - values.keys()):
            if not any(known[-1:] == (missing,) for known, _ in self.problems):
                self._problem(path, f"missing field `{missing}` in `{path[-1]}`")
        return self._build(cls, values, path)

    def _values(self, section: object, path: KeyPath, names: set[str] | None) -> dict[str, float]:
        """Return the numbers of a section, keeping their sources; ``names`` None: any field."""
        entries = section if isinstance(section, dict) else {}
        allowed = tuple(sorted(names)) if names is not None else tuple(entries)
        if self._mapping(section, path, optional=allowed) is None:
            return {}
        values = {}
        for name, entry in entries.items():
            here = (*path, name)
            if name in allowed:
                values[name] = self._number(entry, here)
        return values

    def _number(self, entry: object, path: KeyPath) -> float:
        """Read a bare number with unit, or ``{value, source}``; 0 when it is neither."""
        name = str(path[-1]) if isinstance(path[-1], str) else "value"
        if isinstance(entry, dict):
            known = self._mapping(entry, path, required=("value", "source"), optional=("kind",))
            if known is None:
                return 0.0
            dotted = ".".join(map(str, path)).replace("embedding.", "gpu.", 1)
            self._sources[dotted] = self._text(known["source"], path)
            kind = self._kind(known, path)
            if kind is not None:
                self._kinds[dotted] = kind
            entry = known["value"]
        try:
            number = parse_quantity(entry, name)
        except ValueError as error:
            self._problem(path, str(error))
            return 0.0
        return int(number) if name in _WHOLE else number

    def _kind(self, known: Mapping[str, Any], path: KeyPath) -> Source | None:
        """Return the kind of source that an entry names, or its sentence begins with.

        Profiles that were written before there was ``kind`` have sentences only.
        """
        if "kind" in known:
            return self._choice(Source, known["kind"], (*path, "kind"))
        says = str(known["source"]).lower()
        return next((kind for words, kind in _BEGINNINGS.items() if says.startswith(words)), None)

    def _text(self, value: object, path: KeyPath) -> str:
        if not isinstance(value, str) or not value.strip():
            self._problem(path, f"`{path[-1]}` needs a text, got `{value}`")
            return ""
        return value

    def _choice(self, cls: type[_Choice], value: object, path: KeyPath) -> _Choice | None:
        try:
            return cls(value)  # type: ignore[arg-type] # anything else is a ValueError
        except ValueError:
            choices = ", ".join(cls)
            self._problem(path, f"`{path[-1]}` must be one of {choices}, got `{value}`")
            return None

    def _mapping(
        self,
        value: object,
        path: KeyPath,
        *,
        required: tuple[str, ...] = (),
        optional: tuple[str, ...] = (),
        anything: bool = False,
    ) -> dict[str, Any] | None:
        """Return the mapping if its required fields are there, and report unknown ones.

        ``anything``: all fields are known.
        """
        where = f"`{path[-1]}`" if path else "a profile"
        if not isinstance(value, dict):
            self._problem(path, f"{where} must be a mapping, got `{value}`")
            return None
        allowed = tuple(value) if anything else (*required, *optional)
        for key in value:
            if key not in allowed:
                hint = suggestion(str(key), allowed)
                self._problem(
                    (*path, key), f"unknown field `{key}`" + (f"; {hint}" if hint else "")
                )
        missing = [key for key in required if key not in value]
        for key in missing:
            self._problem(path, f"missing field `{key}` in {where}")
        return None if missing else value

    def _build(self, cls: type[_T], values: Mapping[str, Any], path: KeyPath) -> _T | None:
        """Build a dataclass unless its part of the file already has problems."""
        if any(known[: len(path)] == path for known, _ in self.problems):
            return None
        try:
            return cls(**values)
        except (TypeError, ValueError) as error:
            self._problem(path, str(error))
            return None

    def _problem(self, path: KeyPath, message: str) -> None:
        self.problems.append((path, message))


def _errors(values: Mapping[str, Any], stated: Mapping[str, float]) -> dict[str, float]:
    """Hold-out error by kernel family: those of the fits, medians, and those stated."""
    errors = {}
    fitted = {"collectives": values["curves"], "gemm": values["gpu"].gemm.values()}
    for family, fits in fitted.items():
        known = [fit.error for fit in fits if fit.error is not None]
        if known:
            errors[family] = median(known)
    others = {name: family.error for name, family in values["families"].items()}
    return {**errors, **{name: e for name, e in others.items() if e is not None}, **stated}


def _numbers(values: object) -> bool:
    return isinstance(values, list) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in values
    )
