"""How often 90% intervals hold: `python -m bench.coverage [--write]`.

Every interval is made without the measurements it is tested on:

* *kernels*: held-out points of a curve or platform, the spread taken from one half of them and
  tested on the other, both ways; then the spread taken from other platforms only.
* *lookups on a CPU*: a calibration of half the tables, tested on the others
  (``bench.lookup_coverage``).
* *other labs*: the same GPU in another lab. Own spread of the profile, shared spread from the
  other GPU (products) or the other operations (collectives).
* *whole steps*: published steps, predicted as ``bench.published_steps`` does, nothing fitted. What
  steps are off by beyond their kernels (``error_model.STRUCTURE``) is estimated from the
  other rows: all others, or only those of other frameworks, or of other GPUs.
* *CPU runs*: the same for ``bench/results/cpu_study.json``, where it is: the structure of a
  workload's steps is that of the other workloads.
* *all whole steps*: both, every step with a structure from others: published ones from all other
  published ones, CPU runs from other workloads.

Needs ``../shared/data``; takes half a minute.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import hypot, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

from bench import cpu_coverage, holdout, lookup_coverage
from bench.fitting.sources import DATA
from bench.holdout import Errors
from bench.kept import write
from bench.published_steps import PRECISION, program_of, published_rows
from costmodel.base.units import MS
from costmodel.domain.workload import DataType
from costmodel.uncertainty.error_model import (
    NORMAL_90,
    NOT_MEASURED,
    Cause,
    ErrorModel,
    error_model,
    log_sigma,
)
from costmodel.uncertainty.step_samples import sample_program
from planner.files.profiles import load_profile

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


# -- kernels ------------------------------------------------------------------------------------


def within(errors: Errors) -> Coverage:
    """Take the 90th percentile from one half of the errors, test it on the other, both ways."""
    size = np.abs(np.random.default_rng(0).permutation(errors.values))
    halves = size[::2], size[1::2]
    held = sum(int((b <= np.quantile(a, LEVEL)).sum()) for a, b in (halves, halves[::-1]))
    return Coverage(what=errors.platform, points=len(size), held=held)


def across(errors: Sequence[Errors]) -> list[Coverage]:
    """Test every platform's errors with the median 90th percentile of the other platforms."""
    found = []
    for platform in dict.fromkeys(each.platform for each in errors):
        others = [np.quantile(np.abs(e.values), LEVEL) for e in errors if e.platform != platform]
        own = np.concatenate([np.abs(e.values) for e in errors if e.platform == platform])
        held = int((own <= np.median(others)).sum())
        found.append(Coverage(what=platform, points=len(own), held=held))
    return found


def by_platform(errors: Sequence[Errors]) -> list[Coverage]:
    """Return ``within`` for every platform, its curves each by itself; one point has no halves."""
    halved = [each for each in errors if len(each.values) > 1]
    return [
        together(platform, [within(each) for each in halved if each.platform == platform])
        for platform in dict.fromkeys(each.platform for each in halved)
    ]


def other_labs(errors: Sequence[Errors], own_sigma: Callable[[Errors], float]) -> Coverage:
    """Test other labs' measurements, the shared spread from every other set's median."""
    parts = []
    for each in errors:
        medians = [float(np.median(e.values)) for e in errors if e is not each]
        shared = sqrt(sum(median**2 for median in medians) / len(medians))
        widest = NORMAL_90 * hypot(shared, own_sigma(each))
        held = int((np.abs(each.values) <= widest).sum())
        parts.append(Coverage(what=each.part, points=len(each.values), held=held))
    return together(errors[0].family, parts)


def carried(errors: Sequence[Errors]) -> Coverage:
    """Test the shipped spread of products whose constants come from another GPU.

    Not held out: the spread was chosen with these in view. Every pair of GPUs counts the same.
    """
    widest = NORMAL_90 * hypot(*NOT_MEASURED[Cause.GEMM])
    shares = [float(np.mean(np.abs(each.values) <= widest)) for each in errors]
    points = sum(len(each.values) for each in errors)
    return Coverage(what="carried", points=points, held=round(points * sum(shares) / len(shares)))


# -- whole steps --------------------------------------------------------------------------------


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


# -- results ------------------------------------------------------------------------------------


def results() -> dict[str, Any]:
    """Return all coverages as JSON."""
    families = {"collectives": [*holdout.collectives()], "gemm": [*holdout.gemm()]}
    families["embedding"] = [*holdout.lookups()]
    labs = [*holdout.other_labs()]
    steps = published()
    step_tests = [left_out(steps, by) for by in (None, "framework", "gpu")]
    cpu_runs = _cpu_runs()
    return {
        "level": LEVEL,
        "kernels": {family: _kernel_data(errors) for family, errors in families.items()},
        "cpu_lookups": lookup_coverage.results(),
        "other_labs": {
            family: other_labs([e for e in labs if e.family == family], sigma).data()
            for family, sigma in (("gemm", _gemm_sigma), ("collectives", _collective_sigma))
        },
        "carried_products": carried([*holdout.carried_products()]).data(),
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


def whole_steps(public: Coverage, cpu_runs: Mapping[str, Any] | None) -> Coverage:
    """Return the coverage of all measured steps, none of them tested with its own structure."""
    tests = cpu_runs["tests"] if cpu_runs else {}
    other = tests.get(cpu_coverage.OTHER_WORKLOADS, {"points": 0, "held": 0})
    own = Coverage(what="cpu runs", points=other["points"], held=other["held"])
    return together("all whole steps", [public, own])


def _cpu_runs() -> dict[str, Any] | None:
    if not (CPU_STUDY.is_file() and CPU_PROFILE.is_file()):
        return None
    return cpu_coverage.coverage(cpu_coverage.measured(CPU_STUDY, CPU_PROFILE))


def _kernel_data(errors: Sequence[Errors]) -> dict[str, Any]:
    own, other = by_platform(errors), across(errors) if len(errors) > 1 else []
    ratios = [np.quantile(np.abs(e.values), LEVEL) / np.median(np.abs(e.values)) for e in errors]
    return {
        "p90_over_median": round(float(np.median(ratios)), 2),
        "own_half": together("", own).data(),
        "other_platforms": together("", other).data() if other else None,
        "by_platform": {
            each.what: {
                "own_half": each.data(),
                **({"other_platforms": other[i].data()} if other else {}),
            }
            for i, each in enumerate(own)
        },
    }


def _row(step: JudgedStep, inside: bool) -> dict[str, Any]:  # noqa: FBT001 -- zipped
    return {
        "step": step.name,
        "measured_s": step.measured,
        "predicted_s": round(step.predicted, 6),
        "log_error": round(step.error, 3),
        "kernel_sigma": round(step.sigma, 3),
        "held": inside,
    }


def _gemm_sigma(errors: Errors) -> float:
    fitted = load_profile(errors.platform.split()[0]).gpu.gemm["bf16"]
    return log_sigma(fitted.error, fitted.error_p90) or 0.0


def _collective_sigma(errors: Errors) -> float:
    op, _, ranks = errors.part.split()
    curves = load_profile("h100-sxm").curves
    (curve,) = (c for c in curves if (c.op, c.num_ranks) == (op, int(ranks)))
    return log_sigma(curve.error, curve.error_p90) or 0.0


def show(found: Mapping[str, Any]) -> None:
    """Print all coverages."""
    print("Held-out kernels: how many are inside 90% intervals")
    for family, data in found["kernels"].items():
        _line(f"{family}, spread of the other half", data["own_half"])
        _line(f"{family}, spread of other platforms", data["other_platforms"])
        for platform, each in data["by_platform"].items():
            _line(f"  {platform}, of the other half", each["own_half"])
            _line(f"  {platform}, of other platforms", each.get("other_platforms"))
    for phase, data in found["cpu_lookups"].items():
        _line(f"embedding {phase} on a CPU, calibrated on the other tables", data)
    print("Another lab's machines with the same GPU")
    for family, data in found["other_labs"].items():
        _line(family, data)
    _line("products, constants carried from any other GPU", found["carried_products"])
    _show_steps(found["steps"])
    if found["cpu_runs"]:
        _show_cpu(found["cpu_runs"])
    _line("all whole steps, structure from others", found["whole_steps"])


def _line(what: str, data: Mapping[str, Any] | None) -> None:
    if data is not None:
        print(f"  {what:58} {data['held']:5} of {data['points']:5}  {data['coverage']:6.1%}")


def _show_steps(steps: Mapping[str, Any]) -> None:
    print(f"Whole steps; structure {steps['structure_sigma']:.1%} beyond the kernels")
    for what, data in steps["tests"].items():
        _line(what, data)
    for row in steps["rows"]:
        mark = " " if row["held"] else "outside"
        print(f"    {row['step']:52} {row['log_error']:+.2f} of {row['kernel_sigma']:.2f}  {mark}")


def _show_cpu(runs: Mapping[str, Any]) -> None:
    print(
        f"Steps of {runs['workloads']} workloads on CPUs; structure {runs['structure_sigma']:.1%}"
    )
    for what, data in runs["tests"].items():
        _line(what, data)
    for row in runs["odds"]:
        print(
            f"  the likelier order of two plans, at {row['from']:.0%} to {row['to']:.0%}: "
            f"{row['predicted']:.0%} predicted, {row['right']:.0%} of {row['pairs']} right"
        )


def main() -> None:
    """Print how often intervals hold; with --write keep it."""
    if not DATA.is_dir():
        sys.exit("no measurements: ../shared/data is missing")
    found = results()
    show(found)
    if "--write" in sys.argv:
        write(RESULTS, found)


if __name__ == "__main__":
    main()
