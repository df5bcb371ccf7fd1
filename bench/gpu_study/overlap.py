"""Two streams at once: how much a lookup, a product and a copy slow each other down."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from bench.gpu_study.accelerator import Accelerator
from bench.gpu_study.points import OverlapPoint, StreamWork
from costmodel.base.units import Seconds
from planner.calibration.device import Stopwatch, repeated
from planner.calibration.records import Record, record_of

_TARGET: Seconds = 1e-3
"""How long each stream is to be busy by itself."""
_MOST_TIMES = 200
_BUDGET: Seconds = 0.3
_COLUMNS = 128
_POOLING = 20


def measure_overlap(point: OverlapPoint, accelerator: Accelerator) -> Record:
    """Time both works alone, and together from the same moment on.

    Each is repeated until it takes `_TARGET` alone; the facts say how often.
    """
    device = accelerator.device
    works, times = [], []
    for kind in (point.first, point.second):
        work = _work(kind, point.num_bytes, accelerator)
        alone = repeated(partial(_timed, work, accelerator), device, budget=_BUDGET / 3)
        number = max(1, min(_MOST_TIMES, round(_TARGET / max(alone["work"].seconds, 1e-9))))
        works.append(_again(work, number))
        times.append(number)

    def once() -> dict[str, Stopwatch]:
        device.flush()
        with device.stopwatch() as both:
            first, second = accelerator.side_by_side(works)
        device.synchronize()
        return {
            "first": first,
            "second": second,
            "both": both,
            "first_alone": _timed(works[0], accelerator)["work"],
            "second_alone": _timed(works[1], accelerator)["work"],
        }

    record = record_of(point, repeated(once, device, budget=_BUDGET))
    return replace(record, facts={"times": times})


def _timed(work: Callable[[], object], accelerator: Accelerator) -> dict[str, Stopwatch]:
    accelerator.device.flush()
    with accelerator.device.stopwatch() as watch:
        work()
    return {"work": watch}


def _again(work: Callable[[], object], number: int) -> Callable[[], object]:
    def repeat() -> None:
        for _ in range(number):
            work()

    return repeat


def _work(kind: StreamWork, num_bytes: int, accelerator: Accelerator) -> Callable[[], object]:
    name, numbers = accelerator.device.name, max(1, num_bytes // 4)
    if kind is StreamWork.LOOKUP:
        rows = max(1, numbers // _COLUMNS)
        table = torch.ones(rows, _COLUMNS, device=name)
        ids = torch.randint(rows, (max(_POOLING, rows // _POOLING * _POOLING),), device=name)
        bags = ids.view(-1, _POOLING)
        return lambda: torch.nn.functional.embedding_bag(bags, table, mode="sum")
    if kind is StreamWork.PRODUCT:
        side = max(1, int((numbers / 3) ** 0.5))
        left, right = (torch.rand(side, side, device=name) for _ in range(2))
        return lambda: torch.mm(left, right)
    if kind is StreamWork.COPY:
        source = torch.ones(numbers // 2 + 1, device=name)
        target = torch.empty_like(source)
        return lambda: target.copy_(source)
    host = accelerator.host_buffer(num_bytes, pinned=True)
    there = torch.empty(num_bytes, dtype=torch.uint8, device=name)
    return lambda: there.copy_(host, non_blocking=True)
