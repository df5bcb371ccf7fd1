"""How often 90% intervals of whole steps hold: `python -m bench.coverage [--write]`.

Every interval is made without the steps it is tested on:

* *published steps*, predicted as ``bench.published_steps`` does, nothing fitted. What steps are
  off by beyond their kernels (``error_model.STRUCTURE``) is estimated from the other rows: all
  others, or only those of other frameworks, or of other GPUs.
* *CPU runs*: the same for the plans of ``bench.cpu_study``; the structure of a workload's steps is
  that of the other workloads.
* *all whole steps*: both, every step with a structure from others.

Needs ``../shared/data``; takes half a minute.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

from bench import cpu_coverage
from bench.kept import print_and_keep
from bench.published_steps import PRECISION, program_of, published_rows
from costmodel.base.units import MS
from costmodel.domain.workload import DataType
from costmodel.uncertainty.error_model import (
    NORMAL_90,
    Cause,
    ErrorModel,
    error_model,
)
from costmodel.uncertainty.step_samples import sample_program

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench/results/coverage.json"
CPU_STUDY = ROOT / "bench/results/cpu_study.json"
CPU_PROFILE = ROOT / "bench/results/cpu_profile.yaml"
LEVEL = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How many of some measurements their intervals hold."""

    what: str
    points: int
    held: int

    @property
    def share(self) -> float:
        """Share of the measurements inside their interval."""
        return self.held / self.points

    def data(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"points": self.points, "held": self.held, "coverage": round(self.share, 4)}


def together(what: str, parts: Sequence[Coverage]) -> Coverage:
    """Return the coverage of several sets of measurements."""
    return Coverage(what=what, points=sum(p.points for p in parts), held=sum(p.held for p in parts))


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
        spreads = dict(error_model(topology, precision).spreads)
        del spreads[Cause.STRUCTURE]
        sampled = sample_program(program, topology, ErrorModel(spreads=spreads))
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


def structure_sigma(steps: Sequence[JudgedStep]) -> float:
    """Return what errors have beyond the kernels' spread: the root of the mean difference."""
    beyond = sum(step.error**2 - step.sigma**2 for step in steps) / len(steps)
    return sqrt(max(0.0, beyond))


def half_width(step: JudgedStep, others: Sequence[JudgedStep]) -> float:
    """Return half the width of a step's interval, by Student's t: the others are few."""
    sigma = hypot(step.sigma, structure_sigma(others))
    return float(student.ppf(0.5 + LEVEL / 2, len(others))) * sigma


def left_out(steps: Sequence[JudgedStep], by: str | None) -> tuple[Coverage, list[bool]]:
    """Test every step with the structure's spread of the steps that do not share its group."""
    inside = []
    for step in steps:
        others = [
            o for o in steps if (o is not step if by is None else o.groups[by] != step.groups[by])
        ]
        inside.append(abs(step.error) <= half_width(step, others))
    what = "each by all others" if by is None else f"by other {by}s"
    return Coverage(what=what, points=len(steps), held=sum(inside)), inside


def kernels_only(steps: Sequence[JudgedStep]) -> Coverage:
    """Test steps with the spread of their kernels alone."""
    held = sum(abs(step.error) <= NORMAL_90 * step.sigma for step in steps)
    return Coverage(what="errors of kernels alone", points=len(steps), held=held)


def results() -> dict[str, Any]:
    """Return all coverages as JSON."""
    steps = published()
    step_tests = [left_out(steps, by) for by in (None, "framework", "gpu")]
    cpu_runs = cpu_coverage.coverage(cpu_coverage.measured(CPU_STUDY, CPU_PROFILE))
    return {
        "level": LEVEL,
        "steps": {
            "structure_sigma": round(structure_sigma(steps), 4),
            "tests": {c.what: c.data() for c in (kernels_only(steps), *(t for t, _ in step_tests))},
            "rows": [
                _row(step, inside) for step, inside in zip(steps, step_tests[0][1], strict=True)
            ],
        },
        "cpu_runs": cpu_runs,
        "whole_steps": whole_steps(step_tests[0][0], cpu_runs).data(),
    }


def whole_steps(public: Coverage, cpu_runs: Mapping[str, Any]) -> Coverage:
    """Return the coverage of all measured steps, none of them tested with its own structure."""
    other = cpu_runs["tests"][cpu_coverage.OTHER_WORKLOADS]
    own = Coverage(what="cpu runs", points=other["points"], held=other["held"])
    return together("all whole steps", [public, own])


def _row(step: JudgedStep, inside: bool) -> dict[str, Any]:  # noqa: FBT001 -- zipped
    return {
        "step": step.name,
        "measured_s": step.measured,
        "predicted_s": round(step.predicted, 6),
        "log_error": round(step.error, 3),
        "kernel_sigma": round(step.sigma, 3),
        "held": inside,
    }


def table(found: Mapping[str, Any]) -> str:
    """Return how often intervals held, in Markdown."""
    steps, other = found["steps"]["tests"], cpu_coverage.OTHER_WORKLOADS
    rows = [
        ("published steps", "kernels alone", steps["errors of kernels alone"]),
        ("published steps", "kernels, and the other steps", steps["each by all others"]),
        ("published steps", "kernels, and those of other GPUs", steps["by other gpus"]),
        ("steps on CPU cores", other, found["cpu_runs"]["tests"][other]),
        ("all whole steps", "kernels, and other steps", found["whole_steps"]),
    ]
    lines = ["| measured | interval from | points | inside |", "| --- " * 4 + "|"]
    lines += [f"| {a} | {b} | {data['points']:,} | {data['coverage']:.0%} |" for a, b, data in rows]
    return "\n".join(lines)


def show(found: Mapping[str, Any]) -> None:
    """Print the table, and what whole steps are off by beyond their kernels."""
    steps, runs = found["steps"]["structure_sigma"], found["cpu_runs"]["structure_sigma"]
    print(table(found))
    print(f"beyond kernels: published steps {steps:.1%}, steps on CPU cores {runs:.1%}")


if __name__ == "__main__":
    print_and_keep(__doc__, RESULTS, results, show)
