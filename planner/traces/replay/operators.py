"""The operators of a profiled rank with their host overheads, as Algorithm 1 wants them."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from costmodel.base.units import Seconds
from planner.traces.kineto import RankTrace
from planner.traces.kineto_events import Call, Scope, is_collective, starts_collective
from planner.traces.replay.algorithm1 import Launch, Operator, Stream
from planner.traces.replay.matching import Key, Member


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOperators:
    """The operators of one rank, and where its steps begin and end."""

    operators: Sequence[Operator]
    steps: Mapping[int, tuple[int, int]]
    """Indices of the operators at begin and end of a step, by the profiler's number."""


def rank_operators(
    trace: RankTrace,
    members: Mapping[Key, Member],
    blocked: Sequence[tuple[Seconds, Seconds]] = (),
) -> RankOperators:
    """Return a rank's outermost operators, over all threads in one order.

    Host overheads are the host's own work. Time in which the device blocks it (``blocked``, start
    and end) is left out: with it, host time would be the measured time.
    """
    trace = _without_blocked(trace, blocked)
    launched: dict[int, list[int]] = defaultdict(list)
    for index, activity in enumerate(trace.activities):
        launched[activity.correlation].append(index)
    result = [_before_the_trace(trace, members)]
    steps: dict[int, tuple[int, int]] = {}
    begins: dict[int, int] = {}
    now: Seconds = 0.0
    for span in sorted(_spans(trace), key=lambda span: (span.start, span.order)):
        operator = _operator(span, trace, members, launched)
        result.append(replace(operator, before=max(0.0, span.start - now)))
        now = max(now, span.end)
        if span.step is not None and span.order == _BEGINS:
            begins[span.step] = len(result) - 1
        elif span.step is not None and span.step in begins:
            steps[span.step] = (begins[span.step], len(result) - 1)
    return RankOperators(operators=result, steps=steps)


_ENDS, _BEGINS, _OPERATOR = range(3)


@dataclass(slots=True)
class _Span:
    """A stretch of host time: an operator with the calls in it, or a step's boundary."""

    name: str
    start: Seconds
    end: Seconds
    calls: list[Call]
    order: int = _OPERATOR
    step: int | None = None


def _spans(trace: RankTrace) -> Iterator[_Span]:
    """Yield outermost operators, then two marks for each step.

    A call outside of any operator is one of its own.
    """
    current: dict[int, _Span] = {}
    outermost: list[_Span] = []
    events: list[tuple[Seconds, int, Scope | Call]] = [(c.start, 1, c) for c in trace.calls]
    events += [(scope.start, 0, scope) for scope in trace.scopes if not scope.annotation]
    for start, _, event in sorted(events, key=lambda each: each[:2]):
        span = current.get(event.thread)
        inside = span is not None and start < span.end
        if isinstance(event, Call):
            if span is not None and inside:
                span.calls.append(event)
                span.end = max(span.end, event.end)
            else:
                outermost.append(_Span(event.name, start, event.end, [event]))
        elif not inside:
            current[event.thread] = _Span(event.name, start, event.end, [])
            outermost.append(current[event.thread])
    yield from outermost
    for number, start, end in trace.steps:
        yield _Span("step", start, start, [], _BEGINS, number)
        yield _Span("step", end, end, [], _ENDS, number)


def _operator(
    span: _Span,
    trace: RankTrace,
    members: Mapping[Key, Member],
    launched: Mapping[int, Sequence[int]],
) -> Operator:
    """Return a span as an operator: its host time around and between what it launches.

    A CUDA graph is launched in one call, with its first kernel.
    """
    calls = [call for call in span.calls if call.correlation in launched]
    waits = any("StreamWaitEvent" in c.name and not starts_collective(c) for c in span.calls)
    if not calls:
        return Operator(name=span.name, tail=span.end - span.start, waits_for_collective=waits)
    ends = [*(call.start for call in calls[1:]), calls[-1].end]
    return Operator(
        name=span.name,
        lead=calls[0].start - span.start,
        tail=max(0.0, span.end - calls[-1].end),
        launches=tuple(
            replace(
                _launch(trace, index, members),
                call_time=0.0 if later else call.end - call.start,
                gap=0.0 if later else max(0.0, until - call.end),
            )
            for call, until in zip(calls, ends, strict=True)
            for later, index in enumerate(launched[call.correlation])
        ),
        waits_for_collective=waits,
    )


def _launch(trace: RankTrace, index: int, members: Mapping[Key, Member]) -> Launch:
    """Return the launch of an activity, with its collective if it is a member."""
    activity = trace.activities[index]
    member = members.get((trace.rank, index))
    return Launch(
        stream=Stream.COMMUNICATION if is_collective(activity) else Stream.COMPUTE,
        seconds=member.seconds if member else activity.end - activity.start,
        collective=member.collective if member else None,
    )


def _without_blocked(trace: RankTrace, blocked: Sequence[tuple[Seconds, Seconds]]) -> RankTrace:
    """Return a trace whose host clock stands still while the host is blocked."""
    starts = [start for start, _ in blocked]
    passed = [0.0]
    for start, end in blocked:
        passed.append(passed[-1] + end - start)

    def own(at: Seconds) -> Seconds:
        before = bisect_right(starts, at)
        if not before:
            return at
        start, end = blocked[before - 1]
        return at - passed[before - 1] - (min(at, end) - start)

    return replace(
        trace,
        calls=[replace(c, start=own(c.start), end=own(c.end)) for c in trace.calls],
        scopes=[replace(s, start=own(s.start), end=own(s.end)) for s in trace.scopes],
        steps=[(number, own(start), own(end)) for number, start, end in trace.steps],
    )


def _before_the_trace(trace: RankTrace, members: Mapping[Key, Member]) -> Operator:
    """Return an operator that launches what was launched before the trace, in no host time."""
    calls = {call.correlation for call in trace.calls}
    earlier = [i for i, a in enumerate(trace.activities) if a.correlation not in calls]
    launches = tuple(_launch(trace, index, members) for index in earlier)
    return Operator(name="launched before the trace", launches=launches)
