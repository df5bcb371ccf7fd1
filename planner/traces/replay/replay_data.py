"""Columns of a replay's tables, and its JSON with SI units, the unit in the key."""

from typing import Any

from costmodel.base.units import Seconds
from planner.show.columns import (
    CHANGE,
    ERROR,
    NUMBER,
    SHARE,
    TIME,
    Column,
    Keys,
    plain,
    rows_data,
    times,
)
from planner.show.format import printable
from planner.traces.replay.breakdown import (
    Breakdown,
    CommunicationTimes,
    PathPart,
    StreamUse,
    Stretch,
    limit_of,
)
from planner.traces.replay.importing import ImportedRun
from planner.traces.replay.modes import Replay, StepTime
from planner.traces.replay.rank_graph import WaitEdge
from planner.traces.replay.replay_report import Answer, ReplayReport

_NAME_WIDTH = 36
"""Letters of a kernel's name in text."""


def step_columns(longest: Seconds = 0.0) -> list[Column[StepTime]]:
    """Return the columns of steps beside measured ones, in the unit of the longest."""
    return [
        Column("Step", lambda step: step.step, NUMBER, key="step"),
        Column("Rank", lambda step: step.rank, NUMBER, key="rank"),
        Column("Measured", lambda step: step.measured, times(longest), key="measured_s"),
        Column("Simulated", lambda step: step.simulated, times(longest), key="simulated_s"),
        Column("Error", lambda step: step.error, ERROR),
    ]


def path_columns(total: Seconds) -> list[Column[PathPart]]:
    """Return the columns of the critical path by category."""
    return [
        Column("", lambda part: part.category, key="category"),
        Column("", lambda part: part.seconds, TIME, key="time_s"),
        Column("", lambda part: part.seconds / total, SHARE),
        Column("", lambda part: part.rank, "rank {}".format, key="rank"),
        Column("", lambda part: limit_of(part.category), "by {}".format, key="bound_by"),
    ]


STRETCH_COLUMNS: list[Column[Stretch]] = [
    Column("At", lambda part: part.start, TIME, key="start_s"),
    Column("Took", lambda part: part.seconds, TIME, key="time_s"),
    Column("Rank", lambda part: part.rank, NUMBER, key="rank"),
    Column("Where", lambda part: part.resource, key="resource", in_text=False),
    Column("What", lambda part: part.category, key="category"),
    Column("Limit", lambda part: limit_of(part.category), key="bound_by"),
    Column("Most of it in", lambda part: printable(part.longest)[:_NAME_WIDTH], page=""),
    Column("Most of it in", lambda part: part.longest, key="longest", in_text=False, prose=True),
]
"""Columns of the critical path in order of time."""
_SECONDS = {name: f"{name}_s" for name in ("busy", "waiting", "idle", "hidden", "exposed")}
_KEYS: Keys = {StreamUse: _SECONDS, CommunicationTimes: _SECONDS}


def answer_columns(step_time: Seconds) -> list[Column[Answer]]:
    """Return the columns of answers to what-if questions."""
    return [
        Column("", lambda answer: answer.change, page="Change"),
        Column("", lambda answer: answer.replay.step_time, times(step_time), page="Step"),
        Column("", lambda answer: answer.replay.step_time / step_time, CHANGE, page="Against now"),
        Column("Assumed", lambda each: "; ".join(each.assumptions), in_text=False, prose=True),
    ]


def replay_data(report: ReplayReport) -> dict[str, Any]:
    """Return a replay as plain data."""
    run, now = report.run, report.replay.step_time
    return {
        "traces": report.source,
        **_times(report.replay),
        "num_ranks": len(run.job.recorded),
        "ranks": list(run.job.recorded),
        "num_ranks_of_job": run.job.size,
        "num_nodes": len(run.graph.nodes),
        "waits": {
            "recorded": run.waits.recorded,
            "inferred": run.waits.inferred,
            "edges": [_edge(run, edge) for edge in run.wait_edges],
        },
        "num_pinned": run.num_pinned,
        "notes": list(run.notes),
        "breakdown": None if report.breakdown is None else _breakdown(report.breakdown),
        "what_if": [
            {
                "change": answer.change,
                **_times(answer.replay),
                "speedup": now / answer.replay.step_time if answer.replay.step_time else None,
                "assumptions": list(answer.assumptions),
            }
            for answer in report.answers
        ],
    }


def _edge(run: ImportedRun, edge: WaitEdge) -> dict[str, Any]:
    waiting, before = (run.graph.nodes[index] for index in (edge.waits, edge.waited_for))
    return {
        "rank": waiting.rank,
        "step": waiting.step,
        "waiting": waiting.name,
        "waiting_stream": waiting.resource,
        "waiting_start_s": run.measured[edge.waits][0],
        "waited_for": before.name,
        "waited_for_stream": before.resource,
        "waited_for_end_s": run.measured[edge.waited_for][1],
        "recorded": edge.recorded,
    }


def _times(replay: Replay) -> dict[str, Any]:
    measured, simulated = replay.measured_makespan, replay.simulated_makespan
    return {
        "mode": replay.mode.value,
        "step_time_s": replay.step_time,
        "measured_step_time_s": replay.measured_step_time,
        "makespan": {"measured_s": measured, "simulated_s": simulated},
        "steps": rows_data(step_columns(), replay.steps),
    }


def _breakdown(found: Breakdown) -> dict[str, Any]:
    return {
        "streams": plain(found.streams, _KEYS),
        "communication": plain(found.communication, _KEYS),
        "critical_path": rows_data(path_columns(found.path_time), found.path),
        "critical_path_in_order": rows_data(STRETCH_COLUMNS, found.stretches),
        "bound_by": {name.value: share for name, share in found.bounds.items()},
        "host_bound": found.host_bound,
    }
