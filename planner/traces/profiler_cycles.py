"""Which traces of different processes are of one cycle of their profilers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from costmodel.base.units import Seconds

Round: TypeAlias = dict[int, int]
"""The place of a trace among its process's, by the process's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """What one trace is of."""

    steps: frozenset[int]
    """Numbers of the profiler's steps."""
    span: tuple[Seconds, Seconds]


def cycle_rounds(processes: Sequence[Sequence[Profiled]]) -> list[Round]:
    """Return the cycles of the job in the order of time, each with the traces that are of it.

    Of processes with several traces, those are of one cycle that have most steps in common; or,
    where steps are numbered anew in each or none match, most time; or else the same place. Not
    every process may have a trace of every cycle.
    """
    alike = len(set(map(len, processes))) <= 1
    in_place = [dict.fromkeys(range(len(processes)), n) for n in range(len(processes[0]))]
    if alike and len(in_place) <= 1:
        return in_place
    found: list[Round] = []
    numbered = all(
        len(frozenset().union(*(each.steps for each in own)))
        == sum(len(each.steps) for each in own)
        for own in processes
    )
    for common in (_common_steps, _common_time) if numbered else (_common_time,):
        found = _matched(processes, common)
        if any(len(each) == len(processes) for each in found):
            return found
    return in_place if alike else found


def _common_steps(one: Profiled, other: Profiled) -> float:
    return len(one.steps & other.steps)


def _common_time(one: Profiled, other: Profiled) -> float:
    return min(one.span[1], other.span[1]) - max(one.span[0], other.span[0])


def _matched(
    processes: Sequence[Sequence[Profiled]], common: Callable[[Profiled, Profiled], float]
) -> list[Round]:
    """Add every trace to the cycle with whose traces it has most in common, if any.

    Those of processes with most traces first.
    """
    order = sorted(range(len(processes)), key=lambda each: -len(processes[each]))
    found: list[Round] = []
    for own, (place, this) in (
        (each, trace) for each in order for trace in enumerate(processes[each])
    ):

        def shared(cycle: Round, this: Profiled = this) -> float:
            return max(common(this, processes[other][at]) for other, at in cycle.items())

        best = max((each for each in found if own not in each), key=shared, default=None)
        if best is not None and shared(best) > 0:
            best[own] = place
        else:
            found.append({own: place})
    return sorted(
        found, key=lambda cycle: min(processes[own][at].span for own, at in cycle.items())
    )
