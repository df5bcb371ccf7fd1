"""Intervals against real steps on CPUs: the plans of ``bench.cpu_study``.

Predicted with the committed profile of the machine, which knows kernels and collectives only;
sampled as ``planner plan`` samples.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import hypot, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from bench.cpu_study import studied, workload
from costmodel.domain.hardware import Topology
from costmodel.uncertainty.error_model import (
    NORMAL_90,
    STRUCTURE,
    STRUCTURE_ON_CORES,
    Cause,
    ErrorModel,
    error_model,
)
from costmodel.uncertainty.step_samples import sample_steps
from planner.files.plans import plan_from_tables
from planner.files.profiles import load_profile

OTHER_WORKLOADS = "kernels, and the other workloads"
"""The test whose structure comes from no plan of the workload tested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Plans of one workload, measured on one machine."""

    name: str
    errors: tuple[float, ...]
    """log(measured / geometric mean of the samples) of every plan."""
    sigmas: tuple[float, ...]
    """Spread of the samples' logarithms, without the structure's."""
    differences: tuple[float, ...]
    """Squared difference of two plans' errors less what the samples have it, of all pairs."""

    def held(self, structure: float) -> int:
        """Count the plans inside their 90% interval, for a spread of the structure."""
        limits = [NORMAL_90 * hypot(structure, sigma) for sigma in self.sigmas]
        return sum(abs(e) <= limit for e, limit in zip(self.errors, limits, strict=True))


def measured(results: Path, profile: Path | str) -> list[Group]:
    """Return the study's workloads with today's samples."""
    record = json.loads(results.read_text(encoding="utf-8"))["workloads"]
    topology = Topology(hardware=load_profile(profile), world_size=2, local_world_size=2)
    return [_group(name, plans, topology) for name, plans in record.items()]


def coverage(groups: Sequence[Group]) -> dict[str, Any]:
    """Return how often intervals held."""
    points = sum(len(group.errors) for group in groups)
    tests = {
        "errors of kernels alone": sum(group.held(0.0) for group in groups),
        "kernels, and published steps": sum(group.held(hypot(*STRUCTURE)) for group in groups),
        "as shipped": sum(group.held(hypot(*STRUCTURE_ON_CORES)) for group in groups),
    }
    if len(groups) > 1:
        tests[OTHER_WORKLOADS] = sum(
            group.held(structure_sigma([g for g in groups if g is not group])) for group in groups
        )
    return {
        "workloads": len(groups),
        "points": points,
        "structure_sigma": round(structure_sigma(groups), 4),
        "own_sigma": round(own_sigma(groups), 4),
        "by_workload": {group.name: _data(group) for group in groups},
        "tests": {
            what: {"points": points, "held": held, "coverage": round(held / points, 4)}
            for what, held in tests.items()
        },
    }


def _data(group: Group) -> dict[str, Any]:
    return {
        "points": len(group.errors),
        "mean_log_error": round(sum(group.errors) / len(group.errors), 4),
        "kernel_sigma": round(sum(group.sigmas) / len(group.sigmas), 4),
        "held_by_kernels_alone": group.held(0.0),
    }


def structure_sigma(groups: Sequence[Group]) -> float:
    """Return what steps are off by beyond their kernels."""
    beyond = [
        error**2 - sigma**2
        for group in groups
        for error, sigma in zip(group.errors, group.sigmas, strict=True)
    ]
    return sqrt(max(0.0, sum(beyond) / len(beyond)))


def own_sigma(groups: Sequence[Group]) -> float:
    """Return what a plan is off by beyond its kernels that another plan of the workload is not."""
    beyond = [difference for group in groups for difference in group.differences]
    return sqrt(max(0.0, sum(beyond) / len(beyond) / 2.0)) if beyond else 0.0


def _group(name: str, record: Mapping[str, Any], topology: Topology) -> Group:
    work, outcomes = workload(name), studied(name, record, topology).outcomes
    plans = [plan_from_tables(record[each.name]["tables"], topology) for each in outcomes]
    spreads = dict(error_model(topology, work.dense.precision).spreads)
    del spreads[Cause.STRUCTURE]
    samples = sample_steps(work, topology, plans, errors=ErrorModel(spreads=spreads))
    logs = np.log(samples.times)
    means = logs.mean(axis=0)
    errors = [log(each.measured) - float(m) for each, m in zip(outcomes, means, strict=True)]
    return Group(
        name=name,
        errors=tuple(errors),
        sigmas=tuple(float(sigma) for sigma in logs.std(axis=0)),
        differences=tuple(
            (errors[i] - errors[j]) ** 2 - float((logs[:, i] - logs[:, j]).var())
            for i, j in combinations(range(len(outcomes)), 2)
        ),
    )
