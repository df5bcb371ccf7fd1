"""One rank that calibrates on a few points: python calibration_worker.py ARGUMENTS..."""

import sys
import time
from pathlib import Path

from planner.calibration import measuring, session
from planner.calibration.device import CpuDevice
from planner.calibration.grids import Grid, Target, grid_points
from planner.calibration.points import (
    CollectivePoint,
    EmbeddingPoint,
    Family,
    OperatorPoint,
    Point,
    StreamPoint,
)
from planner.cli import main

FEW = {
    Family.STREAM: 8, Family.OPERATOR: 3, Family.GEMM: 8, Family.HOST: 8, Family.EMBEDDING: 9,
}  # fmt: skip
SLOW = "--slowly"
"""Waits for a long time before lookups are measured, and says so in a file."""


def few_points(grid: Grid, target: Target) -> dict[Family, tuple[Point, ...]]:
    """Return small points of every family, enough to fit."""
    points = grid_points(grid, target)
    found = {family: _small(points[family])[:count] for family, count in FEW.items()}
    even = [p for p in points[Family.COLLECTIVE] if not isinstance(p, CollectivePoint) or _light(p)]
    return {
        family: tuple(even) if family is Family.COLLECTIVE else found[family] for family in Family
    }


def _small(points: tuple[Point, ...]) -> tuple[Point, ...]:
    kinds = EmbeddingPoint | StreamPoint | OperatorPoint
    return tuple(p for p in points if not isinstance(p, kinds) or _light(p))


def _light(point: EmbeddingPoint | StreamPoint | CollectivePoint | OperatorPoint) -> bool:
    if isinstance(point, OperatorPoint):
        return point.operator == "gelu"
    if isinstance(point, EmbeddingPoint):
        lookups = point.num_samples * sum(point.pooling_factors)
        return lookups < 1e5 and point.tables.num_bytes < 2e7
    return point.num_bytes <= 2**19


def stop_before_lookups(*_: object) -> None:
    """Wait to be interrupted, longer than the test waits for the file."""
    Path("reached").touch()
    time.sleep(600)


def leave_caches(_: CpuDevice) -> None:
    """Leave caches as they are: to empty them takes longer than what is measured."""


if __name__ == "__main__":
    session.grid_points = few_points
    CpuDevice.flush = leave_caches  # type: ignore[method-assign]
    if SLOW in sys.argv:
        sys.argv.remove(SLOW)
        measuring.TableKernel = stop_before_lookups  # type: ignore[misc, assignment]
    main()
