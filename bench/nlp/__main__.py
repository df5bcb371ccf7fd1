"""BERT, GPT-2 and XLNet under DDP, predicted: `python -m bench.nlp [--write]`.

Hugging Face models with random weights trained on two ranks, each on one core, with gloo. A step is
predicted from its execution traces, which hold no times, and a profile of the CPU, measured on
other shapes: operators by micro-benchmarks, the host by models of hidden size 32. Predictions
are compared with steps timed without a profiler. Traces, profile and steps are of 2026-11-21; what
measured them is in commit aea356c.
"""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.kept import print_and_keep
from bench.nlp.cpu_graph import CORE, machine_of
from bench.nlp.cpu_profile import read_cpu_profile
from costmodel.base.units import MS
from planner.traces.predict.prediction import Prediction, predict_documents
from planner.traces.trace_files import Document, read_documents

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench/results"
PROFILE = RESULTS / "nlp_cpu.yaml"
TRACES = RESULTS / "nlp_traces.tar.xz"
MEASURED = RESULTS / "nlp_measured.json"
TABLE = RESULTS / "nlp.json"
PAPER_GEOMEAN = 0.0300
"""Geometric mean of the step time errors of NLP models, arXiv 2404.12674, abstract."""


def predicted(name: str, documents: Sequence[tuple[str, Document]]) -> Prediction:
    """Predict one case from its traces among the documents."""
    mine = [(file, document) for file, document in documents if file.startswith(f"{name}-rank")]
    profile = read_cpu_profile(PROFILE)
    return predict_documents(
        mine, name, str(PROFILE), lambda num_ranks: machine_of(profile, num_ranks, name)
    )


def table() -> dict[str, Any]:
    """Return predictions beside what was measured."""
    kept = json.loads(MEASURED.read_text(encoding="utf-8"))
    documents = read_documents(TRACES)
    rows = []
    for case in kept["cases"]:
        made = predicted(case["name"], documents)
        unknown = sum(each.share for each in made.unknown)
        rows.append({
            "model": case["model"],
            "local_batch_size": case["local_batch_size"],
            "sequence_length": case["sequence_length"],
            "optimizer": case["optimizer"],
            "measured_s": case["step_s"],
            "spread": case["spread"],
            "measured_cpu_s": case["cpu_s"],
            "predicted_s": made.step_time,
            "error": made.step_time / case["step_s"] - 1,
            "predicted_cpu_s": _core_time(made),
            "cpu_error": _core_time(made) / case["cpu_s"] - 1,
            "unknown_share": unknown,
            "extrapolated_share": made.extrapolated,
            "critical_path_s": {s.value: t for s, t in made.timeline.breakdown().items()},
        })
    return {
        "machine": kept["machine"],
        "date": kept["date"],
        "cores_busy_with_other_processes": kept["cores_busy_with_other_processes"],
        "geomean_error": _geomean([abs(row["error"]) for row in rows]),
        "geomean_cpu_error": _geomean([abs(row["cpu_error"]) for row in rows]),
        "geomean_of_paper": PAPER_GEOMEAN,
        "rows": rows,
    }


def _core_time(made: Prediction) -> float:
    """Return how long a rank's core works in the predicted step, mean of the ranks."""
    busy = [made.timeline.busy(rank.rank)[CORE] for rank in made.ranks]
    return statistics.fmean(sum(stages.values()) for stages in busy)


def _geomean(errors: Sequence[float]) -> float:
    return math.exp(statistics.fmean(math.log(max(error, 1e-4)) for error in errors))


def show(made: Mapping[str, Any]) -> None:
    """Print the table."""
    print(f"{made['machine']}; measured {made['date']}")
    busy = ", ".join(f"{cores:.1f}" for cores in made["cores_busy_with_other_processes"])
    print(f"rounds with {busy} of 2 cores busy with other processes; spread is that of the rounds")
    header = (
        "model", "sequence", "batch", "optimizer", "measured", "spread", "predicted", "error",
        "CPU time", "predicted", "error",
    )  # fmt: skip
    form = "{:>7}{:>9}{:>6}{:>10}{:>11}{:>8}{:>11}{:>8}{:>11}{:>11}{:>8}"
    print(form.format(*header))
    for row in made["rows"]:
        times = [row[k] for k in ("measured_s", "predicted_s", "measured_cpu_s", "predicted_cpu_s")]
        wall, predicted, cpu, core = (f"{time / MS:.1f} ms" for time in times)
        shares = (f"{row[key]:+.1%}" for key in ("error", "cpu_error"))
        step, work = shares
        print(
            form.format(
                row["model"], row["sequence_length"], row["local_batch_size"], row["optimizer"],
                wall, f"{row['spread']:.1%}", predicted, step, cpu, core, work,
            )
        )  # fmt: skip
    print(
        f"geometric mean of errors {made['geomean_error']:.2%} of the step, "
        f"{made['geomean_cpu_error']:.2%} of the CPU time; the paper's {PAPER_GEOMEAN:.2%}"
    )


if __name__ == "__main__":
    print_and_keep(__doc__, TABLE, table, show)
