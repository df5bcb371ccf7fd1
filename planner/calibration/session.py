"""One calibration: what is still to be measured, by whom, and every result kept at once.

Each rank measures its share of the points at the same time as the others, as ranks train at the
same time: what they take from each other, memory bandwidth above all, is in the numbers.
Collectives, and on cores the operators that share their memory, are measured by all together, in
turns, and kept when the turns are done. Every rank appends to a file of its own; when all is done,
everything is in the first rank's.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

import torch

from costmodel.base.errors import InputError, Problem
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
)
from planner.calibration.measure_collectives import measure_collective
from planner.calibration.measure_dense import measure_product, measure_stream
from planner.calibration.measure_embedding import TableKernel, data_types, optimizers
from planner.calibration.measure_host import measure_host
from planner.calibration.points import (
    CollectivePoint,
    EmbeddingPoint,
    Family,
    GemmPoint,
    HostPoint,
    Point,
    StreamPoint,
    TableSet,
    point_key,
)
from planner.calibration.profile import MachineFacts
from planner.calibration.ranks import Ranks
from planner.calibration.records import (
    Measured,
    MeasurementJournal,
    Record,
    keys,
    mean_record,
    read_measurements,
)
from planner.environment.cores import CoreWatch, pin_to_core

_TURNS = 4
"""Times that what cores do together is measured, half a minute each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be measured, and where it is kept."""

    measurements: Path
    """The first rank's file; see `part_path` for the others'."""
    kind: str
    """``cpu`` or ``cuda``."""
    grid: Grid
    optimizers: tuple[Optimizer, ...] = ()
    """None: those of the device."""


class Watcher(Protocol):
    """Hears how far the measuring is."""

    def begin(self, family: str, total: int, done: int) -> None:
        """Hear that a family begins, of which some points were measured before."""
        ...

    def advance(self) -> None:
        """Hear that a point has been measured."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What the first rank fits a profile to."""

    measured: Measured
    machine: MachineFacts
    num_new: int
    """Points that were measured now."""
    num_skipped: int
    """Points, or whole sets of tables, that did not fit in memory."""
    foreign_share: float
    """Share of the ranks' cores that other processes had meanwhile; 0 where that is unknown."""


def part_path(measurements: Path, rank: int) -> Path:
    """Return a rank's own file."""
    if rank == 0:
        return measurements
    return measurements.with_suffix(f".rank{rank}{measurements.suffix}")


def forget(measurements: Path) -> None:
    """Delete what was measured before."""
    for path in _parts(measurements):
        path.unlink(missing_ok=True)


def calibrate(request: Request, ranks: Ranks, watcher: Watcher) -> Calibration | None:
    """Measure what has not been measured yet; returns the outcome on the first rank only."""
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
        records = _union(ranks.gathered([*earlier, *new]))
        if ranks.rank > 0:
            return None
        _keep_together(request.measurements, facts, records)
        return Calibration(
            measured=Measured(machine=facts, records=tuple(records)),
            machine=_machine(request.kind, ranks, cache),
            num_new=len(records) - len(known),
            num_skipped=sum(skips),
            foreign_share=max(shares),
        )
    finally:
        ranks.leave()


class _Session:
    """Measures this rank's share, and keeps it."""

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
        self._new: list[Record] = []
        self._skipped = 0

    def measure(self, earlier: Sequence[Record]) -> tuple[list[Record], int]:
        """Measure every family; returns new records, and how many points found no memory."""
        target = self._target()
        known = keys(earlier)
        grid = grid_points(self._request.grid, target)
        together = tuple(family for family in grid if self._is_measured_together(family))
        self._measure_together({family: grid[family] for family in together}, known)
        for family, points in grid.items():
            if family in together:
                continue
            todo = [point for point in points if point_key(point) not in known]
            done = len(points) - len(todo)
            todo = _share(todo, self._ranks)
            self._begin(family, len(todo), done)
            for record in self._records(todo):
                self._new.append(record)
                self._journal.append(record)
                self._watcher.advance()
        return self._new, self._skipped

    def _measure_together(
        self, grid: Mapping[Family, Sequence[Point]], known: Collection[str]
    ) -> None:
        """Measure some families on all ranks at once; the first's records count.

        On cores in turns: where the system puts two cores decides how they share memory and how
        fast they reach each other, and that changes over minutes. A step has the mean of it.
        """
        taken: dict[str, list[Record]] = {}
        for _ in range(_TURNS if self._device.synchronous else 1):
            for family, points in grid.items():
                todo = [point for point in points if point_key(point) not in known]
                self._begin(family, len(todo), len(points) - len(todo))
                for record in self._records(todo):
                    taken.setdefault(point_key(record.point), []).append(record)
                    self._watcher.advance()
        for some in taken.values():
            record = mean_record(some)
            self._new.append(record)
            if self._ranks.rank == 0:
                self._journal.append(record)

    def _begin(self, family: Family, total: int, done: int) -> None:
        self._watcher.begin(family.value, total, done)
        self._ranks.gathered(None)  # all begin together

    def _is_measured_together(self, family: Family) -> bool:
        """Tell whether all ranks measure the same points at the same time.

        Cores share the memory that copies and sums come from, and in a step all copy at once.
        """
        shared = self._device.synchronous and family is Family.STREAM
        return shared or family is Family.COLLECTIVE

    def _target(self) -> Target:
        kind, ranks = self._request.kind, self._ranks
        return Target(
            on_cpu=self._device.synchronous,
            memory_bytes=memory_bytes(kind, ranks.local_world_size),
            num_ranks=ranks.world_size,
            num_nodes=ranks.num_nodes,
            optimizers=self._request.optimizers or optimizers(self._device),
            data_types=data_types(self._device),
        )

    def _records(self, points: Sequence[Point]) -> Iterator[Record]:
        for tables, some in groupby(points, key=_tables):
            if tables is None:
                yield from self._fitting(self._measure_one, some)
                continue
            kernel = self._within_memory(TableKernel, tables, self._device)
            if kernel is not None:
                yield from self._fitting(kernel.measure, some)
            del kernel  # before the next tables come

    def _fitting(
        self, measure: Callable[[Any], Record], points: Iterable[Point]
    ) -> Iterator[Record]:
        for point in points:
            record = self._within_memory(measure, point)
            if record is not None:
                yield record

    def _within_memory(self, work: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - as what it runs
        try:
            return work(*arguments)
        except torch.OutOfMemoryError:
            self._skipped += 1
            return None

    def _measure_one(self, point: Point) -> Record:
        device = self._device
        if isinstance(point, StreamPoint):
            return measure_stream(
                point, device, meet=self._ranks.meet if device.synchronous else None
            )
        if isinstance(point, GemmPoint):
            return measure_product(point, device)
        if isinstance(point, CollectivePoint):
            return measure_collective(point, device)
        if isinstance(point, HostPoint):
            return measure_host(point, device)
        raise TypeError(f"nothing measures {point}")


def _tables(point: Point) -> TableSet | None:
    return point.tables if isinstance(point, EmbeddingPoint) else None


def _share(points: Sequence[Point], ranks: Ranks) -> list[Point]:
    """Return a rank's share: every so-manieth point, or set of tables."""
    groups = [list(some) for _, some in groupby(points, key=lambda p: _tables(p) or p)]
    return [point for group in groups[ranks.rank :: ranks.world_size] for point in group]


def _parts(measurements: Path) -> list[Path]:
    pattern = f"{measurements.stem}.rank*{measurements.suffix}"
    return [measurements, *sorted(measurements.parent.glob(pattern))]


def _earlier(measurements: Path, facts: dict[str, Any]) -> list[Record]:
    """Return what earlier runs measured here, on whichever rank."""
    found: list[Record] = []
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
        found += part.records
    return found


def _union(parts: Sequence[Sequence[Record]]) -> list[Record]:
    """Return every point once."""
    records = {point_key(record.point): record for part in parts for record in part}
    return list(records.values())


def _keep_together(measurements: Path, facts: dict[str, Any], records: Sequence[Record]) -> None:
    """Bring everything into the first rank's file."""
    own = read_measurements(measurements)
    known = keys(own.records) if own else set()
    journal = MeasurementJournal(measurements, facts)
    for record in records:
        if point_key(record.point) not in known:
            journal.append(record)
    for path in _parts(measurements)[1:]:
        path.unlink(missing_ok=True)


def _machine(kind: str, ranks: Ranks, cache: float) -> MachineFacts:
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
        ranks_per_node=ranks.local_world_size,
    )
