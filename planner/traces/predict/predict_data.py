"""What a prediction from execution traces tells: its tables, and JSON (SI, the unit in the key)."""

from typing import Any

from planner.show.columns import (
    CHANGE,
    COUNT,
    NUMBER,
    SHARE_FINE,
    TIME,
    Column,
    Quantity,
    plain,
    rows_data,
    untold,
)
from planner.show.format import duration, printable
from planner.traces.predict.prediction import FamilyTime, Prediction, RankStep, UnknownOperator

RANK_COLUMNS: list[Column[RankStep]] = [
    Column("Rank", lambda rank: rank.rank, NUMBER, key="rank"),
    Column("Predicted", lambda rank: rank.predicted, TIME, key="predicted_s"),
    Column("Measured", lambda rank: rank.measured, Quantity(duration), key="measured_s"),
    Column("Error", lambda rank: rank.measured and rank.predicted / rank.measured, CHANGE),
    untold("stages_s", lambda rank: rank.stages),
]
FAMILY_COLUMNS: list[Column[FamilyTime]] = [
    Column("", lambda row: row.family, key="family"),
    Column("", lambda row: row.count, Quantity("{:,.0f}".format), key="kernels_per_rank"),
    Column("", lambda row: row.seconds, TIME, key="time_s"),
]
UNKNOWN_COLUMNS: list[Column[UnknownOperator]] = [
    Column("", lambda row: row.name, printable, key="name"),
    Column("", lambda row: row.count, COUNT, key="count"),
    Column("", lambda row: row.share, SHARE_FINE, key="time_share"),
]


def predict_data(prediction: Prediction) -> dict[str, Any]:
    """Return a prediction as plain data."""
    return {
        "traces": prediction.source,
        "hardware": prediction.hardware,
        "step_time_s": prediction.step_time,
        "measured_step_time_s": prediction.measured,
        "ranks": rows_data(RANK_COLUMNS, prediction.ranks),
        "critical_path_s": plain(prediction.timeline.breakdown()),
        "families": rows_data(FAMILY_COLUMNS, prediction.families),
        "num_kernels": prediction.num_kernels,
        "extrapolated_share": prediction.extrapolated,
        "unknown_operators": rows_data(UNKNOWN_COLUMNS, prediction.unknown),
    }
