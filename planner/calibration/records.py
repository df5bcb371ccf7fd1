"""The measurements file: JSON lines next to the profile, only ever appended to.

The first line says what was measured on; every other line is one point::

    {"machine": {...}}
    {"family": "gemm", "point": {...}, "seconds": {"product": 1.2e-3}, "wall": {...},
     "spread": {...}, "repeats": 9, "facts": {}}
    {"family": "gemm", "point": {...}, "failure": "RuntimeError: no such kernel"}

``seconds`` is the median by phase of the device's own clock (CUDA events; processor time on CPU),
``wall`` that of the wall clock, ``spread`` the interquartile range over the median. A line that was
cut off, or is spoilt, is left out when the file is read, and costs that point only: whatever stops
a run, the next goes on from there.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from costmodel.base.errors import InputError, Problem
from costmodel.base.units import Seconds
from planner.calibration.points import (
    KINDS,
    Family,
    Kinds,
    Point,
    point_data,
    point_key,
    read_point,
)
from planner.calibration.timing import Timing
from planner.files.disk import file_error, os_reason, read_bytes, write_bytes
from planner.files.json_text import dump_json, load_json

_LARGEST = 2**60
"""Largest number of bytes, rows or samples of a point."""
_LONGEST = 1e6
"""Largest number of seconds or repeats: some weeks."""


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
    """Counts of the measurement, such as distinct rows of the batch or misses of a cache."""

    def line(self) -> str:
        """Return the record as one line of JSON."""
        data = asdict(self)
        data["point"] = point_data(self.point)
        return dump_json({"family": self.point.family, **data}, only_ascii=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A point that could not be measured here, and is not tried again."""

    point: Point
    reason: str
    """The error and its text, in one line."""

    def line(self) -> str:
        """Return the failure as one line of JSON."""
        data = {"point": point_data(self.point), "failure": self.reason}
        return dump_json({"family": self.point.family, **data}, only_ascii=True)


def record_of(point: Point, timings: Mapping[str, Timing], *, each: int = 1) -> Record:
    """Return the record of a point, from timings of ``each`` runs in a row."""
    return Record(
        point=point,
        seconds={name: timing.seconds / each for name, timing in timings.items()},
        wall={name: timing.wall / each for name, timing in timings.items()},
        spread={name: round(timing.spread, 4) for name, timing in timings.items()},
        repeats=min(timing.repeats for timing in timings.values()),
    )


def joined_record(
    records: Sequence[Record], joined: Callable[[Sequence[Seconds]], Seconds]
) -> Record:
    """Return one record of a point that was measured several times.

    ``joined`` makes one time of several: the mean or the median. The spread is that within one of
    them, or between them if that is larger.
    """
    first = records[0]
    if len(records) == 1:
        return first
    seconds = {phase: joined([each.seconds[phase] for each in records]) for phase in first.seconds}
    spread = {}
    for phase, middle in seconds.items():
        times = [each.seconds[phase] for each in records]
        within = max(each.spread.get(phase, 0.0) for each in records)
        spread[phase] = round(max(within, (max(times) - min(times)) / middle), 4)
    return replace(
        first,
        seconds=seconds,
        wall={phase: joined([each.wall[phase] for each in records]) for phase in first.wall},
        spread=spread,
        repeats=sum(each.repeats for each in records),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The content of a measurements file."""

    machine: Mapping[str, Any]
    records: tuple[Record, ...]
    failures: tuple[Failure, ...] = ()


def read_measurements(path: Path, kinds: Kinds = KINDS) -> Measured | None:
    """Return the content of a measurements file; None if there is none or it is empty.

    ``kinds`` are the families it may have; lines of others count as spoilt.

    Raises
    ------
    InputError
        The file is no measurements file.

    """
    if not path.exists():
        return None
    lines = _lines(path)
    if not lines:
        return None
    machine = (_parsed(lines[0]) or {}).get("machine")
    if not isinstance(machine, dict):
        raise InputError(str(path), [Problem(message="this is not a measurements file", line=1)])
    found = [_entry(_parsed(line), kinds) for line in lines[1:]]
    return Measured(
        machine=machine,
        records=tuple(each for each in found if isinstance(each, Record)),
        failures=tuple(each for each in found if isinstance(each, Failure)),
    )


def _lines(path: Path) -> list[bytes]:
    """Return the complete lines of a file."""
    return read_bytes(path).split(b"\n")[:-1]


class MeasurementJournal:
    """Appends records to a measurements file, each written before the next is measured."""

    def __init__(self, path: Path, machine: Mapping[str, Any]) -> None:
        self._path = path
        data = read_bytes(path) if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        if whole != data or not whole:
            first = dump_json({"machine": dict(machine)}, only_ascii=True) + "\n"
            write_bytes(path, whole or first.encode())

    def append(self, record: Record | Failure) -> None:
        """Write one record, or failure, whole, and to the disk: it took long to measure.

        Raises
        ------
        InputError
            There is no room for it.

        """
        try:
            with self._path.open("ab") as file:
                file.write(f"{record.line()}\n".encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            message = f"cannot be written: {os_reason(error)}"
            raise file_error(self._path, message, "what was measured before is kept") from None


def origin_text(facts: Mapping[str, Any]) -> str:
    """Return machine, ranks, date and versions in one line."""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    ranks = facts["num_ranks"]
    return (
        f"{facts['name']}, {ranks} {'rank' if ranks == 1 else 'ranks'} on "
        f"{facts['num_nodes']} x {facts['cores']} cores, {facts['date']}, {versions}"
    )


def keys(records: Iterable[Record | Failure]) -> set[str]:
    """Return the keys of all points that have been measured or tried."""
    return {point_key(record.point) for record in records}


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Return a line's object; None if it is damaged."""
    try:
        data = load_json(line)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def _entry(data: dict[str, Any] | None, kinds: Kinds) -> Record | Failure | None:
    """Return a measurement or a failure; None if it is neither, to be measured anew."""
    if data is None:
        return None
    try:
        point = read_point(data.pop("family"), data.pop("point"), kinds)
        if "failure" in data:
            return Failure(point=point, reason=str(data["failure"]))
        return _checked(Record(point=point, **data))
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        return None


_PHASES: Mapping[str, tuple[str, ...]] = {
    Family.EMBEDDING: ("forward", "backward"),
    Family.GEMM: ("product",),
    Family.OPERATOR: ("operator",),
    Family.COLLECTIVE: ("collective",),
}
"""Phases that profiles are fitted to, by family."""


def _numbers(value: object) -> Iterator[float]:
    """Yield the numbers in a point's JSON."""
    parts = value.values() if isinstance(value, dict) else value
    for part in parts if isinstance(parts, Iterable) and not isinstance(parts, str) else ():
        yield from _numbers(part)
    if isinstance(value, int | float):
        yield value


def _checked(record: Record) -> Record:
    """Return a measurement if its sizes and times are valid; else raise."""
    for number in _numbers(point_data(record.point)):
        if not 0 <= number <= _LARGEST:
            raise ValueError(f"{number} is no size")
    if not record.seconds or not set(_PHASES.get(record.point.family, ())) <= set(record.seconds):
        raise ValueError("a time is missing")
    for times in (record.seconds, record.wall):
        for phase, time in times.items():
            if not isinstance(phase, str) or not 0 < float(time) < _LONGEST:
                raise ValueError(f"{phase} took {time}")
    for phase, spread in record.spread.items():
        if not isinstance(phase, str) or not 0 <= float(spread) < _LONGEST:
            raise ValueError(f"{phase} spreads by {spread}")
    if not isinstance(record.repeats, int) or not 1 <= record.repeats < _LONGEST:
        raise ValueError(f"repeated {record.repeats} times")
    return record
