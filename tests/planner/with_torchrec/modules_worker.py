"""One rank of the test of modules around collections: trains each, and writes losses as JSON.

python modules_worker.py RANK WORLD_SIZE FOLDER

"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import _apply_optimizer_in_backward as apply_in_backward
from torchrec.distributed import DistributedModelParallel, embedding_tower_sharding
from torchrec.distributed.embedding_tower_sharding import (
    EmbeddingTowerCollectionSharder,
    EmbeddingTowerSharder,
)
from torchrec.distributed.mc_embedding import ManagedCollisionEmbeddingCollectionSharder
from torchrec.distributed.mc_embeddingbag import ManagedCollisionEmbeddingBagCollectionSharder
from torchrec.distributed.types import ShardingEnv
from torchrec.modules.embedding_configs import (
    BaseEmbeddingConfig,
    EmbeddingBagConfig,
    EmbeddingConfig,
)
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.modules.embedding_tower import EmbeddingTower, EmbeddingTowerCollection
from torchrec.modules.mc_embedding_modules import (
    ManagedCollisionEmbeddingBagCollection,
    ManagedCollisionEmbeddingCollection,
)
from torchrec.modules.mc_modules import (
    DistanceLFU_EvictionPolicy,
    ManagedCollisionCollection,
    MCHManagedCollisionModule,
)
from torchrec.sparse.jagged_tensor import JaggedTensor, KeyedJaggedTensor, KeyedTensor
from torchrec_cases import AnySequenceSharder, AnySharder, joined, on_ranks, trained

from planner.torchrec import IterationTimePlanner

STEPS, SAMPLES, RATE, WIDTH = 6, 6, 0.5, 8
SLOTS, RAW_IDS = 64, 10_000
"""Rows of the remapped table, more than the distinct ids that come; and what these are below."""
FEATURES = ["plain", "other", "second"]
CPU = torch.device("cpu")


def even(weight: torch.Tensor) -> torch.Tensor:
    """Give all rows the same weights: which row an id is remapped to then makes no difference."""
    with torch.no_grad():
        return weight.fill_(0.1)


def bag(name: str, rows: int = RAW_IDS, feature: str = "other") -> EmbeddingBagConfig:
    return EmbeddingBagConfig(
        name=name, num_embeddings=rows, embedding_dim=WIDTH, feature_names=[feature], init_fn=even
    )


def sequence(rows: int = RAW_IDS) -> EmbeddingConfig:
    return EmbeddingConfig(
        name="other",
        num_embeddings=rows,
        embedding_dim=WIDTH,
        feature_names=["other"],
        init_fn=even,
    )


def bags(*configs: EmbeddingBagConfig) -> EmbeddingBagCollection:
    return EmbeddingBagCollection(tables=list(configs), device=CPU)


def remapping(config: BaseEmbeddingConfig) -> ManagedCollisionCollection:
    """Return what gives raw ids rows as they come (zero-collision hashing)."""
    module = MCHManagedCollisionModule(
        zch_size=SLOTS,
        device=CPU,
        eviction_interval=1,  # every batch's ids have rows before they are looked up
        eviction_policy=DistanceLFU_EvictionPolicy(),
        input_hash_size=RAW_IDS,
    )
    return ManagedCollisionCollection({"other": module}, [config])


def remapped() -> nn.Module:
    config = bag("other", SLOTS)
    return ManagedCollisionEmbeddingBagCollection(bags(config), remapping(config))


def remapped_sequence() -> nn.Module:
    config = sequence(SLOTS)
    collection = EmbeddingCollection(tables=[config], device=CPU)
    return ManagedCollisionEmbeddingCollection(collection, remapping(config))


def prioritized() -> nn.Module:
    from torchrec.modules.pec_embedding_modules import PECEmbeddingCollection

    return PECEmbeddingCollection(EmbeddingCollection(tables=[sequence()], device=CPU))


def prioritized_sharder() -> Any:  # noqa: ANN401 - a ModuleSharder
    from torchrec.distributed.pec_embedding import PECEmbeddingCollectionSharder

    return PECEmbeddingCollectionSharder(AnySequenceSharder())


class Interaction(nn.Module):
    """A linear layer over a tower's embeddings."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, pooled: KeyedTensor) -> torch.Tensor:
        return self.linear(pooled[self.name])


def tower(name: str) -> EmbeddingTower:
    bag_of_its_own = bags(bag(name, feature=name))
    return EmbeddingTower(embedding_module=bag_of_its_own, interaction_module=Interaction(name))


class OneNodeTowerSharder(EmbeddingTowerSharder):  # type: ignore[misc]
    """Splits a tower's rows inside a node, on any device."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding_sharders = [AnySharder()]

    def sharding_types(self, compute_device_type: str) -> list[str]:
        del compute_device_type
        return ["table_row_wise"]


def padded(output: dict[str, JaggedTensor]) -> torch.Tensor:
    """Return what a sample's embeddings add up to."""
    return output["other"].to_padded_dense(3).sum(dim=1)


@dataclass(frozen=True)
class Kind:
    """A module with a table ``other`` of the second feature."""

    make: Callable[[], nn.Module]
    read: Callable[[Any], torch.Tensor]
    """Gives a row per sample, of the module's output."""
    sharder: Any
    num_features: int = 1
    """How many it reads, the second one and on."""


KINDS = {
    "Remapped": Kind(
        remapped,
        lambda output: output[0]["other"],
        ManagedCollisionEmbeddingBagCollectionSharder(AnySharder()),
    ),
    "RemappedSequence": Kind(
        remapped_sequence,
        lambda output: padded(output[0]),
        ManagedCollisionEmbeddingCollectionSharder(AnySequenceSharder()),
    ),
    "Towered": Kind(lambda: tower("other"), lambda output: output, OneNodeTowerSharder()),
    "Towers": Kind(
        lambda: EmbeddingTowerCollection(towers=[tower("other"), tower("second")]),
        lambda output: output,
        EmbeddingTowerCollectionSharder(),
        num_features=2,
    ),
}
if find_spec("torchrec.modules.pec_embedding_modules"):  # from 1.7 on
    KINDS["Prioritized"] = Kind(prioritized, padded, prioritized_sharder())


class Model(nn.Module):
    """A module beside a plain table of the first feature."""

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self.kind = kind
        self.plain = bags(bag("plain", 30, "plain"))
        self.other = kind.make()
        self.over = nn.Linear((1 + kind.num_features) * WIDTH, 1)

    def forward(self, features: KeyedJaggedTensor) -> torch.Tensor:
        read = self.kind.num_features
        first, others, _ = features.split([1, read, 2 - read])
        parts = [self.plain(first)["plain"], self.kind.read(self.other(others))]
        return self.over(torch.cat(parts, dim=1))


def features(seed: int) -> KeyedJaggedTensor:
    """Return a batch; the few raw ids of the others that come are the same in all batches."""
    generator = torch.Generator().manual_seed(seed)
    raw = torch.linspace(0, RAW_IDS - 1, SLOTS // 4).long()
    lengths = torch.randint(0, 4, (len(FEATURES) * SAMPLES,), generator=generator)
    first = int(lengths[:SAMPLES].sum())
    ids = torch.cat([
        torch.randint(0, 30, (first,), generator=generator),
        raw[torch.randint(0, len(raw), (int(lengths.sum()) - first,), generator=generator)],
    ])
    return KeyedJaggedTensor(keys=FEATURES, values=ids, lengths=lengths)


def is_table(name: str) -> bool:
    """Return whether a parameter is an embedding table."""
    return "embedding_bags." in name or "embeddings." in name


def loss_of(model: nn.Module, step: int, rank: int) -> torch.Tensor:
    output = model(features(100 * step + rank)).squeeze(1)
    return torch.nn.functional.mse_loss(output, torch.linspace(-1, 1, SAMPLES))


def reference(kind: Kind, world_size: int, *, frozen: bool = False) -> list[float]:
    """Return the losses of the unsharded model on all ranks' samples."""
    torch.manual_seed(0)
    model = Model(kind)
    for name, parameter in model.named_parameters():
        is_other = name.startswith("other.") and is_table(name)
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


def sharded(kind: Kind, world_size: int) -> tuple[list[float], dict[str, str]]:
    """Return the mean losses of all ranks under our plan, and the sharding type of every table."""
    torch.manual_seed(0)
    model = Model(kind)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    tables = [value for name, value in model.named_parameters() if is_table(name)]
    apply_in_backward(torch.optim.SGD, tables, {"lr": RATE})
    sharders = [AnySharder(), kind.sharder]
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
                if is_table(name):
                    for shard in value.local_shards():
                        even(shard.tensor)
            elif name in weights and value.shape == weights[name].shape:
                value.copy_(weights[name])


def replicated(module: nn.Module, **options: Any) -> nn.Module:  # noqa: ANN401 - as torch's
    """Replicate a tower's interaction: on CPU torch refuses the devices that towers name."""
    return nn.parallel.DistributedDataParallel(module, **{**options, "device_ids": None})


def main() -> None:
    """Train the model of every module and write the losses."""
    rank, world_size, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    with joined(rank, world_size, world_size, folder):
        embedding_tower_sharding.DistributedDataParallel = replicated
        found = {}
        for name, kind in KINDS.items():
            losses, kinds = sharded(kind, world_size)
            found[name] = {
                "losses": losses,
                "kinds": kinds,
                "reference": reference(kind, world_size),
                "frozen": reference(kind, world_size, frozen=True),
            }
        (folder / f"modules_{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
