"""A replay as JSON-able data: SI units, the unit in the key."""

from typing import Any

from planner.traces.replay.breakdown import Breakdown, bound
from planner.traces.replay.importing import ImportedRun
from planner.traces.replay.modes import Replay
from planner.traces.replay.rank_graph import WaitEdge
from planner.traces.replay.replay_report import ReplayReport


def replay_data(report: ReplayReport) -> dict[str, Any]:
    """Return a replay as plain data."""
    run = report.run
    return {
        "traces": report.source,
        **_times(report.replay),
        "num_ranks": run.graph.world_size,
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
                "speedup": _speedup(report.replay, answer.replay),
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


def _speedup(before: Replay, after: Replay) -> float | None:
    return before.step_time / after.step_time if after.step_time else None


def _times(replay: Replay) -> dict[str, Any]:
    return {
        "mode": replay.mode.value,
        "step_time_s": replay.step_time,
        "measured_step_time_s": replay.measured_step_time,
        "makespan": {
            "measured_s": replay.measured_makespan,
            "simulated_s": replay.simulated_makespan,
        },
        "steps": [
            {
                "rank": step.rank,
                "step": step.step,
                "measured_s": step.measured,
                "simulated_s": step.simulated,
            }
            for step in replay.steps
        ],
    }


def _breakdown(breakdown: Breakdown) -> dict[str, Any]:
    return {
        "streams": [
            {
                "rank": use.rank,
                "stream": use.stream,
                "busy_s": dict(use.busy),
                "waiting_s": use.waiting,
                "idle_s": use.idle,
            }
            for use in breakdown.streams
        ],
        "communication": [
            {
                "rank": each.rank,
                "hidden_s": each.hidden,
                "exposed_s": each.exposed,
                "waiting_s": each.waiting,
            }
            for each in breakdown.communication
        ],
        "critical_path": [
            {
                "category": part.category,
                "time_s": part.seconds,
                "rank": part.rank,
                "bound_by": bound(part.category).value,
            }
            for part in breakdown.path
        ],
        "critical_path_in_order": [
            {
                "start_s": part.start,
                "time_s": part.seconds,
                "rank": part.rank,
                "resource": part.resource,
                "category": part.category,
                "bound_by": bound(part.category).value,
                "longest": part.longest,
            }
            for part in breakdown.stretches
        ],
        "bound_by": {name.value: share for name, share in breakdown.bounds.items()},
        "host_bound": breakdown.host_bound,
    }
