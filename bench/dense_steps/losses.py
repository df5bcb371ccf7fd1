"""Losses of ``examples/models`` on two ranks beside those of the unsharded models.

Each model is planned by ``IterationTimePlanner``, put into ``DistributedModelParallel`` and trained
a few steps, with tables of few rows.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import _apply_optimizer_in_backward as apply_in_backward

from bench.clients.watched import fill_tables, shardings
from bench.dense_steps.models import COLLECTIONS, example_batch, example_model, table_parameters
from bench.dense_steps.ranks import RANKS, found_by_ranks, planned, planner_of, run_rank

STEPS, SAMPLES = 3, 8
POOLED_RATE, RATE = 20.0, 0.5
"""Learning rate of pooled tables, and of all else: losses have to tell if tables are trained."""
MOST_ROWS, LONGEST = 10, 12


def trained_on_ranks(names: Sequence[str]) -> dict[str, Any]:
    """Return how models were trained on two ranks, by name."""
    return found_by_ranks(__name__, *names)


def difference(trained: Mapping[str, Any]) -> float:
    """Return how far losses are from those of the unsharded model, relative to these."""
    pairs = zip(trained["losses"], trained["unsharded"], strict=True)
    found: float = max(abs(loss / alone - 1) for loss, alone in pairs)
    return found


def main() -> None:
    """Train all models that are named."""
    run_rank(lambda _, names: {name: _trained(name) for name in names})


def _trained(name: str) -> dict[str, Any]:
    model = example_model(name, MOST_ROWS)
    apply_in_backward(torch.optim.SGD, table_parameters(model), {"lr": _rows_rate(name)})
    planner = planner_of(SAMPLES, timeout_seconds=0.5)
    parallel, dense, plan = planned(model, planner)
    fill_tables(parallel)
    solution = planner.solution
    listed = None if solution is None else solution.workload.dense.operators
    return {
        "losses": _losses(name, parallel, dense, [dist.get_rank()]),
        "unsharded": _unsharded(name, frozen=False),
        "frozen_tables": _unsharded(name, frozen=True),
        "shardings": shardings(plan),
        "operators": 0 if listed is None else len(listed.operators),
    }


def _rows_rate(name: str) -> float:
    return RATE if name == "sasrec" else POOLED_RATE


def _unsharded(name: str, *, frozen: bool) -> list[float]:
    """Return the losses of the whole model on the samples of all ranks."""
    model = example_model(name, MOST_ROWS)
    for each in model.modules():
        if isinstance(each, COLLECTIONS):
            each.to_empty(device="cpu").requires_grad_(not frozen)
    fill_tables(model)
    rows = table_parameters(model)
    own = set(map(id, rows))
    dense = [each for each in model.parameters() if id(each) not in own]
    return _losses(name, model, dense, range(RANKS), rows)


def _losses(
    name: str,
    model: nn.Module,
    dense: Sequence[Any],
    ranks: Sequence[int],
    rows: Sequence[Any] = (),
) -> list[float]:
    """Train on the batches of some ranks; return the mean loss of all ranks of every step."""
    groups = [{"params": dense}, {"params": rows, "lr": _rows_rate(name)}]
    optimizer = torch.optim.SGD(groups, lr=RATE)
    losses = []
    for step in range(STEPS):
        batches = [example_batch(name, SAMPLES, 100 * step + rank, LONGEST) for rank in ranks]
        loss = torch.stack([model(*batch) for batch in batches]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)  # of ranks that all train the whole model, the same
        losses.append(float(mean) / RANKS)
    return losses
