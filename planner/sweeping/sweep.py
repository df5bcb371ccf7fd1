"""Planning the points of a grid, except those that an earlier sweep planned."""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from costmodel.base.errors import (
    InfeasibleError,
    InputError,
    MachineError,
    MissingDependencyError,
    PlannerError,
    Problem,
    UnknownNameError,
)
from costmodel.domain.hardware import HardwareProfile
from costmodel.domain.workload import Workload
from planner.environment.interrupts import interruptible
from planner.environment.settings import DEFAULT_HARDWARE
from planner.files.disk import write_text
from planner.files.json_text import dump_json
from planner.files.plans import plan_text
from planner.files.profiles import dump_profile, load_profile
from planner.files.workload_reading import load_workload
from planner.files.workload_text import dump_workload
from planner.planned.extrapolation import critical_share
from planner.planned.planned import Planned
from planner.search.baseline import NONE
from planner.search.plugins import AUTO, load_sharder
from planner.search.search import Search, several, sharders_for
from planner.show.profile_text import measured_text
from planner.sweeping.engines import LOKY, SweepEngine
from planner.sweeping.kept import FILE, kept_points, sweep_text_file
from planner.sweeping.sweep_points import WAY, Sweep, SweepPoint
from planner.verbs.changes import Case
from planner.verbs.grouping import Grouping
from planner.verbs.planning import plan_from, planning_task
from planner.verbs.remedies import ways_out, with_searched
from planner.verbs.topologies import make_topology

_NOT_OF_THE_PLAN = {"jobs", "storage", "began"} | {
    each.name for each in fields(Search) if callable(each.default)
}
"""Fields of ``Search`` that do not change which plan is found."""
_WRITING_SHARE = 0.1
"""Largest share of the time in which ``sweep.json`` is written."""
Done = Callable[[int, int, SweepPoint], None]
"""Called with the number of points done, their total, and the last point."""


def _untold(done: int, total: int, point: SweepPoint) -> None:
    """Do nothing when a point is done."""
    del done, total, point


@dataclass(frozen=True, slots=True, kw_only=True)
class _PointTask:
    """A point to plan: plain data, as it is sent to a worker."""

    point: SweepPoint
    workload: Workload
    profile: HardwareProfile
    profile_name: str
    """Name or path of the profile; the point's may be another, a SKU's."""
    sharder: str
    search: Search
    """How to search; without callables of this process."""
    grouping: Grouping | None = None
    """What is asked of groups of ranks; None: nothing."""
    version: str = field(default_factory=lambda: version("shardwise"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """A planned point."""

    points: tuple[SweepPoint, ...]
    """The point, and where no plan fits, those of changed workloads."""
    plans: tuple[str | None, ...] = ()
    """Content of the plan file of each."""
    lacking: str = ""
    """What the worker lacks for planning it."""


def sweep(  # noqa: PLR0913 - the axes of a grid, and how to go through it
    workload: Workload | str | Path,
    *,
    gpus: Sequence[int] | int,
    hardware: Mapping[str, str | Path] | Sequence[str | Path] | str | Path = DEFAULT_HARDWARE,
    local_batch_sizes: Sequence[int] | int = (),
    global_batch_sizes: Sequence[int] | int = (),
    groups: Sequence[Grouping] = (),
    prices: Mapping[str, float] | None = None,
    sharder: str = AUTO,
    backend: str = LOKY,
    address: str | None = None,
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
        of profiles, or a profile by SKU, which points and prices are then named by; samples per GPU
        (none: the workload's own), or instead of all GPUs together, which they have to divide.
    groups
        Groups of ranks that each hold all tables, each as ``plan`` takes it; none: one of all.
    prices
        Of an hour of one GPU, by hardware, in any currency. None: cost is counted in GPU-hours.
    sharder
        Name of a sharder, or ``auto``.
    backend, address
        Where points are planned: ``loky``, in ``jobs`` processes of this machine, or on the
        ``dask`` or ``ray`` cluster at an address.
    directory
        Where ``sweep.json`` and a plan file for every point go. A point that is already there, with
        the same workload, profile and search, is not planned again.
    done
        Told how many points are done, of how many, and each of them.
    search, options
        How each point is searched, as a ``Search`` or as its fields: the limits are for one point,
        and ``jobs`` is how many points are planned at once, each in a process of its own.
        ``interrupted`` is asked whenever a point is done.

    After Ctrl-C the sweep has the points that were done until then.

    Raises
    ------
    PlannerError
        Bad input, or no such cluster, or one that was lost; what was done is kept. A point that no
        plan fits is no error: it has a reason instead of a step time.

    """
    loaded = workload if isinstance(workload, Workload) else load_workload(workload)
    search = replace(search or Search(), **options)
    engine = SweepEngine(backend=backend, address=address, jobs=search.jobs)
    for name in sharders_for(sharder):
        load_sharder(name)
    batches = _batches(loaded, several(local_batch_sizes), several(global_batch_sizes))
    if not isinstance(hardware, Mapping):
        hardware = {str(each): each for each in several(hardware)}
    axes = _Axes(hardware, several(gpus), batches, groups or (None,))
    tasks = tuple(_grid(loaded, axes, prices or {}, sharder, search))
    kept = _Kept(loaded, tasks, None if directory is None else Path(directory))
    undone = [task for task in tasks if task.point.key not in kept.found]
    answers = engine.results(_planned_point, undone)
    with interruptible(at_once=True), suppress(KeyboardInterrupt):
        try:
            for answer in answers:
                point = kept.add(answer)
                done(len(kept.found), len(tasks), point)
                if search.interrupted():
                    break
        finally:
            with suppress(KeyboardInterrupt):  # ends what is still planned
                answers.throw(KeyboardInterrupt)
            kept.write()
    return kept.sweep


class _Kept:
    """The points that are done, and their files."""

    def __init__(
        self, workload: Workload, tasks: Sequence[_PointTask], folder: Path | None
    ) -> None:
        self._workload, self._tasks, self._folder = workload, tasks, folder
        self.found: dict[str, tuple[SweepPoint, ...]] = {}
        """Points by the key of their task."""
        self._next = 0.0
        """Time of the clock from which ``sweep.json`` is written again."""
        known = {} if folder is None else kept_points(folder)
        asked = {task.point.key: task.point for task in tasks}
        for point in known.values():
            if (now := asked.get(point.task)) is not None:
                same = replace(point, price=now.price, measured=now.measured)
                self.found[point.task] = (*self.found.get(point.task, ()), same)

    @property
    def sweep(self) -> Sweep:
        """All points so far, in the order of the grid."""
        keys = [task.point.key for task in self._tasks]
        points = tuple(point for key in keys for point in self.found.get(key, ()))
        return Sweep(
            workload=self._workload.name, num_tables=len(self._workload.tables), points=points
        )

    def add(self, answer: _Answer) -> SweepPoint:
        """Write and return a point that is done."""
        if answer.lacking:
            message = f"a worker cannot plan {answer.points[0].hardware}: there is no"
            hint = "install there what is installed here; what is done is kept"
            raise MachineError(f"{message} {answer.lacking}", hint)
        points = list(answer.points)
        if self._folder is not None:
            for number, text in enumerate(answer.plans):
                if text is not None:
                    name = _plan_name(points[number])
                    write_text(self._folder / name, text)
                    points[number] = replace(points[number], plan_file=name)
        self.found[points[0].key] = tuple(points)
        if time.monotonic() > self._next:  # of thousands of points it takes longer than a point
            began = time.monotonic()
            self.write()
            self._next = time.monotonic() + (time.monotonic() - began) / _WRITING_SHARE
        return points[0]

    def write(self) -> None:
        """Write ``sweep.json``."""
        if self._folder is not None:  # another sweep may keep its points there meanwhile
            text = sweep_text_file(self.sweep, kept_points(self._folder))
            write_text(self._folder / FILE, text)


class _Axes(NamedTuple):
    """What a grid is made of."""

    hardware: Mapping[str, str | Path]
    gpus: Sequence[int]
    batches: Callable[[int], Sequence[int]]
    """Local batches for a number of GPUs."""
    groups: Sequence[Grouping | None]


def _grid(
    workload: Workload,
    axes: _Axes,
    prices: Mapping[str, float],
    sharder: str,
    search: Search,
) -> Iterator[_PointTask]:
    """Yield the task of every point: machines, GPUs, batches, then groups."""
    plain = Search()
    _check_prices(prices, list(axes.hardware))
    for name, path in axes.hardware.items():
        profile = load_profile(path)
        about_profile = dump_profile(profile)
        for topology in [make_topology(profile, each) for each in dict.fromkeys(axes.gpus)]:
            batches = dict.fromkeys(axes.batches(topology.world_size))
            for batch, grouping in product(batches, dict.fromkeys(axes.groups)):
                own = replace(workload, local_batch_size=batch)
                point = SweepPoint(
                    hardware=name,
                    world_size=topology.world_size,
                    num_nodes=topology.num_nodes,
                    local_batch_size=own.local_batch_size,
                    gradient_accumulation_steps=workload.gradient_accumulation_steps,
                    replica_group="" if grouping is None else str(grouping.group_size),
                    price=prices.get(name),
                    measured=measured_text(profile),
                    key=_key(
                        own, about_profile, name, topology.world_size, sharder, search, grouping
                    ),
                )
                yield _PointTask(
                    point=point,
                    workload=own,
                    profile=profile,
                    profile_name=str(path),
                    sharder=sharder,
                    grouping=grouping,
                    search=replace(
                        search, jobs=1, interrupted=plain.interrupted, watch=plain.watch
                    ),
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
    workload: Workload,
    profile: str,
    name: str,
    world_size: int,
    sharder: str,
    search: Search,
    grouping: Grouping | None,
) -> str:
    """Return a digest of everything that a point's plan depends on."""
    chosen = {f.name: repr(getattr(search, f.name)) for f in fields(search)}
    how = {name: value for name, value in chosen.items() if name not in _NOT_OF_THE_PLAN}
    parts = [dump_workload(workload), profile, name, world_size, sharder, version("shardwise"), how]
    if grouping is not None:
        parts.append(repr(grouping))
    return hashlib.sha256(dump_json(parts, only_ascii=True).encode()).hexdigest()[:16]


def _planned_point(task: _PointTask) -> _Answer:
    """Return the point with its plan, or with the reason why it has none, and ways out."""
    point = task.point
    if version("shardwise") != task.version:
        return _Answer(points=(point,), lacking=f"shardwise {task.version}")
    search = replace(task.search, began=task.search.clock())
    try:
        own = planning_task(task.workload, task.profile, point.world_size, None)
        if task.grouping is not None:
            own = own.grouped(task.grouping, search)
        planned = own.searched(task.sharder, NONE, search)
    except (MissingDependencyError, UnknownNameError) as error:
        return _Answer(points=(point,), lacking=str(error))
    except InfeasibleError as error:
        if task.grouping is not None:
            hint = f"; {error.hint}" if error.hint else ""
            return _Answer(points=(replace(point, reason=f"{error}{hint}"),))
        return _ways_out(point, task, error)
    except PlannerError as error:
        return _Answer(points=(replace(point, reason=str(error)),))
    return _Answer(points=(_with_plan(point, planned),), plans=(_plan_file(task, planned),))


def _ways_out(point: SweepPoint, task: _PointTask, error: InfeasibleError) -> _Answer:
    """Return a point that no plan fits, and the plans of workloads with which some do.

    Where there are none, the point's reason has the machines and batches with which some fit.
    """
    points, plans = list[SweepPoint](), list[str | None]()
    case = Case(workload=task.workload, topology=make_topology(task.profile, point.world_size))
    for found in ways_out(case, task.search):
        with suppress(PlannerError):
            planned = plan_from(
                found.plan,
                found.case.workload,
                found.case.topology,
                task.search,
                sharder=task.sharder,
            )
            key = f"{point.key}{WAY}{1 + len(points)}"
            other = replace(point, key=key, reason=None, change=found.label, setting=found.setting)
            points.append(_with_plan(other, planned))
            plans.append(_plan_file(task, planned))
    reason = str(error)
    if not points:
        advised = with_searched(error, case, task.search)
        enough = " or ".join(f"`{change}`" for change, _ in advised.remedies)
        reason += f"; enough would be {enough}" if enough else ""
    without = replace(point, reason=reason)
    return _Answer(points=(without, *points), plans=(None, *plans))


def _plan_file(task: _PointTask, planned: Planned) -> str:
    return plan_text(replace(planned, hardware_name=task.profile_name).to_dict())


def _plan_name(point: SweepPoint) -> str:
    """Return the name of a point's plan file, also unique if two paths end in the same name."""
    hardware, (key, _, way) = Path(point.hardware).stem, point.key.partition(WAY)
    last = f"{key[:6]}{WAY if way else ''}{way}"
    return f"{hardware}-{point.world_size}x{point.local_batch_size}-{last}.json"


def _with_plan(point: SweepPoint, planned: Planned) -> SweepPoint:
    report = planned.report
    return replace(
        point,
        step_time=report.step_time,
        interval=report.interval,
        gap=report.gap,
        peak_memory_bytes=report.peak_memory_bytes,
        usable_bytes=report.usable_bytes,
        unmeasured_share=min(1.0, critical_share(report.extrapolated, report.step_time)),
        sharder=report.search.sharder if report.search else None,
        group_size=planned.topology.world_size if planned.topology.replicas else None,
        notes=report.notes,
    )
