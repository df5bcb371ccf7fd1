"""How often 90% intervals of whole steps hold: `python -m bench.coverage [--write]`.

Every interval is made without the steps it is tested on:

* *published steps*, predicted as ``bench.published_steps`` does, nothing fitted. What steps are
  off by beyond their kernels (``error_model.STRUCTURE``) is estimated from the other rows: all
  others, or only those of other frameworks, or of other GPUs.
* *CPU runs*: the same for the plans of ``bench.cpu_study``, predicted with the committed profile of
  the machine; the structure of a workload's steps is that of the other workloads.
* *all whole steps*: both, every step with a structure from others.

Needs ``../shared/data``; takes half a minute.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import hypot, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

from bench.cpu_study import PROFILE, studied, workload
from bench.cpu_study import RESULTS as STUDY
from bench.kept import markdown, print_and_keep
from bench.published_steps import PRECISION, program_of, published_rows
from costmodel.base.units import MS
from costmodel.domain.hardware import Topology
from costmodel.domain.workload import DataType
from costmodel.uncertainty.error_model import (
    NORMAL_90,
    STRUCTURE_ON_CORES,
    Cause,
    ErrorModel,
    error_model,
)
from costmodel.uncertainty.step_samples import sample_operations, sample_steps
from planner.files.plans import plan_from_tables
from planner.files.profiles import load_profile

RESULTS = Path(__file__).parent / "results" / "coverage.json"
LEVEL = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedStep:
    """One measured step: the log error of its prediction, and the spread its kernels give it."""

    name: str
    groups: Mapping[str, str]
    """What it has in common with others: framework, GPU, workload."""
    measured: float
    predicted: float
    error: float
    """log(measured / mean of the samples), of geometric means."""
    sigma: float
    """Standard deviation of the samples' logarithms, the structure's left out."""


def published() -> list[JudgedStep]:
    """Return the published steps with the spread that their kernels' errors give."""
    steps = []
    for row in published_rows():
        program, topology = program_of(row)
        precision = PRECISION[row["precision"]]
        if "V100" in row["gpu"] and precision is DataType.TF32:
            precision = DataType.FP32
        sampled = sample_operations(program, topology, kernels_alone(topology, precision))
        logs = np.log(sampled.times[:, 0])
        measured = float(row["step_ms"]) * MS
        steps.append(
            JudgedStep(
                name=f"{row['framework']} {row['num_gpus']} x {row['gpu']} {row['precision']}",
                groups={"framework": row["framework"], "gpu": row["gpu"][:4]},
                measured=measured,
                predicted=float(sampled.predicted[0]),
                error=float(np.log(measured) - logs.mean()),
                sigma=float(logs.std()),
            )
        )
    return steps


def kernels_alone(topology: Topology, precision: DataType) -> ErrorModel:
    """Return a machine's errors without those of the structure of steps."""
    spreads = dict(error_model(topology, precision).spreads)
    del spreads[Cause.STRUCTURE]
    return ErrorModel(spreads=spreads)


def on_cores(study: Path, profile: Path | str) -> tuple[list[JudgedStep], list[float]]:
    """Return the steps of a study on CPU cores, and what plans of a workload differ by.

    The second are squared differences of two plans' errors, of all pairs, each less what the
    samples have it.
    """
    record = json.loads(study.read_text(encoding="utf-8"))["workloads"]
    topology = Topology(hardware=load_profile(profile), world_size=2, local_world_size=2)
    steps: list[JudgedStep] = []
    differences = []
    for name, entries in record.items():
        work, outcomes = workload(name), studied(name, entries, topology).outcomes
        plans = [plan_from_tables(entries[each.name]["tables"], topology) for each in outcomes]
        errors = kernels_alone(topology, work.dense.precision)
        samples = sample_steps(work, topology, plans, errors=errors)
        logs = np.log(samples.times)
        made = [
            JudgedStep(
                name=f"{name}, {each.name}",
                groups={"workload": name},
                measured=each.measured,
                predicted=each.predicted,
                error=log(each.measured) - float(logs[:, index].mean()),
                sigma=float(logs[:, index].std()),
            )
            for index, each in enumerate(outcomes)
        ]
        differences += [
            (made[i].error - made[j].error) ** 2 - float((logs[:, i] - logs[:, j]).var())
            for i, j in combinations(range(len(made)), 2)
        ]
        steps += made
    return steps, differences


def structure_sigma(steps: Sequence[JudgedStep]) -> float:
    """Return what errors have beyond the kernels' spread: the root of the mean difference."""
    return _root([step.error**2 - step.sigma**2 for step in steps])


def own_sigma(differences: Sequence[float]) -> float:
    """Return what a plan is off by beyond its kernels that another plan of the workload is not."""
    return _root(differences) / sqrt(2.0)


def _root(beyond: Sequence[float]) -> float:
    return sqrt(max(0.0, sum(beyond) / len(beyond)))


def left_out(steps: Sequence[JudgedStep], by: str | None = None) -> list[bool]:
    """Tell of every step whether it is in the interval by steps that do not share its group.

    By Student's t: the others are few.
    """
    inside = []
    for step in steps:
        others = [
            o for o in steps if (o is not step if by is None else o.groups[by] != step.groups[by])
        ]
        width = float(student.ppf(0.5 + LEVEL / 2, len(others)))
        inside.append(abs(step.error) <= width * hypot(step.sigma, structure_sigma(others)))
    return inside


def within(steps: Sequence[JudgedStep], structure: float) -> list[bool]:
    """Tell of every step whether it is in the interval by its kernels and a given structure."""
    return [abs(step.error) <= NORMAL_90 * hypot(step.sigma, structure) for step in steps]


def results() -> dict[str, Any]:
    """Return all coverages as JSON."""
    steps, (runs, differences) = published(), on_cores(STUDY, PROFILE)
    by_others, by_workloads = left_out(steps), left_out(runs, "workload")
    return {
        "level": LEVEL,
        "steps": {
            "structure_sigma": round(structure_sigma(steps), 4),
            "tests": {
                "kernels alone": _counted(within(steps, 0.0)),
                "kernels, and the other steps": _counted(by_others),
                "kernels, and those of other frameworks": _counted(left_out(steps, "framework")),
                "kernels, and those of other GPUs": _counted(left_out(steps, "gpu")),
            },
            "rows": [_row(step, held) for step, held in zip(steps, by_others, strict=True)],
        },
        "cpu_runs": {
            "structure_sigma": round(structure_sigma(runs), 4),
            "own_sigma": round(own_sigma(differences), 4),
            "tests": {
                "kernels alone": _counted(within(runs, 0.0)),
                "kernels, and the other workloads": _counted(by_workloads),
                "as shipped": _counted(within(runs, hypot(*STRUCTURE_ON_CORES))),
            },
        },
        "whole_steps": {"tests": {"kernels, and other steps": _counted(by_others + by_workloads)}},
    }


def _counted(inside: Sequence[bool]) -> dict[str, float]:
    held, points = sum(inside), len(inside)
    return {"points": points, "held": held, "coverage": round(held / points, 4)}


def _row(step: JudgedStep, held: bool) -> dict[str, Any]:  # noqa: FBT001 -- zipped
    return {
        "step": step.name,
        "measured_s": step.measured,
        "predicted_s": round(step.predicted, 6),
        "log_error": round(step.error, 3),
        "kernel_sigma": round(step.sigma, 3),
        "held": held,
    }


OF = {
    "steps": "published steps",
    "cpu_runs": "steps on CPU cores",
    "whole_steps": "all whole steps",
}


def table(found: Mapping[str, Any]) -> str:
    """Return how often intervals held, in Markdown."""
    rows = [
        (what, test, f"{data['points']:,}", f"{data['coverage']:.0%}")
        for part, what in OF.items()
        for test, data in found[part]["tests"].items()
    ]
    return markdown(("measured", "interval from", "points", "inside"), rows)


def show(found: Mapping[str, Any]) -> None:
    """Print the table, and what whole steps are off by beyond their kernels."""
    steps, runs = found["steps"]["structure_sigma"], found["cpu_runs"]["structure_sigma"]
    print(table(found))
    print(f"beyond kernels: published steps {steps:.1%}, steps on CPU cores {runs:.1%}")


if __name__ == "__main__":
    print_and_keep(__doc__, RESULTS, results, show)
