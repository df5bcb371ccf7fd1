"""The report of a plan as text: the answer, where the time goes, memory, decisions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf

from rich.text import Text

from costmodel.domain.replica_groups import ReplicaGroups
from costmodel.step.graph import Stage
from planner.planned.extrapolation import Extrapolation, critical_share
from planner.planned.replicas import WeighedGroup
from planner.planned.report import STAGE_NAMES, Report
from planner.show.columns import ASSUMED, WARNING, Column, part_columns
from planner.show.format import (
    bar,
    count,
    duration,
    memory,
    odds,
    percent,
    percent_fine,
    printable,
    rate,
    span,
    times_text,
)
from planner.show.layout import flow, rows_text, titled, wrapped
from planner.show.ranks import rank_list
from planner.views.plan_columns import (
    MOST_MEMORY,
    WHEN_WEIGHED,
    group_columns,
    kind_text,
    rank_columns,
)
from planner.views.verdict_text import choice_sentences

_GAIN = "at most, by any other plan, if the models are right"
_GAIN_IN_GROUP = "at most, by any other plan for such a group, if the models are right"
_GAIN_BARE = "at most, were there no embedding work: no time was left for a closer bound"
LEAST_BEYOND = 0.005
"""Smallest extrapolated share of the critical path that is reported."""
MOST_RANKS = 16
"""Largest number of ranks listed one by one; of more only the busiest are."""
_FEW_RANKS = 8
_TABLE_LINES = 2
"""Lines of table names per sharding type."""
_MOST_ITEMS = 40
_BEYOND = "unmeasured"
_BAR = 40
_MOST_GROUPS = 8
"""Group sizes listed, those with the shortest steps."""

_BASELINES = {
    "torchrec": "TorchRec's own planner",
    "torchrec_port": "TorchRec's planner (1.9.2), ported",
}


def notes_text(notes: Iterable[str], width: int, indent: int = 0) -> Iterator[Text]:
    """Yield warnings, wrapped and indented."""
    for note in notes:
        yield from wrapped(f"warning: {note}", width, indent=indent, style=WARNING)


def report_text(report: Report, width: int) -> Iterator[Text]:
    """Yield the lines of a plan's report."""
    yield from headline_text(report, width)
    yield from notes_text(report.notes, width)
    yield Text()
    yield from _answer(report, width)
    path = _breakdown_text(report.breakdown, width)
    yield from titled("  Where the step goes (critical path)", path)
    yield Text()
    yield from _ranks_text(report, width)
    yield from titled("  Tables", _tables_text(report, width))
    if len(report.weighed_groups) > 1:
        yield from titled("  Group sizes weighed", _groups_text(report.weighed_groups, width))


def headline_text(report: Report, width: int) -> Iterator[Text]:
    """Yield the workload and the machine."""
    nodes = f" in {report.num_nodes} nodes" if report.num_nodes > 1 else ""
    assumed = " (assumed; set --hardware)" if report.hardware_assumed else ""
    state = sum(rank.memory.optimizer_state for rank in report.ranks)
    held = memory(report.weight_bytes + state)
    batches = report.gradient_accumulation_steps
    accumulated = f" × {batches:,} a step" if batches > 1 else ""
    parts = [
        f"{count(report.num_tables, 'table')}, {held} of weights + state",
        f"local batch {report.local_batch_size:,}{accumulated}",
        f"{report.num_ranks} × {report.hardware}{nodes}{assumed}",
    ]
    if report.replicas is not None:
        parts.append(groups_text(report.replicas, report.world_size))
    lines = [" · ".join(parts)] if sum(map(len, parts)) + 6 <= width else parts
    for line in map(Text, lines):
        line.highlight_words([assumed.strip()] if assumed else [], style=ASSUMED)
        yield line


def _answer(report: Report, width: int) -> Iterator[Text]:
    """Yield the step time, throughput and comparison with the baseline."""
    for sentence in choice_sentences(report):
        yield from wrapped(sentence, width)
    if report.verdict is not None:
        yield Text()
    rows = [("step time", duration(report.step_time), _throughput(report))]
    baseline, search = report.baseline, report.search
    if baseline is not None:
        rows.append(("baseline", duration(baseline.step_time), _against_baseline(report)))
    if search is not None and report.gap is not None:
        of_group = report.replicas is not None or report.weighed_groups
        most = _GAIN_BARE if search.is_bare else _GAIN_IN_GROUP if of_group else _GAIN
        rows.append(("to gain", gain_text(report.gap), most))
    if report.replicas is not None:
        where = f", over {count(report.replica_nodes, 'node')}" if report.replica_nodes > 1 else ""
        told = _averaging(report.replicas) + where
        rows.append(("averaging", duration(report.averaging_time), told))
    beyond = critical_share(report.extrapolated, report.step_time)
    if beyond >= LEAST_BEYOND:
        rows.append((_BEYOND, percent(beyond), beyond_text(report.extrapolated)))
    widest = max(len(value) for _, value, _ in rows)
    for index, (label, value, text) in enumerate(rows):
        style = "bold" if index == 0 else ASSUMED if label == _BEYOND else ""
        room = width - widest - 16
        beside, below = (text, "") if len(text) <= room else ("", text)
        yield Text.assemble(
            f"  {label:<10}  ", (f"{value:>{widest}}", style), f"  {beside}".rstrip()
        )
        yield from wrapped(below, width, indent=4)


def groups_text(replicas: ReplicaGroups, group_size: int) -> str:
    """Return how many groups of how many ranks there are, and where their ranks are."""
    which = "consecutive" if replicas.use_inter_host_allreduce else f"{replicas.num_groups} apart"
    return f"{replicas.num_groups} groups of {group_size:,} ranks, {which}"


def interval_text(replicas: ReplicaGroups) -> str:
    """Return how often replicas are averaged: ``every step``, ``every 10 steps``."""
    every = replicas.sync_interval
    return "every step" if every == 1 else f"every {every:,} steps"


def _averaging(replicas: ReplicaGroups) -> str:
    """Return when replicas are averaged, beside how long that takes."""
    if replicas.is_fully_sharded:
        return "of every step: weights scattered after their lookup, gathered before their update"
    if replicas.sync_interval == 1:
        return "of every step: all groups' weights and optimizer state"
    return f"{interval_text(replicas)}, its share in each: weights and state of all groups"


def averaging_sentences(report: Report, replicas: ReplicaGroups) -> str:
    """Return what groups there are, how their replicas are averaged, and what of the step it is."""
    how = "weights, then optimizer state, all-reduced"
    if replicas.is_fully_sharded:
        how = "weights reduce-scattered after their lookup, gathered before their update"
    taken, share = report.averaging_critical, report.averaging_critical / report.step_time
    is_seldom = replicas.sync_interval > 1
    at_once = f"; {duration(report.averaging_time)} in those that do" if is_seldom else ""
    return (
        f"The job is {groups_text(replicas, report.world_size)}; each holds all tables. The "
        f"{replicas.num_groups:,} ranks with the same shards, on "
        f"{count(report.replica_nodes, 'node')}, average them "
        f"{interval_text(replicas)} (`{replicas.sharding_strategy}`: {how}): "
        f"{duration(taken)} of a step, {percent(share)}{at_once}."
    )


def _groups_text(weighed: Sequence[WeighedGroup], width: int) -> Iterator[Text]:
    """Yield the group sizes with the shortest steps, the number of others, and what steps are."""
    groups = sorted(weighed, key=_step_of)
    yield from rows_text(group_columns(), groups[:_MOST_GROUPS], width=width)
    if more := groups[_MOST_GROUPS:]:
        text = f"{len(more):,} more, slower or without a plan: all are in --json and --html."
        yield from wrapped(text, width)
    yield from wrapped(WHEN_WEIGHED, width)


def _step_of(weighed: WeighedGroup) -> float:
    return inf if weighed.modelled is None else weighed.modelled.seconds


def beyond_text(found: Sequence[Extrapolation]) -> str:
    """Return which stages on the critical path lie outside what was measured, two by name."""
    stages = [STAGE_NAMES[each.stage] for each in found if each.critical > 0]
    more = [f"{len(stages) - 2} more"] if len(stages) > 2 else []
    return f"of the step rests on no measurement: {', '.join(stages[:2] + more)}"


def gain_text(gap: float) -> str:
    """Return by what share a step above a bound could be shorter at most."""
    return percent_fine(gap / (1 + gap))


def _throughput(report: Report) -> str:
    interval, level = span(report.interval), percent(report.confidence.level)
    return f"({interval}, {level})    {rate(report.samples_per_second)} samples/s"


def _against_baseline(report: Report) -> str:
    baseline = report.baseline
    if baseline is None:
        return ""
    faster = f"faster with P {odds(baseline.probability_beaten)}"
    verdict = f"this plan is {times_text(report.speedup or 1.0, faster, 'slower', 'as fast')}"
    name = _BASELINES.get(baseline.sharder, baseline.sharder)
    if baseline.reason is not None:
        name = f"{name}, {baseline.reason}"
    return f"{name}; {verdict}"


def _breakdown_text(breakdown: Mapping[Stage, float], width: int) -> Iterator[Text]:
    """Yield a line per stage with its seconds, share and bar, largest first."""
    total = sum(breakdown.values())
    parts = [(STAGE_NAMES[stage], s) for stage, s in breakdown.items() if s >= 0.001 * total]
    columns = [
        *part_columns(total),
        Column("", lambda part: bar(part[1] / total, _BAR).rstrip(), priority=1),
    ]
    return rows_text(columns, parts, width=width, indent=4, gap=2)


def _ranks_text(report: Report, width: int) -> Iterator[Text]:
    """Yield the table of ranks: all, or the busiest when there are many."""
    yield Text("  Ranks (their times overlap)", style="bold")
    ranks = report.ranks
    if len(ranks) > MOST_RANKS:
        busiest = sorted(ranks, key=lambda rank: (-rank.lookup, rank.rank))
        ranks = tuple(busiest[:_FEW_RANKS])
    yield from rows_text(rank_columns(report), ranks, width=width)
    rest = len(report.ranks) - len(ranks)
    if rest:
        least = min(rank.lookup for rank in report.ranks)
        yield Text(f"  {rest} less busy ranks; the least busy looks up for {duration(least)}")
    full = report.free_share < 1 - MOST_MEMORY
    yield from wrapped(_room_left(report), width, style=WARNING if full else "")


def _room_left(report: Report) -> str:
    """Return how much memory the fullest rank has left, and how much it was to leave."""
    fullest = report.fullest
    left = report.usable_bytes - fullest.memory.tables
    if report.free_share >= 1 - MOST_MEMORY:
        asked = None if report.search is None else report.search.headroom
        if asked is None:
            return ""
        free = f"{memory(left)} ({percent(report.free_share)}) free"
        told = _headroom_text(report, asked)
        return f"The fullest, rank {fullest.rank}, has {free}; {told}."
    full = sum(r.memory.tables > MOST_MEMORY * report.usable_bytes for r in report.ranks)
    others = f" ({count(full, 'rank')} above {percent(MOST_MEMORY)})" if full > 1 else ""
    room = f"has {memory(left)} left" if left > 0.005 * report.usable_bytes else "is full"
    least = f"Rank {fullest.rank} {room}{others}: larger tables or a larger batch may not fit"
    asked = None if report.search is None else report.search.headroom
    return f"{least}; {_headroom_text(report, asked)}." if asked else f"{least}."


def _headroom_text(report: Report, asked: float) -> str:
    """Return how much memory was to be free, and why there is less."""
    if not asked:
        return "`--headroom` asks for none"
    told = f"`--headroom` asks for {percent(asked)}"
    is_fuller = report.verdict is not None and report.verdict.fuller is not None
    if report.free_share >= asked or is_fuller:
        return told
    return f"{told}, which no plan found leaves, so all memory was searched"


def _tables_text(report: Report, width: int) -> Iterator[Text]:
    """Yield the tables by sharding type, the largest first, as ``name → ranks``."""
    groups: dict[str, list[str]] = {}
    for entry in sorted(report.tables, key=lambda entry: -entry.weight_bytes):
        ranks = rank_list(entry.sharding.ranks, report.world_size)
        item = f"{printable(entry.sharding.table)} → {ranks}"
        groups.setdefault(kind_text(entry.sharding), []).append(item)
    label = max(map(len, groups)) + 4
    for name in sorted(groups, key=lambda name: (len(groups[name]), name)):
        for number, row in enumerate(_summarised(groups[name], width=width, indent=4 + label)):
            yield Text(f"    {'' if number else name:<{label}}{row}")


def _summarised(items: Sequence[str], *, width: int, indent: int) -> list[str]:
    """Return as many items as fit on two lines, and the number of the others."""
    shown = min(len(items), _MOST_ITEMS)
    while True:
        more = [f"{len(items) - shown} more"] if shown < len(items) else []
        rows = flow([*items[:shown], *more], width=width, indent=indent)
        if len(rows) <= _TABLE_LINES or shown <= 1:
            return rows
        shown -= 1
