"""Measuring matrix products, memory-bound operators, and single operators of dense parts."""

from collections.abc import Callable
from math import inf
from typing import Any

import torch

from costmodel.base.units import Seconds
from costmodel.domain.workload import DataType
from planner.calibration.device import DeviceUnderTest, Stopwatch, repeated
from planner.calibration.operator_calls import CALLS, Numbers
from planner.calibration.points import GemmPoint, OperatorPoint, StreamOp, StreamPoint
from planner.calibration.records import Record, record_of

_BUDGET: Seconds = 0.15
_OPERATOR_BUDGET: Seconds = 0.06
_PRODUCTS = 4
"""Number of products timed together in a row, after one that fetches the operands."""
_CONCAT_BLOCKS = 8
_CONCAT_COLUMNS = 128
"""Columns of concatenated tensors, as embeddings have."""
_MEETINGS = 11
"""Number of repeats where ranks meet before each, the same on all ranks."""
_TYPES = {
    DataType.FP32: torch.float32,
    DataType.TF32: torch.float32,
    DataType.FP16: torch.float16,
    DataType.BF16: torch.bfloat16,
}


def measure_product(point: GemmPoint, device: DeviceUnderTest) -> Record:
    """Return the record of C = A B, timed as in a step.

    On CUDA several in a row, with the operands where the last one left them. On a core one by
    itself, after the operator before it has written A; B and the memory of C are not in the cache
    (4096 x 64 x 256 takes 1.45 ms again and again, 2.07 ms so, 1.9 ms in a step: AMD EPYC).
    """
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = point.data_type is DataType.TF32
    try:
        once = (_product_in_step if device.synchronous else _products_in_a_row)(point, device)
        timings = repeated(once, device, budget=_BUDGET)
    finally:  # other points multiply, too
        torch.backends.cuda.matmul.allow_tf32 = before
    return record_of(point, timings, each=1 if device.synchronous else _PRODUCTS)


def _product_in_step(
    point: GemmPoint, device: DeviceUnderTest
) -> Callable[[], dict[str, Stopwatch]]:
    """Return what times one product behind a small kernel, as a step has it."""
    left, right = _operands(point, device)
    multiply = torch.mm if point.num_products == 1 else torch.bmm
    small_left, small_right = left[..., :1, :1], right[..., :1, :1]

    def once() -> dict[str, Stopwatch]:
        device.flush()
        multiply(small_left, small_right)  # issuing a product is counted as host time
        left.mul_(1.0)
        with device.stopwatch() as watch:
            multiply(left, right)
        return {"product": watch}

    return once


def _products_in_a_row(
    point: GemmPoint, device: DeviceUnderTest
) -> Callable[[], dict[str, Stopwatch]]:
    """Return what times several products, one after the other."""
    prepared = _fp8_product if point.data_type is DataType.FP8 else _product
    product = prepared(point, device)

    def once() -> dict[str, Stopwatch]:
        device.flush()
        product()
        with device.stopwatch() as watch:
            for _ in range(_PRODUCTS):
                product()
        return {"product": watch}

    return once


def has_fp8() -> bool:
    """Return whether the current GPU multiplies FP8, as from Ada and Hopper on."""
    return bool(torch.cuda.get_device_capability() >= (8, 9))


def _product(point: GemmPoint, device: DeviceUnderTest) -> Callable[[], object]:
    left, right = _operands(point, device)
    return lambda: torch.mm(left, right)


def _operands(point: GemmPoint, device: DeviceUnderTest) -> tuple[torch.Tensor, torch.Tensor]:
    """Return A and B, stored as the point says."""
    several = () if point.num_products == 1 else (point.num_products,)

    def made(name: str, rows: int, columns: int) -> torch.Tensor:
        shape = (columns, rows) if point.transposed == name else (rows, columns)
        tensor = torch.rand(*several, *shape, dtype=_TYPES[point.data_type], device=device.name)
        return tensor.transpose(-1, -2) if point.transposed == name else tensor

    return made("a", point.m, point.k), made("b", point.k, point.n)


def _fp8_product(point: GemmPoint, device: DeviceUnderTest) -> Callable[[], object]:
    """Return a function: product of e4m3 numbers, one scale for each operand, into BF16.

    cuBLAS needs A by rows, B by columns, and sizes that 16 divides (``torch._scaled_mm``).
    """
    left = torch.rand(point.m, point.k, device=device.name).to(torch.float8_e4m3fn)
    right = torch.rand(point.n, point.k, device=device.name).to(torch.float8_e4m3fn).t()
    one = torch.ones((), device=device.name)
    return lambda: torch._scaled_mm(  # noqa: SLF001 - torch has no other name for it
        left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16
    )


def measure_stream(
    point: StreamPoint, device: DeviceUnderTest, *, meet: Callable[[], None] | None = None
) -> Record:
    """Return the record of an operator whose inputs are not in the cache.

    Ranks begin each repeat together by ``meet``: in a step, cores that share memory all copy at
    once, and each then gets less of it.
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
    """Return the tensors that an operation of so many bytes reads."""
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
    """Return what the operation makes of its inputs."""
    if op in {StreamOp.CONCAT, StreamOp.VIEWS}:
        return torch.cat(inputs, 1)
    if op is StreamOp.IN_PLACE:
        return inputs[0].mul_(0.5)
    return torch.add(*inputs) if op is StreamOp.ADD else inputs[0].clone()


def measure_operator(point: OperatorPoint, device: DeviceUnderTest) -> Record:
    """Return the record of an operator whose operands are not in the cache."""
    call = CALLS[point.operator](Numbers(point.num_elements, device.name))

    def once() -> dict[str, Stopwatch]:
        device.flush()
        with device.stopwatch() as watch:
            call()
        return {"operator": watch}

    return record_of(point, repeated(once, device, budget=_OPERATOR_BUDGET))
