"""Planning the points of a grid in parallel, except those that an earlier sweep planned."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from costmodel.base.errors import InputError, MachineError, PlannerError, Problem, UnknownNameError
from costmodel.base.units import Seconds
from costmodel.domain.hardware import HardwareProfile
from costmodel.domain.workload import Workload
from planner.environment.interrupts import interruptible
from planner.environment.processes import started
from planner.environment.settings import DEFAULT_HARDWARE
from planner.files.disk import write_text
from planner.files.json_text import dump_json
from planner.files.profiles import dump_profile, load_profile
from planner.files.workload_reading import load_workload
from planner.files.workload_text import dump_workload
from planner.planned.planned import Planned
from planner.search.plugins import AUTO, load_sharder
from planner.search.search import Search, several, sharders_for
from planner.show.profile_text import measured_text
from planner.sweeping.kept import FILE, kept_points, sweep_text_file
from planner.sweeping.sweep_points import Sweep, SweepPoint
from planner.verbs.planning import plan
from planner.verbs.topologies import make_topology

_ENDED = "a process that planned a point was ended from outside, perhaps for want of memory"
_FEWER = "sweep with fewer --jobs; with -o DIR, the same command plans only what is not done yet"
_LOOK_EVERY: Seconds = 0.2
"""Seconds between looks for an interrupt."""
_GRACE: Seconds = 10.0
"""Seconds for which a process that was told to end may go on: it may be writing a plan."""
_NOT_OF_THE_PLAN = {"jobs", "storage", "began"} | {
    each.name for each in fields(Search) if callable(each.default)
}
"""Fields of ``Search`` that do not change which plan is found."""
Done = Callable[[int, int, SweepPoint], None]
"""Called with the number of points done, their total, and the last point."""


def _untold(done: int, total: int, point: SweepPoint) -> None:
    """Do nothing when a point is done."""
    del done, total, point


@dataclass(frozen=True, slots=True, kw_only=True)
class _PointTask:
    """A point to plan."""

    point: SweepPoint
    workload: Workload
    profile: HardwareProfile
    sharder: str
    search: Search
    """How to search, for this process; without watchers."""
    directory: Path | None


def sweep(  # noqa: PLR0913 - the axes of a grid, and how to go through it
    workload: Workload | str | Path,
    *,
    gpus: Sequence[int] | int,
    hardware: Sequence[str | Path] | str | Path = DEFAULT_HARDWARE,
    local_batch_sizes: Sequence[int] | int = (),
    global_batch_sizes: Sequence[int] | int = (),
    prices: Mapping[str, float] | None = None,
    sharder: str = AUTO,
    directory: str | Path | None = None,
    done: Done = _untold,
    search: Search | None = None,
    **options: Any,  # noqa: ANN401 - the fields of Search
) -> Sweep:
    """Return a plan of a workload for every machine, number of GPUs and batch, with its cost.

    Parameters
    ----------
    workload
        A workload, or the path of a workload file.
    gpus, hardware, local_batch_sizes, global_batch_sizes
        The grid, of each one or several: GPUs in all, on as few nodes as hold them; names or paths
        of profiles; samples per GPU (none: the workload's own), or instead of all GPUs together,
        which they have to divide.
    prices
        Of an hour of one GPU, by hardware, in any currency. None: cost is counted in GPU-hours.
    sharder
        Name of a sharder, or ``auto``.
    directory
        Where ``sweep.json`` and a plan file for every point go. A point that is already there, with
        the same workload, profile and search, is not planned again.
    done
        Told how many points are done, of how many, and each of them.
    search, options
        How each point is searched, as a ``Search`` or as its fields: the limits are for one point,
        and ``jobs`` is how many points are planned at once, each in a process of its own.

    Raises
    ------
    PlannerError
        Bad input. A point that no plan fits is no error: it has a reason instead of a step time.

    """
    loaded = workload if isinstance(workload, Workload) else load_workload(workload)
    search = replace(search or Search(), **options)
    for name in sharders_for(sharder):
        load_sharder(name)
    folder = None if directory is None else Path(directory)
    known = {} if folder is None else kept_points(folder)
    batches = _batches(loaded, several(local_batch_sizes), several(global_batch_sizes))
    axes = several(hardware), several(gpus)
    grid = _grid(loaded, *axes, batches, prices or {}, sharder, search)
    tasks = [replace(task, directory=folder) for task in grid]
    found = {
        task.point.key: replace(
            known[task.point.key], price=task.point.price, measured=task.point.measured
        )
        for task in tasks
        if task.point.key in known
    }

    def result() -> Sweep:
        ordered = tuple(found[task.point.key] for task in tasks if task.point.key in found)
        return Sweep(workload=loaded.name, num_tables=len(loaded.tables), points=ordered)

    def keep() -> None:
        if folder is not None:  # another sweep may keep its points there meanwhile
            write_text(folder / FILE, sweep_text_file(result(), kept_points(folder)))

    undone = [task for task in tasks if task.point.key not in found]
    if not undone:  # prices, or which points were asked for, may be others
        keep()
    for point in _planned_points(undone, search):
        found[point.key] = point
        keep()
        done(len(found), len(tasks), point)
    return result()


def _grid(
    workload: Workload,
    hardware: Sequence[str | Path],
    gpus: Sequence[int],
    batches: Callable[[int], Sequence[int]],
    prices: Mapping[str, float],
    sharder: str,
    search: Search,
) -> Iterator[_PointTask]:
    """Yield the task of every point: machines, GPUs, then batches."""
    names, plain = list(dict.fromkeys(str(each) for each in hardware)), Search()
    _check_prices(prices, names)
    for name in names:
        profile = load_profile(name)
        about_profile = dump_profile(profile)
        for topology in [make_topology(profile, each) for each in dict.fromkeys(gpus)]:
            for batch in dict.fromkeys(batches(topology.world_size)):
                own = replace(workload, local_batch_size=batch)
                point = SweepPoint(
                    hardware=name,
                    world_size=topology.world_size,
                    num_nodes=topology.num_nodes,
                    local_batch_size=own.local_batch_size,
                    gradient_accumulation_steps=workload.gradient_accumulation_steps,
                    price=prices.get(name),
                    measured=measured_text(profile),
                    key=_key(own, about_profile, name, topology.world_size, sharder, search),
                )
                yield _PointTask(
                    point=point,
                    workload=own,
                    profile=profile,
                    sharder=sharder,
                    search=replace(
                        search, jobs=1, interrupted=plain.interrupted, watch=plain.watch
                    ),
                    directory=None,
                )


def _batches(
    workload: Workload, local: Sequence[int], whole: Sequence[int]
) -> Callable[[int], Sequence[int]]:
    """Return a function of the number of GPUs: the local batches that are asked for."""
    if not whole:
        return lambda _: local or [workload.local_batch_size]
    if local:
        message = "give samples per GPU or of all GPUs together, not both"
        raise InputError("batch", (Problem(message=message),))

    def divided(gpus: int) -> list[int]:
        parts = gpus * workload.gradient_accumulation_steps
        for batch in whole:
            if batch % parts:
                message = f"a batch of {batch:,} samples cannot be divided by {parts:,}"
                hint = "GPUs, times the batches of a step, have to divide it"
                raise InputError("batch", (Problem(message=message, hint=hint),))
        return [batch // parts for batch in whole]

    return divided


def _check_prices(prices: Mapping[str, float], names: Sequence[str]) -> None:
    for name, price in prices.items():
        if name not in names:
            raise UnknownNameError("hardware in a price", name, names)
        if not 0 < price < float("inf"):
            raise InputError("price", (Problem(message=f"`{name}` must cost more than 0"),))
    missing = [name for name in names if name not in prices]
    if prices and missing:
        listed = ", ".join(f"`{name}`" for name in missing)
        hint = "give a price for every machine, or for none: cost is then counted in GPU-hours"
        raise InputError("price", (Problem(message=f"no price for {listed}", hint=hint),))


def _key(
    workload: Workload, profile: str, name: str, world_size: int, sharder: str, search: Search
) -> str:
    """Return a digest of everything that a point's plan depends on."""
    from importlib.metadata import version

    chosen = {f.name: repr(getattr(search, f.name)) for f in fields(search)}
    how = {name: value for name, value in chosen.items() if name not in _NOT_OF_THE_PLAN}
    parts = [dump_workload(workload), profile, name, world_size, sharder, version("shardwise"), how]
    return hashlib.sha256(dump_json(parts, only_ascii=True).encode()).hexdigest()[:16]


def _planned_points(tasks: Sequence[_PointTask], search: Search) -> Iterator[SweepPoint]:
    """Yield points as soon as they are planned; an interrupt ends it, with the points so far.

    Points that are being planned at an interrupt are not kept: their search was cut short.
    """
    with interruptible() as interrupt:

        def asked() -> bool:
            return interrupt.happened or search.interrupted()

        if search.jobs > 1 and len(tasks) > 1:
            yield from _in_processes(tasks, min(search.jobs, len(tasks)), asked)
            return
        for task in tasks:
            point = _planned_point(task, asked)
            if asked():
                return
            yield point


def _in_processes(
    tasks: Sequence[_PointTask], jobs: int, interrupted: Callable[[], bool]
) -> Iterator[SweepPoint]:
    left = iter(tasks)
    with started(range(jobs), _plan_points, _FEWER) as workers:
        busy = set(workers.numbers)
        try:
            for number in workers.numbers:
                workers.send(number, next(left))
            while busy and not interrupted():
                for number, point in workers.heard(busy, _LOOK_EVERY):
                    if interrupted():
                        return
                    if not isinstance(point, SweepPoint):
                        raise MachineError(_ENDED, _FEWER)
                    yield point
                    task = next(left, None)
                    if task is None:
                        busy.discard(number)
                    else:
                        workers.send(number, task)
        except OSError as error:  # it took nothing more
            if not interrupted():  # by a signal that all processes got
                raise MachineError(_ENDED, _FEWER) from error
        finally:
            workers.end(_GRACE)


def _plan_points(number: int, leader: Connection, told: Callable[[], bool]) -> None:
    """Plan the points that are sent, one after the other, in a process of its own."""
    del number
    while not told():
        point = _planned_point(leader.recv(), told)
        if not told():
            leader.send(point)


def _planned_point(task: _PointTask, interrupted: Callable[[], bool]) -> SweepPoint:
    """Return the point with its plan, or with the reason why it has none."""
    try:
        planned = plan(
            task.workload,
            gpus=task.point.world_size,
            hardware=task.profile,
            sharder=task.sharder,
            baseline=None,
            search=replace(task.search, interrupted=interrupted),
        )
    except PlannerError as error:
        return replace(task.point, reason=str(error))
    planned = replace(planned, hardware_name=task.point.hardware)
    name = None
    if task.directory is not None and not interrupted():
        name = _plan_name(task.point)
        planned.save(task.directory / name)
    return _with_plan(task.point, planned, name)


def _plan_name(point: SweepPoint) -> str:
    """Return the name of a point's plan file, also unique if two paths end in the same name."""
    hardware = Path(point.hardware).stem
    return f"{hardware}-{point.world_size}x{point.local_batch_size}-{point.key[:6]}.json"


def _with_plan(point: SweepPoint, planned: Planned, name: str | None) -> SweepPoint:
    report = planned.report
    return replace(
        point,
        step_time=report.step_time,
        interval=report.interval,
        gap=report.gap,
        peak_memory_bytes=report.peak_memory_bytes,
        usable_bytes=report.usable_bytes,
        sharder=report.search.sharder if report.search else None,
        notes=report.notes,
        plan_file=name,
    )
