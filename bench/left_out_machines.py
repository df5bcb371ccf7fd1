"""How far off datasheets are: `python -m bench.left_out_machines [--write]`.

Every machine that a family of kernels was measured on is left out in turn, and its measurements
(the committed profile's fits, which stand for them) are predicted as a machine that nobody measured
is: from the constants of each of the others, with its own datasheet's bandwidths and peaks. Log
ratios of the two are shared by a machine (their mean) and own (what is left). A family's spread is
the root of the machines' mean squares, with Student's t as they are few, and made without the
machine that its interval is tested on. What is found is in ``NOT_MEASURED`` of
``costmodel.uncertainty.error_model``.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import hypot, sqrt
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from scipy.stats import t as student

from bench.kept import print_and_keep
from costmodel.base.units import GB, TFLOP
from costmodel.domain.hardware import CollectiveOp, HardwareProfile
from costmodel.domain.workload import DataType, EmbeddingTable, Optimizer
from costmodel.inputs.distribution import Zipf
from costmodel.kernels.collectives import curve_time
from costmodel.kernels.embedding import embedding_estimate
from costmodel.kernels.gemm import gemm_constants, gemm_time
from costmodel.uncertainty.error_model import NORMAL_90
from planner.files.profiles import load_profile

RESULTS = Path(__file__).parent / "results" / "left_out_machines.json"
LEVEL = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Datasheet:
    """What a machine's maker says of it."""

    memory_bandwidth: float
    """Bytes per second."""
    peak: Mapping[DataType, float]
    """FLOP per second by type, without sparsity."""
    link: float
    """Bytes per second of a GPU to the others of its node, in a direction."""


def _sheet(memory: float, link: float, **peaks: float) -> Datasheet:
    peak = {DataType(name): tflops * TFLOP for name, tflops in peaks.items()}
    return Datasheet(memory_bandwidth=memory * GB, peak=peak, link=link * GB)


SHEETS = {
    "v100-nvlink": _sheet(900, 150, fp32=15.7, fp16=125),
    "a100-sxm-40gb": _sheet(1555, 300, fp32=19.5, bf16=312),
    "a100-sxm-80gb": _sheet(2039, 300, fp32=19.5, bf16=312),
    "h100-sxm": _sheet(3350, 450, fp32=67, bf16=989.4),
    "h200-sxm": _sheet(4800, 450, fp32=67, bf16=989.4),
    "l40s-pcie": _sheet(864, 32, fp32=91.6, bf16=362.05),
    "gb200-nvl72": _sheet(8000, 900, fp32=80, bf16=2500),
}
"""NVIDIA's datasheets of V100 SXM2, A100, H100 SXM5, H200, L40S and GB200."""
SHAPES = tuple(product((512, 2048, 8192, 32768), (128, 512, 2048), (128, 512, 2048)))
SIZES = np.geomspace(2**20, 2**29, 10)
TABLES = tuple(
    tuple(
        EmbeddingTable(
            name=f"t{number}",
            num_embeddings=rows,
            embedding_dim=columns,
            pooling_factor=ids,
            inputs=Zipf(exponent=1.05),
        )
        for number in range(8)
    )
    for rows, columns, ids in product((10**5, 10**7), (32, 128), (2, 30))
)
Times = Callable[[HardwareProfile], "np.ndarray[Any, np.dtype[np.float64]]"]


def carried(donor: str, target: str) -> HardwareProfile:
    """Return a machine as it would be profiled from its datasheet and another one's constants."""
    other, machine = load_profile(donor), load_profile(target)
    old, new = SHEETS[donor], SHEETS[target]
    faster = new.memory_bandwidth / old.memory_bandwidth
    gemm = {
        name.value: replace(gemm_constants(name, other.gpu), peak=peak, shapes=())
        for name, peak in new.peak.items()
    }
    gpu = replace(
        other.gpu,
        name=f"{target} by {donor}",
        num_sms=machine.gpu.num_sms,
        l2_bytes=machine.gpu.l2_bytes,
        memory_bandwidth=other.gpu.memory_bandwidth * faster,
        sort_rate=other.gpu.sort_rate * faster,
        gather_bandwidth=other.gpu.gather_bandwidth * faster,
        gradient_time=other.gpu.gradient_time / faster,
        gemm=gemm,
    )
    wider = new.link / old.link
    curves = tuple(
        replace(each, knots=tuple((size, seconds / wider) for size, seconds in each.knots))
        for each in other.curves
    )
    return replace(other, gpu=gpu, curves=curves)


def _products(data_type: DataType) -> Times:
    m, n, k = (np.array(sizes) for sizes in zip(*SHAPES, strict=True))
    return lambda machine: np.asarray(gemm_time(m, n, k, data_type, machine.gpu))


def _collective(op: CollectiveOp) -> Times:
    def times(machine: HardwareProfile) -> Any:  # noqa: ANN401 - an array
        own = [each for each in machine.curves if each.op is op and each.num_nodes == 1]
        return curve_time(max(own, key=lambda each: (each.num_ranks <= 8, each.num_ranks)), SIZES)

    return times


def _lookups(number: int) -> Times:
    def times(machine: HardwareProfile) -> Any:  # noqa: ANN401 - an array
        return np.array([
            embedding_estimate(
                tables, num_samples=8192, optimizer=Optimizer.ROWWISE_ADAGRAD, hardware=machine
            )[number].seconds
            for tables in TABLES
        ])

    return times


FAMILIES: Mapping[str, tuple[Sequence[str], Times]] = {
    "gemm": (
        ("a100-sxm-80gb", "h100-sxm", "h200-sxm", "l40s-pcie"),
        _products(DataType.BF16),
    ),
    "memory_bound": (
        ("v100-nvlink", "a100-sxm-40gb", "a100-sxm-80gb", "h100-sxm", "h200-sxm", "l40s-pcie"),
        lambda machine: np.array([1 / machine.gpu.memory_bandwidth]),
    ),
    "embedding_forward": (("v100-nvlink", "a100-sxm-80gb", "h200-sxm"), _lookups(0)),
    "embedding_backward": (("v100-nvlink", "a100-sxm-80gb", "h200-sxm"), _lookups(1)),
    **{
        op.value: (
            ("v100-nvlink", "a100-sxm-80gb", "h100-sxm", "h200-sxm", "l40s-pcie", "gb200-nvl72"),
            _collective(op),
        )
        for op in (
            CollectiveOp.ALL_TO_ALL,
            CollectiveOp.ALL_REDUCE,
            CollectiveOp.REDUCE_SCATTER,
            CollectiveOp.ALL_GATHER,
        )
    },
}
"""Machines that each family was measured on, and how its kernels are timed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A machine that was predicted without its measurements."""

    machine: str
    shared: float
    """Mean log of measured over predicted times, by all others together."""
    own: float
    """Root mean square of what is left of each kernel."""
    logs: tuple[float, ...]


def left_out(machines: Sequence[str], times: Times) -> Iterator[LeftOut]:
    """Yield how far off each machine is predicted from the others."""
    for target in machines:
        measured = times(load_profile(target))
        donors = [donor for donor in machines if donor != target]
        predicted = [np.log(times(carried(donor, target))) for donor in donors]
        logs = np.log(measured) - np.mean(predicted, axis=0)
        shared = float(logs.mean())
        own = float(np.sqrt(np.mean((logs - shared) ** 2)))
        yield LeftOut(machine=target, shared=shared, own=own, logs=tuple(logs.tolist()))


def spreads(found: Sequence[LeftOut]) -> tuple[float, float]:
    """Return shared and own spreads, the first widened as by Student's t for so few machines."""
    widened = float(student.ppf(0.5 + LEVEL / 2, len(found))) / NORMAL_90
    root = sqrt(fmean(each.shared**2 for each in found))
    return widened * root, sqrt(fmean(each.own**2 for each in found))


def judged(found: Sequence[LeftOut]) -> dict[str, Any]:
    """Return a family's spreads, and how many kernels of a machine the others' spreads hold."""
    shared, own = spreads(found)
    inside = []
    for each in found:
        wide = NORMAL_90 * hypot(*spreads([other for other in found if other is not each]))
        inside.append(fmean(abs(value) <= wide for value in each.logs))
    return {
        "shared": round(shared, 3),
        "own": round(own, 3),
        "coverage": round(fmean(inside), 3),
        "machines": {
            each.machine: {
                "mean_log": round(each.shared, 3),
                "own": round(each.own, 3),
                "within_others_interval": round(share, 3),
            }
            for each, share in zip(found, inside, strict=True)
        },
    }


def results() -> dict[str, Any]:
    """Return what every family is off by, and the coverage of all."""
    families = {name: judged(list(left_out(*family))) for name, family in FAMILIES.items()}
    return {
        "families": families,
        "coverage": round(fmean(each["coverage"] for each in families.values()), 3),
    }


if __name__ == "__main__":
    print_and_keep(__doc__, RESULTS, results, lambda found: print(json.dumps(found, indent=1)))
