"""The sharders of the paper's Table III on heavy tasks: `python -m bench.table_iii [--write]`.

Ten tasks of 52 tables on 4 GPUs (``bench/workloads/heavy_*.yaml``), every sharder timed by the same
simulator, on the GPUs of the paper's Table IV as far as we have profiles. Prints predicted step
times, their spread, and who wins; the published range of the paper's own ten tasks (their table
sets are unpublished, so only the order of magnitude can be compared) stands beside it.
"""

import sys
from csv import DictReader
from pathlib import Path

import numpy as np

from bench.kept import write
from costmodel.base.units import MS
from planner.files.profiles import load_profile
from planner.files.workload import load_workload
from planner.search.running import run_sharders
from planner.search.search import Search
from planner.verbs.topologies import make_topology
from sharders.problem.sharding_problem import ShardingProblem

ROOT = Path(__file__).parents[1]
MEASURED = ROOT.parent / "shared/data/step_times.csv"
RESULTS = ROOT / "bench/results/table_iii.json"
TABLE_III = (
    "naive",
    "random",
    "size_greedy",
    "lookup_greedy",
    "norm_lookup_greedy",
    "size_lookup_greedy",
)
SHARDERS = (*TABLE_III, "cost_greedy")
MACHINES = {"v100-nvlink": "4xGV100", "a100-sxm-40gb": "4xA100"}
"""Our profile, and the machine of Table IV nearest to it: the GV100s have NVLink in pairs only."""


def task_times(path: Path, hardware: str) -> dict[str, float]:
    """Return the step time of every sharder on one task."""
    workload = load_workload(path)
    topology = make_topology(load_profile(hardware), 4)
    problem = ShardingProblem.of(workload, topology)
    attempts = run_sharders(
        SHARDERS, problem, Search(seed=0, time_limit=60.0, patience=float("inf"))
    )
    return {attempt.sharder: attempt.step_time for attempt in attempts}


def published(machine: str) -> list[float]:
    """Return the actual step times of the paper's Table IV on a machine, in seconds."""
    if not MEASURED.exists():
        return []
    with MEASURED.open(newline="", encoding="utf-8") as file:
        return [
            float(row["step_ms"]) * MS
            for row in DictReader(file)
            if row["gpu"] == machine and "actual" in row["model"]
        ]


def results() -> dict[str, dict[str, dict[str, float]]]:
    """Return the step times in seconds, by machine, task and sharder."""
    tasks = sorted((ROOT / "bench/workloads").glob("heavy_*.yaml"))
    return {
        hardware: {path.stem: task_times(path, hardware) for path in tasks} for hardware in MACHINES
    }


def main() -> None:
    """Print a table per machine; with --write, keep the numbers."""
    found = results()
    for hardware, times in found.items():
        show(hardware, times)
        actual = published(MACHINES[hardware])
        if actual:
            low, high = min(actual) / MS, max(actual) / MS
            print(
                f"  Table IV, {MACHINES[hardware]}: "
                f"steps of {low:.1f} to {high:.1f} ms on its own tasks\n"
            )
    if "--write" in sys.argv:
        write(RESULTS, found)


def show(hardware: str, times: dict[str, dict[str, float]]) -> None:
    """Print one machine's table: milliseconds by task and sharder, and the wins."""
    print(f"{hardware}, 4 GPUs, predicted step in ms")
    short = [name.replace("lookup", "look").replace("_greedy", "") for name in SHARDERS]
    print(f"  {'task':10}" + "".join(f"{name:>11}" for name in short) + "   fastest of Table III")
    for task, row in times.items():
        best = min(TABLE_III, key=row.__getitem__)
        cells = "".join(f"{row[name] / MS:11.3f}" for name in SHARDERS)
        print(f"  {task:10}{cells}   {best}")
    matrix = np.array([[row[name] for name in SHARDERS] for row in times.values()])
    best_of = matrix[:, : len(TABLE_III)].min(axis=1, keepdims=True)
    over = (matrix / best_of - 1).mean(axis=0)
    wins = (matrix[:, : len(TABLE_III)] <= best_of * (1 + 1e-9)).sum(axis=0)
    print(f"  {'mean over':10}" + "".join(f"{value:+11.1%}" for value in over))
    print(f"  {'wins':10}" + "".join(f"{value:11d}" for value in wins))
    spread = matrix[:, : len(TABLE_III)].max(axis=1) / best_of[:, 0] - 1
    print(f"  slowest over fastest of Table III: {spread.min():.1%} to {spread.max():.1%}")


if __name__ == "__main__":
    main()
