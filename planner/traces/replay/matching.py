"""Matching the collective kernels of different ranks, and the time of each collective.

A rank's profiled duration contains the wait for its peers. The collective's own time is its end
minus the latest start.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from costmodel.base.errors import InputError, Problem
from costmodel.base.units import MS, Seconds
from costmodel.step.graph import Stage
from planner.traces.kineto import RankTrace
from planner.traces.kineto_events import Activity, is_collective

_STAGES = (
    ("allreduce", Stage.ALL_REDUCE),
    ("reducescatter", Stage.REDUCE_SCATTER),
    ("allgather", Stage.ALL_GATHER),
    ("sendrecv", Stage.ALL_TO_ALL),
    ("alltoall", Stage.ALL_TO_ALL),
)
_TOLERANCE: Seconds = 1 * MS
"""Error of the clocks: a collective cannot end on one rank earlier than another starts it. GPU time
stamps of the V100 runs are off by up to 0.1 ms."""


@dataclass(frozen=True, slots=True)
class Member:
    """One rank's part of a collective."""

    collective: int
    seconds: Seconds
    """From the latest start on any rank to the end on this one."""
    group: int = 0
    """Number of its process group."""


Key = tuple[int, int]
"""Rank, and index of an activity in its trace."""


def collective_stage(name: str) -> Stage:
    """Return the stage of a communication kernel; point-to-point kernels count as all-to-alls."""
    plain = name.lower().replace("_", "")
    return next((stage for part, stage in _STAGES if part in plain), Stage.ALL_REDUCE)


def match_collectives(traces: Sequence[RankTrace], source: str) -> Mapping[Key, Member]:
    """Return the member of a collective that each activity is, by rank and activity.

    Ranks begin to record at different moments, so the last collectives are matched first; those
    that only some ranks recorded, at the beginning, belong to no collective.

    Raises
    ------
    InputError
        The ranks ran different collectives, or their clocks disagree.

    """
    found: dict[Key, Member] = {}
    problems: list[Problem] = []
    number = 0
    for group, sequences in enumerate(_groups(traces).values()):
        aligned, problem = _aligned(sequences)
        if problem is not None:
            problems.append(problem)
            continue
        for members in aligned:
            latest = max(activity.start for _, activity in members)
            for key, activity in members:
                found[key] = Member(number, max(0.0, activity.end - latest), group)
            number += 1
    if problems:
        raise InputError(source, problems)
    return found


_Sequence = Sequence[tuple[Key, Activity]]


def _groups(traces: Sequence[RankTrace]) -> Mapping[object, Mapping[int, _Sequence]]:
    """Return the collectives of every process group, by rank, in the order of their starts.

    Newer profilers record the group. Older ones do not: there it is the rank of the stream among
    those that run collectives.
    """
    groups: dict[object, dict[int, list[tuple[Key, Activity]]]] = defaultdict(dict)
    for trace in traces:
        streams: dict[int, int] = {}
        for index, activity in enumerate(trace.activities):
            if is_collective(activity):
                nth = streams.setdefault(activity.stream, len(streams))
                name = activity.args.get("Process Group Name")
                ranks = activity.args.get("Process Group Ranks")
                key = nth if name is None else (str(name), str(ranks))
                groups[key].setdefault(trace.rank, []).append(((trace.rank, index), activity))
    return groups


def _aligned(
    sequences: Mapping[int, _Sequence],
) -> tuple[Sequence[_Sequence], Problem | None]:
    """Return the collectives that all ranks have, matched from the last on, or a problem."""
    shortest = min(map(len, sequences.values()))
    for cut in (slice(-shortest, None), slice(0, shortest)):
        columns = list(zip(*(sequence[cut] for sequence in sequences.values()), strict=True))
        if all(map(_together, columns)):
            return columns, None
    names = [[_kind(a) for _, a in s[-shortest:]] for s in sequences.values()]
    if len(sequences) < 2 or all(kinds == names[0] for kinds in names):
        return (), _clock_problem(
            list(zip(*(s[-shortest:] for s in sequences.values()), strict=True))
        )
    counts = ", ".join(f"{rank}: {len(sequence)}" for rank, sequence in sequences.items())
    message = f"the ranks ran different collectives (numbers by rank: {counts})"
    return (), Problem(message=message, hint="give traces of the same steps of one job")


def _together(members: _Sequence) -> bool:
    """Return whether kernels of different ranks can be one collective: same kind, overlapping."""
    alike = len({_kind(activity) for _, activity in members}) == 1
    last_start = max(activity.start for _, activity in members)
    first_end = min(activity.end for _, activity in members)
    return alike and last_start <= first_end + _TOLERANCE


def _kind(activity: Activity) -> Stage:
    return collective_stage(activity.name)


def _clock_problem(columns: Sequence[_Sequence]) -> Problem:
    """Return the problem of the first collective that ends on one rank before another begins it."""
    index, members = next((i, m) for i, m in enumerate(columns) if not _together(m))
    late, (_, latest) = max(((key[0], (key, a)) for key, a in members), key=lambda m: m[1][1].start)
    early, (_, earliest) = min(
        ((key[0], (key, a)) for key, a in members), key=lambda m: m[1][1].end
    )
    apart = (latest.start - earliest.end) / MS
    message = (
        f"the clocks of the ranks do not align: rank {late} starts collective {index} "
        f"{apart:,.1f} ms after rank {early} has ended it"
    )
    return Problem(
        message=message, hint="give traces of one run; synchronise the clocks of its nodes"
    )
