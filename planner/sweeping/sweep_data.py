"""Sweeps as plain data and as CSV: SI units, the unit in the key."""

import csv
import io
from collections.abc import Iterable
from typing import Any

from planner.sweeping.points import Sweep, SweepPoint, by_note

SCHEMA_VERSION = 1


def sweep_data(sweep: Sweep) -> dict[str, Any]:
    """Return a sweep as plain data."""
    front = set(sweep.front)
    return {
        "schema_version": SCHEMA_VERSION,
        "workload_name": sweep.workload,
        "num_tables": sweep.num_tables,
        "cost_unit": "price" if sweep.is_priced else "gpu_hours",
        "notes": notes_data(sweep.points),
        "points": [point_data(point, on_front=point in front) for point in sweep.points],
    }


def notes_data(points: Iterable[SweepPoint]) -> dict[str, list[str]]:
    """Return what the reader is to be warned of, and the keys of the points that it is for."""
    return {note: [point.key for point in some] for note, some in by_note(points).items()}


def point_data(point: SweepPoint, *, on_front: bool) -> dict[str, Any]:
    """Return a point as plain data."""
    low, high = point.interval or (None, None)
    return {
        "hardware": point.hardware,
        "world_size": point.world_size,
        "num_nodes": point.num_nodes,
        "local_batch_size": point.local_batch_size,
        "gradient_accumulation_steps": point.gradient_accumulation_steps,
        "global_batch_size": point.global_batch_size,
        "expected_step_time_s": point.step_time,
        "step_time_low_s": low,
        "step_time_high_s": high,
        "gap": point.gap,
        "samples_per_s": point.samples_per_second if point.step_time else None,
        "price_per_gpu_hour": point.price,
        "cost_per_million_samples": point.cost_per_million_samples,
        "on_front": on_front,
        "peak_memory_bytes": point.peak_memory_bytes,
        "usable_memory_bytes": point.usable_bytes,
        "sharder": point.sharder,
        "reason": point.reason,
        "plan_file": point.plan_file,
        "key": point.key,
    }


def sweep_csv(sweep: Sweep) -> str:
    """Return a header and a line for every point."""
    rows = sweep_data(sweep)["points"]
    written = io.StringIO()
    writer = csv.DictWriter(written, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return written.getvalue()
