"""What changed between two plans as JSON-able data: SI units, the unit in the key."""

from typing import Any

from planner.show.columns import rows_data
from planner.verbs.diff import PlanDiff
from planner.views.compare_columns import change_columns
from planner.views.report_data import report_data


def diff_data(diff: PlanDiff) -> dict[str, Any]:
    """Return what changed between two plans as the JSON answer has it."""
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
