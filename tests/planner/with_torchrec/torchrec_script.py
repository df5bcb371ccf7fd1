"""A TorchRec training script as users have it; its planner is the line to be swapped.

python torchrec_script.py RANK WORLD_SIZE FOLDER MODULE:PLANNER

"""

import json
import os
import sys
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import _apply_optimizer_in_backward as apply_in_backward
from torchrec.datasets.utils import Batch
from torchrec.distributed import DistributedModelParallel, TrainPipelineSparseDist
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.models.dlrm import DLRM, DLRMTrain
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.optim.keyed import KeyedOptimizerWrapper
from torchrec.optim.optimizers import in_backward_optimizer_filter
from torchrec_cases import ROWS, features

SAMPLES, STEPS, DIM = 16, 6, 8


def batches(rank: int) -> Iterator[Batch]:
    """Yield synthetic batches."""
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(1000 * step + rank)
        yield Batch(
            dense_features=torch.randn(SAMPLES, 4, generator=generator),
            sparse_features=features(1000 * step + rank, SAMPLES),
            labels=torch.randint(0, 2, (SAMPLES,), generator=generator),
        )


def model() -> nn.Module:
    """Return a DLRM whose tables train in the backward, by SGD."""
    tables = [
        EmbeddingBagConfig(
            name=f"t{i}",
            num_embeddings=rows,
            embedding_dim=DIM,
            feature_names=[f"f{i}"],
            # the same weights however the table is sharded
            init_fn=partial(nn.init.constant_, val=0.1 * (i + 1)),
        )
        for i, rows in enumerate(ROWS)
    ]
    bags = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
    apply_in_backward(torch.optim.SGD, bags.parameters(), {"lr": 0.1})
    return DLRMTrain(
        DLRM(
            embedding_bag_collection=bags,
            dense_in_features=4,
            dense_arch_layer_sizes=[16, DIM],
            over_arch_layer_sizes=[16, 1],
        )
    )


def main() -> None:
    """Train for a few steps and write the losses."""
    rank, world_size, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    module, _, name = sys.argv[4].partition(":")
    planner_class = getattr(import_module(module), name)
    os.environ |= {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(world_size)}
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world_size
    )
    device = torch.device("cpu")
    train = model()
    sharders = [EmbeddingBagCollectionSharder()]
    planner = planner_class(
        topology=Topology(world_size, "cpu", local_world_size=world_size),
        batch_size=SAMPLES,
        constraints={
            f"t{i}": ParameterConstraints(sharding_types=["table_wise", "column_wise"])
            for i in range(0, len(ROWS), 2)
        },
    )
    plan = planner.collective_plan(train, sharders, dist.group.WORLD)
    parallel = DistributedModelParallel(train, device=device, plan=plan, sharders=sharders)
    dense = KeyedOptimizerWrapper(
        dict(in_backward_optimizer_filter(parallel.named_parameters())),
        lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )
    pipeline = TrainPipelineSparseDist(parallel, dense, device)
    losses, source = [], batches(rank)
    for _ in range(STEPS):
        loss, _, _ = pipeline.progress(source)
        losses.append(float(loss))
    kinds = [each.sharding_type for tables in plan.plan.values() for each in tables.values()]
    (folder / f"script_{rank}.json").write_text(json.dumps([losses, kinds]))
    dist.barrier()
    os._exit(0)  # gloo's threads abort a process now and then that ends in the usual way


if __name__ == "__main__":
    main()
