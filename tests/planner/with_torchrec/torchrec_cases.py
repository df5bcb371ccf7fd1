"""Models, sharders and plans that the TorchRec tests share; imports torch and torchrec."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.fp_embeddingbag import FeatureProcessedEmbeddingBagCollectionSharder
from torchrec.distributed.planner.types import ParameterConstraints, Topology
from torchrec.modules.embedding_configs import EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.modules.feature_processor_ import PositionWeightedModuleCollection
from torchrec.modules.fp_embedding_modules import FeatureProcessedEmbeddingBagCollection
from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection
from torchrec.modules.mc_embedding_modules import (
    ManagedCollisionEmbeddingBagCollection,
    ManagedCollisionEmbeddingCollection,
)
from torchrec.modules.mc_modules import (
    DistanceLFU_EvictionPolicy,
    ManagedCollisionCollection,
    MCHManagedCollisionModule,
)
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from planner.environment.processes import end_now
from planner.torchrec import IterationTimePlanner, Solution

TYPES = (
    "data_parallel",
    "table_wise",
    "row_wise",
    "column_wise",
    "table_row_wise",
    "table_column_wise",
    "grid_shard",
)
UNPOOLED_TYPES = TYPES[:4]
ROWS = (13, 7, 64, 40, 21, 10, 32)
"""One table for each sharding type; few rows, so that trailing row shards are small."""
WIDTHS = (8, 16, 8, 16, 8, 16, 16)
META = torch.device("meta")
GIB = 2**30
QUIET = (
    {"created_by_factory": True}
    if "created_by_factory" in signature(Topology.__init__).parameters
    else {}
)
"""Keeps TorchRec from warning of topologies that its factory has not made."""
TOLD = {"dense_optimizer": "sgd", "precision": "fp32"}
"""What else is assumed of the dense part's training, and warned of."""
SHARDERS = (EmbeddingBagCollectionSharder(), EmbeddingCollectionSharder())


def bags(*configs: EmbeddingBagConfig, **options: bool) -> EmbeddingBagCollection:
    return EmbeddingBagCollection(tables=list(configs), device=META, **options)


def table(name: str, rows: int = 1000, dim: int = 64, **fields: object) -> EmbeddingBagConfig:
    return EmbeddingBagConfig(
        name=name,
        num_embeddings=rows,
        embedding_dim=dim,
        **{"feature_names": [f"f_{name}"], **fields},
    )


def beside_fused() -> nn.Module:
    """Return a plain table, and one in a module that no cost model knows."""
    fused = FusedEmbeddingBagCollection(
        tables=[table("b")],
        optimizer_type=torch.optim.SGD,
        optimizer_kwargs={"lr": 0.1},
        device=META,
    )
    return nn.ModuleDict({"plain": bags(table("a")), "fused": fused})


def too_wide() -> nn.Module:
    """Return a model with a layer that is wider than the cost model takes."""
    return nn.Sequential(bags(table("a")), nn.Linear(8, 2_000_000, device=META))


def leaving() -> nn.Module:
    """End as a script does that lacks an argument."""
    sys.exit(3)


async def awaited() -> nn.Module:
    """Return a model to who waits for it."""
    return too_wide()


def gpus(world_size: int = 2, hbm_cap: int | None = None) -> Topology:
    return Topology(world_size=world_size, compute_device="cuda", hbm_cap=hbm_cap, **QUIET)


class AnySharder(EmbeddingBagCollectionSharder):  # type: ignore[misc]
    """Offers everything on any device; TorchRec's own sharder offers no row splits on CPU."""

    def sharding_types(self, compute_device_type: str) -> list[str]:
        del compute_device_type
        return list(TYPES)

    def compute_kernels(self, sharding_type: str, compute_device_type: str) -> list[str]:
        del compute_device_type
        if sharding_type == "data_parallel":
            return ["dense"]
        return ["fused", "fused_uvm", "fused_uvm_caching"]


class AnySequenceSharder(EmbeddingCollectionSharder):  # type: ignore[misc]
    """As ``AnySharder``, for unpooled embeddings, of which TorchRec splits no more ways."""

    def sharding_types(self, compute_device_type: str) -> list[str]:
        del compute_device_type
        return list(UNPOOLED_TYPES)

    def compute_kernels(self, sharding_type: str, compute_device_type: str) -> list[str]:
        del compute_device_type
        return ["dense"] if sharding_type == "data_parallel" else ["fused"]


class Model(nn.Module):
    """Embeddings, regrouped by key, into one linear layer."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__()
        self.sparse = embedding_bags(device)
        self.over = nn.Linear(sum(WIDTHS), 1)

    @property
    def embeddings(self) -> list[nn.Module]:
        """What is sharded."""
        return [self.sparse]

    def forward(self, features: KeyedJaggedTensor) -> torch.Tensor:
        pooled = self.sparse(features).to_dict()
        return self.over(torch.cat([pooled[f"f{i}"] for i in range(len(ROWS))], dim=1))


class Arms(nn.Module):
    """Three modules of embeddings: pooled, unpooled, and pooled with weights.

    Table ``t0`` is there twice: the same name in two modules.
    """

    def __init__(self, device: str = "cpu") -> None:
        super().__init__()
        self.pooled = EmbeddingBagCollection(
            tables=[_config(EmbeddingBagConfig, f"t{i}", i) for i in range(3)],
            device=torch.device(device),
        )
        self.sequence = EmbeddingCollection(
            tables=[
                _config(EmbeddingConfig, f"t{i - 3}" if i == 3 else f"s{i}", i) for i in (3, 4, 5)
            ],
            device=torch.device(device),
        )
        self.weighted = EmbeddingBagCollection(
            tables=[_config(EmbeddingBagConfig, "w", 6)],
            device=torch.device(device),
            is_weighted=True,
        )
        self.over = nn.Linear(16 * len(ROWS), 1)

    @property
    def embeddings(self) -> list[nn.Module]:
        """What is sharded."""
        return [self.pooled, self.sequence, self.weighted]

    def forward(self, features: KeyedJaggedTensor) -> torch.Tensor:
        first, second, third = features.split([3, 3, 1])
        third = KeyedJaggedTensor(
            keys=third.keys(),
            values=third.values(),
            lengths=third.lengths(),
            weights=1 + third.values() / 7,
        )
        pooled = self.pooled(first).to_dict()
        sequence = self.sequence(second)
        weighted = self.weighted(third).to_dict()
        parts = [pooled[f"f{i}"] for i in range(3)]
        parts += [sequence[f"f{i}"].to_padded_dense(3).square().sum(dim=1) for i in (3, 4, 5)]
        return self.over(torch.cat([*parts, weighted["f6"]], dim=1))


def _config(kind: type, name: str, index: int) -> Any:  # noqa: ANN401 - either kind of config
    return kind(
        name=name, num_embeddings=ROWS[index], embedding_dim=16, feature_names=[f"f{index}"]
    )


def embedding_bags(device: str = "meta") -> EmbeddingBagCollection:
    return EmbeddingBagCollection(
        device=torch.device(device),
        tables=[
            EmbeddingBagConfig(
                name=f"t{i}", num_embeddings=rows, embedding_dim=width, feature_names=[f"f{i}"]
            )
            for i, (rows, width) in enumerate(zip(ROWS, WIDTHS, strict=True))
        ],
    )


def features(seed: int, samples: int) -> KeyedJaggedTensor:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, 4, (len(ROWS) * samples,), generator=generator)
    ids = [
        torch.randint(0, rows, (int(part.sum()),), generator=generator)
        for rows, part in zip(ROWS, lengths.view(len(ROWS), samples), strict=True)
    ]
    keys = [f"f{i}" for i in range(len(ROWS))]
    return KeyedJaggedTensor(keys=keys, values=torch.cat(ids), lengths=lengths)


def on_ranks(
    world_size: int, local_world_size: int, device: str = "cpu", **settings: int
) -> Topology:
    return Topology(
        world_size=world_size,
        local_world_size=local_world_size,
        compute_device=device,
        **QUIET,
        **settings,
    )


def planner(**settings: object) -> IterationTimePlanner:
    return IterationTimePlanner(gpus(4), 64, hardware="h100-sxm", sharder="cost_greedy", **settings)


def solved(made: IterationTimePlanner) -> Solution:
    assert made.solution is not None
    return made.solution


@contextmanager
def joined(rank: int, world_size: int, local_world_size: int, folder: Path) -> Iterator[None]:
    """Be a rank of processes that share a folder, as long as all are; then end."""
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_RANK": str(rank % local_world_size),
        "LOCAL_WORLD_SIZE": str(local_world_size),
    }
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world_size
    )
    yield
    dist.barrier()
    dist.destroy_process_group()
    end_now()


def constrained(*choices: tuple[str, str]) -> dict[str, ParameterConstraints]:
    """Give table i the i-th sharding type and kernel, going round."""
    return {
        f"t{i}": ParameterConstraints(
            sharding_types=[choices[i % len(choices)][0]],
            compute_kernels=[choices[i % len(choices)][1]],
            min_partition=4,
        )
        for i in range(len(ROWS))
    }


def of_types(**kinds: str) -> dict[str, ParameterConstraints]:
    """Give every table its sharding type."""
    return {
        name: ParameterConstraints(sharding_types=[kind], min_partition=4)
        for name, kind in kinds.items()
    }


def cases() -> Iterator[tuple[str, dict[str, ParameterConstraints]]]:
    """Yield every sharding type alone, every kernel, and all of them together."""
    for kind in TYPES:
        yield kind, constrained((kind, "dense" if kind == "data_parallel" else "fused"))
    for kernel in ("fused_uvm", "fused_uvm_caching"):
        yield kernel, constrained(("table_wise", kernel))
    mixed = [(kind, "dense" if kind == "data_parallel" else "fused") for kind in TYPES]
    yield "mixed", constrained(*mixed)


def arms_constraints() -> dict[str, ParameterConstraints]:
    """Give every table of ``Arms`` a sharding type: t0 to both tables of that name."""
    return of_types(
        t0="row_wise",
        t1="table_row_wise",
        t2="data_parallel",
        s4="column_wise",
        s5="table_wise",
        w="table_wise",
    )


class Wrapped(nn.Module):
    """Collections inside other modules: feature-processed bags, and sequences."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__()
        here = torch.device(device)
        processed = [_config(EmbeddingBagConfig, f"t{i}", i) for i in range(3)]
        self.processed = FeatureProcessedEmbeddingBagCollection(
            EmbeddingBagCollection(tables=processed, device=here, is_weighted=True),
            PositionWeightedModuleCollection({f"f{i}": 4 for i in range(3)}, device=here),
        )
        self.sequence = EmbeddingCollection(
            tables=[_config(EmbeddingConfig, f"s{i}", i) for i in (3, 4, 5)], device=here
        )
        self.over = nn.Linear(16 * 6, 1)

    @property
    def embeddings(self) -> list[nn.Module]:
        """What is sharded."""
        return [self.processed, self.sequence]

    def forward(self, features: KeyedJaggedTensor) -> torch.Tensor:
        first, second, _ = features.split([3, 3, 1])
        ones = KeyedJaggedTensor(
            keys=first.keys(),
            values=first.values(),
            lengths=first.lengths(),
            weights=torch.ones_like(first.values(), dtype=torch.float32),
        )
        pooled = self.processed(ones).to_dict()
        sequence = self.sequence(second)
        parts = [pooled[f"f{i}"] for i in range(3)]
        parts += [sequence[f"f{i}"].to_padded_dense(3).square().sum(dim=1) for i in (3, 4, 5)]
        return self.over(torch.cat(parts, dim=1))


class AnyProcessedSharder(FeatureProcessedEmbeddingBagCollectionSharder):  # type: ignore[misc]
    """Hands everything to ``AnySharder``."""

    def __init__(self) -> None:
        super().__init__(ebc_sharder=AnySharder())

    def compute_kernels(self, sharding_type: str, compute_device_type: str) -> list[str]:
        return AnySharder().compute_kernels(sharding_type, compute_device_type)


def managed_collision() -> ManagedCollisionEmbeddingBagCollection:
    """Return a pooled table whose ids are remapped (zero-collision hashing), on the meta device."""
    config = EmbeddingBagConfig(**REMAPPED)
    return ManagedCollisionEmbeddingBagCollection(
        EmbeddingBagCollection(tables=[config], device=META), _remapping(config)
    )


def managed_collision_sequence() -> ManagedCollisionEmbeddingCollection:
    """Return the same table, unpooled."""
    config = EmbeddingConfig(**REMAPPED)
    return ManagedCollisionEmbeddingCollection(
        EmbeddingCollection(tables=[config], device=META), _remapping(config)
    )


REMAPPED = {
    "name": "a",
    "num_embeddings": 1000,
    "embedding_dim": 64,
    "feature_names": ["f_a"],
}


def _remapping(config: Any) -> ManagedCollisionCollection:  # noqa: ANN401 - either kind of config
    remapped = MCHManagedCollisionModule(
        zch_size=1000,
        device=META,
        eviction_interval=2,
        eviction_policy=DistanceLFU_EvictionPolicy(),
    )
    return ManagedCollisionCollection({"a": remapped}, [config])


def wrapped_constraints() -> dict[str, ParameterConstraints]:
    """Give every table of ``Wrapped`` a sharding type."""
    return of_types(
        t0="table_wise",
        t1="column_wise",
        t2="data_parallel",
        s3="row_wise",
        s4="column_wise",
        s5="table_wise",
    )


def trained(
    parallel: DistributedModelParallel,
    loss_of: Callable[[nn.Module, int, int], torch.Tensor],
    num_steps: int,
    rate: float,
    after: Callable[[], None] = lambda: None,
) -> list[float]:
    """Train a model whose tables are updated in the backward; return the mean loss of every step.

    ``loss_of`` is given the model, the step and the rank; ``after`` is called after every update.
    """
    fused = set(parallel.fused_optimizer.params)
    dense = [value for name, value in parallel.named_parameters() if name not in fused]
    optimizer = torch.optim.SGD(dense, lr=rate)
    losses = []
    for step in range(num_steps):
        loss = loss_of(parallel, step, dist.get_rank())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        after()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(float(mean) / dist.get_world_size())
    return losses
