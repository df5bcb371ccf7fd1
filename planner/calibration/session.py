"""One calibration: dividing the points among ranks, measuring, and keeping every result at once.

Each rank measures its share of the points at the same time as the others, as ranks train at the
same time, so that the numbers include what they take from each other, above all memory bandwidth.
Collectives, and on cores the operators that share their memory, are measured by all together, in
turns, and kept when the turns are done. Every rank appends to a file of its own; when all is done,
everything is in the first rank's.
"""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import fmean, median
from typing import Any, Protocol

import torch

from costmodel.base.errors import InputError, Problem
from costmodel.base.units import Seconds
from costmodel.domain.workload import Optimizer
from planner.calibration.device import DeviceUnderTest, open_device
from planner.calibration.grids import Grid, Target, grid_points
from planner.calibration.machine import (
    cache_bytes,
    device_name,
    host_memory_bytes,
    machine_facts,
    memory_bytes,
    other_facts,
    ranks_per_node,
)
from planner.calibration.measure_dense import has_fp8
from planner.calibration.measure_embedding import data_types, optimizers
from planner.calibration.measuring import NO_MEMORY, DeviceLostError, Measurer, attempted, reason_of
from planner.calibration.order import Unit, in_rounds, ordered_families, tables_in
from planner.calibration.points import Family, Point, point_key
from planner.calibration.profile import MachineFacts
from planner.calibration.ranks import Ranks
from planner.calibration.records import (
    Failure,
    Measured,
    MeasurementJournal,
    Record,
    joined_record,
    keys,
    read_measurements,
)
from planner.environment.cores import CoreWatch, pin_to_core

_TURNS = 4
"""Number of turns in which cores measure together, half a minute each."""
_SHARE_TOGETHER = 0.25
"""Share of a limited time for points that all ranks measure at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to measure, and where to keep it."""

    measurements: Path
    """Path of the first rank's file; ``part_path`` has the others'."""
    kind: str
    """``cpu`` or ``cuda``."""
    grid: Grid
    optimizers: tuple[Optimizer, ...] = ()
    """Optimizers to measure; empty: those of the device."""
    seconds: Seconds | None = None
    """Seconds to measure for, the most informative points first; None: until all are measured."""


class Watcher(Protocol):
    """Is told of the progress."""

    def expect(self, total: int) -> None:
        """Note how many points this rank will measure in all."""
        ...

    def begin(self, family: str, total: int, done: int) -> None:
        """Note that a family begins, ``done`` of whose points were measured before."""
        ...

    def advance(self) -> None:
        """Note that a point has been measured."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The records that a profile is fitted to, and counts of the run."""

    measured: Measured
    machine: MachineFacts
    num_new: int
    """Number of points that were measured now."""
    num_skipped: int
    """Number of points that did not fit in memory, to be tried again by the next run."""
    foreign_share: float
    """Share of the ranks' cores that other processes used meanwhile; 0 if unknown."""


def part_path(measurements: Path, rank: int) -> Path:
    """Return the path of a rank's own file."""
    if rank == 0:
        return measurements
    return measurements.with_suffix(f".rank{rank}{measurements.suffix}")


def forget(measurements: Path) -> None:
    """Delete the files of earlier measurements."""
    for path in _parts(measurements):
        path.unlink(missing_ok=True)


def calibrate(request: Request, ranks: Ranks, watcher: Watcher) -> Calibration | None:
    """Measure the points left, and return the outcome on the first rank; None on others."""
    on_cpu = request.kind == "cpu"
    core = pin_to_core(ranks.local_rank) if on_cpu and ranks.world_size > 1 else None
    if not on_cpu:
        torch.cuda.set_device(ranks.local_rank)  # before anything asks about a device
    ranks.join(request.kind)
    try:
        cache = cache_bytes(request.kind, ranks.local_world_size)
        device = open_device(request.kind, ranks.local_rank, cache)
        facts = machine_facts(request.kind, ranks.world_size, ranks.num_nodes)
        earlier = _earlier(request.measurements, facts)
        watch = CoreWatch(core)
        watch.start()
        session = _Session(request, ranks, device, watcher, facts)
        known = _union(ranks.gathered(earlier))
        new, skipped = session.measure(known)
        shares, skips = ranks.gathered(watch.foreign_share()), ranks.gathered(skipped)
        found = _union(ranks.gathered([*earlier, *new]))
        records = [each for each in found if isinstance(each, Record)]
        if ranks.rank > 0:
            return None
        _keep_together(request.measurements, facts, found)
        failures = tuple(each for each in found if isinstance(each, Failure))
        return Calibration(
            measured=Measured(machine=facts, records=tuple(records), failures=failures),
            machine=machine_of(request.kind, ranks, cache),
            num_new=len(found) - len(known),
            num_skipped=sum(skips),
            foreign_share=max(shares),
        )
    finally:
        ranks.leave()


class _Session:
    """Measures this rank's share, and keeps the records."""

    def __init__(
        self,
        request: Request,
        ranks: Ranks,
        device: DeviceUnderTest,
        watcher: Watcher,
        facts: dict[str, Any],
    ) -> None:
        self._request, self._ranks, self._device = request, ranks, device
        self._watcher = watcher
        self._journal = MeasurementJournal(part_path(request.measurements, ranks.rank), facts)
        self._new: list[Record | Failure] = []
        self._skipped = 0
        self._measurer = Measurer(device, meet=ranks.meet if device.synchronous else None)

    def measure(self, earlier: Sequence[Record | Failure]) -> tuple[list[Record | Failure], int]:
        """Measure every family; return the new records, and the number of points without memory."""
        target = self._target()
        known = keys(earlier)
        grid = grid_points(self._request.grid, target)
        if self._request.seconds is not None:
            self._measure_by_value(grid, known, self._request.seconds)
            return self._new, self._skipped
        together = tuple(family for family in grid if self._is_measured_together(family))
        self._watcher.expect(self._num_expected(grid, known))
        self._measure_together({family: grid[family] for family in together}, known)
        for family, points in grid.items():
            if family in together:
                continue
            todo = [point for point in points if point_key(point) not in known]
            done = len(points) - len(todo)
            todo = _share(todo, self._ranks)
            self._begin(family, len(todo), done)
            for record in self._records(todo):
                self._keep(record)
                self._watcher.advance()
        return self._new, self._skipped

    def _measure_by_value(
        self, grid: Mapping[Family, Sequence[Point]], known: Collection[str], seconds: Seconds
    ) -> None:
        """Measure the most informative points until the time is up; the first round in any case.

        Points that all ranks measure at once come first, and have their share of the time.
        """
        begin = time.monotonic()
        ordered = list(ordered_families(grid, on_cpu=self._device.synchronous))
        for together, share in ((True, _SHARE_TOGETHER), (False, 1.0)):
            some = [each for each in ordered if self._is_measured_together(each.family) is together]
            first, more = in_rounds(some)
            number = len(first)
            units = [*first, *more]
            todo = [
                (index < number, tuple(p for p in unit if point_key(p) not in known))
                for index, unit in enumerate(units)
            ]
            self._measure_units(todo, begin + share * seconds, together=together)

    def _measure_units(
        self, units: Sequence[tuple[bool, Unit]], until: float, *, together: bool
    ) -> None:
        """Measure units until a time, needed ones also after it.

        A share of them, or all together.
        """
        ranks = self._ranks
        mine = units if together else units[ranks.rank :: ranks.world_size]
        kind = "what all measure at once" if together else "kernels"
        total = sum(len(unit) for _, unit in mine)
        self._watcher.begin(f"{kind}, most telling first", total, 0)
        for needed, unit in mine:
            over = time.monotonic() >= until
            if not needed and (any(ranks.gathered(over)) if together else over):
                return
            for found in self._records(unit):
                self._keep(found, journal=ranks.rank == 0 or not together)
                self._watcher.advance()

    def _measure_together(
        self, grid: Mapping[Family, Sequence[Point]], known: Collection[str]
    ) -> None:
        """Measure some families on all ranks at once; the first's records count.

        On cores in turns: where the system puts two cores decides how they share memory and how
        fast they reach each other, and that changes over minutes. A step has the mean of it. Of
        collectives it has the median: one turn in four may find a message three times as slow.
        """
        taken: dict[str, list[Record]] = {}
        failed: dict[str, Failure] = {}
        for _ in range(_TURNS if self._device.synchronous else 1):
            for family, points in grid.items():
                todo = [point for point in points if point_key(point) not in known]
                self._begin(family, len(todo), len(points) - len(todo))
                for record in self._records(todo):
                    key = point_key(record.point)
                    if isinstance(record, Failure):
                        failed[key] = record
                    else:
                        taken.setdefault(key, []).append(record)
                    self._watcher.advance()
        found: list[Record | Failure] = [*failed.values()]
        for key, some in taken.items():
            if key not in failed:
                kept = median if some[0].point.family is Family.COLLECTIVE else fmean
                found.append(joined_record(some, kept))
        for each in found:
            self._keep(each, journal=self._ranks.rank == 0)

    def _num_expected(self, grid: Mapping[Family, Sequence[Point]], known: Collection[str]) -> int:
        """Return how many points this rank measures: its share, or all of them in every turn."""
        turns, total = _TURNS if self._device.synchronous else 1, 0
        for family, points in grid.items():
            todo = [point for point in points if point_key(point) not in known]
            together = self._is_measured_together(family)
            total += turns * len(todo) if together else len(_share(todo, self._ranks))
        return total

    def _keep(self, found: Record | Failure, *, journal: bool = True) -> None:
        """Keep a record or failure, and append it to the rank's file."""
        self._new.append(found)
        if journal:
            self._journal.append(found)

    def _begin(self, family: Family, total: int, done: int) -> None:
        self._watcher.begin(family.value, total, done)
        self._ranks.gathered(None)  # all begin together

    def _is_measured_together(self, family: str) -> bool:
        """Return whether all ranks measure the same points at the same time.

        Cores share the memory that copies and sums come from, and in a step all copy at once.
        """
        shared = self._device.synchronous and family in {Family.STREAM, Family.OPERATOR}
        return shared or family == Family.COLLECTIVE

    def _target(self) -> Target:
        return target_of(self._request, self._ranks, self._device)

    def _records(self, points: Sequence[Point]) -> Iterator[Record | Failure]:
        """Yield records and failures; points without memory are only counted."""
        for point in points:
            try:
                found = attempted(self._measurer, point, self._device)
            except DeviceLostError as lost:
                self._keep(Failure(point=point, reason=reason_of(lost.__cause__ or lost)))
                raise
            if isinstance(found, Failure) and found.reason == NO_MEMORY:
                self._skipped += 1
            else:
                yield found


def target_of(request: Request, ranks: Ranks, device: DeviceUnderTest) -> Target:
    """Return the properties that a grid's points depend on."""
    on_cpu = device.synchronous
    return Target(
        on_cpu=on_cpu,
        memory_bytes=memory_bytes(request.kind, ranks.local_world_size),
        num_ranks=ranks.world_size,
        num_nodes=ranks.num_nodes,
        optimizers=request.optimizers or optimizers(device),
        data_types=data_types(device),
        has_fp8=not on_cpu and has_fp8(),
    )


def _share(points: Sequence[Point], ranks: Ranks) -> list[Point]:
    """Return a rank's share: every n-th point, or set of tables."""
    groups = [list(some) for _, some in groupby(points, key=lambda p: tables_in(p) or p)]
    return [point for group in groups[ranks.rank :: ranks.world_size] for point in group]


def _parts(measurements: Path) -> list[Path]:
    """Return the paths of all ranks' files, the first rank's first."""
    pattern = f"{measurements.stem}.rank*{measurements.suffix}"
    return [measurements, *sorted(measurements.parent.glob(pattern))]


def _earlier(measurements: Path, facts: dict[str, Any]) -> list[Record | Failure]:
    """Return the records and failures of earlier runs, of all ranks."""
    found: list[Record | Failure] = []
    for path in _parts(measurements):
        part = read_measurements(path)
        if part is None:
            continue
        changed = other_facts(part.machine, facts)
        if changed:
            problem = Problem(
                message=f"these measurements were made otherwise ({'; '.join(changed)})",
                hint="--remeasure forgets them; another -o keeps them",
            )
            raise InputError(str(path), [problem])
        found += [*part.records, *part.failures]
    return found


def _union(parts: Sequence[Sequence[Record | Failure]]) -> list[Record | Failure]:
    """Return every point once: of points that all ranks measured, the first rank's record."""
    records: dict[str, Record | Failure] = {}
    for record in (record for part in parts for record in part):
        records.setdefault(point_key(record.point), record)
    return list(records.values())


def _keep_together(
    measurements: Path, facts: dict[str, Any], records: Sequence[Record | Failure]
) -> None:
    """Write the records of all ranks to the first rank's file."""
    own = read_measurements(measurements)
    known = keys([*own.records, *own.failures]) if own else set()
    journal = MeasurementJournal(measurements, facts)
    for record in records:
        if point_key(record.point) not in known:
            journal.append(record)
    for path in _parts(measurements)[1:]:
        path.unlink(missing_ok=True)


def machine_of(kind: str, ranks: Ranks, cache: float) -> MachineFacts:
    """Return the facts about a rank's device that measuring does not give."""
    sms = 1
    if kind == "cuda":
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        sms = properties.multi_processor_count
    return MachineFacts(
        name=device_name(kind),
        memory_bytes=memory_bytes(kind, ranks.local_world_size),
        host_memory_bytes=host_memory_bytes(),
        l2_bytes=cache,
        num_sms=sms,
        ranks_per_node=ranks_per_node(kind, ranks.local_world_size),
    )
