"""The last step of a timeline as characters: one row per stream of every rank."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from rich.text import Text

from costmodel.step.graph import NodeKind, Resource, Stage
from costmodel.step.timeline import Timeline
from planner.planned.extrapolation import critical_share
from planner.planned.report import STAGE_NAMES, Report
from planner.show.format import duration, percent, span
from planner.show.layout import flow, wrapped
from planner.show.ranks import ShownRanks
from planner.views.report_text import LEAST_BEYOND, beyond_text

_SYMBOLS: Mapping[Stage, str] = {
    Stage.INPUT_DIST: "i",
    Stage.MEMORY_COPY: "m",
    Stage.LOOKUP_FORWARD: "l",
    Stage.LOOKUP_BACKWARD: "L",
    Stage.ALL_TO_ALL: "a",
    Stage.REDUCE_SCATTER: "s",
    Stage.ALL_GATHER: "g",
    Stage.ALL_REDUCE: "r",
    Stage.DENSE_FORWARD: "d",
    Stage.DENSE_BACKWARD: "D",
    Stage.OPTIMIZER: "o",
    Stage.HOST: "h",
}
_BLOCKED = "."


def timeline_text(
    timeline: Timeline, width: int, report: Report, shown: ShownRanks
) -> Iterator[Text]:
    """Yield the rows of some ranks, a legend, and what was extrapolated.

    The timeline is stretched to the report's step.
    """
    begin, end = timeline.window
    rows = _rows(timeline, shown.ranks)
    label = max((len(resource) for _, resource in rows), default=0) + 12
    columns = max(20, width - label - 2)
    column = (end - begin) / columns
    step = f"{duration(report.step_time)} per step ({span(report.interval)}, 90%)"
    yield Text(f"{step}; one column is {duration(column)}", style="bold")
    before = None
    for (rank, resource), nodes in rows.items():
        name = f"rank {rank}" if rank != before else ""
        before = rank
        drawn = _drawn(timeline, nodes, columns)
        yield Text(f"  {name:<8} {resource:<{label - 12}} {drawn}".rstrip())
    if shown.text:
        yield from wrapped(f"{shown.text}; `--ranks 0-7,12` or `all` shows others", width)
    yield Text()
    used = {timeline.graph.nodes[index].stage for nodes in rows.values() for index in nodes}
    legend = [f"{_SYMBOLS[stage]} {STAGE_NAMES[stage]}" for stage in Stage if stage in used]
    for line in flow([*legend, f"{_BLOCKED} waiting"], width=width, indent=2, gap=3):
        yield Text(f"  {line}")
    beyond = critical_share(report.extrapolated, report.step_time)
    if beyond >= LEAST_BEYOND:
        yield Text(f"  {percent(beyond)} {beyond_text(report.extrapolated)}")


def _rows(timeline: Timeline, ranks: Collection[int]) -> dict[tuple[int, str], list[int]]:
    """Return some ranks' nodes that overlap the last step, by rank and resource, hosts first."""
    begin, _ = timeline.window
    order: dict[str, int] = {Resource.MAIN: 0, Resource.AUTOGRAD: 1, Resource.COMPUTE: 2}
    rows: dict[tuple[int, str], list[int]] = defaultdict(list)
    for group in timeline.graph.groups():
        for index, rank in zip(group.numbers.tolist(), group.ranks.tolist(), strict=True):
            if rank in ranks and timeline.ends[index] > begin:
                rows[rank, group.first.resource].append(index)
    for nodes in rows.values():
        nodes.sort()
    return dict(sorted(rows.items(), key=lambda row: (row[0][0], order.get(row[0][1], 9), row[0])))


def _drawn(timeline: Timeline, nodes: list[int], columns: int) -> str:
    """Return one row of characters: each shows the work that takes most of its time."""
    begin, end = timeline.window
    scale = columns / (end - begin)
    cells: list[dict[str, float]] = [defaultdict(float) for _ in range(columns)]
    for index in nodes:
        node = timeline.graph.nodes[index]
        symbol = _BLOCKED if node.kind is NodeKind.WAIT else _SYMBOLS[node.stage]
        start, stop = timeline.starts[index], timeline.ends[index]
        _fill(cells, symbol, (start - begin) * scale, (stop - begin) * scale)
        if node.kind is NodeKind.COLLECTIVE:
            _fill(cells, _BLOCKED, (timeline.ready[index] - begin) * scale, (start - begin) * scale)
    return "".join(_symbol(cell) for cell in cells)


def _fill(cells: list[dict[str, float]], symbol: str, start: float, stop: float) -> None:
    start, stop = max(0.0, start), min(float(len(cells)), stop)
    for column in range(int(start), min(len(cells), int(stop) + 1)):
        overlap = min(stop, column + 1.0) - max(start, float(column))
        if overlap > 0:
            cells[column][symbol] += overlap


def _symbol(cell: Mapping[str, float]) -> str:
    """Return the symbol that fills most of a cell; a space if it is mostly idle."""
    if not cell or sum(cell.values()) < 0.25:
        return " "
    return max(cell, key=cell.__getitem__)
