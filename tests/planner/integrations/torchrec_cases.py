"""Models, sharders and plans that the TorchRec tests share; imports torch and torchrec."""

from collections.abc import Iterator

import torch
from torch import nn
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.types import ParameterConstraints, Topology
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

TYPES = (
    "data_parallel",
    "table_wise",
    "row_wise",
    "column_wise",
    "table_row_wise",
    "table_column_wise",
    "grid_shard",
)
ROWS = (13, 7, 64, 40, 21, 9, 32)
"""One table for each sharding type; few rows, so that trailing row shards are small."""
WIDTHS = (8, 16, 8, 16, 8, 16, 16)


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


class Model(nn.Module):
    """Embeddings, regrouped by key, into one linear layer."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__()
        self.sparse = embedding_bags(device)
        self.over = nn.Linear(sum(WIDTHS), 1)

    def forward(self, features: KeyedJaggedTensor) -> torch.Tensor:
        pooled = self.sparse(features).to_dict()
        return self.over(torch.cat([pooled[f"f{i}"] for i in range(len(ROWS))], dim=1))


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


def on_ranks(world_size: int, local_world_size: int, device: str = "cpu") -> Topology:
    return Topology(
        world_size=world_size,
        local_world_size=local_world_size,
        compute_device=device,
        created_by_factory=True,
    )


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


def cases() -> Iterator[tuple[str, dict[str, ParameterConstraints]]]:
    """Yield every sharding type alone, every kernel, and all of them together."""
    for kind in TYPES:
        yield kind, constrained((kind, "dense" if kind == "data_parallel" else "fused"))
    for kernel in ("fused_uvm", "fused_uvm_caching"):
        yield kernel, constrained(("table_wise", kernel))
    mixed = [(kind, "dense" if kind == "data_parallel" else "fused") for kind in TYPES]
    yield "mixed", constrained(*mixed)
