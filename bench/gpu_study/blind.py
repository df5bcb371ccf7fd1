"""Predictions, written down before anything they are about is measured.

``predictions.jsonl`` has one line per training step. Each line ends in the SHA-256 of itself and
of the line before, so none can be changed, put in, or left out afterwards without all that follow;
the measurement's record repeats the hash of its prediction.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.gpu_study.models import step_file, step_memory
from bench.gpu_study.points import STUDY_KINDS, StepPoint, StudyFamily
from bench.gpu_study.traces import stage_times
from costmodel.base.errors import InputError, Problem
from costmodel.base.units import Seconds
from costmodel.domain.hardware import Device, HardwareProfile, Topology
from costmodel.step.operation_timeline import plan_timeline
from costmodel.step.timeline import DEVICE_KINDS
from planner.calibration.points import point_data, point_key, read_point
from planner.files.json_text import dump_json
from planner.validation.phases import StepPrediction

FILE = "predictions.jsonl"
_FIRST = "0" * 64
"""Stands for the hash before the first line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlindPrediction:
    """What one step is predicted to take."""

    point: StepPoint
    profile: str
    """SHA-256 of the profile's file."""
    step: Seconds
    stages: Mapping[str, Seconds]
    """By stage of the device; by phase where the host is the device."""
    allocated_bytes: float
    """Memory of the rank that holds most."""
    sha256: str = ""
    """Hash of the line before and of this line without it."""


def predict_step(point: StepPoint, hardware: HardwareProfile, profile: str) -> BlindPrediction:
    """Predict a step, its stages and its memory by a profile, whose file has that hash."""
    on_cpu = hardware.device is Device.CPU
    file = step_file(point, on_cpu=on_cpu)
    world = point.world_size
    topology = Topology(hardware=hardware, world_size=world, local_world_size=world)
    timeline = plan_timeline(file.workload, topology, file.plan)
    if on_cpu:
        phases = StepPrediction.of(timeline, synchronous=True).phases[0]
        stages = {phase.value: seconds for phase, seconds in phases.items()}
    else:
        graph = timeline.graph
        stages = stage_times(
            [n for n in graph.nodes if n.kind in DEVICE_KINDS and n.step == graph.num_steps - 1], 1
        )
    return BlindPrediction(
        point=point,
        profile=profile,
        step=timeline.step_time,
        stages=stages,
        allocated_bytes=max(rank.total for rank in step_memory(file, hardware)),
    )


def append_predictions(path: Path, predictions: Sequence[BlindPrediction]) -> None:
    """Write predictions after those that are there; a point's first one stays."""
    before = read_predictions(path)
    known = {point_key(each.point) for each in before}
    last = before[-1].sha256 if before else _FIRST
    with path.open("a", encoding="utf-8") as file:
        for each in predictions:
            if point_key(each.point) in known:
                continue
            data = _data(each)
            last = _hash(last, data)
            file.write(dump_json({**data, "sha256": last}) + "\n")


def read_predictions(path: Path) -> list[BlindPrediction]:
    """Read all predictions; none where there is no file.

    Raises
    ------
    InputError
        A line is not what was written.

    """
    if not path.exists():
        return []
    found: list[BlindPrediction] = []
    last = _FIRST
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        data = json.loads(line)
        given = data.pop("sha256")
        last = _hash(last, data)
        if given != last:
            message = "this prediction is not the one that was written"
            raise InputError(str(path), [Problem(message=message, line=number)])
        point = read_point(StudyFamily.STEP, data.pop("point"), STUDY_KINDS)
        if not isinstance(point, StepPoint):
            raise TypeError(f"not a step: {point}")
        found.append(BlindPrediction(point=point, sha256=given, **data))
    return found


def prediction_of(point: StepPoint, path: Path) -> BlindPrediction | None:
    """Return what was predicted of a point."""
    key = point_key(point)
    return next((each for each in read_predictions(path) if point_key(each.point) == key), None)


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _data(prediction: BlindPrediction) -> dict[str, Any]:
    data = {**asdict(prediction), "point": point_data(prediction.point)}
    del data["sha256"]
    plain: dict[str, Any] = json.loads(json.dumps(data))
    return plain


def _hash(last: str, data: Mapping[str, Any]) -> str:
    return hashlib.sha256(f"{last} {json.dumps(data, sort_keys=True)}".encode()).hexdigest()
