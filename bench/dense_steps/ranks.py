"""Two gloo ranks of this machine that train what ``IterationTimePlanner`` plans for them."""

import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.planner.types import Topology
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import ShardingEnv

from bench.forked_ranks import ROOT, command
from planner.environment.processes import end_now
from planner.files.json_text import dump_json, load_json
from planner.torchrec import IterationTimePlanner

RANKS = 2
_FOUND = "found.json"


def found_by_ranks(module: str, *arguments: object) -> dict[str, Any]:
    """Run a module's ``main``, which calls ``run_rank``, on both ranks; return what they found."""
    with TemporaryDirectory() as folder:
        subprocess.run(  # noqa: S603 - our own interpreter and files
            command(module, RANKS, folder, *arguments),
            cwd=ROOT, check=True, env={**os.environ, "LOCAL_WORLD_SIZE": str(RANKS)},
        )  # fmt: skip
        found: dict[str, Any] = load_json(Path(folder, _FOUND).read_text(encoding="utf-8"))
    return found


def run_rank(find: Callable[[int, Sequence[str]], Mapping[str, Any]]) -> None:
    """Be one rank (``bench.forked_ranks``): RANK WORLD_SIZE FOLDER ARGUMENT...

    The function is given the rank and the arguments; what rank 0 finds is kept.
    """
    rank, folder, arguments = int(sys.argv[1]), Path(sys.argv[3]), sys.argv[4:]
    os.environ["LOCAL_RANK"] = str(rank)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")  # torch's and TorchRec's, about each other
    torch.set_num_threads(1)
    meet = f"file://{folder}/rendezvous"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=RANKS)
    found = find(rank, arguments)
    if rank == 0:
        (folder / _FOUND).write_text(dump_json(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()
    end_now()


def planner_of(samples: int, **settings: Any) -> IterationTimePlanner:  # noqa: ANN401 - the planner's
    """Return a planner for both ranks that replicates no tables."""
    topology = Topology(world_size=RANKS, local_world_size=RANKS, compute_device="cpu")
    return IterationTimePlanner(topology, samples, replicate=False, **settings)


def planned(model: nn.Module, planner: IterationTimePlanner) -> tuple[nn.Module, list[Any], Any]:
    """Return a model put on both ranks by a plan, its dense parameters, and the plan."""
    sharders = get_default_sharders()
    plan = planner.collective_plan(model, sharders, dist.group.WORLD)
    parallel = DistributedModelParallel(
        model,
        env=ShardingEnv.from_process_group(dist.group.WORLD),
        device=torch.device("cpu"),
        plan=plan,
        sharders=sharders,
    )
    fused = set(parallel.fused_optimizer.params)
    dense = [value for name, value in parallel.named_parameters() if name not in fused]
    return parallel, dense, plan
