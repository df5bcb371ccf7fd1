"""BERT, GPT-2 and XLNet under DDP, predicted: `python -m bench.nlp [--calibrate] [--measure]`.

Hugging Face models with random weights train on two ranks, each on one core, with gloo. A step is
predicted from its execution traces, which hold no times, and a profile of the CPU, measured on
other shapes: operators by micro-benchmarks, the host by models of hidden size 32. Predictions
are compared with steps timed without a profiler.

``--calibrate`` makes the profile, ``--measure`` traces and times the models (both need the extra
``nlp``); without either, the table is printed from what is committed. ``--write`` keeps it.
"""

import io
import json
import lzma
import math
import os
import statistics
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.kept import write
from bench.nlp.cpu_graph import CORE, machine_of
from bench.nlp.cpu_profile import dump_cpu_profile, read_cpu_profile
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
_ROUNDS = 4


def calibrate() -> None:
    """Measure this machine and keep its profile."""
    from bench.nlp.calibration import calibrated

    PROFILE.write_text(dump_cpu_profile(calibrated()), encoding="utf-8")


def measure() -> None:
    """Trace and time the cases, round by round, and keep both."""
    from bench.nlp.calibration import source
    from bench.nlp.cases import cases, time_all, trace_all
    from bench.nlp.ranks import OtherLoad, run_ranks, session_nice

    with tempfile.TemporaryDirectory() as folder:
        run_ranks(trace_all, folder)
        _pack(Path(folder))
    others, rounds = [], []
    for _ in range(_ROUNDS):
        with OtherLoad() as other:
            rounds.append(run_ranks(time_all))
        others.append(other.cores)
    kept = {
        "machine": source(),
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "nice": os.nice(0),
        "session_nice": session_nice(),
        "cores_busy_with_other_processes": others,
        "cases": [{**case.data(), **_summary(case.name, rounds)} for case in cases()],
    }
    write(MEASURED, kept)


def _summary(name: str, rounds: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the median over rounds of the slower rank's median step, and how rounds differ."""
    steps = [
        [max(pair) for pair in zip(*(rank[name]["wall_s"] for rank in ranks), strict=True)]
        for ranks in rounds
    ]
    medians = [statistics.median(each) for each in steps]
    cpu = [step for ranks in rounds for rank in ranks for step in rank[name]["cpu_s"]]
    return {
        "name": name,
        "step_s": statistics.median(medians),
        "round_medians_s": medians,
        "spread": (max(medians) - min(medians)) / statistics.median(medians),
        "fastest_s": min(step for each in steps for step in each),
        "cpu_s": statistics.median(cpu),
    }


def _pack(folder: Path) -> None:
    with (
        lzma.open(TRACES, "wb", preset=9 | lzma.PRESET_EXTREME) as file,
        tarfile.open(fileobj=file, mode="w") as archive,
    ):
        for path in sorted(folder.glob("*.json")):
            entry = tarfile.TarInfo(path.name)
            data = path.read_bytes()
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


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


def main() -> None:
    """Do what was asked, then print the table."""
    if "--calibrate" in sys.argv:
        calibrate()
    if "--measure" in sys.argv:
        measure()
    if not (PROFILE.is_file() and MEASURED.is_file() and TRACES.is_file()):
        sys.exit("nothing is measured yet: run with `--calibrate --measure`")
    made = table()
    show(made)
    if "--write" in sys.argv:
        write(TABLE, made)


if __name__ == "__main__":
    main()
