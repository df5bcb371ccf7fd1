"""How good plans get in how much CPU time: `python -m bench.plan_quality [--write]`.

Every sharder, and ``auto``, on instances drawn from the open dataset's statistics
(``draw_workloads``), for 1, 10 or 60 CPU seconds each: the step time that the simulator predicts,
its gap to the lower bound (``costmodel.bounds``), and when a plan within 1% of the best known was
there. Peers' sharders are re-implementations in spirit: ``torchrec_greedy``, ``beam`` (NeuroShard),
``ilp`` (RecShard), and the six of the paper's Table III. Each run is a process of its own with cold
caches, one at a time.

    python -m bench.plan_quality --instances 50x4 100x8 --seconds 1 10 --sharders auto ilp --write
"""

import argparse
import json
import multiprocessing
import platform
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from bench.draw_workloads import DATA, PAPER_DENSE, open_tables, read_aggregates
from costmodel.bounds import step_time_bound
from costmodel.errors import PlannerError
from costmodel.hardware import Topology
from costmodel.memory import usable_bytes, whole_table_bytes
from costmodel.objective import Objective
from costmodel.storage import RESERVE_SHARE
from costmodel.units import MS, Seconds
from costmodel.workload import Workload
from planner.io.profiles import load_profile
from planner.plugins import AUTO
from planner.search import Search, run_sharders, sharders_for
from sharders import SHARDERS
from sharders.problem import Progress, ShardingProblem

RESULTS = Path(__file__).parent / "results" / "plan_quality.json"
HARDWARE = "h100-sxm"
SEED = 0
LOCAL_BATCH = 4096
"""As in ``open_856.yaml``."""
CLOSE = 1.01
"""Times the best known step: within 1%."""
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Instance:
    """So many tables on so many GPUs, eight a node."""

    num_tables: int
    world_size: int
    fill: float | None = None
    """Share of all memory for tables that they fill, whole; None: the GPU's own memory."""

    def problem(self) -> ShardingProblem:
        """Draw the tables, always the same."""
        tables = open_tables(read_aggregates(DATA / "tables_2021.csv"))
        drawn = Random(1000 * self.num_tables + self.world_size).sample(  # noqa: S311 - a drawing
            tables, self.num_tables
        )
        workload = Workload(
            name=f"{self.num_tables}x{self.world_size}",
            tables=tuple(drawn),
            dense=PAPER_DENSE,
            local_batch_size=LOCAL_BATCH,
        )
        topology = Topology(
            hardware=load_profile(HARDWARE),
            world_size=self.world_size,
            local_world_size=min(8, self.world_size),
        )
        if self.fill is not None:
            topology = filled(workload, topology, self.fill)
        return ShardingProblem(
            workload=workload, topology=topology, objective=Objective(workload, topology)
        )


INSTANCES: Mapping[str, Instance] = {
    "26x4": Instance(26, 4),
    "50x4": Instance(50, 4),
    "100x8": Instance(100, 8, fill=0.9),
    "400x16": Instance(400, 16),
    "856x64": Instance(856, 64),
    "788x128": Instance(788, 128),
}


def filled(workload: Workload, topology: Topology, share: float) -> Topology:
    """Return GPUs with as much memory as makes the tables fill that share of what is for them."""
    gpu = topology.hardware.gpu
    needed = sum(whole_table_bytes(workload, topology, table) for table in workload.tables)
    missing = needed / (share * topology.world_size) - usable_bytes(workload, topology)
    memory = gpu.memory_bytes + missing / (1 - RESERVE_SHARE)
    hardware = replace(topology.hardware, gpu=replace(gpu, memory_bytes=memory))
    return replace(topology, hardware=hardware)


def attempt(instance: Instance, sharder: str, seconds: Seconds) -> dict[str, Any]:
    """Run one sharder on the process's CPU clock; return its plan's step and how it got there."""
    problem = instance.problem()
    start = time.process_time()
    seen: list[tuple[Seconds, Seconds]] = []

    def watch(name: str, progress: Progress) -> None:
        del name
        if not seen or progress.best < seen[-1][1]:
            seen.append((time.process_time() - start, progress.best))

    search = Search(seed=SEED, time_limit=seconds, watch=watch, clock=time.process_time)
    row: dict[str, Any] = {"sharder": sharder, "seconds": seconds}
    try:
        attempts = run_sharders(sharders_for(sharder), problem, search)
    except PlannerError as error:
        return {**row, "cpu_s": time.process_time() - start, "error": str(error)}
    best = min(attempts, key=lambda each: each.step_time)
    return {
        **row,
        "cpu_s": round(time.process_time() - start, 3),
        "step_s": best.step_time,
        "status": best.status.value,
        "evaluated": sum(each.evaluated for each in attempts),
        "by": best.sharder,
        "trace": [(round(at, 3), step) for at, step in seen],
    }


def bound(instance: Instance) -> dict[str, Seconds]:
    """Return the lower bound on every plan's step, and the CPU time it took."""
    problem = instance.problem()
    start = time.process_time()
    value = step_time_bound(problem.workload, problem.topology)
    return {"bound_s": value, "bound_cpu_s": round(time.process_time() - start, 3)}


def _run(queue: Any, job: Callable[..., Result], arguments: tuple[Any, ...]) -> None:  # noqa: ANN401
    queue.put(job(*arguments))


def isolated(job: Callable[..., Result], *arguments: Any) -> Result:  # noqa: ANN401
    """Run a job in a process of its own, so that none finds the caches of another warm."""
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=_run, args=(queue, job, arguments))
    process.start()
    result: Result = queue.get()
    process.join()
    return result


def close_after(row: Mapping[str, Any], best: Seconds) -> Seconds | None:
    """Return the CPU time after which a run's plan was within 1% of the best; None: never."""
    return next((at for at, step in row.get("trace", ()) if step <= CLOSE * best), None)


def show(name: str, record: Mapping[str, Any]) -> None:
    """Print one instance's table."""
    rows = record["runs"]
    best = min((row["step_s"] for row in rows if "step_s" in row), default=float("nan"))
    print(f"{name}: bound {record['bound_s'] / MS:.3f} ms in {record['bound_cpu_s']:.2f} CPU s")
    for row in sorted(rows, key=lambda row: (row["seconds"], row.get("step_s", float("inf")))):
        label = f"  {row['seconds']:>3g} s  {row['sharder']:<20}"
        if "step_s" not in row:
            print(f"{label} no plan in {row['cpu_s']:.1f} CPU s")
            continue
        step, close = row["step_s"], close_after(row, best)
        print(
            f"{label}{step / MS:10.3f} ms  {step / best - 1:+7.1%} over best"
            f"  {step / record['bound_s'] - 1:+7.1%} over bound  {row['cpu_s']:6.1f} CPU s"
            f"  {'' if close is None else f'within 1% after {close:.1f} s'}"
        )


def merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return an instance's record with the runs that were done again replaced."""
    done = {(row["sharder"], row["seconds"]) for row in new["runs"]}
    kept = [row for row in old.get("runs", ()) if (row["sharder"], row["seconds"]) not in done]
    return {**new, "runs": [*kept, *new["runs"]]}


def provenance() -> dict[str, str]:
    """Say where and when numbers were made."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],  # noqa: S607 - the developer's git
        capture_output=True, text=True, check=False, cwd=Path(__file__).parent,
    ).stdout.strip()  # fmt: skip
    machine = f"{platform.machine()}, Python {platform.python_version()}, one core"
    date = datetime.now(UTC).date().isoformat()
    return {"machine": machine, "date": date, "commit": commit, "seed": str(SEED)}


def main() -> None:
    """Run what is asked for, print it, and with --write keep it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", nargs="+", default=list(INSTANCES), choices=INSTANCES)
    parser.add_argument("--seconds", nargs="+", type=float, default=[1.0, 10.0])
    parser.add_argument("--sharders", nargs="+", default=[*SHARDERS, AUTO])
    parser.add_argument("--write", action="store_true", help=f"update {RESULTS.name}")
    args = parser.parse_args()
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for name in args.instances:
        instance = INSTANCES[name]
        runs = [
            isolated(attempt, instance, sharder, seconds)
            for seconds in args.seconds
            for sharder in args.sharders
        ]
        record = merged(results.get(name, {}), {**isolated(bound, instance), "runs": runs})
        show(name, record)
        results[name] = {**record, **provenance()}
        if args.write:
            RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
