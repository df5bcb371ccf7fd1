"""Causal attention on an H100 beside predicted: `python -m bench.attention [--write]`.

HSTU's fused attention of 4 heads of 256 by batch and length, forward and backward, read off a heat
map (``../shared/data/hstu_attention.csv``, NVIDIA/recsys-examples). The backward's rate was fitted
to rows of 2,048 and more queries (``ATTENTION_BACKWARD``), nothing else to any.
"""

import csv
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any, NamedTuple

from bench.documented import ROOT
from bench.kept import print_and_keep
from costmodel.base.units import MS, Seconds
from costmodel.domain.workload import DataType
from costmodel.kernels.operators import operator_estimate
from costmodel.operators.operator_list import DenseOperator, ElementType, OperatorTensor, Pass
from planner.files.profiles import load_profile

MEASURED = ROOT.parent / "shared" / "data" / "hstu_attention.csv"
RESULTS = ROOT / "bench" / "results" / "attention.json"
NAME = "aten::_scaled_dot_product_flash_attention"


class AttentionPoint(NamedTuple):
    """A measured kernel."""

    direction: Pass
    shape: tuple[int, int, int, int]
    """Samples, heads, queries, width."""
    seconds: Seconds


def points() -> Iterator[AttentionPoint]:
    """Yield what was measured."""
    with MEASURED.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            direction = Pass.FORWARD if row["phase"] == "fwd_ms" else Pass.BACKWARD
            for name, told in row.items():
                if name.startswith("seq") and told:
                    length = int(name.removeprefix("seq"))
                    sizes = int(row["batch"]), int(row["heads"]), length, int(row["head_dim"])
                    yield AttentionPoint(direction, sizes, float(told) * MS)


def operator(direction: Pass, shape: tuple[int, int, int, int]) -> DenseOperator[int]:
    """Return causal attention of a shape."""
    made = [
        OperatorTensor(sizes=shape, data_type=ElementType.BFLOAT16, storage=place)
        for place in range(5)
    ]
    backward = direction is Pass.BACKWARD
    return DenseOperator(
        name=NAME + "_backward" * backward,
        direction=direction,
        inputs=tuple(made[: 3 + backward]),
        outputs=(made[4],),
        causal=True,
    )


def table() -> dict[str, Any]:
    """Return predicted over measured by direction and length, median of the batches."""
    gpu = load_profile("h100-sxm").gpu
    found: dict[str, dict[str, list[float]]] = {}
    for each in points():
        predicted = operator_estimate(operator(each.direction, each.shape), DataType.FP32, gpu)
        of_lengths = found.setdefault(each.direction.value, {})
        of_lengths.setdefault(str(each.shape[2]), []).append(predicted.seconds / each.seconds)
    return {
        name: {length: round(median(ratios), 2) for length, ratios in lengths.items()}
        for name, lengths in found.items()
    }


def show(made: Mapping[str, Mapping[str, float]]) -> None:
    """Print the table."""
    for name, lengths in made.items():
        ratios = ", ".join(f"{ratio} for {length}" for length, ratio in lengths.items())
        print(f"{name}: predicted over measured {ratios} queries")


if __name__ == "__main__":
    print_and_keep(__doc__, RESULTS, table, show)
