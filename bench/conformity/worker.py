"""One rank of the training runs (``bench.forked_ranks``): RANK WORLD_SIZE FOLDER.

Trains the cells that the folder's ``cells.json`` names, one after the other, and writes the facts
of a profiled step of each.
"""

import json
import logging
import sys
from datetime import timedelta
from itertools import cycle
from os import environ
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.types import ShardingEnv

from bench.conformity.cells import Cell, cells
from bench.conformity.facts import Fact
from bench.conformity.model import build, locations, make_batch, sharders
from bench.conformity.trained import facts
from planner.environment.processes import end_now
from planner.files.json_text import dump_json
from planner.torchrec.plan_conversion import to_torchrec
from planner.validation.trainer import pipeline_around

SECONDS = 40
"""After which a rank gives up a collective that another one does not join."""
WARMUP = 3
"""Steps before the profiled one: the pipeline is full, and optimizers have their state."""


def main() -> None:
    """Train all cells."""
    logging.disable(logging.WARNING)
    rank, world_size, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    names = json.loads((folder / "cells.json").read_text(encoding="utf-8"))
    known = {cell.name: cell for cell in cells()}
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=SECONDS),
    )
    with (folder / f"facts_{rank}.jsonl").open("w", encoding="utf-8") as found:
        for name in names:
            found.write(dump_json(_trained(known[name], rank, folder)) + "\n")
            found.flush()
    dist.barrier()
    dist.destroy_process_group()
    end_now()


def _trained(cell: Cell, rank: int, folder: Path) -> tuple[Fact, ...]:
    environ["LOCAL_WORLD_SIZE"] = str(cell.local_world_size)
    environ["LOCAL_RANK"] = str(rank % cell.local_world_size)
    pipeline = _pipeline(cell)
    batches = cycle([make_batch(cell.workload, 10 * rank + index) for index in range(3)])
    for _ in range(WARMUP):
        pipeline.progress(batches)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        pipeline.progress(batches)
    trace = folder / f"trace_{rank}.json"
    profiler.export_chrome_trace(str(trace))
    return facts(json.loads(trace.read_text(encoding="utf-8"))["traceEvents"], cell.world_size)


def _pipeline(cell: Cell) -> Any:  # noqa: ANN401 - torchrec has no types here
    work, device = cell.workload, torch.device("cpu")
    parallel = DistributedModelParallel(
        build(work),
        env=ShardingEnv.from_process_group(dist.group.WORLD),
        device=device,
        plan=to_torchrec(cell.plan, locations(work), compute_device="cpu"),
        sharders=sharders(work),
    )
    return pipeline_around(work, parallel, device)
