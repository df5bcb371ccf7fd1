"""Reports as JSON-able data: SI units, the unit in the key."""

from collections.abc import Mapping
from math import isfinite
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
from planner.planned.verdict import PlanVerdict, Rival, Turn
from planner.show.columns import Keys, plain, rows_data
from planner.verbs.diff import PlanDiff
from planner.verbs.explanation import Explanation, TableExplanation
from planner.verbs.what_if import Remedy
from planner.views.compare_columns import change_columns
from planner.views.plan_columns import group_columns, path_columns, rank_columns
from planner.views.verdict_text import choice_sentences
from sharders.problem.sharding_problem import Proof

SCHEMA_VERSION = 2
"""Version of the output, raised when today's readers could misread it."""
KEYS: Keys = {
    Baseline: {"step_time": "step_time_s", "modelled": "modelled_step_time_s", "plan": ""},
    Confidence: {
        "interval": "interval_s",
        "step_time": "",
        "probability_beaten": "probability_beaten_by_first",
        "regret": "expected_regret_s",
        "causes": "variance_shares",
    },
    Extrapolation: {"time": "time_s", "critical": "critical_path_s"},
    PlanVerdict: {
        "host_time": "host_critical_path_s",
        "free_batch": "free_local_batch_size",
        "narrow": "narrow_blocks",
        "small": "small_tables_cut",
    },
    Proof: {"value": "value_s", "bound": "bound_s"},
    Remedy: {
        "step_time": "step_time_s",
        "samples_per_second": "samples_per_s",
        "num_changed": "tables_changed",
        "is_cut": "cut_short",
    },
    SearchPoint: {"time": "time_s", "modelled": "modelled_step_time_s"},
    SearchReport: {
        "requested": "requested_sharder",
        "time": "search_time_s",
        "bound": "modelled_bound_s",
        "is_bare": "",
        "proof": "",
        "first_plan": "first_plan_s",
        "end": "ended",
    },
    Rival: {"plan": ""},
    Turn: {"value": "host_operation_s"},
}
"""JSON keys, by class and field, where they differ from the field's name: the unit is in the
key."""


def report_data(report: Report) -> dict[str, Any]:
    """Return a report as plain data."""
    tables = [table_data(table.sharding) for table in report.tables]
    return {**numbers_data(report), "tables": tables}


def diff_data(diff: PlanDiff) -> dict[str, Any]:
    """Return the differences of two plans as plain data."""
    return {
        "results": [report_data(diff.old), report_data(diff.new)],
        "speedup": diff.speedup,
        "samples_per_second_ratio": diff.throughput_ratio,
        "probability_new_is_faster": diff.probability_faster,
        "other_step_time_change_s": diff.other_change,
        "differ_in": list(diff.differ_in),
        "other_model": diff.other_model or None,
        "num_unchanged": diff.num_unchanged,
        "changes": rows_data(change_columns(diff), diff.changes),
    }


def explanation_data(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation as plain data."""
    return {
        **step_data(explanation.report),
        **_replicas_data(explanation.report),
        "last_rank": explanation.last_rank,
        "critical_path": rows_data(path_columns(), explanation.path),
        "choices": [
            {
                **table_data(choice.sharding),
                "lookup_share": choice.lookup_share,
                "otherwise_step_ratios": _otherwise(choice),
                "effect": choice.effect,
                "wider_step_ratio": choice.wider_ratio,
            }
            for choice in explanation.choices
        ],
        "rival": plain(explanation.rival, KEYS),
        "remedies": plain(explanation.remedies, KEYS),
        "unplanned": dict(explanation.unplanned),
    }


def _otherwise(choice: TableExplanation) -> dict[str, float | None] | None:
    """Return the step over the plan's by other way; None: it does not fit, or none was tried."""
    if choice.others is None:
        return None
    return {
        name: ratio if isfinite(ratio) else None for name, ratio in choice.others.ratios.items()
    }


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
        replicas=planned.topology.replicas,
        memory=PlanMemory.of(planned.topology, planned.hardware_name),
        torchrec=planned.torchrec,
    )
    written = dump_plan_file(file)
    workload = written.pop("workload")
    return {**numbers_data(planned.report), **written, "workload": workload}


def numbers_data(report: Report) -> dict[str, Any]:
    """Return a report as plain data without its tables, which a plan file has in its plan."""
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
        **_replicas_data(report),
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
    """Return a step time as plain data, with its confidence and warnings."""
    return {
        "step_time_s": report.step_time,
        "step_time_interval_s": report.interval,
        "modelled_step_time_s": plain(report.modelled),
        "uncertainty": plain(report.confidence, KEYS),
        "notes": list(report.notes),
    }


def _search_data(search: SearchReport | None) -> Mapping[str, Any]:
    if search is None:
        return {"sharder": None, "seed": None, "modelled_bound_s": None}
    own = search.proof and {**plain(search.proof, KEYS), "gap": search.proof.gap}
    return {**plain(search, KEYS), **({"own_objective": own} if own else {})}


def _replicas_data(report: Report) -> Mapping[str, Any]:
    """Return the groups of a job, and the sizes they were chosen among, if there are any."""
    groups = {} if report.replicas is None else {
        "replicas": plain(report.replicas),
        "replica_nodes": report.replica_nodes,
        "averaging_time_s": report.averaging_time,
        "averaging_critical_path_s": report.averaging_critical,
    }  # fmt: skip
    weighed = rows_data(group_columns(), report.weighed_groups)
    return {**groups, **({"weighed_groups": weighed} if weighed else {})}


def _verdict_data(report: Report) -> Mapping[str, Any] | None:
    verdict = report.verdict
    if verdict is None:
        return None
    as_good = None if verdict.rival is None else verdict.rival.is_as_good
    said = {"sentences": choice_sentences(report), "hardly_matters": as_good}
    return {**said, **plain(verdict, KEYS)}
