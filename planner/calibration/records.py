"""The measurements file: JSON lines next to the profile, only ever appended to.

The first line says what was measured on; every other line is one point::

    {"machine": {...}}
    {"family": "gemm", "point": {...}, "seconds": {"product": 1.2e-3}, "wall": {...},
     "spread": {...}, "repeats": 9, "facts": {}}

``seconds`` is the median by phase of the device's own clock (CUDA events; processor time on CPU),
``wall`` that of the wall clock, ``spread`` the interquartile range over the median. A line that
was cut off is left out when the file is read: whatever stops a run, the next goes on from there.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from costmodel.errors import InputError, Problem
from costmodel.units import Seconds
from planner.calibration.points import Family, Point, family_of, point_data, point_key, read_point
from planner.calibration.timing import Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One measured point."""

    point: Point
    seconds: Mapping[str, Seconds]
    """By phase (``forward``, ``backward``, ...): median of the device's clock."""
    wall: Mapping[str, Seconds] = field(default_factory=dict)
    spread: Mapping[str, float] = field(default_factory=dict)
    repeats: int = 1
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What was counted while measuring: distinct rows of the batch, reuse histograms."""

    def line(self) -> str:
        """Return the record as one line of JSON."""
        data = asdict(self)
        data["point"] = point_data(self.point)
        return json.dumps({"family": family_of(self.point), **data})


def record_of(point: Point, timings: Mapping[str, Timing], *, each: int = 1) -> Record:
    """Return the record of a point's timings, of ``each`` things in a row."""
    return Record(
        point=point,
        seconds={name: timing.seconds / each for name, timing in timings.items()},
        wall={name: timing.wall / each for name, timing in timings.items()},
        spread={name: round(timing.spread, 4) for name, timing in timings.items()},
        repeats=min(timing.repeats for timing in timings.values()),
    )


def mean_record(records: Sequence[Record]) -> Record:
    """Return one record of a point that was measured several times: the means of its times.

    Its spread is that within one of them, or between them where that is larger.
    """
    first = records[0]
    if len(records) == 1:
        return first
    means = {phase: fmean(each.seconds[phase] for each in records) for phase in first.seconds}
    spread = {}
    for phase, mean in means.items():
        times = [each.seconds[phase] for each in records]
        within = max(each.spread.get(phase, 0.0) for each in records)
        spread[phase] = round(max(within, (max(times) - min(times)) / mean), 4)
    return replace(
        first,
        seconds=means,
        wall={phase: fmean(each.wall[phase] for each in records) for phase in first.wall},
        spread=spread,
        repeats=sum(each.repeats for each in records),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A measurements file."""

    machine: Mapping[str, Any]
    records: tuple[Record, ...]


def read_measurements(path: Path) -> Measured | None:
    """Read a measurements file; None if there is none or it is empty.

    Raises
    ------
    InputError
        The file is no measurements file.

    """
    if not path.exists():
        return None
    lines = path.read_text(encoding="utf-8").split("\n")
    parsed = [_parsed(line, path, number) for number, line in enumerate(lines[:-1], 1)]
    if not parsed:
        return None
    machine = parsed[0].get("machine")
    if not isinstance(machine, dict):
        raise InputError(str(path), [Problem(message="this is not a measurements file", line=1)])
    records = tuple(_record(data, path, number) for number, data in enumerate(parsed[1:], 2))
    return Measured(machine=machine, records=records)


class Journal:
    """Appends records to a measurements file, each written before the next is measured."""

    def __init__(self, path: Path, machine: Mapping[str, Any]) -> None:
        self._path = path
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text or not whole:
            path.write_text(whole or json.dumps({"machine": dict(machine)}) + "\n", "utf-8")

    def append(self, record: Record) -> None:
        """Write one record, whole."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(record.line() + "\n")


def keys(records: Iterable[Record]) -> set[str]:
    """Return the keys of the points that have been measured."""
    return {point_key(record.point) for record in records}


def _parsed(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        data: dict[str, Any] = json.loads(line)
    except ValueError:
        raise InputError(
            str(path), [Problem(message="this line is not JSON", line=number)]
        ) from None
    return data


def _record(data: dict[str, Any], path: Path, number: int) -> Record:
    try:
        point = read_point(Family(data.pop("family")), data.pop("point"))
        return Record(point=point, **data)
    except (KeyError, TypeError, ValueError):
        raise InputError(
            str(path), [Problem(message="this line is not a measurement", line=number)]
        ) from None
