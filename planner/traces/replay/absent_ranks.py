"""What the ranks did whose traces are not there, from the record of those that are.

The record shows when a collective ended, not when the absent ranks came to it. They are taken to
come so late that it ends when it ended: by its own time before that. How long that is one rank's
profile does not say, as it contains the wait; but a larger message of the same group takes at
least as long, so the shortest such collective bounds it. What an absent rank does between the
collectives is taken to last as long as it did.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from costmodel.base.units import US, Bytes, Seconds
from costmodel.domain.hardware import Basis, Source
from costmodel.step.graph import Node, NodeKind, Role, Stage
from planner.traces.kineto import RankTrace
from planner.traces.kineto_events import Activity
from planner.traces.replay.job import RecordedJob
from planner.traces.replay.matching import Key, Member, collective_stage

OTHER_RANKS = "other ranks"
_TICK: Seconds = 1 * US
"""Resolution of the profiler's clock. Where no wait is seen, absent ranks come earlier by it: the
recorded one is then what the collective waited for."""
Span = tuple[Seconds, Seconds]


def awaiting(
    traces: Sequence[RankTrace], members: Mapping[Key, Member], job: RecordedJob
) -> frozenset[int]:
    """Return the numbers of the collectives that ranks without a trace take part in."""
    present = Counter(member.collective for member in members.values())
    activities = {trace.rank: trace.activities for trace in traces}
    return frozenset(
        member.collective
        for (rank, index), member in members.items()
        if present[member.collective] < _group_size(activities[rank][index], job)
    )


def _group_size(activity: Activity, job: RecordedJob) -> float:
    """Return the number of ranks of a collective's process group, by default all of the job."""
    size = activity.args.get("Group size")
    if isinstance(size, int) and size > 0:
        return size
    ranks = str(activity.args.get("Process Group Ranks", ""))
    if ranks[:1] == "[" and ranks[-1:] == "]" and "..." not in ranks:
        return ranks.count(",") + 1
    return float("inf") if job.size is None else job.size


def with_own_times(
    traces: Sequence[RankTrace],
    members: Mapping[Key, Member],
    awaited: frozenset[int],
    num_bytes: Mapping[Key, Bytes],
) -> dict[Key, Member]:
    """Return members whose seconds leave out the wait for absent ranks, where that is known."""
    activities = {trace.rank: trace.activities for trace in traces}
    longest: dict[int, Seconds] = defaultdict(float)
    alike: dict[tuple[int, Stage], dict[int, Bytes]] = defaultdict(dict)
    for key, member in members.items():
        number = member.collective
        longest[number] = max(longest[number], member.seconds)
        sizes = alike[member.group, collective_stage(activities[key[0]][key[1]].name)]
        sizes[number] = max(sizes.get(number, 0.0), num_bytes.get(key, 0.0))
    waited = dict.fromkeys(longest, 0.0)
    for sizes in alike.values():
        shortest = float("inf")
        for size, number in sorted(((size, n) for n, size in sizes.items()), reverse=True):
            shortest = min(shortest, longest[number]) if size else longest[number]
            waited[number] = longest[number] - shortest if number in awaited else 0.0
    return {
        key: replace(member, seconds=max(0.0, member.seconds - waited[member.collective]))
        for key, member in members.items()
    }


def absent_nodes(
    nodes: Sequence[Node], measured: Sequence[Span], awaited: frozenset[int]
) -> tuple[list[Node], list[Span]]:
    """Return the nodes of the absent ranks, to follow ``nodes``, and when they ran.

    For every collective that they take part in there is their work before it, from the last such
    collective that had ended or the last work of the same ranks on, and their part in it, beside
    which the work before others goes on.
    """
    first = {node.collective: i for i, node in reversed(list(enumerate(nodes)))}
    arrivals = sorted(
        (_arrival(nodes[index], measured[index]), index)
        for number, index in first.items()
        if number in awaited
    )
    ended = sorted((measured[index][1], index) for _, index in arrivals)
    ends = [end for end, _ in ended]
    made: list[Node] = []
    times: list[Span] = []
    busy: dict[tuple[int, str], Seconds] = {}
    for arrival, index in arrivals:
        before = bisect_right(ends, arrival + _TICK) - 1
        since, after = (ends[before], (ended[before][1],)) if before >= 0 else (0.0, ())
        ranks = nodes[index].rank, nodes[index].resource
        since = max(since, busy.get(ranks, 0.0))
        busy[ranks] = max(since, arrival)
        work = _absent(nodes[index], max(0.0, arrival - since), after)
        part = replace(
            work,
            resource=f"{OTHER_RANKS} in {nodes[index].resource}",
            seconds=nodes[index].seconds,
            collective=nodes[index].collective,
        )
        made += [work, replace(part, after=(len(nodes) + len(made),))]
        times += [(since, arrival), (arrival, measured[index][1])]
    return made, times


def _arrival(collective: Node, measured: Span) -> Seconds:
    """Return when absent ranks come to a collective, by its own time and a rank's record of it."""
    start, end = measured
    arrival = end - collective.seconds
    return arrival if arrival > start + _TICK else max(0.0, arrival - _TICK)


def _absent(collective: Node, seconds: Seconds, after: tuple[int, ...]) -> Node:
    """Return work of absent ranks before a collective that they take part in."""
    return Node(
        OTHER_RANKS,
        NodeKind.HOST,
        Stage.HOST,
        collective.rank,
        f"{OTHER_RANKS} of {collective.resource}",
        seconds,
        after=after,
        step=collective.step,
        basis=Basis(source=Source.MEASURED),
        role=Role.ABSENT,
    )
