"""What an explanation tells: the table of its critical path, and JSON (SI, the unit in the key)."""

from math import isfinite
from typing import Any

from costmodel.base.units import Seconds
from planner.files.plans import table_data
from planner.planned.report import STAGE_NAMES
from planner.show.columns import NUMBER, Column, Keys, plain, rows_data, times
from planner.verbs.explanation import Explanation, PathRow, TableExplanation
from planner.verbs.what_if import Remedy
from planner.views.report_data import KEYS, step_data

_KEYS: Keys = {
    Remedy: {
        "step_time": "expected_step_time_s",
        "samples_per_second": "samples_per_s",
        "num_changed": "tables_changed",
        "is_cut": "cut_short",
        "is_scaled": "scaled",
    }
}


def path_columns(end: Seconds = 0.0) -> list[Column[PathRow]]:
    """Return the columns of the critical path, which ends then."""
    return [
        Column("at", lambda row: row.start, times(end), key="start_s", page="At", priority=3),
        Column("took", lambda row: row.seconds, times(end), key="time_s", page="Took"),
        Column("stage", lambda row: row.stage, STAGE_NAMES.__getitem__, key="stage", page="Stage"),
        Column("rank", lambda row: row.rank, NUMBER, key="rank", page="Rank", none="all"),
        Column("bound by", lambda row: row.bound_by, key="bound_by", page="Bound by", priority=1),
        Column("from", lambda row: row.source, key="source", page="From", priority=2),
    ]


def explanation_data(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation as the JSON answer has it."""
    return {
        **step_data(explanation.report),
        "last_rank": explanation.last_rank,
        "critical_path": rows_data(path_columns(), explanation.path),
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
        "turn": plain(explanation.turn, KEYS),
        "remedies": plain(explanation.remedies, _KEYS),
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
