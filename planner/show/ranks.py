"""Which ranks of many are shown: those asked for, or else one of each kind."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby

import numpy as np

from costmodel.base.errors import InputError, Problem
from costmodel.base.units import US, Seconds
from costmodel.step.timeline import Timeline

ALL = "all"
MOST_RANKS = 8
"""Largest number of ranks shown unless more are asked for: pages and traces of more are slow."""
_TICK: Seconds = 1e-3 * US
"""Resolution of what is shown."""
_HOW = "write `0-7,12` or `all`"
_RANKS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_KINDS = "one of each kind, the others' timelines are copies"
_ENDS = "those longest on the critical path, the busiest and the idlest"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRanks:
    """The ranks that are shown of a timeline, and how they were chosen."""

    ranks: tuple[int, ...]
    """In order."""
    num_ranks: int
    """Ranks that there are in all."""
    rule: str = ""
    """Why these; empty: they were asked for, or are all."""

    @property
    def text(self) -> str:
        """How many of how many, and why these: ``8 of 64 ranks, ...``; empty if all are shown."""
        if len(self.ranks) == self.num_ranks:
            return ""
        return f"{len(self.ranks)} of {self.num_ranks:,} ranks{self.rule and ': '}{self.rule}"

    @property
    def sentence(self) -> str:
        """``text`` as a sentence, to follow others; empty if all are shown."""
        return self.text and f" {self.text}."


def parse_ranks(text: str) -> Iterable[int] | str:
    """Return the ranks that a text names, ``0-7,12``, as they are read; or ``all``.

    Raises
    ------
    ValueError
        It names none, or not so.

    """
    if text.strip() == ALL:
        return ALL
    return chain.from_iterable([_range(part.strip()) for part in text.split(",")])


def _range(text: str) -> range:
    """Return the ranks of a part between commas: ``12`` or ``0-7``."""
    found = _RANKS.fullmatch(text)
    if found is None:
        said = f"`{text[:40]}` is not a rank, or ranks" if text else "a rank is missing"
        raise ValueError(f"{said}; {_HOW}")
    first, last = int(found[1]), int(found[2] or found[1])
    if last < first:
        raise ValueError(f"`{text}` ends before it begins; write `{last}-{first}`")
    return range(first, last + 1)


def rank_list(ranks: Sequence[int], world_size: int) -> str:
    """Return ranks as text, each once: ``0-3, 5``, or ``all``."""
    distinct = sorted(set(ranks))
    if len(distinct) == world_size > 1:
        return ALL
    parts: list[str] = []
    # neighbours differ from their places in the list by the same number
    for _, group in groupby(enumerate(distinct), key=lambda item: item[1] - item[0]):
        run = [rank for _, rank in group]
        parts += [f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run)
    return ", ".join(parts)


def shown_ranks(timeline: Timeline, asked: Iterable[int] | str | None = None) -> ShownRanks:
    """Return the ranks to show of a timeline: those asked for, ``all``, or None: a few.

    A few are all up to ``MOST_RANKS``. Of more they are one of each kind, as ranks are alike whose
    last step has the same work at the same times, to the nanosecond. Where even the kinds are more,
    half of the ranks shown are those that the critical path is longest on, as the step waits for
    them; the rest are the kinds whose compute streams are busiest and idlest.

    Raises
    ------
    InputError
        A rank that is asked for is not there.

    """
    there = timeline.graph.ranks
    if asked is None and len(there) > MOST_RANKS:
        return _a_few(timeline)
    ranks = there if asked is None or asked == ALL else sorted(set(_found(asked, there)))
    return ShownRanks(ranks=tuple(ranks), num_ranks=len(there))


def _found(asked: Iterable[int | str], there: Sequence[int]) -> Iterator[int]:
    """Yield the ranks asked for, which may be endlessly many, up to the first that is not there."""
    for rank in asked:
        if rank not in there:
            message = f"there is no rank {rank}: there are {rank_list(there, 0)}"
            raise InputError("--ranks", (Problem(message=message, hint=_HOW),))
        yield int(rank)


def _a_few(timeline: Timeline) -> ShownRanks:
    """Return the ranks to show of a timeline of many."""
    there = timeline.graph.ranks
    critical = _critical_ranks(timeline)
    kinds = _one_of_each_kind(timeline, list(dict.fromkeys([*critical, *there])))
    rule = _KINDS
    if len(kinds) > MOST_RANKS:
        rule, idle = _ENDS, timeline.idle_times
        by_idle = sorted(kinds, key=lambda rank: (idle[rank], rank))
        from_both_ends = chain.from_iterable(zip(by_idle, reversed(by_idle), strict=True))
        longest = [rank for rank in critical if rank in kinds][: MOST_RANKS // 2]
        kinds = list(dict.fromkeys([*longest, *from_both_ends]))[:MOST_RANKS]
    return ShownRanks(ranks=tuple(sorted(kinds)), num_ranks=len(there), rule=rule)


def _critical_ranks(timeline: Timeline) -> list[int]:
    """Return the ranks that the critical path goes through, those it is longest on first."""
    seconds: dict[int, Seconds] = {}
    for segment in timeline.critical_path():
        rank = timeline.graph.nodes[segment.node].rank
        seconds[rank] = seconds.get(rank, 0.0) + segment.seconds
    return sorted(seconds, key=lambda rank: -seconds[rank])


def _one_of_each_kind(timeline: Timeline, ranks: Sequence[int]) -> list[int]:
    """Return the first of all ranks that are alike in the last step, for every kind of rank."""
    graph = timeline.graph
    groups = [each for each in graph.groups() if each.first.step == graph.num_steps - 1]
    times = np.array([timeline.ready, timeline.starts, timeline.ends])
    ticks = np.rint(times / _TICK).astype(np.int64)
    rows = np.full((graph.world_size, len(groups), len(ticks)), -1)
    for number, group in enumerate(groups):
        rows[group.ranks, number] = ticks[:, group.numbers].T
    kinds: dict[bytes, int] = {}
    for rank in ranks:
        kinds.setdefault(rows[rank].tobytes(), rank)
    return list(kinds.values())
