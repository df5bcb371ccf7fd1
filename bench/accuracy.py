"""Absolute errors of predicted steps, as the paper sums them up: `python -m bench.accuracy`.

Published steps and those of the study on CPU cores, beside predictions to which nothing is fitted;
``--write`` keeps them for the pages. Needs ``../shared/data``.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any

from bench import cpu_study
from bench.kept import markdown, print_and_keep
from bench.published_steps import results as published
from costmodel.domain.hardware import Topology
from planner.files.profiles import load_profile

RESULTS = Path(__file__).parent / "results" / "accuracy.json"
STUDY = RESULTS.with_name("cpu_study.json")
LEAST = 1e-4
"""Smaller errors count as this one in geometric means."""
_ERRORS = ("geomean", "mean", "min", "max")
ON_GPUS, ON_CORES = "GPUs, all", "TorchRec on CPU, 2 gloo ranks"


def step_rows() -> list[dict[str, Any]]:
    """Return every whole step there is beside its prediction, public ones and real runs'."""
    rows = [
        {
            "set": f"{row['framework']}, {row['num_gpus']} GPU{'s' * (row['num_gpus'] > 1)}",
            "name": f"{row['num_gpus']} x {row['gpu'].split('-')[0]}, {row['precision']}",
            "measured_s": row["measured_s"],
            "predicted_s": row["predicted_s"],
            "error": row["error"],
        }
        for row in published()
    ]
    return rows + cpu_rows()


def cpu_rows() -> list[dict[str, Any]]:
    """Return the steps of the study on CPU cores with gloo."""
    kept = json.loads(STUDY.read_text(encoding="utf-8"))
    hardware = load_profile(cpu_study.PROFILE)
    topology = Topology(hardware=hardware, world_size=2, local_world_size=2)
    studies = [
        cpu_study.studied(name, record, topology) for name, record in kept["workloads"].items()
    ]
    return [
        {
            "set": ON_CORES,
            "name": f"{study.name}, {outcome.name}",
            "measured_s": outcome.measured,
            "predicted_s": outcome.predicted,
            "error": outcome.predicted / outcome.measured - 1,
        }
        for study in studies
        for outcome in study.outcomes
    ]


def table_ii(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Sum up steps as the paper's Table II does: geometric mean, least and most of the error.

    Steps on GPUs are summed up apart: those on CPU cores are many, and would hide them.
    """
    groups: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        groups[row["set"]].append(abs(row["error"]))
    cores = {name: errors for name, errors in groups.items() if name == ON_CORES}
    gpus = {name: errors for name, errors in groups.items() if name != ON_CORES}
    together = [error for errors in gpus.values() for error in errors]
    sums = [*gpus.items(), (ON_GPUS, together), *cores.items()]
    return [
        {
            "set": name,
            "steps": len(errors),
            "geomean": geometric_mean(max(error, LEAST) for error in errors),
            "mean": fmean(errors),
            "min": min(errors),
            "max": max(errors),
        }
        for name, errors in sums
    ]


def table(sums: Sequence[Mapping[str, Any]]) -> str:
    """Return ``table_ii`` in Markdown."""
    rows = [(row["set"], row["steps"], *(f"{row[name]:.1%}" for name in _ERRORS)) for row in sums]
    return markdown(("steps of", "number", *_ERRORS), rows)


def results() -> dict[str, Any]:
    """Return all steps and their sums as plain data."""
    rows = step_rows()
    return {"rows": rows, "table_ii": table_ii(rows)}


if __name__ == "__main__":
    print_and_keep(__doc__, RESULTS, results, lambda found: print(table(found["table_ii"])))
