"""What the study found, as plain data: models held out, steps, failures."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from math import exp, log
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.gpu_study.blind import BlindPrediction, read_predictions
from bench.gpu_study.families import tasks
from bench.gpu_study.holdout import CORRECTED, ROOFLINE, judged
from bench.gpu_study.points import StepPoint
from costmodel.domain.families import kernel_families
from costmodel.domain.hardware import Gpu
from planner.calibration.points import Family, point_data, point_key
from planner.calibration.profile import Calibrated
from planner.calibration.records import Failure, Record


def family_rows(records: Sequence[Record], calibrated: Calibrated) -> dict[str, Any]:
    """Return every family's models on groups held out, side by side; None: too few groups."""
    rows: dict[str, Any] = {}
    for task in tasks(records, calibrated):
        found = judged(task.roofline, task.records, task.groups)
        rows[task.name] = {
            "points": len(task.records),
            "groups": len(set(task.groups)),
            "better": found.better if found else None,
            "in_profile": _in_profile(task.name, calibrated.profile.gpu),
            "models": {name: asdict(each) for name, each in found.models.items()} if found else {},
        }
    return rows


def _in_profile(name: str, gpu: Gpu) -> str:
    """Return which model a profile has; nothing of families it has no constants of."""
    if name == Family.EMBEDDING:
        phases = {"forward": gpu.forward_correction, "backward": gpu.backward_correction}
        kept = [phase for phase, correction in phases.items() if correction.knots]
        return f"{CORRECTED} {' and '.join(kept)}" if kept else ROOFLINE
    if name == Family.STREAM:
        return CORRECTED if gpu.stream_correction.knots else ROOFLINE
    family, _, data_type = name.partition(" ")
    if family == Family.GEMM and data_type in gpu.gemm:
        return CORRECTED if gpu.gemm[data_type].correction.knots else ROOFLINE
    return ""


def profile_rows(calibrated: Calibrated) -> dict[str, Any]:
    """Return what the profile says of its own families: host times and collectives, too."""
    return {
        name: {"points": family.num_points, "error": family.error, "p90": family.error_p90}
        for name, family in kernel_families(calibrated.profile).items()
    }


def step_rows(records: Sequence[Record], predictions: Path) -> list[dict[str, Any]]:
    """Return every measured step beside its prediction.

    ``blind``: the record has the hash of a line that is in the chain of predictions.
    """
    predicted = {point_key(each.point): each for each in read_predictions(predictions)}
    return [
        _step_row(record, record.point, predicted.get(point_key(record.point)))
        for record in records
        if isinstance(record.point, StepPoint)
    ]


def _step_row(
    record: Record, point: StepPoint, predicted: BlindPrediction | None
) -> dict[str, Any]:
    name = "step" if "step" in record.seconds else "synchronized"
    row: dict[str, Any] = {
        **point_data(point),
        "measured_s": record.seconds[name],
        "synchronized_s": record.seconds["synchronized"],
        "stages_s": record.facts.get("stages", {}),
        "allocated_bytes": record.facts.get("allocated_bytes"),
        "reserved_bytes": record.facts.get("reserved_bytes"),
    }
    if predicted is None:
        return row
    return row | {
        "predicted_s": predicted.step,
        "error": predicted.step / record.seconds[name] - 1,
        "predicted_stages_s": dict(predicted.stages),
        "predicted_bytes": predicted.allocated_bytes,
        "blind": record.facts.get("prediction") == predicted.sha256,
    }


def geomean_error(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the geometric mean of the factors by which blind steps are off, less 1."""
    errors = [abs(log(1 + row["error"])) for row in rows if row.get("blind")]
    return exp(fmean(errors)) - 1 if errors else None


def failure_rows(failures: Sequence[Failure]) -> Iterator[dict[str, Any]]:
    """Yield every reason with the family and how many of its points failed for it."""
    counts = Counter((failure.point.family, failure.reason) for failure in failures)
    for (family, reason), count in counts.most_common():
        yield {"family": family, "reason": reason, "points": count}
