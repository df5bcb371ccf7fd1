"""DeepFM (Guo et al., arXiv 1703.04247)."""

import torch
from torch import nn
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from examples.models.tables import NUM_DENSE, ROWS, by_feature, make_tables, mlp

WIDTH = 32


class DeepFm(nn.Module):
    """A factorization machine and an MLP of the same vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = make_tables(WIDTH)
        self.dense = nn.Linear(NUM_DENSE, WIDTH)
        self.deep = mlp((len(ROWS) + 1) * WIDTH, 1024, 512, 256, 1)

    def forward(
        self, dense: torch.Tensor, sparse: KeyedJaggedTensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """Return the loss of a batch."""
        vectors = torch.stack([self.dense(dense), *by_feature(self.tables(sparse))], dim=1)
        squared_sum, sum_of_squares = vectors.sum(1).square(), vectors.square().sum(1)
        second_order = 0.5 * (squared_sum - sum_of_squares).sum(1)
        logits = second_order + self.deep(vectors.flatten(1)).squeeze(1)
        return nn.functional.binary_cross_entropy_with_logits(logits, labels)


def make_model() -> nn.Module:
    """Return the model."""
    return DeepFm()
