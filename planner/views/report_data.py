"""Reports as JSON-able data: SI units, the unit in the key."""

from collections.abc import Mapping
from typing import Any

from planner.files.plan_memory import PlanMemory
from planner.files.plans import PlanFile, dump_plan_file, table_data
from planner.planned.extrapolation import Extrapolation
from planner.planned.planned import Planned
from planner.planned.report import (
    Baseline,
    Confidence,
    Report,
    SearchPoint,
    SearchReport,
)
from planner.planned.verdict import PlanVerdict, Turn
from planner.show.columns import Keys, plain, rows_data
from planner.views.plan_columns import rank_columns
from planner.views.verdict_text import choice_sentences
from sharders.problem.sharding_problem import Proof

SCHEMA_VERSION = 1
"""Raised when a reader of today could misread tomorrow's output."""
KEYS: Keys = {
    Baseline: {"step_time": "step_time_s", "expected": "expected_step_time_s", "plan": ""},
    Confidence: {
        "interval": "interval_s",
        "expected": "expected_step_time_s",
        "probability_beaten": "probability_beaten_by_first",
        "regret": "expected_regret_s",
        "causes": "variance_shares",
    },
    Extrapolation: {"time": "time_s", "critical": "critical_path_s"},
    PlanVerdict: {
        "within_bound": "simplest_above_bound",
        "host_time": "host_critical_path_s",
        "ahead": "ahead_of_runner_up",
        "free_batch": "free_local_batch_size",
        "narrow": "narrow_blocks",
    },
    Proof: {"value": "value_s", "bound": "bound_s"},
    SearchPoint: {"time": "time_s", "step_time": "step_time_s"},
    SearchReport: {
        "requested": "requested_sharder",
        "time": "search_time_s",
        "bound": "bound_s",
        "is_bare": "",
        "proof": "",
        "first_plan": "first_plan_s",
        "end": "ended",
    },
    Turn: {
        "deviations": "standard_deviations",
        "value": "host_operation_s",
        "rival_ahead": "rival_predicted_ahead",
        "rival_plan": "",
    },
}
"""What JSON calls what reports call otherwise: SI units, the unit in the key."""


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
        **step_data(report),
        "samples_per_s": report.samples_per_second,
        **_search_data(report.search),
        "baseline": report.baseline and {**plain(report.baseline, KEYS), "speedup": report.speedup},
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
        "extrapolated": plain(report.extrapolated, KEYS),
        "breakdown": plain(report.breakdown),
        "ranks": rows_data(rank_columns(report), report.ranks),
    }


def step_data(report: Report) -> dict[str, Any]:
    """Return a step time as plain data, how sure it is, and what it is to be warned of."""
    return {
        "expected_step_time_s": report.expected,
        "step_time_interval_s": report.interval,
        "step_time_s": report.step_time,
        "uncertainty": plain(report.confidence, KEYS),
        "notes": list(report.notes),
    }


def _search_data(search: SearchReport | None) -> Mapping[str, Any]:
    if search is None:
        return {"sharder": None, "seed": None, "bound_s": None}
    own = search.proof and {**plain(search.proof, KEYS), "gap": search.proof.gap}
    return {**plain(search, KEYS), **({"own_objective": own} if own else {})}


def _verdict_data(report: Report) -> Mapping[str, Any] | None:
    verdict = report.verdict
    if verdict is None:
        return None
    said = {"sentences": choice_sentences(report), "hardly_matters": verdict.hardly_matters}
    return {**said, **plain(verdict, KEYS)}
