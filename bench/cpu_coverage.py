"""Intervals and odds against real steps on CPUs: the plans of ``bench.cpu_study``.

Predicted with the committed profile of the machine, which knows kernels and collectives only;
sampled as ``planner plan`` samples.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import hypot, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np

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

BINS = (0.5, 0.7, 0.9, 1.0)
"""Odds of the plan that is more likely the faster one."""
OTHER_WORKLOADS = "kernels, and the other workloads"
"""The test whose structure comes from no plan of the workload tested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two plans whose order the measurements are sure of."""

    probability: float
    """That the first is faster, as predicted."""
    faster: bool
    """Whether it was."""

    @property
    def confidence(self) -> float:
        """Probability of the likelier order."""
        return max(self.probability, 1.0 - self.probability)

    @property
    def right(self) -> float:
        """Whether that was the order; half where both were as likely."""
        if self.probability == 0.5:
            return 0.5
        return float((self.probability > 0.5) is self.faster)


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
    pairs: tuple[Pair, ...]

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
    """Return how often intervals held, and how often the likelier of two plans was the faster."""
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
        "odds": odds([pair for group in groups for pair in group.pairs]),
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


def odds(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """Return, by how sure the prediction was, how often it was right."""
    rows = []
    for low, high in pairwise(BINS):
        some = [p for p in pairs if low <= p.confidence < high or p.confidence == high == 1.0]
        if some:
            rows.append({
                "from": low,
                "to": high,
                "pairs": len(some),
                "predicted": round(sum(pair.confidence for pair in some) / len(some), 4),
                "right": round(sum(pair.right for pair in some) / len(some), 4),
            })
    return rows


def _group(name: str, record: Mapping[str, Any], topology: Topology) -> Group:
    from bench.cpu_study import studied, workload
    from planner.validation.judge import are_told_apart

    work, outcomes = workload(name), studied(name, record, topology).outcomes
    plans = [plan_from_tables(record[each.name]["tables"], topology) for each in outcomes]
    spreads = dict(error_model(topology, work.dense.precision).spreads)
    shipped = sample_steps(work, topology, plans)
    del spreads[Cause.STRUCTURE]
    samples = sample_steps(work, topology, plans, errors=ErrorModel(spreads=spreads))
    logs = np.log(samples.times)
    means = logs.mean(axis=0)
    errors = [log(each.measured) - float(m) for each, m in zip(outcomes, means, strict=True)]
    numbered = [*combinations(range(len(outcomes)), 2)]
    return Group(
        name=name,
        errors=tuple(errors),
        sigmas=tuple(float(sigma) for sigma in logs.std(axis=0)),
        differences=tuple(
            (errors[i] - errors[j]) ** 2 - float((logs[:, i] - logs[:, j]).var())
            for i, j in numbered
        ),
        pairs=tuple(
            Pair(
                probability=shipped.probability_faster(i, j),
                faster=outcomes[i].measured < outcomes[j].measured,
            )
            for i, j in numbered
            if are_told_apart(outcomes[i], outcomes[j])
        ),
    )
