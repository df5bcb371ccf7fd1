"""The tables that four of the five models share."""

from itertools import pairwise

import torch
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedTensor

ROWS = {"item": 20_000_000, "user": 5_000_000, "shop": 200_000, "category": 10_000, "country": 200}
NUM_DENSE = 13


def make_tables(embedding_dim: int) -> EmbeddingBagCollection:
    """Return a collection with a table for each feature."""
    tables = [
        EmbeddingBagConfig(
            name=name, num_embeddings=rows, embedding_dim=embedding_dim, feature_names=[name]
        )
        for name, rows in ROWS.items()
    ]
    return EmbeddingBagCollection(tables=tables, device=torch.device("meta"))


def by_feature(embedded: KeyedTensor) -> list[torch.Tensor]:
    """Return the vectors of each feature, in the order of the tables.

    In memory they are in an order that depends on which ranks the tables are on.
    """
    vectors = embedded.to_dict()
    return [vectors[name] for name in ROWS]


def mlp(*widths: int) -> torch.nn.Sequential:
    """Return linear layers of these widths, the first being the inputs', with ReLUs between."""
    layers: list[torch.nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])
