"""Replays read by other tools: `python -m bench.trace_readers [--write]`.

Every set of profiled runs in ``../shared/data/traces`` is replayed, and the replay's Chrome traces
are read by HolisticTraceAnalysis, which also reads the profiler's own: both times it says how many
kernels and copies a step has on every rank and how long they take. Its breakdowns and its critical
path are asked for, too. Perfetto's trace processor imports the same files, where it can be had:
its package fetches it from the net. What it would complain about is tested without it
(``tests/perfetto.py``).

Needs ``pip install HolisticTraceAnalysis "pandas<3"``: the critical path of HTA 0.5.0 fails with
pandas 3.
"""

import logging
import re
import sys
import tarfile
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

from bench.kept import write
from bench.replay import ROOT, SETS, TRACES
from planner.traces.replay.importing import load_run
from planner.traces.replay.modes import replay, step_spans
from planner.traces.trace_folder import write_traces

RESULTS = ROOT / "bench/results/trace_readers.json"


def profiled(name: str, folder: Path) -> list[Path]:
    """Return the profiler's own traces by rank; archives are unpacked to a folder."""
    for archive in (TRACES / name).glob("kineto*.tar.gz"):
        with tarfile.open(archive) as file:
            file.extractall(folder, filter="data")
    found = [*folder.rglob("*.json"), *(TRACES / name).glob("rank*.json.gz")]
    return sorted(found, key=lambda path: int(re.findall(r"\d+", path.name)[0]))


def replayed(name: str, folder: Path) -> list[Path]:
    """Write the traces of a replay, and return them by rank."""
    run = load_run(TRACES / name)
    timeline = replay(run).timeline
    if timeline is None:
        raise ValueError(f"the replay of `{name}` has no timeline")
    return write_traces(timeline, folder, step_spans(run, timeline))


def device_work(paths: Sequence[Path]) -> dict[tuple[int, int], tuple[int, float]]:
    """Return number and summed time (us) of what the GPU does, by rank and profiled step.

    HTA counts a step's work by who launched it.
    """
    trace = _opened(paths).t
    found = {}
    for rank in range(len(paths)):
        events = trace.get_trace(rank)
        on_gpu = events[(events["stream"] >= 0) & (events["iteration"] >= 0)]
        for step, work in on_gpu.groupby("iteration"):
            found[rank, int(step)] = (len(work), float(work["dur"].sum()))
    return found


def analyses(paths: Sequence[Path]) -> dict[str, int]:
    """Return how many rows HTA's analyses of a replay have; the critical path's are nodes."""
    opened = _opened(paths)
    graph, found = opened.critical_path_analysis(rank=0, annotation="ProfilerStep", instance_id=0)
    return {
        "temporal_breakdown": len(opened.get_temporal_breakdown(visualize=False)),
        "comm_comp_overlap": len(opened.get_comm_comp_overlap(visualize=False)),
        "gpu_kernel_breakdown": len(opened.get_gpu_kernel_breakdown(visualize=False)[0]),
        "idle_time_breakdown": len(opened.get_idle_time_breakdown(visualize=False)[0]),
        "critical_path": len(graph.critical_path_nodes) if found else 0,
    }


def _opened(paths: Sequence[Path]) -> Any:  # noqa: ANN401 - HTA is untyped
    from hta.trace_analysis import TraceAnalysis

    files = {rank: str(path) for rank, path in enumerate(paths)}
    return TraceAnalysis(trace_files=files, trace_dir=str(paths[0].parent))


def compared(name: str) -> dict[str, Any]:
    """Return HTA's view of a run and of its replay."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "profiled").mkdir()
        made = replayed(name, folder / "replayed")
        theirs, ours = device_work(profiled(name, folder / "profiled")), device_work(made)
        both = theirs.keys() & ours.keys()
        return {
            "name": name,
            "num_ranks": len(made),
            "steps_profiled": len(theirs),
            "steps_read_back": len(both),
            "device_events": sum(ours[step][0] for step in both),
            "missing_device_events": sum(abs(theirs[s][0] - ours[s][0]) for s in both),
            "largest_difference_of_device_time": max(
                abs(ours[step][1] / theirs[step][1] - 1) for step in both
            ),
            "rows": analyses(made),
            "perfetto": perfetto(made),
        }


def perfetto(paths: Sequence[Path]) -> dict[str, int] | str:
    """Return Perfetto's counts of slices and of errors, or why it could not be asked."""
    try:
        from perfetto.trace_processor import TraceProcessor
    except ImportError:
        return "not installed"
    slices, errors = 0, 0
    try:
        for path in paths:
            with TraceProcessor(trace=str(path)) as processor:
                for row in processor.query("select count(1) as n from slice"):
                    slices += row.n
                wrong = "select sum(value) as n from stats where severity = 'error'"
                for row in processor.query(wrong):
                    errors += row.n or 0
    except (OSError, RuntimeError, ValueError, CalledProcessError) as error:
        return f"its trace processor could not be fetched ({type(error).__name__})"
    return {"slices": slices, "errors": errors}


def versions() -> Mapping[str, str | None]:
    """Return the versions of what read the traces."""
    found: dict[str, str | None] = {}
    for package in ("HolisticTraceAnalysis", "pandas", "perfetto"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def main() -> None:
    """Print the comparison; with --write keep it."""
    if not TRACES.is_dir():
        sys.exit(f"no traces at ../{TRACES.relative_to(ROOT.parent)}")
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    rows = [compared(name) for name in SETS]
    used = versions()
    print(", ".join(f"{name} {number or 'absent'}" for name, number in used.items()))
    for row in rows:
        print(
            f"{row['name']:40} {row['steps_read_back']} of {row['steps_profiled']} steps of ranks, "
            f"{row['device_events']:,} kernels and copies, {row['missing_device_events']} of them "
            f"missing; their time within {row['largest_difference_of_device_time']:.2%}; rows "
            f"{row['rows']}; Perfetto: {row['perfetto']}"
        )
    if "--write" in sys.argv:
        kept = {"date": date.today().isoformat(), "versions": used, "sets": rows}  # noqa: DTZ011
        write(RESULTS, kept)


if __name__ == "__main__":
    main()
