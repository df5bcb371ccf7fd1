"""Times training steps on two ranks, each with a core of its own, beside predicted ones.

Each model is planned by ``IterationTimePlanner`` with a calibrated profile, put into
``DistributedModelParallel`` and trained. Tables are cut to what two ranks hold, and batches take
turns.
"""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from bench.clients.watched import shardings
from bench.dense_steps.models import TimedModel, timed_model
from bench.dense_steps.ranks import found_by_ranks, planned, planner_of, run_rank
from planner.environment.cores import pin_to_core

WARM_UP, LEAST_STEPS = 3, 12
SECONDS = 8.0
"""How long steps of a model are timed, if they are not the fewest."""


def timed_on_ranks(profile: Path, names: Sequence[str]) -> dict[str, Any]:
    """Return steps of models, by name, predicted with a profile and measured on two ranks."""
    return found_by_ranks(__name__, profile, *names)


def main() -> None:
    """Train and time all models that are named."""
    run_rank(_timed_models)


def _timed_models(rank: int, arguments: Sequence[str]) -> dict[str, Any]:
    profile, *names = arguments
    pin_to_core(rank)
    return {name: _timed(timed_model(name, rank), profile) for name in names}


def _timed(made: TimedModel, profile: str) -> dict[str, Any]:
    """Return a model's step, predicted and measured."""
    planner = planner_of(
        made.samples,
        timeout_seconds=2.0,
        hardware=profile,
        sample_batches=made.batches,
        dense_optimizer="sgd",
        precision="fp32",
        pipeline="none",
    )
    parallel, dense, plan = planned(made.model, planner)
    solution = planner.solution
    if solution is None:
        raise ValueError("the model has no table that was planned")
    steps = _steps(parallel, dense, made)
    listed = solution.workload.dense.operators
    return {
        "steps_ms": [round(1e3 * each, 3) for each in steps],
        "expected_ms": 1e3 * solution.step_time,
        "interval_ms": [1e3 * each for each in solution.confidence.interval],
        "operators": 0 if listed is None else len(listed.operators),
        "shardings": shardings(plan),
    }


def _steps(parallel: nn.Module, dense: Sequence[Any], made: TimedModel) -> list[float]:
    """Return the seconds of each step, from when all ranks begin until the last has ended."""
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
