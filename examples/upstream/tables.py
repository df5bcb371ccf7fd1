"""A small model and its options, as TorchRec's enumerator makes them, for the scripts here."""

import torch
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import Topology
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.types import ShardingOption
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection


def bags(*rows: int, dim: int = 128) -> EmbeddingBagCollection:
    """Return a collection with one table for each number of rows, on the meta device."""
    tables = [
        EmbeddingBagConfig(
            name=f"t{i}", num_embeddings=number, embedding_dim=dim, feature_names=[f"f{i}"]
        )
        for i, number in enumerate(rows)
    ]
    return EmbeddingBagCollection(tables=tables, device=torch.device("meta"))


def gpus(world_size: int) -> Topology:
    """Return GPUs of one host."""
    return Topology(world_size=world_size, compute_device="cuda", created_by_factory=True)


def options(
    model: torch.nn.Module, world_size: int, **fused_params: object
) -> dict[tuple[str, str], ShardingOption]:
    """Return the options of the fused kernel, by table and sharding type."""
    sharder = EmbeddingBagCollectionSharder(fused_params=fused_params)
    found = EmbeddingEnumerator(gpus(world_size), batch_size=512).enumerate(model, [sharder])
    return {
        (each.name, each.sharding_type): each for each in found if each.compute_kernel == "fused"
    }
