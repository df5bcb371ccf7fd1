"""Measuring collectives, from the start of the last rank to the end.

On CPU (gloo) each is run by itself after a barrier, and its time is from the latest start to the
latest end by a clock that all processes of a node share; over several nodes it is the longest
duration. On CUDA (NCCL) it is the time of several in a row, between two events, over their number,
as in nccl-tests.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from statistics import quantiles
from typing import Any

import torch
import torch.distributed as dist

from costmodel.base.units import MIB, Seconds
from costmodel.domain.hardware import CollectiveOp
from planner.calibration.device import DeviceUnderTest
from planner.calibration.points import CollectivePoint
from planner.calibration.records import Record, record_of
from planner.calibration.timing import summary

_FEW, _MANY = 8, 48
"""Number of repeats of messages above and below ``_LARGE``."""
_LARGE = 4 * MIB
_ROWS, _IN_A_ROW = 3, 20
"""On CUDA so many measurements are taken, each of so many collectives in a row."""


def measure_collective(point: CollectivePoint, device: DeviceUnderTest) -> Record:
    """Return the record of one collective.

    All ranks call this with one point and get one record.
    """
    run = prepared(point, device)
    for _ in range(3):
        run()
    device.synchronize()
    repeats = _FEW if point.num_bytes > _LARGE else _MANY
    measure = _apart if device.synchronous else _in_a_row
    seconds = measure(run, repeats, device, point.num_nodes)
    timing = summary(seconds, seconds)
    if device.synchronous:
        # The wall clock has others' load in it, which only ever adds, and late wake-ups of a rank
        # that slept, which a busy one has not: 64 KiB take 0.15 or 2 ms. Both are less in the lower
        # quartile, and steps agree: with it those of bench.cpu_study are predicted 1 to 3% off on
        # average, with the median 4 to 11% too long.
        timing = replace(timing, seconds=quantiles(seconds, n=4)[0])
    return record_of(point, {"collective": timing})


def prepared(point: CollectivePoint, device: DeviceUnderTest) -> Callable[[], object]:
    """Return a function that runs a collective on buffers of its size."""
    world = dist.get_world_size()
    count = max(world, point.num_bytes // 4)
    if point.op is CollectiveOp.ALL_TO_ALL:
        sent, received = splits(point)
        source = torch.ones(sum(sent), device=device.name)
        target = torch.empty(sum(received), device=device.name)
        return lambda: dist.all_to_all_single(target, source, received, sent)
    whole = torch.ones(count // world * world, device=device.name)
    part = torch.ones(count // world, device=device.name)
    # torch 2.13 renamed the last two
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    calls: dict[CollectiveOp, Callable[[], Any]] = {
        CollectiveOp.ALL_REDUCE: lambda: dist.all_reduce(whole),
        CollectiveOp.REDUCE_SCATTER: lambda: scatter(part, whole),
        CollectiveOp.ALL_GATHER: lambda: gather(whole, part),
    }
    return calls[point.op]


def splits(point: CollectivePoint) -> tuple[list[int], list[int]]:
    """Return the numbers, four bytes each, that this rank sends to and receives from every rank.

    With a focus f every rank sends ``(1 - f) / n`` of its buffer to each, and f more to rank 0,
    which so receives ``1 - f + n f`` buffers: that is the largest message.
    """
    world, rank = dist.get_world_size(), dist.get_rank()
    buffer = point.num_bytes / 4 / (1 - point.focus + world * point.focus)
    even = max(1, round(buffer * (1 - point.focus) / world)) if point.focus < 1 else 0
    first = even + round(buffer * point.focus)
    return [first] + [even] * (world - 1), [first if rank == 0 else even] * world


def _apart(
    run: Callable[[], object], repeats: int, device: DeviceUnderTest, num_nodes: int
) -> list[Seconds]:
    """Return the seconds of each repeat, run by itself after a barrier."""
    times = torch.zeros(repeats, 2, dtype=torch.float64)
    for number in range(repeats):
        device.flush()
        dist.barrier()
        times[number, 0] = time.perf_counter()
        run()
        times[number, 1] = time.perf_counter()
    every = [torch.empty_like(times) for _ in range(dist.get_world_size())]
    dist.all_gather(every, times)
    starts, ends = torch.stack(every).unbind(2)
    shared = ends.amax(0) - starts.amax(0)
    longest = (ends - starts).amax(0)
    seconds: list[float] = (shared if num_nodes == 1 else longest).tolist()
    return [max(each, 1e-9) for each in seconds]


def _in_a_row(
    run: Callable[[], object], repeats: int, device: DeviceUnderTest, num_nodes: int
) -> list[Seconds]:
    """Return the seconds of one of several repeats in a row, between two events."""
    del repeats, num_nodes
    watches = []
    for _ in range(_ROWS):
        dist.barrier()
        device.flush()
        run()  # the ranks meet here
        with device.stopwatch() as watch:
            for _ in range(_IN_A_ROW):
                run()
        watches.append(watch)
    device.synchronize()
    own = torch.tensor([watch.seconds() / _IN_A_ROW for watch in watches], device=device.name)
    dist.all_reduce(own, dist.ReduceOp.MAX)
    seconds: list[float] = own.tolist()
    return seconds
