"""Weak scaling to thousands of GPUs, in one group and in several: `python -m bench.scale`.

The local batch stays, so the step should. Each model is planned as one group of all GPUs
(``DistributedModelParallel``), and with a group size that is chosen with the plan (``auto``,
``DMPCollection``), its replicas averaged after every step, or every tenth. Each plan is made in a
process of its own, by processor time; wall seconds are those of a machine that may be shared.
"per GPU" is the throughput per GPU over that on 64 planned in the same way. TorchRec's planner is
its port, which has 300 s to end by itself, for one group: TorchRec plans no group sizes.

References
----------
arXiv 2508.03854, abstract: training speed nearly linear up to 4K GPUs with groups (other models,
on other machines; its tables were not at hand).

"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.kept import markdown, parser_of, row_by_row
from bench.time_limits import SizedWorkload
from costmodel.base.errors import InfeasibleError
from costmodel.base.units import GIB, MS, Seconds
from planner.search.baseline import DEFAULT_BASELINE
from planner.verbs.grouping import AUTO, Grouping
from planner.verbs.planning import plan

WORKLOADS = Path(__file__).parent / "workloads"
RESULTS = Path(__file__).parent / "results" / "scale.json"
HARDWARE = "h100-sxm"
GPUS = (64, 256, 1024, 2048, 4096)
OPEN_856, DRAWN_5000 = "open_856", "drawn_5000"
SECONDS: Mapping[str, Seconds] = {OPEN_856: 20.0, DRAWN_5000: 60.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How plans are made: in which groups, by whom, within how many CPU seconds."""

    grouping: Grouping | None = None
    sharder: str = "auto"
    seconds: Mapping[str, Seconds] = field(default_factory=lambda: SECONDS)
    """By model."""


WAYS: Mapping[str, Way] = {
    "one group": Way(),
    "groups": Way(grouping=Grouping(group_size=AUTO)),
    "groups, every 10 steps": Way(grouping=Grouping(group_size=AUTO, sync_interval=10)),
    "TorchRec's planner": Way(sharder=DEFAULT_BASELINE, seconds=dict.fromkeys(SECONDS, 300.0)),
}


@dataclass(frozen=True, slots=True)
class ScaledPlan:
    """A model planned in one way on so many GPUs."""

    model: str
    way: str
    gpus: int

    @property
    def name(self) -> str:
        """Its name among the results."""
        return f"{self.model}, {self.way}, {self.gpus}"


CASES = {
    case.name: case
    for case in (ScaledPlan(m, w, n) for m in (OPEN_856, DRAWN_5000) for w in WAYS for n in GPUS)
}


def planned(name: str) -> dict[str, Any]:
    """Return what is found for a case, in this process."""
    case = CASES[name]
    way = WAYS[case.way]
    with TemporaryDirectory() as folder:
        path = WORKLOADS / f"{OPEN_856}.yaml"
        if case.model == DRAWN_5000:
            path = Path(folder) / "tables.yaml"
            path.write_text(SizedWorkload(5000, case.gpus).text(), encoding="utf-8")
        began = time.monotonic(), time.process_time()
        try:
            made = plan(
                path,
                gpus=case.gpus,
                hardware=HARDWARE,
                sharder=way.sharder,
                replica_group=way.grouping,
                baseline=None,
                time_limit=way.seconds[case.model],
                clock=time.process_time,
            )
        except InfeasibleError as error:
            return {"no_plan": str(error), **_spent(began)}
    report = made.report
    bound = report.search and report.search.bound
    return {
        "step_ms": round(report.modelled.seconds / MS, 2),
        "expected_ms": round(report.step_time / MS, 2),
        "bound_ms": bound and round(bound.seconds / MS, 2),
        "bound_is_bare": bool(report.search and report.search.is_bare),
        "averaging_ms": round(report.averaging_time / MS, 2),
        "group": report.world_size,
        "consecutive": bool(report.replicas and report.replicas.use_inter_host_allreduce),
        "samples_per_s": round(
            made.workload.local_batch_size * case.gpus / report.modelled.seconds
        ),
        "status": report.search and report.search.status,
        **_spent(began),
    }


def _spent(began: tuple[Seconds, Seconds]) -> dict[str, float]:
    """Return the seconds since then, by the wall and by the process, and its most memory."""
    return {
        "wall_s": round(time.monotonic() - began[0], 1),
        "cpu_s": round(time.process_time() - began[1], 1),
        "memory_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB, 2),
    }


def in_a_process(name: str) -> dict[str, Any]:
    """Return what is found for a case, in a process of its own, so that memory is its own."""
    command = [sys.executable, "-m", "bench.scale", "--one", name]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def per_gpu(results: Mapping[str, Mapping[str, Any]], name: str) -> float | None:
    """Return the throughput per GPU over that on 64 planned in the same way, if that is known."""
    case = CASES[name]
    first = results.get(ScaledPlan(case.model, case.way, GPUS[0]).name, {})
    if "samples_per_s" not in first or "samples_per_s" not in results[name]:
        return None
    now = results[name]["samples_per_s"] / case.gpus
    return float(now / (first["samples_per_s"] / GPUS[0]))


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the rows as a table of Markdown."""
    found_in = "step", "bound", "averaging", "group", "per GPU, of 64's", "wall", "memory"
    rows = []
    for name, case in sorted(CASES.items(), key=lambda each: (each[1].model, each[1].gpus)):
        if name in results:
            row, share = results[name], per_gpu(results, name)
            found = ["no plan", *"---"] if "no_plan" in row else _found(row, case)
            throughput = "-" if share is None else f"{share:.0%}"
            spent = f"{row['wall_s']:.0f} s", f"{row['memory_gib']:.1f} GiB"
            rows.append((case.model, f"{case.gpus:,}", case.way, *found, throughput, *spent))
    return markdown(("model", "GPUs", "way", *found_in), rows)


def _found(row: Mapping[str, Any], case: ScaledPlan) -> list[str]:
    """Return the cells of a plan: its step, bound, averaging and groups."""
    cut = WAYS[case.way].sharder == DEFAULT_BASELINE and row["status"] == "limit"
    bound = "-" if not row["bound_ms"] or row["bound_is_bare"] else f"{row['bound_ms']:.0f} ms"
    place = "consecutive" if row["consecutive"] else f"{case.gpus // row['group']} apart"
    return [
        f"{row['step_ms']:.0f} ms{' (stopped)' if cut else ''}",
        bound,
        f"{row['averaging_ms']:.1f} ms" if row["averaging_ms"] else "-",
        "all" if row["group"] == case.gpus else f"{row['group']}, {place}",
    ]


def main() -> None:
    """Plan all cases, or those named, and with --write keep the results."""
    parser = parser_of(__doc__, RESULTS)
    parser.add_argument("--one", choices=CASES, help="plan this case alone, in this process")
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(planned(asked.one)))
        return
    results = row_by_row(RESULTS, asked.cases, in_a_process, print, keep=asked.write)
    print(table(results))


if __name__ == "__main__":
    main()
