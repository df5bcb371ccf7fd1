"""DCN V2, its cross layers and MLP side by side (Wang et al., arXiv 2008.13535)."""

import torch
from torch import nn
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from examples.models.tables import NUM_DENSE, ROWS, by_feature, make_tables, mlp

WIDTH = 64
INPUTS = NUM_DENSE + len(ROWS) * WIDTH


class DcnV2(nn.Module):
    """Cross layers x0 * (W x + b) + x beside an MLP."""

    def __init__(self, cross_layers: int = 3) -> None:
        super().__init__()
        self.tables = make_tables(WIDTH)
        self.cross = nn.ModuleList(nn.Linear(INPUTS, INPUTS) for _ in range(cross_layers))
        self.deep = mlp(INPUTS, 1024, 512)
        self.last = nn.Linear(INPUTS + 512, 1)

    def forward(
        self, dense: torch.Tensor, sparse: KeyedJaggedTensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """Return the loss of a batch."""
        start = torch.cat([dense, *by_feature(self.tables(sparse))], dim=1)
        crossed = start
        for layer in self.cross:
            crossed = start * layer(crossed) + crossed
        logits = self.last(torch.cat([crossed, self.deep(start)], dim=1)).squeeze(1)
        return nn.functional.binary_cross_entropy_with_logits(logits, labels)


def make_model() -> nn.Module:
    """Return the model."""
    return DcnV2()
