"""One rank of a timed training run (``bench.forked_ranks``): RANK WORLD_SIZE FOLDER PROFILE NAME...

Each model is planned by ``IterationTimePlanner`` with a calibrated profile, put into
``DistributedModelParallel`` and trained; rank 0 writes steps as predicted and as measured. Tables
are cut to what two ranks hold, each rank has a core of its own, and batches take turns.
"""

import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.planner.types import Topology
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import ShardingEnv

from bench.clients.watched import shardings
from bench.dense_steps.models import TimedModel, timed_model
from bench.forked_ranks import ROOT, command
from planner.environment.cores import pin_to_core
from planner.environment.processes import end_now
from planner.files.json_text import dump_json, load_json
from planner.files.plans import PlanFile, dump_plan_file, plan_text
from planner.torchrec import IterationTimePlanner

RANKS, WARM_UP, LEAST_STEPS = 2, 3, 12
SECONDS = 8.0
"""How long steps of a model are timed, if they are not the fewest."""
_FOUND = "steps.json"


def timed_on_ranks(profile: Path, names: Sequence[str]) -> dict[str, Any]:
    """Return steps of models, by name, predicted with a profile and measured on two ranks."""
    with TemporaryDirectory() as folder:
        subprocess.run(  # noqa: S603 - our own interpreter and files
            command(__name__, RANKS, folder, profile, *names),
            cwd=ROOT, check=True, env={**os.environ, "LOCAL_WORLD_SIZE": str(RANKS)},
        )  # fmt: skip
        found: dict[str, Any] = load_json(Path(folder, _FOUND).read_text(encoding="utf-8"))
    return found


def main() -> None:
    """Train and time all models that are named."""
    rank, folder, profile, names = int(sys.argv[1]), Path(sys.argv[3]), sys.argv[4], sys.argv[5:]
    os.environ["LOCAL_RANK"] = str(rank)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")  # torch's and TorchRec's, about each other
    pin_to_core(rank)
    torch.set_num_threads(1)
    meet = f"file://{folder}/rendezvous"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=RANKS)
    found = {}
    for name in names:
        found[name] = _timed(timed_model(name, rank), profile)
        if rank == 0:
            (folder / _FOUND).write_text(dump_json(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()
    end_now()


def _timed(made: TimedModel, profile: str) -> dict[str, Any]:
    """Return a model's step, predicted and measured."""
    sharders = get_default_sharders()
    topology = Topology(world_size=RANKS, local_world_size=RANKS, compute_device="cpu")
    planner = IterationTimePlanner(
        topology,
        made.samples,
        timeout_seconds=2.0,
        hardware=profile,
        sample_batches=made.batches,
        dense_optimizer="sgd",
        precision="fp32",
        pipeline="none",
        replicate=False,
    )
    plan = planner.collective_plan(made.model, sharders, dist.group.WORLD)
    solution = planner.solution
    if solution is None:
        raise ValueError("the model has no table that was planned")
    parallel = DistributedModelParallel(
        made.model,
        env=ShardingEnv.from_process_group(dist.group.WORLD),
        device=torch.device("cpu"),
        plan=plan,
        sharders=sharders,
    )
    steps = _steps(parallel, made)
    confidence = solution.confidence
    listed = solution.workload.dense.operators
    kept = PlanFile(plan=solution.plan, workload=solution.workload, hardware=profile)
    return {
        "steps_ms": [round(1e3 * each, 3) for each in steps],
        "expected_ms": 1e3 * solution.step_time,
        "interval_ms": [1e3 * each for each in confidence.interval],
        "operators": 0 if listed is None else len(listed.operators),
        "shardings": shardings(plan),
        "plan_file": plan_text(dump_plan_file(kept)),
    }


def _steps(parallel: nn.Module, made: TimedModel) -> list[float]:
    """Return the seconds of each step, from when all ranks begin until the last has ended."""
    fused = set(parallel.fused_optimizer.params)
    dense = [value for name, value in parallel.named_parameters() if name not in fused]
    optimizer = torch.optim.SGD(dense, lr=1e-3)
    batches = cycle(made.batches)
    found = [_step(parallel, optimizer, next(batches)) for _ in range(WARM_UP + 1)]
    number = max(LEAST_STEPS, int(SECONDS / found[-1]))
    longest = torch.tensor(number)
    dist.all_reduce(longest, dist.ReduceOp.MIN)
    return [_step(parallel, optimizer, next(batches)) for _ in range(int(longest))]


def _step(parallel: nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> float:  # noqa: ANN401
    dist.barrier()
    began = perf_counter()
    result = parallel(*batch) if type(batch) is tuple else parallel(batch)
    loss = result[0] if isinstance(result, tuple) else result
    loss.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    slowest = torch.tensor(perf_counter() - began, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(slowest)
