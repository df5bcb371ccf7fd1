"""One process that measures: ``python -m bench.gpu_study.worker PART FOLDER DEVICE DEADLINE``.

PART is ``kernels``, ``steps``, or ``collectives`` (then one process for each rank, by torchrun).
Before every point its key is written to a file: if the process does not survive the point, whoever
started it knows which one it was (``bench.gpu_study.supervise``).
"""

import argparse
import logging
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

import torch

from bench.gpu_study import blind
from bench.gpu_study.accelerator import Accelerator, open_accelerator
from bench.gpu_study.grid import (
    FEWEST_COLLECTIVES,
    StepTarget,
    collective_points,
    ordered_units,
    step_points,
)
from bench.gpu_study.kernels import (
    measure_interaction,
    measure_layer,
    measure_optimizer,
    measure_typed_operator,
)
from bench.gpu_study.points import STUDY_KINDS, StepPoint, StudyFamily
from bench.gpu_study.steps import measure_step
from bench.gpu_study.supervise import ATTEMPT, COLLECTIVES, MACHINE, MEASUREMENTS, TRACES
from planner.calibration.device import DeviceUnderTest
from planner.calibration.grids import Grid, Target
from planner.calibration.machine import cache_bytes, machine_facts
from planner.calibration.measuring import (
    NO_MEMORY,
    DeviceLostError,
    Measure,
    Measurer,
    attempted,
    reason_of,
)
from planner.calibration.points import Point, point_data, point_key
from planner.calibration.profile import MachineFacts
from planner.calibration.ranks import Ranks, ranks_of
from planner.calibration.records import Failure, MeasurementJournal, Record, keys, read_measurements
from planner.calibration.session import Request, machine_of, target_of
from planner.environment.cores import pin_to_core
from planner.files.json_text import dump_json

_MEASURES = {
    StudyFamily.TYPED_OPERATOR: measure_typed_operator,
    StudyFamily.LAYER: measure_layer,
    StudyFamily.OPTIMIZER: measure_optimizer,
    StudyFamily.INTERACTION: measure_interaction,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTask:
    """What one process is to measure, and until when."""

    folder: Path
    kind: str
    """``cpu`` or ``cuda``."""
    deadline: float
    """By the system's clock (``time.time``)."""

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.time() >= self.deadline


def main() -> None:
    """Measure one part."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")  # torch's and fbgemm's, about themselves
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["kernels", "steps", "collectives"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("kind", choices=["cpu", "cuda"])
    parser.add_argument("deadline", type=float)
    args = parser.parse_args()
    task = WorkerTask(folder=args.folder, kind=args.kind, deadline=args.deadline)
    ranks = ranks_of()
    if task.kind == "cuda":
        torch.cuda.set_device(ranks.local_rank)
    if args.part == "collectives":
        measure_collectives(task, ranks)
    else:
        _Worker(task).run(args.part)


class _Worker:
    """Measures points by their value until the time is up, and keeps each at once."""

    def __init__(self, task: WorkerTask) -> None:
        self._task = task
        self.accelerator = open_accelerator(task.kind, 0, cache_bytes(task.kind, 1))
        write_machine(task.folder, machine_of(task.kind, Ranks(), cache_bytes(task.kind, 1)))
        path = task.folder / MEASUREMENTS
        self._journal = MeasurementJournal(path, machine_facts(task.kind, 1, 1))
        earlier = read_measurements(path, STUDY_KINDS)
        self._known = keys([*earlier.records, *earlier.failures]) if earlier else set()
        self._measurer = Measurer(
            self.accelerator.device, more=study_measures(self.accelerator, task.folder)
        )

    def run(self, part: str) -> None:
        """Measure kernels, or steps; the least that is needed whatever the time."""
        target = study_target(self._task, Ranks(), self.accelerator.device)
        if part == "kernels":
            first, others = ordered_units(target)
            self._measure(chain.from_iterable(first), needed=True)
            self._measure(chain.from_iterable(others), needed=False)
        else:
            one, *more = step_points(
                StepTarget(on_cpu=target.on_cpu, memory_bytes=target.memory_bytes)
            )
            self._measure((one,), needed=True)
            self._measure(more, needed=False)
        (self._task.folder / ATTEMPT).unlink(missing_ok=True)

    def _measure(self, points: Iterable[Point], *, needed: bool) -> None:
        device = self.accelerator.device
        for point in points:
            if not needed and self._task.is_over:
                return
            if point_key(point) in self._known:
                continue
            self._announce(point)
            try:
                found = attempted(self._measurer, point, device)
            except DeviceLostError as lost:
                reason = reason_of(lost.__cause__ or lost)
                self._journal.append(Failure(point=point, reason=reason))
                raise
            if not (isinstance(found, Failure) and found.reason == NO_MEMORY):
                self._journal.append(self._with_prediction(found))

    def _announce(self, point: Point) -> None:
        data = {"family": point.family, "point": point_data(point), "since": time.time()}
        (self._task.folder / ATTEMPT).write_text(dump_json(data), encoding="utf-8")

    def _with_prediction(self, found: Record | Failure) -> Record | Failure:
        """Add the hash of what was predicted of a step."""
        if isinstance(found, Failure) or not isinstance(found.point, StepPoint):
            return found
        predicted = blind.prediction_of(found.point, self._task.folder / blind.FILE)
        return replace(
            found, facts={**found.facts, "prediction": predicted.sha256 if predicted else None}
        )


def write_machine(folder: Path, machine: MachineFacts) -> None:
    """Write what measuring does not tell of the machine: who fits need not ask the device."""
    (folder / MACHINE).write_text(dump_json(asdict(machine)), encoding="utf-8")


def study_measures(accelerator: Accelerator, folder: Path) -> dict[str, Measure]:
    """Return what measures the study's own families on a device; traces go into its folder."""

    def on(measure: object, point: Point, device: DeviceUnderTest) -> Record:
        del device
        record: Record = measure(point, accelerator)  # type: ignore[operator]
        return record

    step = partial(measure_step, traces=folder / TRACES)
    measures = {**_MEASURES, StudyFamily.STEP: step}
    return {family.value: partial(on, measure) for family, measure in measures.items()}


def study_target(task: WorkerTask, ranks: Ranks, device: DeviceUnderTest) -> Target:
    """Return what the grid depends on."""
    request = Request(
        measurements=task.folder / MEASUREMENTS, kind=task.kind, grid=Grid.FULL, optimizers=()
    )
    return target_of(request, ranks, device)


def measure_collectives(task: WorkerTask, ranks: Ranks) -> None:
    """Measure collectives on all ranks until the first one's time is up; it keeps them."""
    if task.kind == "cpu":
        pin_to_core(ranks.local_rank)
    ranks.join(task.kind)
    try:
        cache = cache_bytes(task.kind, ranks.local_world_size)
        accelerator = open_accelerator(task.kind, ranks.local_rank, cache)
        device, path = accelerator.device, task.folder / COLLECTIVES
        measurer = Measurer(device)
        facts = machine_facts(task.kind, ranks.world_size, ranks.num_nodes)
        journal = MeasurementJournal(path, facts) if ranks.rank == 0 else None
        points = _still_asked(path, collective_points(study_target(task, ranks, device)), ranks)
        for number, point in enumerate(points):
            if number >= FEWEST_COLLECTIVES and any(ranks.gathered(task.is_over)):
                return
            record = measurer.measure(point)  # a rank that fails ends all: others wait for it
            if journal is not None:
                journal.append(record)
    finally:
        ranks.leave()


def _still_asked(path: Path, points: Sequence[Point], ranks: Ranks) -> list[Point]:
    """Return the points that the first rank has not measured before, on every rank the same."""
    earlier = read_measurements(path) if ranks.rank == 0 else None
    known = ranks.gathered(keys(earlier.records) if earlier else set())[0]
    return [point for point in points if point_key(point) not in known]


if __name__ == "__main__":
    main()
