"""Runs of searches that benches compare: each a process of its own, limited in CPU seconds.

A run says which step a sharder, or ``auto``, found by the simulator, and when it had found which
(``attempt``). Problems are drawn from the tables of ``workloads/open_856.yaml`` here;
``bench.population`` draws more uneven ones. Other planners' sharders are re-implementations in
spirit: ``beam`` (NeuroShard), ``hugectr``, ``ilp`` (RecShard), ``dreamshard``; ``torchrec_port``
makes TorchRec's own plans (``bench.torchrec_port``).
"""

import multiprocessing
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from random import Random
from typing import Any, Protocol, TypeVar

from bench.kept import SEED
from costmodel.base.errors import PlannerError
from costmodel.base.units import Seconds
from costmodel.bounds.lower_bound import step_time_bound
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan
from costmodel.domain.workload import Workload
from costmodel.memory.rank_memory import usable_bytes, whole_table_bytes
from costmodel.memory.storage import RESERVE_SHARE
from planner.files.profiles import load_profile
from planner.files.workload_reading import load_workload
from planner.search.plugins import load_sharder
from planner.search.running import run_sharders
from planner.search.search import Search, sharders_for
from sharders.problem.sharding_problem import Progress, ShardingProblem

WORKLOADS = Path(__file__).parent / "workloads"
HARDWARE = "h100-sxm"
LOCAL_BATCH = 4096
"""As in ``open_856.yaml``."""
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
        source = load_workload(WORKLOADS / "open_856.yaml")
        drawn = Random(1000 * self.num_tables + self.world_size).sample(  # noqa: S311 - a drawing
            source.tables, self.num_tables
        )
        workload = Workload(
            name=f"{self.num_tables}x{self.world_size}",
            tables=tuple(drawn),
            dense=source.dense,
            local_batch_size=LOCAL_BATCH,
        )
        topology = Topology(
            hardware=load_profile(HARDWARE),
            world_size=self.world_size,
            local_world_size=min(8, self.world_size),
        )
        if self.fill is not None:
            topology = filled(workload, topology, self.fill)
        return ShardingProblem.of(workload, topology)


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
    return attempt_on(instance.problem(), sharder, seconds, seed)[0]


def attempt_on(
    problem: ShardingProblem, sharder: str, seconds: Seconds, seed: int
) -> tuple[dict[str, Any], ShardingPlan | None]:
    """Run one sharder on a problem; return its step and how it got there, and its plan, if any.

    Importing sharders is not timed.
    """
    names = sharders_for(sharder)
    with suppress(PlannerError):
        for name in names:
            load_sharder(name)
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
        attempts = run_sharders(names, problem, search)
    except PlannerError as error:
        return {**row, "cpu_s": time.process_time() - start, "error": str(error)}, None
    best = min(attempts, key=lambda each: each.step_time)
    found = {
        **row,
        "cpu_s": round(time.process_time() - start, 3),
        "step_s": best.step_time,
        "status": best.status.value,
        "evaluated": sum(each.evaluated for each in attempts),
        "by": best.sharder,
        "trace": [(round(at, 3), step) for at, step in seen],
    }
    return found, best.plan


def bound(instance: Instance) -> dict[str, Seconds]:
    """Return the lower bound on every plan's step, and the CPU time it took."""
    problem = instance.problem()
    start = time.process_time()
    value = step_time_bound(problem.workload, problem.topology)
    return {"bound_s": value, "bound_cpu_s": round(time.process_time() - start, 3)}


def isolated(job: Callable[..., Result], *arguments: Any) -> Result:  # noqa: ANN401
    """Run a job in a process of its own, so that none finds the caches of another warm.

    Raises
    ------
    BrokenProcessPool
        The process ended before its job did.

    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        return pool.submit(job, *arguments).result()
