"""Matrix products and memory-bound operators."""

from typing import Any

import torch

from costmodel.units import Seconds
from costmodel.workload import DataType
from planner.calibration.device import Device, Stopwatch, repeated
from planner.calibration.points import GemmPoint, StreamOp, StreamPoint
from planner.calibration.records import Record, record_of

_BUDGET: Seconds = 0.15
_PRODUCTS = 4
"""Products in a row that are timed together, after one that fetches the operands."""
_CONCAT_BLOCKS = 8
_CONCAT_COLUMNS = 32
_TYPES = {
    DataType.FP32: torch.float32,
    DataType.TF32: torch.float32,
    DataType.FP16: torch.float16,
    DataType.BF16: torch.bfloat16,
}


def measure_product(point: GemmPoint, device: Device) -> Record:
    """Time C = A B with the operands where the last product left them."""
    kind = {"dtype": _TYPES[point.data_type], "device": device.name}
    left = torch.rand(point.m, point.k, **kind)
    right = torch.rand(point.k, point.n, **kind)
    torch.backends.cuda.matmul.allow_tf32 = point.data_type is DataType.TF32

    def once() -> dict[str, Stopwatch]:
        device.flush()
        torch.mm(left, right)
        with device.stopwatch() as watch:
            for _ in range(_PRODUCTS):
                torch.mm(left, right)
        return {"product": watch}

    timings = repeated(once, device, budget=_BUDGET)
    return record_of(point, timings, each=_PRODUCTS)


def measure_stream(point: StreamPoint, device: Device) -> Record:
    """Time an operator that writes new memory, its inputs not in the cache."""
    inputs = _inputs(point, device)

    def once() -> dict[str, Stopwatch]:
        device.flush()
        with device.stopwatch() as watch:
            _run(point.op, inputs)
        return {"operator": watch}

    return record_of(point, repeated(once, device, budget=_BUDGET))


def _inputs(point: StreamPoint, device: Device) -> tuple[Any, ...]:
    if point.op is StreamOp.CONCAT:
        rows = max(1, point.num_bytes // (2 * 4 * _CONCAT_COLUMNS * _CONCAT_BLOCKS))
        shape: tuple[int, ...] = (rows, _CONCAT_COLUMNS)
        return tuple(torch.ones(shape, device=device.name) for _ in range(_CONCAT_BLOCKS))
    count = 2 if point.op is StreamOp.ADD else 1
    shape = (max(1, point.num_bytes // (4 * (count + 1))),)
    return tuple(torch.ones(shape, device=device.name) for _ in range(count))


def _run(op: StreamOp, inputs: tuple[Any, ...]) -> object:
    if op is StreamOp.CONCAT:
        return torch.cat(inputs, 1)
    return torch.add(*inputs) if op is StreamOp.ADD else inputs[0].clone()
