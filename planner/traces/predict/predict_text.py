"""A prediction from execution traces as text, and as JSON with SI units, the unit in the key."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from rich.text import Text

from planner.show.columns import (
    CHANGE,
    COUNT,
    NUMBER,
    SHARE_FINE,
    TIME,
    Column,
    Quantity,
    json_column,
    part_columns,
    plain,
    rows_data,
)
from planner.show.format import change, count, duration, percent, percent_fine, printable
from planner.show.layout import rows_text, titled
from planner.traces.predict.prediction import FamilyTime, Prediction, RankStep, UnknownOperator

_MOST_ROWS = 16
"""Most ranks and unknown operators listed one by one."""
_SMALLEST_SHARE = 0.01
"""Smallest share of extrapolated time that is reported."""


def predict_text(prediction: Prediction, width: int) -> Iterator[Text]:
    """Yield the lines of a prediction."""
    ranks = count(len(prediction.ranks), "rank")
    yield Text(f"{ranks} · {count(prediction.num_kernels, 'kernel')} · {prediction.hardware}")
    yield Text()
    yield Text(f"  step time   {duration(prediction.step_time)} predicted{_beside(prediction)}")
    shown: Sequence[RankStep] = prediction.ranks
    if len(shown) > _MOST_ROWS:
        shown = sorted(shown, key=lambda rank: -rank.predicted)[:_MOST_ROWS]
    columns = RANK_COLUMNS
    if all(rank.measured is None for rank in shown):
        columns = [each for each in columns if each.title not in {"Measured", "Error"}]
    path = prediction.timeline.breakdown()
    parts = [(stage.value.replace("_", " "), seconds) for stage, seconds in path.items()]
    stages = part_columns(prediction.step_time)
    table = partial(rows_text, width=width, indent=4)
    yield from titled("  Rank by rank", table(columns, shown))
    yield from titled("  Where the step goes (critical path)", table(stages, parts))
    yield from titled("  Kernels of a rank", table(FAMILY_COLUMNS, prediction.families))
    yield from _doubts(prediction, width)


def _beside(prediction: Prediction) -> str:
    """Return the measured step, and the prediction's error, as text."""
    measured = prediction.measured
    if measured is None:
        return ""
    error = change(prediction.step_time / measured)
    return f", {duration(measured)} in the profiler traces ({error})"


def _doubts(prediction: Prediction, width: int) -> Iterator[Text]:
    """Yield the operators that no model knows, and those outside of measured ranges."""
    if prediction.extrapolated >= _SMALLEST_SHARE:
        share = percent(prediction.extrapolated)
        yield Text()
        yield Text(f"  {share} of the kernel time is outside the sizes that were measured")
    if not prediction.unknown:
        return
    calls = count(sum(each.count for each in prediction.unknown), "call")
    share = percent_fine(sum(each.share for each in prediction.unknown))
    yield Text()
    yield Text(f"  {calls} no model knows, {share} of the kernel time by their bytes:")
    yield from rows_text(UNKNOWN_COLUMNS, prediction.unknown[:_MOST_ROWS], width=width, indent=4)
    if len(prediction.unknown) > _MOST_ROWS:
        yield Text("    and more: see --json")


RANK_COLUMNS: list[Column[RankStep]] = [
    Column("Rank", lambda rank: rank.rank, NUMBER, key="rank"),
    Column("Predicted", lambda rank: rank.predicted, TIME, key="predicted_s"),
    Column("Measured", lambda rank: rank.measured, Quantity(duration), key="measured_s"),
    Column("Error", lambda rank: rank.measured and rank.predicted / rank.measured, CHANGE),
    json_column("stages_s", lambda rank: rank.stages),
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
