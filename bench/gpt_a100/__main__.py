"""GPT models on 2 to 8 A100, by kind of parallelism: `python -m bench.gpt_a100 [--write]`.

Measured steps are public (``../shared/data/dense/vtrain_a100_h1024.csv``, VIA-Research/vTrain):
hidden size 1,024, 12 to 24 layers, sequences of 1,024, FP16, activations computed again in the
backward, gradients of micro-batches added up. A rank's part of the model is read without a GPU from
two depths of it, and predicted with ``a100-sxm-80gb``: nothing is fitted to the steps. Gradients
are reduced when all are there, as in Megatron-LM's own data parallelism. Needs torch, and
``../shared/data``; takes some minutes.
"""

import csv
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from bench.documented import ROOT
from bench.gpt_a100.model import SEQUENCE, VOCABULARY, WIDTH, Gpt
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
READ_DEPTHS = (1, 2)
READ_SAMPLES = (2, 3, 4)
GRADIENT_BYTES, OPTIMIZER_BYTES = 2.0, 30.0
"""Bytes of a parameter that are reduced, and that Adam moves: FP32 weight and two moments read and
written, the gradient read, the FP16 weight written."""


class GptStep(NamedTuple):
    """A measured step."""

    tensor_ranks: int
    """Ranks that a layer is split over."""
    data_ranks: int
    micro_batch: int
    num_batches: int
    """Micro-batches of a step on a rank."""
    depth: int
    seconds: Seconds


def rows() -> Iterator[GptStep]:
    """Yield the measured steps."""
    with MEASURED.open(encoding="utf-8") as lines:
        _, *every = csv.reader(lines)
    for line in every:
        batch, micro, depth, tensor, data = (int(line[i]) for i in (1, 2, 5, 7, 8))
        yield GptStep(tensor, data, micro, batch // (micro * data), depth, float(line[10]) * MS)


def read(ranks: int) -> list[OperatorList[Size]]:
    """Return the operators of a rank's part of the model at ``READ_DEPTHS``."""
    found = []
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    for depth in READ_DEPTHS:
        batches = [(torch.zeros(each, SEQUENCE, dtype=torch.int64),) for each in READ_SAMPLES]
        found.append(read_operators(Gpt(depth, ranks).bfloat16(), batches))  # 2 bytes, as FP16
    dist.destroy_process_group()
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
    parameters = (row.depth * 12.0 * WIDTH**2 + VOCABULARY * WIDTH) / row.tensor_ranks
    group = RankGroup(num_ranks=row.data_ranks, ranks_per_node=row.data_ranks)
    reduced = GRADIENT_BYTES * parameters
    rest = collective_estimate(CollectiveOp.ALL_REDUCE, reduced, group, hardware).seconds
    rest += OPTIMIZER_BYTES * parameters / hardware.gpu.memory_bandwidth
    return row.num_batches * whole + rest, row.num_batches * kernels + rest


def table() -> dict[str, Any]:
    """Return errors by kind of parallelism and micro-batch, and over all steps."""
    hardware, lists = load_profile("a100-sxm-80gb"), dict[int, list[OperatorList[Size]]]()
    errors: dict[str, list[tuple[float, float]]] = {}
    for row in sorted(rows()):
        if row.tensor_ranks not in lists:
            lists[row.tensor_ranks] = read(row.tensor_ranks)
        seconds = predicted(row, lists[row.tensor_ranks], hardware)
        both = seconds[0] / row.seconds - 1, seconds[1] / row.seconds - 1
        for name in _kinds(row):
            errors.setdefault(name, []).append(both)
    return {name: _summary(errors[name]) for name in sorted(errors)}


def _kinds(row: GptStep) -> Iterator[str]:
    """Yield what a step counts among."""
    tensor, data = row.tensor_ranks > 1, row.data_ranks > 1
    kind = "tensor and data" if tensor and data else "tensor" if tensor else "data"
    yield "all"
    yield kind
    yield f"{kind}, micro-batch {row.micro_batch}"


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
    print(f"{'':<32}{'steps':>6}{'MAPE':>8}{'mean':>8}{'kernels alone':>15}")
    for name, each in made.items():
        print(
            f"{name:<32}{each['steps']:>6}{each['mape_percent']:>7}%{each['mean_percent']:>+7}%"
            f"{each['mean_of_kernels_percent']:>+14}%"
        )


if __name__ == "__main__":
    print_and_keep(__doc__, RESULTS, table, show)
