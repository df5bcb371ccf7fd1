"""How good plans get in how much CPU time: `python -m bench.plan_quality [--write]`.

Every sharder, and ``auto``, on instances drawn from the open dataset's statistics
(``draw_workloads``), for 1, 10 or 60 CPU seconds each: the step time that the simulator predicts,
its gap to the lower bound (``costmodel.bounds``), and when a plan within 1% of the best known was
there. Peers' sharders are re-implementations in spirit: ``torchrec_greedy``, ``beam`` (NeuroShard),
``ilp`` (RecShard), ``dreamshard``, and the six of the paper's Table III; and TorchRec's own planner
(``torchrec``) where it is installed, for as long as it takes. Each run is a process of its own with
cold caches.

    python -m bench.plan_quality --instances 50x4 100x8 --seconds 1 10 --sharders auto ilp --write

Runs of other seeds (``--seeds 0 1 2``) say how far chance goes; sharders are compared by medians.
Several seeds of a sharder should be of one commit (--redo stale), and an odd number of them.

With --write every run is kept as soon as it ends, with its commit. Runs that are there already are
not done again (--redo stale: those of other commits are; --redo all), so a bench that was broken
off goes on, and two can share the work: --part 1/2 and --part 2/2.
"""

import argparse
import json
import multiprocessing
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fcntl import LOCK_EX, flock
from itertools import product
from math import inf
from pathlib import Path
from random import Random
from statistics import median_high
from typing import Any, Protocol, TypeVar

from bench.draw_workloads import DATA, PAPER_DENSE, open_tables, read_aggregates
from costmodel.base.errors import PlannerError
from costmodel.base.units import MS, Seconds
from costmodel.bounds.lower_bound import step_time_bound
from costmodel.domain.hardware import Topology
from costmodel.domain.workload import Workload
from costmodel.engine.objective import Objective
from costmodel.memory.rank_memory import usable_bytes, whole_table_bytes
from costmodel.memory.storage import RESERVE_SHARE
from planner.environment.torchrec_presence import torchrec_installed
from planner.files.disk import write_text
from planner.files.profiles import load_profile
from planner.planning.plugins import AUTO, TORCHREC
from planner.planning.search import Search, run_sharders, sharders_for
from sharders import SHARDERS
from sharders.problem.sharding_problem import Progress, ShardingProblem

RESULTS = Path(__file__).parent / "results" / "plan_quality.json"
HARDWARE = "h100-sxm"
SEED = 0
LOCAL_BATCH = 4096
"""As in ``open_856.yaml``."""
CLOSE = 1.01
"""Times the best known step: within 1%."""
Result = TypeVar("Result")


class DrawnProblem(Protocol):
    """Anything that a problem is drawn for."""

    def problem(self) -> ShardingProblem:
        """Draw it, always the same."""
        ...


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


def attempt(
    instance: DrawnProblem, sharder: str, seconds: Seconds, seed: int = SEED
) -> dict[str, Any]:
    """Run one sharder on the process's CPU clock; return its plan's step and how it got there."""
    problem = instance.problem()
    start = time.process_time()
    seen: list[tuple[Seconds, Seconds]] = []

    def watch(name: str, progress: Progress) -> None:
        del name
        if not seen or progress.best < seen[-1][1]:
            seen.append((time.process_time() - start, progress.best))

    search = Search(
        seed=seed, time_limit=seconds, watch=watch, clock=time.process_time, patience=inf
    )
    row: dict[str, Any] = {"sharder": sharder, "seconds": seconds, "seed": seed}
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


def medians(runs: Iterable[Mapping[str, Any]], seconds: Seconds) -> dict[str, Seconds]:
    """Return the step of every sharder that found plans in so much time: the median of its seeds.

    The longer one in the middle of an even number; a seed that found no plan counts as the longest.
    """
    steps: dict[str, list[Seconds]] = {}
    for run in runs:
        if run["seconds"] == seconds:
            steps.setdefault(run["sharder"], []).append(run.get("step_s", inf))
    found = {sharder: median_high(each) for sharder, each in steps.items()}
    return {sharder: step for sharder, step in found.items() if step < inf}


def show(name: str, record: Mapping[str, Any]) -> None:
    """Print one instance's table."""
    rows = record["runs"]
    best = min((row["step_s"] for row in rows if "step_s" in row), default=float("nan"))
    print(f"{name}: bound {record['bound_s'] / MS:.3f} ms in {record['bound_cpu_s']:.2f} CPU s")
    for row in sorted(rows, key=lambda row: (row["seconds"], row.get("step_s", inf))):
        label = f"  {row['seconds']:>3g} s  {row['sharder']:<20}seed {row['seed']}"
        if "step_s" not in row:
            print(f"{label} no plan in {row['cpu_s']:.1f} CPU s")
            continue
        step, close = row["step_s"], close_after(row, best)
        print(
            f"{label}{step / MS:10.3f} ms  {step / best - 1:+7.1%} over best"
            f"  {step / record['bound_s'] - 1:+7.1%} over bound  {row['cpu_s']:6.1f} CPU s"
            f"  {'' if close is None else f'within 1% after {close:.1f} s'}"
        )
    for seconds in sorted({row["seconds"] for row in rows}):
        found = medians(rows, seconds)
        others = [(step, sharder) for sharder, step in found.items() if sharder != AUTO]
        if AUTO in found and others:
            step, sharder = min(others)
            print(
                f"  {seconds:>3g} s  auto {found[AUTO] / best - 1:+.2%} over best,"
                f" {found[AUTO] / step - 1:+.2%} over {sharder} (medians)"
            )


def merged(old: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return an instance's record with a run added, in place of the same one before."""
    kept = [run for run in old.get("runs", ()) if _key(run) != _key(row)]
    return {**old, "runs": [*kept, row]}


def _key(run: Mapping[str, Any]) -> tuple[str, float, int]:
    return run["sharder"], run["seconds"], run["seed"]


def is_done(record: Mapping[str, Any], wanted: Mapping[str, Any], redo: str) -> bool:
    """Return whether a run, of a sharder, seconds and a seed, need not be done (again)."""
    runs = [run for run in record.get("runs", ()) if _key(run) == _key(wanted)]
    current = provenance()["commit"]
    fresh = [run for run in runs if redo == "none" or run.get("commit") == current]
    return bool(fresh) and redo != "all"


def updated(path: Path, change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Change a file of results, no other process coming in between; return what it has then.

    The folder is locked, and the file replaced: who reads it meanwhile finds all of it.
    """
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        flock(folder, LOCK_EX)
        results = read(path)
        change(results)
        write_text(path, json.dumps(results, indent=1) + "\n")
    finally:
        os.close(folder)
    return results


def keep(name: str, instance: Instance, row: Mapping[str, Any]) -> None:
    """Add a run to the committed results, and the bound if it is not there yet."""
    known = read(RESULTS).get(name, {})
    bounds = {} if "bound_s" in known else isolated(bound, instance)

    def change(results: dict[str, Any]) -> None:
        old = {**results.get(name, {}), **bounds}
        made = {key: value for key, value in provenance().items() if key in ("machine", "date")}
        results[name] = {**merged(old, row), **made}

    updated(RESULTS, change)


def read(path: Path) -> dict[str, Any]:
    """Return the results so far."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def provenance() -> dict[str, str]:
    """Say where and when numbers were made."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],  # noqa: S607 - the developer's git
        capture_output=True, text=True, check=False, cwd=Path(__file__).parent,
    ).stdout.strip()  # fmt: skip
    machine = f"{platform.machine()}, Python {platform.python_version()}, one core"
    date = datetime.now(UTC).date().isoformat()
    return {"machine": machine, "date": date, "commit": commit, "seed": str(SEED)}


@dataclass(frozen=True, slots=True)
class JobPart:
    """Every so-manieth job, from one on: what one of several processes does."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> "JobPart":
        """Read ``1/2``."""
        number, _, count = text.partition("/")
        return cls(int(number), int(count))

    def has(self, index: int) -> bool:
        """Return whether a job is of this part."""
        return index % self.count == self.number - 1


def _arguments() -> argparse.Namespace:
    integrated = [TORCHREC] if torchrec_installed() else []
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", nargs="+", default=list(INSTANCES), choices=INSTANCES)
    parser.add_argument("--seconds", nargs="+", type=float, default=[1.0, 10.0, 60.0])
    parser.add_argument("--sharders", nargs="+", default=[AUTO, *SHARDERS, *integrated])
    parser.add_argument("--seeds", nargs="+", type=int, default=[SEED])
    parser.add_argument("--write", action="store_true", help=f"update {RESULTS.name}")
    parser.add_argument("--redo", choices=["none", "stale", "all"], default="none")
    parser.add_argument("--part", type=JobPart.parse, default=JobPart(1, 1), metavar="K/N")
    parser.add_argument("--show", action="store_true", help="only print what is there")
    return parser.parse_args()


def main() -> None:
    """Run what is asked for, print it, and with --write keep it."""
    args = _arguments()
    shown = {name: read(RESULTS).get(name, {}) for name in args.instances}
    jobs = list(product(args.seeds, args.seconds, args.instances, args.sharders))
    for index, (seed, seconds, name, sharder) in enumerate([] if args.show else jobs):
        known = read(RESULTS).get(name, {}) if args.write else {}
        wanted = {"sharder": sharder, "seconds": seconds, "seed": seed}
        if not args.part.has(index) or is_done(known, wanted, args.redo):
            continue
        row = isolated(attempt, INSTANCES[name], sharder, seconds, seed)
        row |= {"commit": provenance()["commit"]}
        step = f"{row['step_s'] / MS:.3f} ms" if "step_s" in row else "no plan"
        print(f"{name:<8}{seconds:>4g} s  {sharder:<20}seed {seed}  {step}", flush=True)
        if args.write:
            keep(name, INSTANCES[name], row)
        shown[name] = merged(shown[name], row)
    for name in args.instances:
        record = read(RESULTS).get(name, {}) if args.write or args.show else shown[name]
        if record:
            show(name, {**(record if "bound_s" in record else bound(INSTANCES[name])), **record})


if __name__ == "__main__":
    main()
