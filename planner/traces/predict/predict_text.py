"""A prediction from execution traces as text."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from planner.show.format import change, count, duration, durations, percent, printable
from planner.show.layout import Column, table, titled
from planner.traces.predict.prediction import Prediction, RankStep

_MOST_ROWS = 16
"""Ranks and unknown operators listed one by one."""
_SMALLEST_SHARE = 0.01
"""Extrapolation below this is not worth a line."""


def predict_text(prediction: Prediction, width: int) -> Iterator[Text]:
    """Yield the lines of a prediction."""
    ranks = count(len(prediction.ranks), "rank")
    yield Text(f"{ranks} · {count(prediction.num_kernels, 'kernel')} · {prediction.hardware}")
    yield Text()
    yield Text(f"  step time   {duration(prediction.step_time)} predicted{_beside(prediction)}")
    yield Text()
    yield from titled("  Rank by rank", table(_rank_columns(prediction), width=width, indent=4))
    yield Text()
    path = prediction.timeline.breakdown()
    stages = [
        Column(header="", cells=[stage.value.replace("_", " ") for stage in path]),
        Column(header="", cells=durations(path.values()), right=True),
        Column(
            header="", cells=[percent(s / prediction.step_time) for s in path.values()], right=True
        ),
    ]
    lines = table(stages, width=width, indent=4)
    yield from titled("  Where the step goes (critical path)", lines)
    yield Text()
    yield from titled("  Kernels of a rank", table(_families(prediction), width=width, indent=4))
    yield from map(Text, _doubts(prediction, width))


def _beside(prediction: Prediction) -> str:
    measured = prediction.measured
    if measured is None:
        return ""
    error = change(prediction.step_time / measured)
    return f", {duration(measured)} in the profiler traces ({error})"


def _rank_columns(prediction: Prediction) -> list[Column]:
    ranks: Sequence[RankStep] = prediction.ranks
    if len(ranks) > _MOST_ROWS:
        ranks = sorted(ranks, key=lambda rank: -rank.predicted)[:_MOST_ROWS]
    columns = [
        Column(header="Rank", cells=[str(rank.rank) for rank in ranks], right=True),
        Column(header="Predicted", cells=durations(rank.predicted for rank in ranks), right=True),
    ]
    if any(rank.measured is not None for rank in ranks):
        measured = ["" if r.measured is None else duration(r.measured) for r in ranks]
        errors = ["" if r.measured is None else change(r.predicted / r.measured) for r in ranks]
        columns += [
            Column(header="Measured", cells=measured, right=True),
            Column(header="Error", cells=errors, right=True),
        ]
    return columns


def _families(prediction: Prediction) -> list[Column]:
    rows = prediction.families
    return [
        Column(header="", cells=[row.family for row in rows]),
        Column(header="", cells=[f"{row.count:,.0f}" for row in rows], right=True),
        Column(header="", cells=durations(row.seconds for row in rows), right=True),
    ]


def _doubts(prediction: Prediction, width: int) -> Iterator[str]:
    """Say what no model knows, and what lies outside what was measured."""
    if prediction.extrapolated >= _SMALLEST_SHARE:
        share = percent(prediction.extrapolated)
        yield ""
        yield f"  {share} of the kernel time is outside the sizes that were measured"
    if not prediction.unknown:
        return
    calls = sum(each.count for each in prediction.unknown)
    share = f"{100 * sum(each.share for each in prediction.unknown):.1f}%"
    yield ""
    yield f"  {count(calls, 'call')} no model knows, {share} of the kernel time by their bytes:"
    shown = prediction.unknown[:_MOST_ROWS]
    yield from table(
        [
            Column(header="", cells=[printable(each.name) for each in shown]),
            Column(header="", cells=[f"{each.count:,}" for each in shown], right=True),
            Column(header="", cells=[f"{100 * each.share:.1f}%" for each in shown], right=True),
        ],
        width=width,
        indent=4,
    )
    if len(prediction.unknown) > _MOST_ROWS:
        yield "    and more: see --json"
