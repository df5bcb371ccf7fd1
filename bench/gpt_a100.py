"""GPT models under data parallelism on 2 to 8 A100, by batch: `python -m bench.gpt_a100 [--write]`.

Measured steps are public (``../shared/data/dense/vtrain_a100_h1024.csv``, VIA-Research/vTrain):
hidden size 1,024, 12 to 24 layers, sequences of 1,024, FP16, activations computed again in the
backward, gradients of micro-batches added up. The model is written out below, read without a GPU
from two depths of it, and predicted with ``a100-sxm-80gb``: nothing is fitted to the steps. The
reduction is not overlapped, as in Megatron-LM's own data parallelism. Rows under tensor parallelism
are left out: a list has no collectives. Needs torch, and ``../shared/data``; takes a minute.
"""

import csv
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from bench.documented import ROOT
from bench.kept import print_and_keep
from costmodel.base.units import MS, Seconds
from costmodel.domain.dense_operators import machine_operators
from costmodel.domain.hardware import CollectiveOp, HardwareProfile
from costmodel.domain.workload import DataType
from costmodel.kernels.collectives import RankGroup, collective_estimate
from costmodel.kernels.operators import pass_times
from costmodel.operators.operator_list import BatchSize, OperatorList, Pass, Size
from planner.files.profiles import load_profile
from planner.operators.reading import read_operators

MEASURED = ROOT.parent / "shared" / "data" / "dense" / "vtrain_a100_h1024.csv"
RESULTS = ROOT / "bench" / "results" / "gpt_a100.json"
WIDTH, HEADS, VOCABULARY, SEQUENCE, DROPOUT = 1024, 16, 51_200, 1024, 0.1
READ_DEPTHS = (1, 2)
READ_SAMPLES = (2, 3, 4)
GRADIENT_BYTES, OPTIMIZER_BYTES = 2.0, 30.0
"""Bytes of a parameter that are reduced, and that Adam moves: FP32 weight and two moments read and
written, the gradient read, the FP16 weight written."""


class Layer(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Attention and MLP of a GPT; the causal mask is inside the softmax, as Megatron's is."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.heads, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return as many vectors as there are inputs."""
        samples, length, _ = inputs.shape
        own = WIDTH // HEADS
        heads = self.heads(self.first(inputs)).view(samples, length, HEADS, 3 * own)
        query, key, value = (
            each.reshape(samples * HEADS, length, own)
            for each in heads.transpose(1, 2).chunk(3, -1)
        )
        none = query.new_empty(1, 1, 1)
        scores = torch.baddbmm(none, query, key.transpose(1, 2), beta=0, alpha=own**-0.5)
        shares = nn.functional.dropout(torch.softmax(scores, -1), DROPOUT)
        seen = torch.bmm(shares, value).view(samples, HEADS, length, own).transpose(1, 2)
        attended = self.out(seen.reshape(samples, length, WIDTH))
        inputs = inputs + nn.functional.dropout(attended, DROPOUT)
        inside = self.down(nn.functional.gelu(self.up(self.second(inputs))))
        return inputs + nn.functional.dropout(inside, DROPOUT)


class Gpt(nn.Module):  # type: ignore[misc]  # torch has no types here
    """A GPT whose layers are computed again in the backward."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(SEQUENCE, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(depth))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the loss of predicting each id."""
        values = nn.functional.dropout(self.words(ids) + self.places.weight, DROPOUT)
        for layer in self.layers:
            values = checkpoint(layer, values, use_reentrant=False)
        logits = nn.functional.linear(self.norm(values), self.words.weight).float()
        return nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten())


class GptStep(NamedTuple):
    """A measured step."""

    ranks: int
    micro_batch: int
    num_batches: int
    """Micro-batches of a step on a rank."""
    depth: int
    seconds: Seconds


def rows() -> Iterator[GptStep]:
    """Yield the measured steps under data parallelism alone."""
    with MEASURED.open(encoding="utf-8") as lines:
        _, *every = csv.reader(lines)
    for line in every:
        batch, micro, depth, tensor, ranks = (int(line[i]) for i in (1, 2, 5, 7, 8))
        if tensor == 1:
            yield GptStep(ranks, micro, batch // (micro * ranks), depth, float(line[10]) * MS)


def read() -> list[OperatorList[Size]]:
    """Return the operators of the model at ``READ_DEPTHS``."""
    found = []
    for depth in READ_DEPTHS:
        batches = [(torch.zeros(each, SEQUENCE, dtype=torch.int64),) for each in READ_SAMPLES]
        found.append(read_operators(Gpt(depth).bfloat16(), batches))  # of 2 bytes, as FP16
    return found


def predicted(
    row: GptStep, lists: Sequence[OperatorList[Size]], hardware: HardwareProfile
) -> tuple[Seconds, Seconds]:
    """Return a step's seconds: by kernels and host, and by kernels alone."""
    shallow, deeper = (
        pass_times(
            machine_operators(each.at(BatchSize(row.micro_batch)), hardware.gpu),
            DataType.BF16,
            hardware,
        )
        for each in lists
    )
    whole = kernels = 0.0
    for each in Pass:
        own, host = (
            first + (row.depth - 1) * (second - first)
            for first, second in zip(shallow[each], deeper[each], strict=True)
        )
        whole, kernels = whole + max(own, host), kernels + own
    parameters = row.depth * 12.0 * WIDTH**2 + VOCABULARY * WIDTH
    group = RankGroup(num_ranks=row.ranks, ranks_per_node=row.ranks)
    reduced = GRADIENT_BYTES * parameters
    rest = collective_estimate(CollectiveOp.ALL_REDUCE, reduced, group, hardware).seconds
    rest += OPTIMIZER_BYTES * parameters / hardware.gpu.memory_bandwidth
    return row.num_batches * whole + rest, row.num_batches * kernels + rest


def table() -> dict[str, Any]:
    """Return errors by micro-batch, and over all steps."""
    lists, hardware = read(), load_profile("a100-sxm-80gb")
    errors: dict[int, list[tuple[float, float]]] = {}
    for row in rows():
        seconds = predicted(row, lists, hardware)
        both = seconds[0] / row.seconds - 1, seconds[1] / row.seconds - 1
        errors.setdefault(row.micro_batch, []).append(both)
    every = [each for some in errors.values() for each in some]
    named = {**{f"micro-batch {size}": errors[size] for size in sorted(errors)}, "all": every}
    return {name: _summary(some) for name, some in named.items()}


def _summary(errors: Sequence[tuple[float, float]]) -> dict[str, float]:
    whole, kernels = zip(*errors, strict=True)
    return {
        "steps": len(errors),
        "mape_percent": round(100 * statistics.fmean(map(abs, whole)), 1),
        "mean_percent": round(100 * statistics.fmean(whole), 1),
        "mean_of_kernels_percent": round(100 * statistics.fmean(kernels), 1),
    }


def show(made: Mapping[str, Mapping[str, float]]) -> None:
    """Print the table."""
    print(f"{'':<16}{'steps':>6}{'MAPE':>8}{'mean':>8}{'kernels alone':>15}")
    for name, each in made.items():
        print(
            f"{name:<16}{each['steps']:>6}{each['mape_percent']:>7}%{each['mean_percent']:>+7}%"
            f"{each['mean_of_kernels_percent']:>+14}%"
        )


if __name__ == "__main__":
    print_and_keep(__doc__, RESULTS, table, show)
