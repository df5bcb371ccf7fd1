"""A training step of HSTU on an H100, by families of kernels: `python -m bench.hstu [--write]`.

The published breakdown is of a run on 16 H100, 32 samples of 4,099 tokens a rank, eight layers of
width 1,024 (NVIDIA/recsys-examples@43465ae, Apache-2.0,
``examples/hstu/training/benchmark/PERF_ANALYSIS.md``, 2.2 and 2.3). The dense part is written out
below with plain operators, read without a GPU, and predicted with ``h100-sxm``; nothing was fitted
to the step. Its elementwise work is there by fused kernels of Triton's, so that it stands beside
operators one by one and as a compiler fuses them. Lookups are those of hash tables that FBGEMM does
not have, and are left out. Besides: HSTU's fused causal attention of 4 heads of 256 by batch and
length, read off a heat map (``../shared/data/hstu_attention.csv``, the same repository); the
backward's rate was fitted to rows of 2,048 and more queries (``ATTENTION_BACKWARD``), nothing else
to any. Needs torch, and ``../shared/data``.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import nn

from bench.documented import ROOT
from bench.kept import print_and_keep
from costmodel.base.units import MS, Seconds
from costmodel.domain.dense_operators import machine_operators
from costmodel.domain.hardware import Gpu
from costmodel.domain.workload import DataType
from costmodel.kernels.operators import fused_estimate, operator_estimate
from costmodel.operators.compiled import FusedOperators, fused
from costmodel.operators.operator_families import OperatorFamily, family_of
from costmodel.operators.operator_list import (
    BatchSize,
    DenseOperator,
    ElementType,
    OperatorList,
    OperatorTensor,
    Pass,
)
from costmodel.operators.products import MULTIPLYING, products_of
from costmodel.operators.work import moved
from planner.files.profiles import load_profile
from planner.operators.reading import read_operators

RESULTS = ROOT / "bench" / "results" / "hstu.json"
ATTENTION = ROOT.parent / "shared" / "data" / "hstu_attention.csv"
_FUSED = "aten::_scaled_dot_product_flash_attention"
WIDTH, HEADS, LAYERS, EMBEDDED, SAMPLES, LENGTH, DROPOUT = 1024, 4, 8, 128, 32, 4099, 0.2
TOWER = (512, 8)
READ_TOKENS = (16, 24, 32)
PUBLISHED: Mapping[str, float] = {
    "attention": 79.900, "uvqk products": 33.095, "projection products": 8.905,
    "other products": 1.919, "elementwise": 39.507,
}  # fmt: skip
"""Milliseconds of a step by category, of the fastest profiled one. Besides: lookups 10.6, idle 6.2,
collectives 2.9 that nothing covers, others 1.5."""
PUBLISHED_ATTENTION = {Pass.FORWARD: 15.718, Pass.BACKWARD: 65.550}
"""Milliseconds of all layers' attention."""


class HstuLayer(nn.Module):  # type: ignore[misc]  # torch has no types here
    """A layer of HSTU, with the attention of a softmax, which multiplies as much."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.uvqk, self.out = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return as many vectors as there are inputs."""
        gate, *others = nn.functional.silu(self.uvqk(self.first(inputs))).chunk(4, -1)
        value, query, key = (
            each.view(1, len(inputs), HEADS, WIDTH // HEADS).transpose(1, 2) for each in others
        )
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        seen = self.second(seen.transpose(1, 2).reshape(len(inputs), WIDTH))
        return inputs + self.out(nn.functional.dropout(seen * gate, DROPOUT))


class Hstu(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Layers over embeddings of items and actions in turns, and a tower at every item."""

    def __init__(self) -> None:
        super().__init__()
        self.widen = nn.Linear(EMBEDDED, WIDTH)
        self.layers = nn.Sequential(*(HstuLayer() for _ in range(LAYERS)))
        self.tower = nn.Sequential(
            nn.Linear(WIDTH, TOWER[0]), nn.ReLU(), nn.Linear(TOWER[0], TOWER[1])
        )

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss of what is told of every second token."""
        values = self.layers(nn.functional.dropout(self.widen(tokens), DROPOUT))[::2]
        logits = self.tower(nn.functional.normalize(values, dim=-1))
        return nn.functional.binary_cross_entropy_with_logits(logits.float(), labels[::2])


def operators(gpu: Gpu) -> OperatorList[int]:
    """Return the step's operators, read from fewer tokens."""
    batches = [
        (torch.rand(each, EMBEDDED).bfloat16(), torch.rand(each, TOWER[1])) for each in READ_TOKENS
    ]
    listed = read_operators(Hstu().bfloat16(), batches).at(BatchSize(SAMPLES * LENGTH))
    return replace(
        machine_operators(listed, gpu), operators=tuple(map(_of_samples, listed.operators))
    )


def _of_samples(operator: DenseOperator[int]) -> DenseOperator[int]:
    """Return attention of all tokens as that of each sample's own."""
    if family_of(operator.name) is not OperatorFamily.ATTENTION:
        return operator

    def own(tensors: Iterable[OperatorTensor[int]]) -> tuple[OperatorTensor[int], ...]:
        return tuple(
            replace(each, sizes=(SAMPLES, HEADS, LENGTH, *each.sizes[3:]))
            if len(each.sizes) > 2
            else each
            for each in tensors
        )

    return replace(operator, inputs=own(operator.inputs), outputs=own(operator.outputs))


def breakdown(kernels: Iterable[FusedOperators], gpu: Gpu) -> dict[str, float]:
    """Return the milliseconds of kernels by the published categories."""
    found = dict.fromkeys(PUBLISHED, 0.0)
    for kernel in kernels:
        found[_category(kernel)] += fused_estimate(kernel, DataType.BF16, gpu).seconds / MS
    return {name: round(each, 3) for name, each in found.items()}


def _category(kernel: FusedOperators) -> str:
    first = kernel.operators[0]
    family = family_of(first.name)
    if family is OperatorFamily.ATTENTION:
        return "attention"
    if family not in MULTIPLYING:
        return "elementwise"
    sides = {side for each in products_of(first) for side in (each.m, each.n, each.k)}
    if 4 * WIDTH in sides:
        return "uvqk products"
    return "projection products" if sides == {WIDTH, SAMPLES * LENGTH} else "other products"


def _attention_times(kernels: Sequence[DenseOperator[int]], gpu: Gpu) -> Iterator[tuple[str, Any]]:
    """Yield the attention of each pass, predicted and published."""
    for direction, published in PUBLISHED_ATTENTION.items():
        predicted = sum(
            operator_estimate(each, DataType.BF16, gpu).seconds
            for each in kernels
            if family_of(each.name) is OperatorFamily.ATTENTION and each.direction is direction
        )
        yield f"attention {direction.value}", _row(predicted / MS, published)


class AttentionPoint(NamedTuple):
    """A measured kernel."""

    direction: Pass
    shape: tuple[int, int, int, int]
    """Samples, heads, queries, width."""
    seconds: Seconds


def points() -> Iterator[AttentionPoint]:
    """Yield what was measured."""
    with ATTENTION.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            direction = Pass.FORWARD if row["phase"] == "fwd_ms" else Pass.BACKWARD
            for name, told in row.items():
                if name.startswith("seq") and told:
                    length = int(name.removeprefix("seq"))
                    sizes = int(row["batch"]), int(row["heads"]), length, int(row["head_dim"])
                    yield AttentionPoint(direction, sizes, float(told) * MS)


def attention(direction: Pass, shape: tuple[int, int, int, int]) -> DenseOperator[int]:
    """Return causal attention of a shape."""
    made = [
        OperatorTensor(sizes=shape, data_type=ElementType.BFLOAT16, storage=place)
        for place in range(5)
    ]
    backward = direction is Pass.BACKWARD
    return DenseOperator(
        name=_FUSED + "_backward" * backward,
        direction=direction,
        inputs=tuple(made[: 3 + backward]),
        outputs=(made[4],),
        causal=True,
    )


def lengths(gpu: Gpu) -> dict[str, dict[str, float]]:
    """Return attention predicted over measured by direction and length, median of the batches."""
    found: dict[str, dict[str, list[float]]] = {}
    for each in points():
        predicted = operator_estimate(attention(each.direction, each.shape), DataType.FP32, gpu)
        of_lengths = found.setdefault(each.direction.value, {})
        of_lengths.setdefault(str(each.shape[2]), []).append(predicted.seconds / each.seconds)
    return {
        name: {length: round(median(ratios), 2) for length, ratios in own.items()}
        for name, own in found.items()
    }


def _row(predicted: float, published: float) -> dict[str, float]:
    error = round(100 * (predicted / published - 1), 1)
    return {"published_ms": published, "predicted_ms": round(predicted, 3), "error_percent": error}


def table() -> dict[str, Any]:
    """Return every category, one by one and fused, and attention by length."""
    gpu = load_profile("h100-sxm").gpu
    listed = operators(gpu).operators
    ways = {
        "one by one": breakdown((FusedOperators((each,), moved(each)) for each in listed), gpu),
        "fused": breakdown(fused(listed), gpu),
    }
    return {
        "families": {
            way: {
                **{name: _row(ms, PUBLISHED[name]) for name, ms in found.items()},
                "all of these": _row(sum(found.values()), sum(PUBLISHED.values())),
            }
            for way, found in ways.items()
        },
        "attention": dict(_attention_times(listed, gpu)),
        "attention over measured": lengths(gpu),
    }


def show(made: Mapping[str, Any]) -> None:
    """Print the tables."""
    tables = {**made["families"], "attention": made["attention"]}
    for name, rows in tables.items():
        print(name)
        for each, row in rows.items():
            print(
                f"  {each:<22}{row['published_ms']:>9.2f} ms{row['predicted_ms']:>9.2f} ms"
                f"{row['error_percent']:>+8.1f}%"
            )
    for name, own in made["attention over measured"].items():
        ratios = ", ".join(f"{ratio} for {length}" for length, ratio in own.items())
        print(f"attention {name}: predicted over measured {ratios} queries")


if __name__ == "__main__":
    print_and_keep(__doc__, RESULTS, table, show)
