"""Reports as JSON-able data: SI units, the unit in the key."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from costmodel.memory.rank_memory import RankMemory
from planner.files.plan_memory import PlanMemory
from planner.files.plans import PlanFile, dump_plan_file, table_data
from planner.planned.extrapolation import Extrapolation
from planner.planned.planned import Planned
from planner.planned.report import Confidence, RankReport, Report, SearchReport
from planner.planned.verdict import Turn
from planner.views.verdict_text import verdict_lines
from sharders.problem.sharding_problem import Proof

SCHEMA_VERSION = 1
"""Raised when a reader of today could misread tomorrow's output."""


def report_data(report: Report) -> dict[str, Any]:
    """Return a report as plain data."""
    tables = [table_data(table.sharding) for table in report.tables]
    return {**numbers_data(report), "tables": tables}


def plan_file_data(planned: Planned) -> dict[str, Any]:
    """Return the content of ``plan.json``: the report, and the workload it is about."""
    search = planned.report.search
    file = PlanFile(
        plan=planned.plan,
        workload=planned.workload,
        hardware=planned.hardware_name,
        sharder=search.sharder if search else None,
        seed=search.seed if search else None,
        step_time=planned.report.step_time,
        memory=PlanMemory.of(planned.topology, planned.hardware_name),
        torchrec=planned.torchrec,
    )
    written = dump_plan_file(file)
    workload = written.pop("workload")
    return {**numbers_data(planned.report), **written, "workload": workload}


def numbers_data(report: Report) -> dict[str, Any]:
    """Return a report as plain data, but for its tables, which a plan file has of its plan."""
    return {
        "schema_version": SCHEMA_VERSION,
        "workload_name": report.workload,
        "expected_step_time_s": report.expected,
        "step_time_interval_s": report.interval,
        "step_time_s": report.step_time,
        "uncertainty": confidence_data(report.confidence),
        "samples_per_s": report.samples_per_second,
        **_search_data(report.search),
        "baseline": _baseline_data(report),
        "notes": list(report.notes),
        "verdict": _verdict_data(report),
        "hardware": report.hardware,
        "hardware_assumed": report.hardware_assumed,
        "world_size": report.world_size,
        "local_world_size": report.local_world_size,
        "local_batch_size": report.local_batch_size,
        "gradient_accumulation_steps": report.gradient_accumulation_steps,
        "weight_bytes": report.weight_bytes,
        "peak_memory_bytes": report.peak_memory_bytes,
        "usable_memory_bytes": report.usable_bytes,
        "imbalance": report.imbalance,
        "extrapolated": [_extrapolation_data(each) for each in report.extrapolated],
        "breakdown": {stage.value: seconds for stage, seconds in report.breakdown.items()},
        "ranks": [_rank_data(rank) for rank in report.ranks],
    }


def confidence_data(confidence: Confidence | None) -> Mapping[str, Any] | None:
    """Return how sure a step time is as plain data."""
    if confidence is None:
        return None
    return {
        "level": confidence.level,
        "interval_s": confidence.interval,
        "expected_step_time_s": confidence.expected,
        "optimism": confidence.optimism,
        "num_candidates": confidence.num_candidates,
        "probability_fastest": confidence.probability_fastest,
        "probability_beaten_by_first": confidence.probability_beaten,
        "expected_regret_s": confidence.regret,
        "variance_shares": dict(confidence.causes),
    }


def _search_data(search: SearchReport | None) -> Mapping[str, Any]:
    if search is None:
        return {"sharder": None, "seed": None, "bound_s": None}
    return {
        "sharder": search.sharder,
        "requested_sharder": search.requested,
        "seed": search.seed,
        "status": search.status,
        "ended": search.end,
        "evaluated": search.evaluated,
        "search_time_s": search.time,
        "first_plan_s": search.first_plan,
        "compiled": search.compiled,
        "bound_s": search.bound,
        "history": [
            {"time_s": point.time, "step_time_s": point.step_time, "sharder": point.sharder}
            for point in search.history
        ],
        **_proof_data(search.proof),
    }


def _proof_data(proof: Proof | None) -> Mapping[str, Any]:
    if proof is None:
        return {}
    own = {"value_s": proof.value, "bound_s": proof.bound, "gap": proof.gap}
    return {"own_objective": own}


def _baseline_data(report: Report) -> Mapping[str, Any] | None:
    baseline = report.baseline
    if baseline is None:
        return None
    return {
        "sharder": baseline.sharder,
        "step_time_s": baseline.step_time,
        "expected_step_time_s": baseline.expected,
        "speedup": report.speedup,
        "reason": baseline.reason,
        "probability_beaten": baseline.probability_beaten,
    }


def _verdict_data(report: Report) -> Mapping[str, Any] | None:
    verdict = report.verdict
    if verdict is None:
        return None
    turn = verdict.turn
    return {
        "sentences": list(verdict_lines(report)),
        "hardly_matters": verdict.hardly_matters,
        "num_candidates": verdict.num_candidates,
        "num_equal": verdict.num_equal,
        "spread": verdict.spread,
        "simplest_longer": verdict.simplest_longer,
        "simplest_above_bound": verdict.within_bound,
        "host_critical_path_s": verdict.host_time,
        "runner_up": verdict.runner_up,
        "runner_up_types": verdict.runner_up_types,
        "probability_faster": verdict.probability_faster,
        "ahead_of_runner_up": verdict.ahead,
        "free_local_batch_size": verdict.free_batch,
        "turn": None if turn is None else turn_data(turn),
        "num_rivals": verdict.num_rivals,
        "narrow_blocks": None if verdict.narrow is None else asdict(verdict.narrow),
    }


def turn_data(turn: Turn) -> Mapping[str, Any]:
    """Return the assumption that decides as plain data."""
    return {
        "assumption": turn.assumption,
        "factor": turn.factor,
        "standard_deviations": turn.deviations,
        "host_operation_s": turn.value,
        "rival": turn.rival,
        "rival_predicted_ahead": turn.rival_ahead,
    }


def _extrapolation_data(found: Extrapolation) -> Mapping[str, Any]:
    return {
        "stage": found.stage.value,
        "kernels": list(found.kernels),
        "time_s": found.time,
        "critical_path_s": found.critical,
    }


def _rank_data(rank: RankReport) -> Mapping[str, Any]:
    return {
        "rank": rank.rank,
        "lookup_forward_s": rank.lookup_forward,
        "lookup_backward_s": rank.lookup_backward,
        "communication_s": rank.communication,
        "waiting_s": rank.waiting,
        "idle_s": rank.idle,
        "memory_bytes": rank.memory.total,
        "tables_memory_bytes": rank.memory.tables,
        "memory": _memory_data(rank.memory),
    }


def _memory_data(memory: RankMemory) -> Mapping[str, float]:
    return {f"{part.name}_bytes": getattr(memory, part.name) for part in fields(memory)}
