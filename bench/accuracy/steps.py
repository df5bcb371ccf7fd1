"""Whole steps: predicted beside measured, and what would have to be different where it is off."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.published_steps import predict, program_of, published_rows
from bench.published_steps import results as published
from costmodel.base.units import Seconds
from costmodel.domain.hardware import Topology
from costmodel.step.graph import Stage
from costmodel.step.program import Program
from costmodel.step.program_timeline import program_timeline
from planner.files.profiles import load_profile

RESULTS = Path(__file__).parents[1] / "results"
WORST = 3
FACTORS = (0.0, 32.0)
"""Between which a stage's factor is searched."""
CLOSE = 1e-3
"""Relative difference from the measured step at which the search ends."""


def step_rows() -> list[dict[str, Any]]:
    """Return every whole step there is beside its prediction, public ones and real runs'."""
    rows = [
        {
            "set": f"{row['framework']}, {row['num_gpus']} GPUs"
            if row["num_gpus"] > 1
            else f"{row['framework']}, 1 GPU",
            "name": f"{row['num_gpus']} x {row['gpu'].split('-')[0]}, {row['precision']}",
            "measured_s": row["measured_s"],
            "predicted_s": row["predicted_s"],
            "error": row["error"],
            "stages_s": row["breakdown_s"],
        }
        for row in published()
    ]
    return rows + cpu_rows()


def cpu_rows() -> list[dict[str, Any]]:
    """Return the steps of the study on CPU cores with gloo; none if its measurements are not there.

    They have no stages, and so no place in the figure: their stages are other ones.
    """
    if not (RESULTS / "cpu_study.json").exists():
        return []
    from bench import cpu_study

    kept = json.loads((RESULTS / "cpu_study.json").read_text(encoding="utf-8"))
    hardware = load_profile(cpu_study.PROFILE)
    topology = Topology(hardware=hardware, world_size=2, local_world_size=2)
    studies = [
        cpu_study.studied(name, record, topology) for name, record in kept["workloads"].items()
    ]
    return [
        {
            "set": "TorchRec on CPU, 2 gloo ranks",
            "name": f"{study.name}, {outcome.name}",
            "measured_s": outcome.measured,
            "predicted_s": outcome.predicted,
            "error": outcome.predicted / outcome.measured - 1,
            "stages_s": {},
        }
        for study in studies
        for outcome in study.outcomes
    ]


def table_ii(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Sum up steps as the paper's Table II does: geometric mean, least and most of the error."""
    groups: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        groups[row["set"]].append(abs(row["error"]))
        groups["all"].append(abs(row["error"]))
    return [
        {
            "set": name,
            "steps": len(errors),
            "geomean": float(np.exp(np.mean(np.log(np.maximum(errors, 1e-4))))),
            "mean": float(np.mean(errors)),
            "min": min(errors),
            "max": max(errors),
        }
        for name, errors in groups.items()
    ]


def replay_rows() -> list[dict[str, Any]]:
    """Return the replays of profiled runs, whose durations are the run's own."""
    replay = json.loads((RESULTS / "replay.json").read_text(encoding="utf-8"))
    return [
        {
            "set": case["name"],
            "measured_s": case["makespan"]["measured_s"],
            "predicted_s": case["makespan"]["graph_s"],
            "makespan": case["errors"]["graph"]["makespan"],
            "mean_step": case["errors"]["graph"]["mean_step"],
            "worst_step": case["errors"]["graph"]["worst_step"],
        }
        for case in replay["sets"]
    ]


def worst_steps() -> list[dict[str, Any]]:
    """Explain the published steps that are furthest off: each stage's part, and its remedy."""
    made = [(row, *predict(row)) for row in published_rows()]
    off = sorted(made, key=lambda each: -abs(np.log(each[1] / (float(each[0]["step_ms"]) * 1e-3))))
    return [_explained(row, seconds, stages) for row, seconds, stages in off[:WORST]]


def _explained(
    row: dict[str, str], predicted: Seconds, stages: Mapping[str, Seconds]
) -> dict[str, Any]:
    measured = float(row["step_ms"]) * 1e-3
    step = program_of(row)[0]
    remedies = [
        {"stage": stage, "critical_s": stages[stage], "factor": factor}
        for stage in list(stages)[:6]
        if (factor := _factor(step, Stage(stage), measured)) is not None
    ]
    return {
        "name": f"{row['framework']}, {row['num_gpus']} x {row['gpu']}, {row['precision']}",
        "measured_s": measured,
        "predicted_s": predicted,
        "stages_s": dict(stages),
        "remedies": remedies,
    }


def _factor(step: Program, stage: Stage, measured: Seconds) -> float | None:
    """Return how many times longer all work of a stage would have to take; None if no factor does.

    Bisection: the step never gets shorter when work gets longer.
    """
    low, high = FACTORS
    if not _scaled(step, stage, low) <= measured <= _scaled(step, stage, high):
        return None
    while True:
        middle = (low + high) / 2
        seconds = _scaled(step, stage, middle)
        if abs(seconds / measured - 1) < CLOSE or high - low < 1e-3:
            return middle
        low, high = (middle, high) if seconds < measured else (low, middle)


def _scaled(step: Program, stage: Stage, factor: float) -> Seconds:
    ops = tuple(
        replace(op, seconds=op.seconds * factor) if op.stage is stage else op for op in step.ops
    )
    return program_timeline(replace(step, ops=ops)).step_time


def explanation(worst: Mapping[str, Any]) -> str:
    """Return one of the worst steps in words."""
    measured, predicted = worst["measured_s"], worst["predicted_s"]
    side = "too short" if predicted < measured else "too long"
    parts = [
        f"{name.replace('_', ' ')} {seconds * 1e3:.2f} ms"
        for name, seconds in list(worst["stages_s"].items())[:5]
    ]
    text = (
        f"{worst['name']}: {predicted * 1e3:.2f} ms predicted, {measured * 1e3:.2f} ms measured, "
        f"{abs(predicted - measured) * 1e3:.2f} ms {side}. Critical path: {', '.join(parts)}. "
    )
    return text + _remedies_text(worst["remedies"])


def _remedies_text(remedies: Sequence[Mapping[str, Any]]) -> str:
    if not remedies:
        return "No single stage can make up the difference."
    least = sorted(remedies, key=lambda each: abs(np.log(max(each["factor"], 1e-3))))[:WORST]
    ways = [
        f"{each['stage'].replace('_', ' ')} {each['factor']:.2f} times as long" for each in least
    ]
    return f"Any one of these would close the gap: {'; '.join(ways)}."


def results() -> dict[str, Any]:
    """Return everything about whole steps as plain data."""
    rows = step_rows()
    worst = worst_steps()
    return {
        "rows": rows,
        "table_ii": table_ii(rows),
        "replay": replay_rows(),
        "worst": [{**each, "text": explanation(each)} for each in worst],
    }
