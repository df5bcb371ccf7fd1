"""DLRM (Naumov et al., arXiv 1906.00091)."""

import torch
from torch import nn
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from examples.models.tables import NUM_DENSE, ROWS, by_feature, make_tables, mlp

WIDTH = 64
VECTORS = len(ROWS) + 1


class Dlrm(nn.Module):
    """Dot products of every pair of vectors, between two MLPs."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = make_tables(WIDTH)
        self.bottom = mlp(NUM_DENSE, 512, 256, WIDTH)
        self.top = mlp(WIDTH + VECTORS * (VECTORS - 1) // 2, 1024, 512, 1)
        self.register_buffer("pairs", torch.triu_indices(VECTORS, VECTORS, 1), persistent=False)

    def forward(
        self, dense: torch.Tensor, sparse: KeyedJaggedTensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """Return the loss of a batch."""
        bottom = self.bottom(dense)
        vectors = torch.stack([bottom, *by_feature(self.tables(sparse))], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        left, right = self.pairs
        logits = self.top(torch.cat([bottom, products[:, left, right]], dim=1)).squeeze(1)
        return nn.functional.binary_cross_entropy_with_logits(logits, labels)


def make_model() -> nn.Module:
    """Return the model."""
    return Dlrm()
