"""The list that a trace of a real CPU step gives, beside that which reading the module gives."""

from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

import torch
from torch import nn
from torch.profiler import ExecutionTraceObserver

from costmodel.operators.operator_list import BatchSize
from costmodel.operators.work import work_of
from planner.operators.reading import read_operators
from planner.traces.execution.dense_list import traced_operators

Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class Model(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Layers, a norm, a dropout, attention over a history, and a loss; 64 wide."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 128), nn.Linear(128, 64)
        self.norm, self.drop = nn.LayerNorm(64), nn.Dropout(0.1)
        self.items, self.head = nn.Embedding(100, 64), nn.Linear(64, 1)
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)

    def forward(
        self, dense: torch.Tensor, history: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        hidden = self.norm(self.drop(self.second(self.first(dense).relu())) + dense)
        rows = self.items(history)
        rows, _ = self.attention(rows, rows, rows, need_weights=False)
        logits = self.head(hidden + rows.mean(1)).squeeze(1)
        return nn.functional.binary_cross_entropy_with_logits(logits, labels)


def batch(samples: int) -> Batch:
    return torch.rand(samples, 64), torch.randint(0, 100, (samples, 10)), torch.rand(samples)


def traced(path: Path, batches: Sequence[Batch]) -> None:
    """Record the last step of a training."""
    model = Model()
    optimizer = torch.optim.SGD(model.parameters())
    observer = ExecutionTraceObserver().register_callback(str(path))
    for step, each in enumerate(batches):
        if step == len(batches) - 1:
            observer.start()
        optimizer.zero_grad()
        model(*each).backward()
        optimizer.step()
    observer.stop()
    observer.unregister_callback()


@pytest.mark.parametrize("samples", [32, 50])
def test_a_traced_step_does_what_the_module_is_read_to_do(tmp_path: Path, samples: int) -> None:
    """At the traced batch and others, even where it divides the widths of layers."""
    traced(tmp_path / "trace.json", [batch(samples)] * 2)
    found = traced_operators(tmp_path / "trace.json")
    read = read_operators(Model(), [batch(24), batch(40), batch(50)])
    assert found.recorded == BatchSize(samples)
    assert found.num_parameters == read.num_parameters
    for number in (samples, 1000):
        mine, theirs = (work_of(each.at(BatchSize(number))) for each in (found, read))
        assert mine.forward_flop == theirs.forward_flop
        assert mine.backward_flop == theirs.backward_flop
        assert mine.kept == pytest.approx(theirs.kept, rel=0.03)
        assert mine.moved == pytest.approx(theirs.moved, rel=0.06)
