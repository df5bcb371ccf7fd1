"""Uneven all-to-alls on CPU ranks with gloo, beside even ones.

Run as ``python -m torch.distributed.run --nproc-per-node 2 -m bench.uneven_exchange [--write]``;
needs torch. `bench.accuracy` judges by it what size an uneven all-to-all should count as: we found
no published measurements of one. Every rank sends a part f of its buffer to rank 0 beyond an even
split, see ``planner.calibration.points.CollectivePoint``.
"""

import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from bench.kept import write
from costmodel.base.units import MIB
from costmodel.domain.hardware import CollectiveOp
from planner.calibration.device import CpuDevice
from planner.calibration.measure_collectives import measure_collective, splits
from planner.calibration.points import CollectivePoint
from planner.calibration.ranks import ranks_of

RESULTS = Path(__file__).parent / "results" / "uneven_exchange.json"
EVEN = tuple(int(2.0 ** (x / 2)) for x in range(31, 54, 1))
"""32 KiB to 64 MiB, two an octave."""
BUFFERS = (MIB / 4, MIB, 4 * MIB, 16 * MIB)
"""What every rank sends."""
FOCUS = (0.25, 0.5, 0.75, 1.0)
ROUNDS = 3
"""Times that all points are measured; the fastest counts: other work only adds time."""


def point(size: float, focus: float, num_ranks: int) -> CollectivePoint:
    """Return an all-to-all whose largest message has a size."""
    return CollectivePoint(
        op=CollectiveOp.ALL_TO_ALL,
        num_bytes=round(size),
        num_ranks=num_ranks,
        num_nodes=1,
        focus=focus,
    )


def points(num_ranks: int) -> list[CollectivePoint]:
    """Return the even points, then the uneven ones of four buffers."""
    even = [point(size, 0.0, num_ranks) for size in EVEN]
    uneven = [
        point(buffer * (1 - focus + num_ranks * focus), focus, num_ranks)
        for buffer in BUFFERS
        for focus in FOCUS
    ]
    return [*even, *uneven]


def measured(every: list[CollectivePoint]) -> list[dict[str, Any]]:
    """Measure all points, round by round; on every rank."""
    device = CpuDevice(cache_bytes=8 * MIB)
    best: dict[int, float] = {}
    for _ in range(ROUNDS):
        for index, each in enumerate(every):
            seconds = measure_collective(each, device).seconds["collective"]
            best[index] = min(best.get(index, seconds), seconds)
    return [
        {"focus": each.focus, "seconds": best[index], **_messages(each)}
        for index, each in enumerate(every)
    ]


def _messages(each: CollectivePoint) -> dict[str, list[float]]:
    """Return the bytes that every rank sends and receives."""
    own = torch.tensor([sum(side) * 4.0 for side in splits(each)])
    every = [torch.empty_like(own) for _ in range(each.num_ranks)]
    dist.all_gather(every, own)
    both = torch.stack(every)
    return {"sent": both[:, 0].tolist(), "received": both[:, 1].tolist()}


def main() -> None:
    """Measure; rank 0 prints, and with --write keeps the numbers."""
    torch.set_num_threads(1)
    ranks = ranks_of()
    ranks.join("cpu")
    rows = measured(points(ranks.world_size))
    ranks.leave()
    if ranks.rank:
        return
    for row in rows:
        print(f"{row['focus']:5.2f} {max(row['received']):12,.0f} B {1e3 * row['seconds']:9.3f} ms")
    if "--write" in sys.argv:
        machine = f"{platform.machine()}, gloo, {ranks.world_size} ranks, torch {torch.__version__}"
        date = datetime.now(UTC).date().isoformat()
        result = {"machine": machine, "date": date, "rows": rows}
        write(RESULTS, result)


if __name__ == "__main__":
    main()
