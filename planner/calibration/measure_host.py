"""Measuring the host's pieces of work whose operators the step model counts.

A piece is timed right after the cache was emptied, as pieces of a step come after other work: a
lookup of two ids takes 0.1 ms in a loop and 0.4 ms in a step (one core of an AMD EPYC; Python and
its objects have to come back into the cache). On CPU the time is the processor's, on CUDA the wall
clock's until the calls return.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from costmodel.base.units import Seconds
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType, Optimizer
from planner.calibration.device import DeviceUnderTest, Stopwatch, repeated
from planner.calibration.fit_host import LAYERS
from planner.calibration.measure_embedding import TableKernel
from planner.calibration.points import EmbeddingPoint, HostPart, HostPoint, TableSet
from planner.calibration.records import Record, record_of
from planner.calibration.timing import Timing

if TYPE_CHECKING:
    from collections.abc import Callable

_BUDGET: Seconds = 0.5
_OPERATORS = 50
_TINY = TableSet(
    num_embeddings=(100,),
    embedding_dims=(4,),
    data_type=DataType.FP32,
    optimizer=Optimizer.SGD,
    compute_kernel=ComputeKernel.FUSED,
)


def measure_host(point: HostPoint, device: DeviceUnderTest) -> Record:
    """Return the record of one piece of host work."""
    measure: dict[HostPart, Callable[[DeviceUnderTest], dict[str, Timing]]] = {
        HostPart.OPERATOR: _operator,
        HostPart.LAYER: _layers,
        HostPart.LOOKUP: _lookup,
        HostPart.LAUNCH: _launch,
        HostPart.BACKWARD: _backward,
        HostPart.SYNCHRONIZE: _synchronize,
        HostPart.COLLECTIVE: _collective,
    }
    if point.part is HostPart.UPLOAD:
        return record_of(point, _upload(point.size, device))
    return record_of(point, measure[point.part](device))


def _operator(device: DeviceUnderTest) -> dict[str, Timing]:
    """Return timings of eager operators on one number.

    On CUDA also of one until the device is done.
    """
    value = torch.ones(1, device=device.name)

    def once() -> dict[str, Stopwatch]:
        device.flush()
        with device.stopwatch() as many:
            for _ in range(_OPERATORS):
                value.add_(1.0)
        device.synchronize()
        with device.stopwatch() as one:
            value.add_(1.0)
            device.synchronize()
        return {"many": many, "until_done": one}

    timings = repeated(once, device, budget=_BUDGET)
    return {**timings, "many": timings["many"].divided(_OPERATORS)}


def _layers(device: DeviceUnderTest) -> dict[str, Timing]:
    """Return the times of a chain of small layers, forward and backward."""
    parts: list[Any] = []
    for _ in range(LAYERS):
        parts += [torch.nn.Linear(16, 16), torch.nn.ReLU()]
    model = torch.nn.Sequential(*parts).to(device.name)
    value = torch.ones(4, 16, device=device.name, requires_grad=True)
    gradient = torch.ones(4, 16, device=device.name)

    def once() -> dict[str, Stopwatch]:
        device.flush()
        with device.stopwatch() as forward:
            output = model(value)
        device.flush()
        with device.stopwatch() as backward:
            output.backward(gradient)
        return {"forward": forward, "backward": backward}

    return repeated(once, device, budget=_BUDGET)


def _lookup(device: DeviceUnderTest) -> dict[str, Timing]:
    point = EmbeddingPoint(tables=_TINY, num_samples=2, pooling_factors=(1.0,), zipf=(0.0,))
    return TableKernel(_TINY, device).timings(point, budget=_BUDGET)


def _launch(device: DeviceUnderTest) -> dict[str, Timing]:
    """Return timings of operators that launch a kernel, and of the same on nothing, which do not.

    A profiler would show the driver's calls, but changes them: 8.5 us where an operator with its
    launch takes 9.6 us without it (the host of an H200).
    """
    some, nothing = torch.ones(1, device=device.name), torch.ones(0, device=device.name)

    def once() -> dict[str, Stopwatch]:
        watches = {}
        for name, value in (("launching", some), ("not_launching", nothing)):
            device.flush()
            with device.stopwatch() as watch:
                for _ in range(_OPERATORS):
                    value.add_(1.0)
            watches[name] = watch
        return watches

    timings = repeated(once, device, budget=_BUDGET)
    more = timings["launching"].wall - timings["not_launching"].wall
    call = max(more, 0.0) / _OPERATORS
    return {"call": replace(timings["launching"], seconds=call, wall=call)}


def _backward(device: DeviceUnderTest) -> dict[str, Timing]:
    """Return the timing of a backward of one operator: autograd's begin and end."""
    value = torch.ones(4, device=device.name, requires_grad=True)
    gradient = torch.ones(4, device=device.name)

    def once() -> dict[str, Stopwatch]:
        output = value * 2.0
        device.flush()
        with device.stopwatch() as watch:
            output.backward(gradient)
        return {"call": watch}

    return repeated(once, device, budget=_BUDGET)


def _synchronize(device: DeviceUnderTest) -> dict[str, Timing]:
    def once() -> dict[str, Stopwatch]:
        device.synchronize()
        with device.stopwatch() as watch:
            device.synchronize()
        return {"return": watch}

    return repeated(once, device, budget=_BUDGET)


def _collective(device: DeviceUnderTest) -> dict[str, Timing]:
    """Return the timing of issuing an all-to-all, until the call returns."""
    world = dist.get_world_size()
    sent = torch.ones(world, device=device.name)
    received = torch.empty_like(sent)

    def once() -> dict[str, Stopwatch]:
        device.flush()
        dist.barrier()
        with device.stopwatch() as watch:
            work = dist.all_to_all_single(received, sent, async_op=True)
        work.wait()
        return {"issue": watch}

    # every rank takes part in every repeat, so their number is fixed
    return repeated(once, device, budget=_BUDGET, fewest=20, most=20)


def _upload(num_bytes: int, device: DeviceUnderTest) -> dict[str, Timing]:
    """Return the times of copies from pinned memory to the device."""
    source = torch.ones(num_bytes // 4).pin_memory()
    target = torch.empty(num_bytes // 4, device=device.name)

    def once() -> dict[str, Stopwatch]:
        with device.stopwatch() as watch:
            target.copy_(source, non_blocking=True)
        return {"copy": watch}

    return repeated(once, device, budget=_BUDGET)
