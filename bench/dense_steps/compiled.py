"""What ``torch.compile`` saves on a core, measured and predicted.

python -m bench.dense_steps.compiled --profile FILE [--write]

Forward and backward of three dense parts, eager and compiled, on one thread; FILE is a profile that
`planner calibrate` wrote on the same machine. Products stay as they are, so the share that they
have of a step is what decides; nothing is fitted to these times.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import nn

from bench.documented import ROOT
from bench.kept import SEED, parser_of, provenance, read, write
from costmodel.base.units import MS, Seconds
from costmodel.domain.hardware import HardwareProfile
from costmodel.domain.workload import DataType
from costmodel.kernels.operators import fused_estimate, operator_estimate
from costmodel.operators.compiled import fused
from costmodel.operators.operator_list import BatchSize, OperatorList, Pass
from costmodel.step.issue import COMPILED_CALL_OPS
from planner.files.profiles import load_profile
from planner.operators.reading import read_operators

RESULTS = ROOT / "bench" / "results" / "compiled.json"
WARM_UP, STEPS = 3, 15
READ_SAMPLES = (16, 24, 40)
WIDTH = 256


class Gated(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Two layers, and a dozen elementwise operators that mix what they give."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.value = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return as many vectors as there are inputs."""
        gate, value = torch.sigmoid(self.gate(inputs)), torch.tanh(self.value(inputs))
        mixed = inputs * gate + value * (1 - gate)
        return nn.functional.softplus(mixed) * torch.exp(-mixed * mixed)


class Loss(nn.Module):  # type: ignore[misc]  # torch has no types here
    """A dense part, and the mean of its squared outputs."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the loss."""
        return (self.part(inputs) ** 2).mean()


def _transformer() -> nn.Module:
    layer: Any = import_module("examples.models.sasrec").Layer
    return nn.Sequential(layer(), layer())


def _mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH), nn.Sigmoid(),
        nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 64),
    )  # fmt: skip


PARTS: Mapping[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "two transformer layers": (_transformer, (64, 50, 128)),
    "MLP of many activations": (_mlp, (4096, WIDTH)),
    "gated layers": (Gated, (4096, WIDTH)),
}
"""Each with the shape of its inputs."""


def main() -> None:
    """Measure, print, and with --write keep the results."""
    parser = parser_of(__doc__, RESULTS)
    parser.add_argument("--profile", type=Path, metavar="FILE", help="what to predict with")
    args = parser.parse_args()
    found = read(RESULTS)
    if args.profile is not None:
        torch.set_num_threads(1)
        hardware = load_profile(args.profile)
        rows = {name: row(*part, hardware) for name, part in PARTS.items()}
        found = {"machine": provenance(), "torch": torch.__version__, "parts": rows}
        if args.write:
            write(RESULTS, found)
    print("\n".join(lines(found.get("parts", {}))))


def row(
    make: Callable[[], nn.Module], shape: tuple[int, ...], hardware: HardwareProfile
) -> dict[str, Any]:
    """Return a dense part's milliseconds, eager and compiled, measured and predicted."""
    torch.manual_seed(SEED)
    model, inputs = Loss(make()), torch.randn(*shape)
    batches = [(torch.randn(samples, *shape[1:]),) for samples in READ_SAMPLES]
    listed = read_operators(model, batches).at(BatchSize(shape[0]))
    eager, compiled, kernels = predicted(listed, hardware)
    return {
        "operators": len(listed.operators),
        "kernels": kernels,
        "eager_ms": [measured(model, inputs) / MS, eager / MS],
        "compiled_ms": [measured(torch.compile(model), inputs) / MS, compiled / MS],
    }


def predicted(listed: OperatorList[int], hardware: HardwareProfile) -> tuple[Seconds, Seconds, int]:
    """Return seconds of a list, eager and compiled, and the kernels that it is compiled to."""
    gpu, host = hardware.gpu, hardware.host
    both = {each: [one for one in listed.operators if one.direction is each] for each in Pass}
    called = {Pass.FORWARD: host.op_time, Pass.BACKWARD: host.backward_op_time}
    eager = sum(
        called[each.direction] + operator_estimate(each, DataType.FP32, gpu).seconds
        for each in listed.operators
    )
    kernels = [*fused(both[Pass.FORWARD], both[Pass.BACKWARD]), *fused(both[Pass.BACKWARD])]
    compiled = COMPILED_CALL_OPS * sum(called.values())
    compiled += sum(fused_estimate(each, DataType.FP32, gpu).seconds for each in kernels)
    return eager, compiled, len(kernels)


def measured(model: Callable[[torch.Tensor], torch.Tensor], inputs: torch.Tensor) -> Seconds:
    """Return the median seconds of forward and backward."""
    found = []
    for _ in range(WARM_UP + STEPS):
        began = perf_counter()
        model(inputs).backward()
        found.append(perf_counter() - began)
    return median(found[WARM_UP:])


def lines(rows: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a row for every dense part."""
    head = ("milliseconds", "eager", "predicted", "compiled", "predicted", "ratio", "predicted")
    yield "{:<26}{:>8}{:>11}{:>10}{:>11}{:>8}{:>11}".format(*head)
    for name, each in rows.items():
        (eager, said), (compiled, told) = each["eager_ms"], each["compiled_ms"]
        yield (
            f"{name:<26}{eager:>8.1f}{said:>11.1f}{compiled:>10.1f}{told:>11.1f}"
            f"{compiled / eager:>8.2f}{told / said:>11.2f}"
        )


if __name__ == "__main__":
    main()
