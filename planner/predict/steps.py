"""What builders of graphs share: the work of all ranks, kernel times, what no model knows."""

from collections.abc import Sequence
from dataclasses import dataclass

from costmodel.errors import InputError, Problem
from costmodel.hardware import Estimate, Source
from costmodel.units import BytesPerSecond, Seconds
from planner.predict.calls import KernelCall
from planner.predict.models import KernelModel
from planner.predict.trace import OperatorTrace
from planner.predict.walk import RankWork, Work, WorkKind, rank_work

NUM_REPEATS = 3
"""How often the step is repeated in a graph: the last time is the steady state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A kernel with its predicted time."""

    call: KernelCall
    estimate: Estimate
    known: bool
    """Whether a model knows the operator; else its time is a guess from its bytes."""


class Timer:
    """Times kernels by a model, and by their bytes where it does not know them."""

    def __init__(self, model: KernelModel, floor: Seconds, bandwidth: BytesPerSecond) -> None:
        self._model = model
        self._floor = floor
        self._bandwidth = bandwidth

    def time(self, call: KernelCall) -> Timed:
        """Return the time of a kernel."""
        estimate = self._model.kernel(call)
        if estimate is not None:
            return Timed(call=call, estimate=estimate, known=True)
        seconds = self._floor + call.num_bytes / self._bandwidth
        guess = Estimate(
            seconds=seconds, bound_by="bytes of its tensors", source=Source.ROOFLINE,
            extrapolated=True,
        )  # fmt: skip
        return Timed(call=call, estimate=guess, known=False)


def work_of_step(traces: Sequence[OperatorTrace], source: str) -> list[RankWork]:
    """Return what every rank does in the last step of its trace.

    Raises
    ------
    InputError
        The ranks start different collectives.

    """
    works = [rank_work(trace.steps[-1][1]) for trace in traces]
    expected = _collectives(works[0])
    for trace, work in zip(traces, works, strict=True):
        mine = _collectives(work)
        if [c.collective for c in mine] != [c.collective for c in expected]:
            message = (
                f"`{trace.source}` starts {len(mine)} collectives, "
                f"`{traces[0].source}` {len(expected)}, or others"
            )
            hint = "give traces of the same step of one job"
            raise InputError(source, (Problem(message=message, hint=hint),))
    return works


def _collectives(work: RankWork) -> list[Work]:
    return [item for item in work.items if item.kind is WorkKind.COLLECTIVE]
