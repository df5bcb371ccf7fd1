"""Columns of a sweep's points for text and page, JSON and CSV with SI units in keys."""

import csv
import io
from collections.abc import Iterable
from typing import Any

from planner.show.columns import (
    COUNT,
    RATE,
    SHARE,
    SPAN,
    TIME,
    Column,
    Quantity,
    json_column,
    rows_data,
)
from planner.show.format import memory, significant
from planner.sweeping.sweep_points import Sweep, SweepPoint, by_note
from planner.verbs.grouping import AUTO

SCHEMA_VERSION = 2
MARK = "*"
"""Marks points on the front."""


def cost_unit(sweep: Sweep) -> str:
    """Return the unit of cost, as text."""
    return f"{'cost' if sweep.is_priced else 'GPU-hours'} per million samples"


def point_columns(sweep: Sweep) -> list[Column[SweepPoint]]:
    """Return the columns of points, in the order of JSON and CSV."""
    front, unit = set(sweep.front), cost_unit(sweep)
    ways = [point for point in sweep.points if point.change]
    grouped = any(point.replica_group for point in sweep.points)
    short, unit = ("Cost", unit.capitalize()) if sweep.is_priced else ("GPU-h", unit)
    return [
        Column("", lambda p: MARK if p in front else "", page="Front"),
        Column("Hardware", lambda p: p.hardware, key="hardware"),
        Column("GPUs", lambda p: p.world_size, COUNT, key="world_size"),
        json_column("num_nodes"),
        Column("Batch/GPU", lambda p: p.local_batch_size, COUNT, key="local_batch_size",
               page="Samples per GPU"),
        Column("Group", _group_text, in_text=grouped, page=None if grouped else ""),
        json_column("replica_group"),
        json_column("group_size"),
        Column("With", lambda p: p.change, key="change", in_text=bool(ways)),
        json_column("setting"),
        json_column("gradient_accumulation_steps"),
        json_column("global_batch_size"),
        Column("Step time", lambda p: p.step_time, TIME, key="step_time_s",
               none="no plan"),
        Column("90% interval", lambda p: p.interval, SPAN, priority=2),
        json_column("step_time_low_s", lambda p: p.interval and p.interval[0]),
        json_column("step_time_high_s", lambda p: p.interval and p.interval[1]),
        json_column("gap"),
        Column("Samples/s", lambda p: p.samples_per_second or None, RATE, key="samples_per_s"),
        Column("Slow end", lambda p: p.least_samples_per_second or None, RATE,
               key="least_samples_per_s", priority=4, page="Samples/s at the slow end"),
        json_column("price_per_gpu_hour", lambda p: p.price),
        Column("Cost/h", lambda p: p.hourly_cost if sweep.is_priced else None,
               Quantity(significant), key="cost_per_hour", in_text=sweep.is_priced, priority=2,
               page="Cost per hour" if sweep.is_priced else ""),
        Column(f"{short}/M samples", lambda p: p.cost_per_million_samples, Quantity(significant),
               key="cost_per_million_samples", page=unit),
        json_column("on_front", lambda p: p in front),
        Column("Unmeasured", lambda p: p.unmeasured_share, SHARE, key="unmeasured_share",
               priority=1),
        json_column("measured"),
        Column("Peak memory", lambda p: p.peak_memory_bytes, Quantity(memory),
               key="peak_memory_bytes", none="-", priority=3),
        json_column("usable_memory_bytes", lambda p: p.usable_bytes),
        json_column("sharder"),
        Column("Why no plan", lambda p: p.reason, key="reason", in_text=False),
        json_column("plan_file"),
        json_column("key"),
    ]  # fmt: skip


def _group_text(point: SweepPoint) -> str:
    """Return the size of a plan's groups, after ``auto`` where that chose it."""
    if point.step_time is None:
        return point.replica_group
    size = "all" if point.group_size is None else f"{point.group_size:,}"
    return f"auto: {size}" if point.replica_group == AUTO else size


def sweep_data(sweep: Sweep) -> dict[str, Any]:
    """Return a sweep as plain data."""
    return {
        "schema_version": SCHEMA_VERSION,
        "workload_name": sweep.workload,
        "num_tables": sweep.num_tables,
        "cost_unit": "price" if sweep.is_priced else "gpu_hours",
        "notes": notes_data(sweep.points),
        "points": rows_data(point_columns(sweep), sweep.points),
    }


def notes_data(points: Iterable[SweepPoint]) -> dict[str, list[str]]:
    """Return the keys of points by warning."""
    return {note: [point.key for point in some] for note, some in by_note(points).items()}


def sweep_csv(sweep: Sweep) -> str:
    """Return the points as CSV, with a header."""
    rows = sweep_data(sweep)["points"]
    written = io.StringIO()
    writer = csv.DictWriter(written, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return written.getvalue()
