"""One rank of the test of modules around collections: trains each, and writes losses as JSON.

python modules_worker.py RANK WORLD_SIZE FOLDER

"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import _apply_optimizer_in_backward as apply_in_backward
from torchrec.distributed import DistributedModelParallel, embedding_tower_sharding
from torchrec.distributed.embedding_tower_sharding import EmbeddingTowerSharder
from torchrec.distributed.mc_embeddingbag import ManagedCollisionEmbeddingBagCollectionSharder
from torchrec.distributed.types import ShardingEnv
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.modules.embedding_tower import EmbeddingTower
from torchrec.modules.mc_embedding_modules import ManagedCollisionEmbeddingBagCollection
from torchrec.modules.mc_modules import (
    DistanceLFU_EvictionPolicy,
    ManagedCollisionCollection,
    MCHManagedCollisionModule,
)
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor, KeyedTensor
from torchrec_cases import AnySharder, on_ranks, trained

from planner.torchrec import IterationTimePlanner

STEPS, SAMPLES, RATE, WIDTH = 6, 6, 0.5, 8
SLOTS, RAW_IDS = 64, 10_000
"""Rows of the remapped table, more than the distinct ids that come; and what these are below."""
CPU = torch.device("cpu")


def even(weight: torch.Tensor) -> torch.Tensor:
    """Give all rows the same weights: which row an id is remapped to then makes no difference."""
    with torch.no_grad():
        return weight.fill_(0.1)


def bag(name: str, rows: int) -> EmbeddingBagConfig:
    return EmbeddingBagConfig(
        name=name, num_embeddings=rows, embedding_dim=WIDTH, feature_names=[name], init_fn=even
    )


def plain() -> EmbeddingBagCollection:
    return EmbeddingBagCollection(tables=[bag("plain", 30)], device=CPU)


class Remapped(nn.Module):
    """A table of raw ids, remapped as they come (zero-collision hashing), beside a plain one."""

    def __init__(self) -> None:
        super().__init__()
        config = bag("other", SLOTS)
        remapping = MCHManagedCollisionModule(
            zch_size=SLOTS,
            device=CPU,
            eviction_interval=1,  # every batch's ids have rows before they are looked up
            eviction_policy=DistanceLFU_EvictionPolicy(),
            input_hash_size=RAW_IDS,
        )
        self.plain = plain()
        self.other = ManagedCollisionEmbeddingBagCollection(
            EmbeddingBagCollection(tables=[config], device=CPU),
            ManagedCollisionCollection({"other": remapping}, [config]),
        )
        self.over = nn.Linear(2 * WIDTH, 1)

    def forward(self, features: KeyedJaggedTensor) -> torch.Tensor:
        first, second = features.split([1, 1])
        pooled, _ = self.other(second)
        return self.over(torch.cat([self.plain(first)["plain"], pooled["other"]], dim=1))


class Interaction(nn.Module):
    """A linear layer over a tower's embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, pooled: KeyedTensor) -> torch.Tensor:
        return self.linear(pooled["other"])


class Towered(nn.Module):
    """A table with its interaction in a tower, beside a plain one."""

    def __init__(self) -> None:
        super().__init__()
        bags = EmbeddingBagCollection(tables=[bag("other", RAW_IDS)], device=CPU)
        self.plain = plain()
        self.other = EmbeddingTower(embedding_module=bags, interaction_module=Interaction())
        self.over = nn.Linear(2 * WIDTH, 1)

    def forward(self, features: KeyedJaggedTensor) -> torch.Tensor:
        first, second = features.split([1, 1])
        return self.over(torch.cat([self.plain(first)["plain"], self.other(second)], dim=1))


class OneNodeTowerSharder(EmbeddingTowerSharder):  # type: ignore[misc]
    """Splits a tower's rows inside a node, on any device."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding_sharders = [AnySharder()]

    def sharding_types(self, compute_device_type: str) -> list[str]:
        del compute_device_type
        return ["table_row_wise"]


SHARDERS: dict[type[nn.Module], list[Any]] = {
    Remapped: [AnySharder(), ManagedCollisionEmbeddingBagCollectionSharder(AnySharder())],
    Towered: [AnySharder(), OneNodeTowerSharder()],
}


def features(seed: int) -> KeyedJaggedTensor:
    """Return a batch; the few raw ids that come are the same in all batches."""
    generator = torch.Generator().manual_seed(seed)
    raw = torch.linspace(0, RAW_IDS - 1, SLOTS // 4).long()
    lengths = torch.randint(0, 4, (2 * SAMPLES,), generator=generator)
    first, second = (int(part.sum()) for part in lengths.view(2, SAMPLES))
    ids = torch.cat([
        torch.randint(0, 30, (first,), generator=generator),
        raw[torch.randint(0, len(raw), (second,), generator=generator)],
    ])
    return KeyedJaggedTensor(keys=["plain", "other"], values=ids, lengths=lengths)


def loss_of(model: nn.Module, step: int, rank: int) -> torch.Tensor:
    output = model(features(100 * step + rank)).squeeze(1)
    return torch.nn.functional.mse_loss(output, torch.linspace(-1, 1, SAMPLES))


def reference(kind: type[nn.Module], world_size: int, *, frozen: bool = False) -> list[float]:
    """Return the losses of the unsharded model on all ranks' samples."""
    torch.manual_seed(0)
    model = kind()
    for name, parameter in model.named_parameters():
        is_other = name.startswith("other.") and "embedding_bags" in name
        parameter.requires_grad_(not (frozen and is_other))
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=RATE)
    losses = []
    for step in range(STEPS):
        loss = torch.stack([loss_of(model, step, rank) for rank in range(world_size)]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return losses


def sharded(kind: type[nn.Module], world_size: int) -> tuple[list[float], dict[str, str]]:
    """Return the mean losses of all ranks under our plan, and the sharding type of every table."""
    torch.manual_seed(0)
    model = kind()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    tables = [value for name, value in model.named_parameters() if "embedding_bags" in name]
    apply_in_backward(torch.optim.SGD, tables, {"lr": RATE})
    sharders = SHARDERS[kind]
    planner = IterationTimePlanner(on_ranks(world_size, world_size), SAMPLES, timeout_seconds=0.2)
    plan = planner.collective_plan(model, sharders, dist.group.WORLD)
    kinds = {
        name: sharding.sharding_type
        for tables in plan.plan.values()
        for name, sharding in tables.items()
    }
    parallel = DistributedModelParallel(
        model,
        env=ShardingEnv.from_process_group(dist.group.WORLD),
        device=CPU,
        plan=plan,
        sharders=sharders,
    )
    load(parallel, weights)
    return trained(parallel, loss_of, STEPS, RATE), kinds


def load(parallel: nn.Module, weights: dict[str, torch.Tensor]) -> None:
    """Give dense layers the unsharded model's weights, and tables the one that all rows have."""
    with torch.no_grad():
        for name, value in parallel.state_dict().items():
            if hasattr(value, "local_shards"):
                if "embedding_bags" in name:
                    for shard in value.local_shards():
                        even(shard.tensor)
            elif name in weights and value.shape == weights[name].shape:
                value.copy_(weights[name])


def replicated(module: nn.Module, **options: Any) -> nn.Module:  # noqa: ANN401 - as torch's
    """Replicate a tower's interaction: on CPU torch refuses the devices that towers name."""
    return nn.parallel.DistributedDataParallel(module, **{**options, "device_ids": None})


def main() -> None:
    """Train both models and write the losses."""
    rank, world_size, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    os.environ |= {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(world_size)}
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world_size)}
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world_size
    )
    embedding_tower_sharding.DistributedDataParallel = replicated
    found = {}
    for kind in SHARDERS:
        losses, kinds = sharded(kind, world_size)
        found[kind.__name__] = {
            "losses": losses,
            "kinds": kinds,
            "reference": reference(kind, world_size),
            "frozen": reference(kind, world_size, frozen=True),
        }
    (folder / f"modules_{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    os._exit(0)  # gloo's threads abort a process now and then that ends in the usual way


if __name__ == "__main__":
    main()
