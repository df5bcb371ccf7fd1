"""Matrix products and memory-bound operators."""

from collections.abc import Callable
from math import inf
from typing import Any

import torch

from costmodel.base.units import Seconds
from costmodel.domain.workload import DataType
from planner.calibration.device import DeviceUnderTest, Stopwatch, repeated
from planner.calibration.points import GemmPoint, StreamOp, StreamPoint
from planner.calibration.records import Record, record_of

_BUDGET: Seconds = 0.15
_PRODUCTS = 4
"""Products in a row that are timed together, after one that fetches the operands."""
_CONCAT_BLOCKS = 8
_CONCAT_COLUMNS = 128
"""As wide as embeddings are."""
_MEETINGS = 11
"""Repeats where ranks meet before each: all must make as many."""
_TYPES = {
    DataType.FP32: torch.float32,
    DataType.TF32: torch.float32,
    DataType.FP16: torch.float16,
    DataType.BF16: torch.bfloat16,
}


def measure_product(point: GemmPoint, device: DeviceUnderTest) -> Record:
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


def measure_stream(
    point: StreamPoint, device: DeviceUnderTest, *, meet: Callable[[], None] | None = None
) -> Record:
    """Time an operator, its inputs not in the cache; ``meet`` lets ranks begin each together.

    Cores that share memory all copy at once in a step, and each then gets less of it.
    """
    inputs = _inputs(point, device)

    def once() -> dict[str, Stopwatch]:
        device.flush()
        if meet is not None:
            meet()
        with device.stopwatch() as watch:
            _run(point.op, inputs)
        return {"operator": watch}

    if meet is None:
        return record_of(point, repeated(once, device, budget=_BUDGET))
    timings = repeated(once, device, budget=inf, fewest=_MEETINGS, most=_MEETINGS)
    return record_of(point, timings)


def _inputs(point: StreamPoint, device: DeviceUnderTest) -> tuple[Any, ...]:
    if point.op in {StreamOp.CONCAT, StreamOp.VIEWS}:
        rows = max(1, point.num_bytes // (2 * 4 * _CONCAT_COLUMNS * _CONCAT_BLOCKS))
        blocks = torch.ones((rows, _CONCAT_COLUMNS * _CONCAT_BLOCKS), device=device.name)
        views = blocks.split(_CONCAT_COLUMNS, 1)
        if point.op is StreamOp.CONCAT:
            return tuple(view.contiguous() for view in views)
        return (*views[::2], *views[1::2])
    count = 2 if point.op is StreamOp.ADD else 1
    shape: tuple[int, ...] = (max(1, point.num_bytes // (4 * (count + 1))),)
    return tuple(torch.ones(shape, device=device.name) for _ in range(count))


def _run(op: StreamOp, inputs: tuple[Any, ...]) -> object:
    if op in {StreamOp.CONCAT, StreamOp.VIEWS}:
        return torch.cat(inputs, 1)
    if op is StreamOp.IN_PLACE:
        return inputs[0].mul_(0.5)
    return torch.add(*inputs) if op is StreamOp.ADD else inputs[0].clone()
