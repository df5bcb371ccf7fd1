"""An explanation as JSON-able data: SI units, the unit in the key."""

from math import isfinite
from typing import Any

from planner.files.plans import table_data
from planner.verbs.explanation import Explanation, TableExplanation
from planner.views.report_data import confidence_data, turn_data


def explanation_data(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation as the JSON answer has it."""
    return {
        "expected_step_time_s": explanation.report.expected,
        "step_time_interval_s": explanation.report.interval,
        "step_time_s": explanation.report.step_time,
        "notes": list(explanation.report.notes),
        "uncertainty": confidence_data(explanation.report.confidence),
        "last_rank": explanation.last_rank,
        "critical_path": [
            {
                "start_s": row.start,
                "time_s": row.seconds,
                "stage": row.stage.value,
                "rank": row.rank,
                "bound_by": row.bound_by,
                "source": row.source,
            }
            for row in explanation.path
        ],
        "choices": [
            {
                **table_data(choice.sharding),
                "lookup_share": choice.lookup_share,
                "otherwise": _otherwise(choice),
                "effect": choice.effect,
                "wider_step_time_s": choice.wider_step_time,
            }
            for choice in explanation.choices
        ],
        "turn": None if explanation.turn is None else turn_data(explanation.turn),
        "remedies": [
            {
                "change": remedy.change,
                "expected_step_time_s": remedy.step_time,
                "samples_per_s": remedy.samples_per_second,
                "effect": remedy.effect,
                "tables_changed": remedy.num_changed,
                "cut_short": remedy.is_cut,
                "scaled": remedy.is_scaled,
                "notes": list(remedy.notes),
            }
            for remedy in explanation.remedies
        ],
        "unplanned": dict(explanation.unplanned),
    }


def _otherwise(choice: TableExplanation) -> dict[str, float | None] | None:
    """Return the step time in every other way; None: it does not fit, or was not tried."""
    if choice.others is None:
        return None
    return {
        name: seconds if isfinite(seconds) else None
        for name, seconds in choice.others.step_times.items()
    }
