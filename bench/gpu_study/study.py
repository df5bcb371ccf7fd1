"""The study from beginning to end: measure, fit, predict, measure steps, judge.

What it writes into its folder:

- ``measurements.jsonl``, ``collectives.jsonl``: every point as it was measured, or why it failed;
- ``predictions.jsonl``: the steps' predictions (``bench.gpu_study.blind``);
- ``profile.yaml``: the hardware profile, fitted before the first step was measured;
- ``refitted.yaml``: the same, fitted to everything when the study is judged;
- ``study.json``, ``study.md``: what the models miss on groups held out, and steps;
- ``study.tar.xz``: all of these, compressed, as they are to be kept;
- ``traces/*.json.gz``: what the profiler wrote of the steps on a GPU.

The same command goes on with what is there.
"""

import json
import sys
import tarfile
import time
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from bench.gpu_study import blind
from bench.gpu_study.grid import StepTarget, step_points
from bench.gpu_study.points import STUDY_KINDS
from bench.gpu_study.results import (
    failure_rows,
    family_rows,
    geomean_error,
    profile_rows,
    step_rows,
)
from bench.gpu_study.supervise import (
    COLLECTIVES,
    MACHINE,
    MEASUREMENTS,
    PATIENCE,
    Supervisor,
    WorkerFailedError,
)
from bench.gpu_study.tables import study_text
from bench.kept import write
from costmodel.base.errors import InputError, Problem
from costmodel.base.units import Seconds
from costmodel.domain.hardware import HardwareProfile
from planner.calibration.profile import MachineFacts, fit_profile
from planner.calibration.records import Measured, origin_text, read_measurements
from planner.files.profiles import dump_profile, load_profile

PROFILE, REFITTED, PACKED = "profile.yaml", "refitted.yaml", "study.tar.xz"
_KEPT = {".jsonl", ".json", ".yaml", ".md"}
PARTS = ("kernels", "collectives", "steps", "judge")
"""What a study does, in this order; predictions are made before steps."""
_TIMES = {"kernels": 0.5, "collectives": 0.1, "steps": 0.4}
"""Shares of the time that parts have, in proportion if some are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuStudy:
    """What is asked for."""

    folder: Path
    kind: str
    """``cpu`` or ``cuda``."""
    minutes: float
    num_ranks: int
    """Ranks that run collectives; 1: none do."""
    patience: Seconds = PATIENCE
    """After which a single point counts as hanging."""
    parts: tuple[str, ...] = PARTS


def run(study: GpuStudy) -> str:
    """Run the study, or what is left of it; returns its tables if it is to be judged."""
    study.folder.mkdir(parents=True, exist_ok=True)
    notes: list[str] = []
    deadlines = part_deadlines(study, time.time())
    if "kernels" in study.parts:
        _supervisor(study, deadlines["kernels"]).run("kernels")
        _keep_so_far(study, notes)
    if "collectives" in study.parts and study.num_ranks > 1:
        notes += _collectives(study, deadlines["collectives"])
    if "steps" in study.parts:
        write_predictions(study)
        _keep_so_far(study, notes)  # with the predictions
        _supervisor(study, deadlines["steps"]).run("steps")
    text = _judged(study.folder, notes) if "judge" in study.parts else ""
    pack(study.folder)
    return text


def _keep_so_far(study: GpuStudy, notes: list[str]) -> None:
    """Judge and pack what there is, so that a study that is cut is of use as it lies there."""
    if "judge" in study.parts:
        _judged(study.folder, notes)
    pack(study.folder)


def pack(folder: Path) -> Path:
    """Write everything of a study into one compressed file beside it; returns its path."""
    path = folder / PACKED
    with tarfile.open(path, "w:xz") as packed:
        for name in sorted(each.name for each in folder.iterdir() if each.suffix in _KEPT):
            packed.add(folder / name, name)
    return path


def part_deadlines(study: GpuStudy, begin: float) -> dict[str, float]:
    """Return when each part must end: all together have the study's minutes, from ``begin`` on."""
    shares = {part: _TIMES[part] for part in _TIMES if part in study.parts}
    if study.num_ranks == 1:
        shares.pop("collectives", None)
    ends = accumulate(shares.values())
    seconds = 60 * study.minutes / (sum(shares.values()) or 1.0)
    return {part: begin + end * seconds for part, end in zip(shares, ends, strict=True)}


def _judged(folder: Path, notes: list[str]) -> str:
    found = judge(folder) | {"notes": notes}
    write(folder / "study.json", found)
    text = study_text(found)
    (folder / "study.md").write_text(text, encoding="utf-8")
    return text


def _supervisor(study: GpuStudy, deadline: float) -> Supervisor:
    return Supervisor(
        folder=study.folder.resolve(),
        kind=study.kind,
        deadline=deadline,
        patience=study.patience,
    )


def _collectives(study: GpuStudy, deadline: float) -> list[str]:
    """Measure collectives; what goes wrong there costs them only."""
    supervisor = _supervisor(study, deadline)
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone",
        "--nproc-per-node", str(study.num_ranks), "-m", "bench.gpu_study.worker", "collectives",
        str(supervisor.folder), study.kind, str(deadline),
    ]  # fmt: skip
    try:
        supervisor.run("collectives", command)
    except WorkerFailedError as error:
        return [str(error)]
    return []


def write_predictions(study: GpuStudy) -> None:
    """Fit the profile and write down what it says of all steps, unless that was done before.

    The profile is not fitted anew once there are predictions: a study that goes on has the same.
    """
    path, predictions = study.folder / PROFILE, study.folder / blind.FILE
    if not predictions.exists():
        measured = _measured(study.folder)
        calibrated = fit_profile(measured, machine_of(study.folder))
        profile = replace(calibrated.profile, name=study.folder.resolve().name)
        _write_profile(path, profile, measured)
    hardware, digest = load_profile(path), blind.file_hash(path)
    points = step_points(_step_target(study))
    blind.append_predictions(
        predictions, [blind.predict_step(point, hardware, digest) for point in points]
    )


def _write_profile(path: Path, profile: HardwareProfile, measured: Measured) -> None:
    head = f"# Measured by `python -m bench.gpu_study`: {origin_text(measured.machine)}\n"
    path.write_text(head + dump_profile(profile), encoding="utf-8")


def judge(folder: Path) -> dict[str, Any]:
    """Return everything that a folder's measurements say of the models; write the profile anew."""
    measured, machine = _measured(folder), machine_of(folder)
    calibrated = fit_profile(measured, machine)
    _write_profile(folder / REFITTED, calibrated.profile, measured)
    steps = step_rows(measured.records, folder / blind.FILE)
    return {
        "machine": dict(measured.machine),
        "points": len(measured.records),
        "families": family_rows(measured.records, calibrated),
        "profile": profile_rows(calibrated),
        "steps": steps,
        "step_error": geomean_error(steps),
        "failures": list(failure_rows(measured.failures)),
    }


def _step_target(study: GpuStudy) -> StepTarget:
    memory = machine_of(study.folder).memory_bytes
    return StepTarget(on_cpu=study.kind == "cpu", memory_bytes=memory)


def machine_of(folder: Path) -> MachineFacts:
    """Return what the measuring process wrote of its machine."""
    return MachineFacts(**json.loads((folder / MACHINE).read_text("utf-8")))


def _measured(folder: Path) -> Measured:
    """Return everything measured in a folder, on one rank and on several.

    Raises
    ------
    InputError
        Nothing was measured there.

    """
    found = read_measurements(folder / MEASUREMENTS, STUDY_KINDS)
    if found is None:
        raise InputError(str(folder), [Problem(message="nothing has been measured here")])
    together = read_measurements(folder / COLLECTIVES)
    more = together.records if together else ()
    return replace(found, records=(*found.records, *more))
