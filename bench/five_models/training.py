"""One rank of a training run (``bench.forked_ranks``): RANK WORLD_SIZE FOLDER NAME...

Each model is planned by ``IterationTimePlanner``, put into ``DistributedModelParallel`` and trained
a few steps, with tables of few rows; rank 0 writes losses beside those of the unsharded model.
"""

import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import _apply_optimizer_in_backward as apply_in_backward
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.planner.types import Topology
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import ShardingEnv
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from bench.clients.watched import fill_tables, shardings
from bench.forked_ranks import ROOT, command
from bench.kept import SEED
from examples.models import tables
from planner.environment.processes import end_now
from planner.files.json_text import dump_json, load_json
from planner.torchrec import IterationTimePlanner

sasrec: Any = import_module("examples.models.sasrec")
RANKS, STEPS, SAMPLES = 2, 3, 8
POOLED_RATE, RATE = 20.0, 0.5
"""Learning rate of pooled tables, and of all else: losses have to tell if tables are trained."""
MOST_ROWS, LONGEST = 10, 12
_FOUND = "trained.json"
COLLECTIONS = (EmbeddingBagCollection, EmbeddingCollection)


def trained_on_ranks(names: Sequence[str]) -> dict[str, Any]:
    """Return how models were trained on two ranks, by name."""
    with TemporaryDirectory() as folder:
        subprocess.run(  # noqa: S603 - our own interpreter and files
            command(__name__, RANKS, folder, *names),
            cwd=ROOT, check=True, env={**os.environ, "LOCAL_WORLD_SIZE": str(RANKS)},
        )  # fmt: skip
        found: dict[str, Any] = load_json(Path(folder, _FOUND).read_text(encoding="utf-8"))
    return found


def main() -> None:
    """Train all models that are named."""
    rank, folder, names = int(sys.argv[1]), Path(sys.argv[3]), sys.argv[4:]
    os.environ["LOCAL_RANK"] = str(rank)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")  # torch's and TorchRec's, about each other
    torch.set_num_threads(1)
    tables.ROWS.update({name: min(rows, MOST_ROWS) for name, rows in tables.ROWS.items()})
    sasrec.ITEMS = MOST_ROWS
    meet = f"file://{folder}/rendezvous"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=RANKS)
    found = {name: _trained(name) for name in names}
    if rank == 0:
        (folder / _FOUND).write_text(dump_json(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()
    end_now()


def _trained(name: str) -> dict[str, Any]:
    model, sharders = _made(name), get_default_sharders()
    apply_in_backward(torch.optim.SGD, _table_parameters(model), {"lr": _rows_rate(model)})
    topology = Topology(world_size=RANKS, local_world_size=RANKS, compute_device="cpu")
    planner = IterationTimePlanner(topology, SAMPLES, timeout_seconds=0.5, replicate=False)
    plan = planner.collective_plan(model, sharders, dist.group.WORLD)
    solution = planner.solution
    parallel = DistributedModelParallel(
        model,
        env=ShardingEnv.from_process_group(dist.group.WORLD),
        device=torch.device("cpu"),
        plan=plan,
        sharders=sharders,
    )
    fill_tables(parallel)
    fused = set(parallel.fused_optimizer.params)
    dense = [value for name, value in parallel.named_parameters() if name not in fused]
    listed = None if solution is None else solution.workload.dense.operators
    return {
        "losses": _losses(parallel, dense, [dist.get_rank()]),
        "unsharded": _unsharded(name, frozen=False),
        "frozen_tables": _unsharded(name, frozen=True),
        "shardings": shardings(plan),
        "operators": 0 if listed is None else len(listed.operators),
    }


def _made(name: str) -> nn.Module:
    torch.manual_seed(SEED)
    model: nn.Module = import_module(f"examples.models.{name}").make_model()
    return model


def _table_parameters(model: nn.Module) -> list[nn.Parameter]:
    found = (each for each in model.modules() if isinstance(each, COLLECTIONS))
    return [parameter for each in found for parameter in each.parameters()]


def _rows_rate(model: nn.Module) -> float:
    return RATE if _is_sasrec(model) else POOLED_RATE


def _is_sasrec(model: nn.Module) -> bool:
    return isinstance(getattr(model, "module", model), sasrec.SasRec)


def _unsharded(name: str, *, frozen: bool) -> list[float]:
    """Return the losses of the whole model on the samples of all ranks."""
    model = _made(name)
    for each in model.modules():
        if isinstance(each, COLLECTIONS):
            each.to_empty(device="cpu").requires_grad_(not frozen)
    fill_tables(model)
    rows = _table_parameters(model)
    own = set(map(id, rows))
    dense = [each for each in model.parameters() if id(each) not in own]
    return _losses(model, dense, range(RANKS), rows)


def _losses(
    model: nn.Module, dense: Sequence[Any], ranks: Sequence[int], rows: Sequence[Any] = ()
) -> list[float]:
    """Train on the batches of some ranks; return the mean loss of all ranks of every step."""
    groups = [{"params": dense}, {"params": rows, "lr": _rows_rate(model)}]
    optimizer = torch.optim.SGD(groups, lr=RATE)
    losses = []
    for step in range(STEPS):
        loss = torch.stack([model(*_batch(model, 100 * step + rank)) for rank in ranks]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)  # of ranks that all train the whole model, the same
        losses.append(float(mean) / RANKS)
    return losses


def _batch(model: nn.Module, seed: int) -> tuple[Any, ...]:
    """Return what forward takes: of SASRec histories, and others as long; else one id of each."""
    generator = torch.Generator().manual_seed(seed)
    is_sasrec = _is_sasrec(model)
    keys = ["history", "other"] if is_sasrec else list(tables.ROWS)
    rows = [MOST_ROWS] * 2 if is_sasrec else list(tables.ROWS.values())
    lengths = torch.ones(SAMPLES, dtype=torch.int32)
    if is_sasrec:
        lengths = torch.randint(2, LONGEST, (SAMPLES,), generator=generator, dtype=torch.int32)
    ids = [torch.randint(0, n, (int(lengths.sum()),), generator=generator) for n in rows]
    sparse = KeyedJaggedTensor(keys=keys, values=torch.cat(ids), lengths=lengths.repeat(len(keys)))
    if is_sasrec:
        return (sparse,)
    labels = torch.randint(0, 2, (SAMPLES,), generator=generator).float()
    return torch.rand(SAMPLES, tables.NUM_DENSE, generator=generator), sparse, labels
