"""Multi-gate mixture of experts (Ma et al., KDD 2018)."""

import torch
from torch import nn
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from examples.models.tables import NUM_DENSE, ROWS, by_feature, make_tables, mlp

WIDTH = 64
INPUTS = NUM_DENSE + len(ROWS) * WIDTH
EXPERTS, TASKS, OUTPUTS = 8, 2, 128


class MultiGate(nn.Module):
    """Experts that all tasks share, a gate and a tower for each task."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = make_tables(WIDTH)
        self.experts = nn.ModuleList(mlp(INPUTS, 512, OUTPUTS) for _ in range(EXPERTS))
        self.gates = nn.ModuleList(nn.Linear(INPUTS, EXPERTS) for _ in range(TASKS))
        self.towers = nn.ModuleList(mlp(OUTPUTS, 64, 1) for _ in range(TASKS))

    def forward(
        self, dense: torch.Tensor, sparse: KeyedJaggedTensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """Return the loss of a batch, whose label is that of both tasks."""
        inputs = torch.cat([dense, *by_feature(self.tables(sparse))], dim=1)
        experts = torch.stack([expert(inputs) for expert in self.experts], dim=1)
        losses = []
        for gate, tower in zip(self.gates, self.towers, strict=True):
            weights = gate(inputs).softmax(dim=1).unsqueeze(1)
            logits = tower(torch.bmm(weights, experts).squeeze(1)).squeeze(1)
            losses.append(nn.functional.binary_cross_entropy_with_logits(logits, labels))
        return torch.stack(losses).sum()


def make_model() -> nn.Module:
    """Return the model."""
    return MultiGate()
