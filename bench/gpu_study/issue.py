"""Host time of small layers: issued one by one, compiled, and as one graph."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from bench.gpu_study.accelerator import Accelerator, write_trace
from bench.gpu_study.points import IssueMode, IssuePoint
from bench.gpu_study.traces import traced_overheads, unless_unreadable
from costmodel.base.units import Seconds
from planner.calibration.device import Stopwatch, repeated
from planner.calibration.records import Record, record_of

_BUDGET: Seconds = 0.5
_WIDTH = 16
_SAMPLES = 4
_TRACED_STEPS = 5


def measure_issue(point: IssuePoint, accelerator: Accelerator) -> Record:
    """Time forward and backward: until the calls return, and until the device is done.

    ``issue`` counts by the wall clock while the device is busy with something else before;
    ``finished`` on an idle device. The facts are T1 to T5, from a trace of the same work.
    """
    work = _issued(point, accelerator)
    device = accelerator.device

    def once() -> dict[str, Stopwatch]:
        device.flush()
        with device.stopwatch() as issue:
            work()
        device.synchronize()
        with device.stopwatch() as finished:
            work()
            device.synchronize()
        return {"issue": issue, "finished": finished}

    record = record_of(point, repeated(once, device, budget=_BUDGET))
    return replace(record, facts=_overheads(work, accelerator))


def layers(num_layers: int, name: str) -> torch.nn.Module:
    """Return linear layers, each with an activation, on next to no data."""
    parts: list[torch.nn.Module] = []
    for _ in range(num_layers):
        parts += [torch.nn.Linear(_WIDTH, _WIDTH), torch.nn.ReLU()]
    return torch.nn.Sequential(*parts).to(name)


def _issued(point: IssuePoint, accelerator: Accelerator) -> Callable[[], object]:
    name = accelerator.device.name
    model = layers(point.num_layers, name)
    parameters = list(model.parameters())
    value = torch.ones(_SAMPLES, _WIDTH, device=name)
    forward = torch.compile(model) if point.mode is IssueMode.COMPILED else model

    def work() -> object:
        return torch.autograd.grad(forward(value).sum(), parameters)

    return accelerator.captured(work) if point.mode is IssueMode.GRAPH else work


def _overheads(work: Callable[[], object], accelerator: Accelerator) -> dict[str, Any]:
    """Return T1 to T5; a device that is the host itself has none."""
    with TemporaryDirectory() as folder:
        trace = write_trace(accelerator, work, _TRACED_STEPS, Path(folder) / "rank0.json")
        if accelerator.device.synchronous:
            return {}
        read = unless_unreadable(traced_overheads, trace)
        return {**read.pop("found"), **read}
