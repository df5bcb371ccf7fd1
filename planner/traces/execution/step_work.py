"""The step of a job's execution traces that is read: the last one in which all ranks work."""

from collections.abc import Sequence

from costmodel.base.errors import InputError, Problem
from planner.traces.execution.operator_trace import OperatorTrace
from planner.traces.execution.walk import RankWork, TracedWork, TracedWorkKind, rank_work


def work_of_step(traces: Sequence[OperatorTrace], source: str) -> list[RankWork]:
    """Return the work of every rank in the last step that has some on all ranks.

    Raises
    ------
    InputError
        No step has, or the ranks start different collectives.

    """
    works = _last_works(traces)
    if works is None:
        hint = "record a whole training step, between `start()` and `stop()` of the observer"
        message = "the traces hold no work: no step has kernels or collectives on all ranks"
        raise InputError(source, (Problem(message=message, hint=hint),))
    expected = collectives(works[0])
    for trace, work in zip(traces, works, strict=True):
        mine = collectives(work)
        if [c.collective for c in mine] != [c.collective for c in expected]:
            message = (
                f"`{trace.source}` starts {len(mine)} collectives, "
                f"`{traces[0].source}` {len(expected)}, or others"
            )
            hint = "give traces of the same step of one job"
            raise InputError(source, (Problem(message=message, hint=hint),))
    return works


def _last_works(traces: Sequence[OperatorTrace]) -> list[RankWork] | None:
    """Return the work of all ranks in the last of their steps in which all have some."""
    steps = [dict(trace.steps) for trace in traces]
    for number in sorted(set(steps[0]).intersection(*steps), reverse=True):
        works = [rank_work(mine[number]) for mine in steps]
        if all(work.items for work in works):
            return works
    return None


def collectives(work: RankWork) -> list[TracedWork]:
    """Return the collectives among a rank's work."""
    return [item for item in work.items if item.kind is TracedWorkKind.COLLECTIVE]
