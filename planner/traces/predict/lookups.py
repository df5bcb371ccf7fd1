"""Lookups of FBGEMM in execution traces, timed by the tables that a workload file describes.

A trace has the number of ids that a launch looks up, not how often they repeat, nor the rows of
each of its tables. Every launch is taken to have the share of what lookups of all tables move that
it has of the elements they gather; those of replicated tables take as long as others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from costmodel.base.errors import InputError, Problem
from costmodel.domain.hardware import HardwareProfile
from costmodel.domain.workload import Workload
from costmodel.kernels.embedding import embedding_estimate
from costmodel.operators.operator_families import OperatorFamily
from planner.traces.execution.dense_items import is_integer
from planner.traces.execution.operator_trace import TraceOp
from planner.traces.execution.walk import RankWork, is_lookup, is_lookup_backward
from planner.traces.predict.kernel_models import Timed

_MOST_APART = 2.0
"""Times that traces may look up more elements than tables have, or fewer: batches vary."""


class TracedLookup(NamedTuple):
    """What one lookup of a trace gathers."""

    op: TraceOp
    samples: int
    """Rows of its output, of samples that its tables are looked up for; 0: it is not pooled."""
    elements: float
    """Elements of all rows looked up, repeated ones as often as they are."""


def launch_of(op: TraceOp) -> TracedLookup | None:
    """Return a lookup's launch; None: its tensors are not those of one.

    Pooled, its output has a row per sample and the columns of all features side by side; ids and
    then offsets, one for each bag and one more, are next to each other among its arguments
    (fbgemm_gpu, codegen/training/python/split_embedding_codegen_lookup_invoker.template).
    """
    if not op.outputs or len(op.outputs[0].shape) != 2:
        return None
    rows, columns = op.outputs[0].shape
    lists = [each.shape[0] for each in op.inputs if len(each.shape) == 1 and is_integer(each)]
    for ids, offsets in pairwise(lists):
        features, rest = divmod(offsets - 1, max(rows, 1))
        if features > 0 and not rest and features + 1 in lists:
            return TracedLookup(op, rows, ids * columns / features)
    return TracedLookup(op, 0, float(rows * columns))


@dataclass(frozen=True, slots=True)
class TracedLookups:
    """Times the lookups of traces."""

    workload: Workload
    hardware: HardwareProfile
    world_size: int

    def check(self, works: Sequence[RankWork], source: str) -> None:
        """Raise if the traces look other tables up than the workload has.

        Raises
        ------
        InputError
            They gather far more elements, or far fewer, than its tables have for as many samples.

        """
        found = [each for work in works for each in _launches(work)]
        gathered, expected = sum(each.elements for each in found), self._elements(found)
        if gathered and not 1 / _MOST_APART <= gathered / expected <= _MOST_APART:
            message = (
                f"its lookups gather {gathered:,.0f} elements of rows in a step, and the tables of "
                f"`--workload` {expected:,.0f} for as many samples"
            )
            hint = "give the tables that were trained, with their `pooling_factor` and batch"
            raise InputError(source, (Problem(message=message, hint=hint),))

    def times(self, work: RankWork) -> list[Timed | None]:
        """Return the times of a rank's lookups and their backwards; None: it is none of them."""
        waiting: list[TracedLookup] = []
        times: list[Timed | None] = []
        for op in (item.op for item in work.items):
            launch: TracedLookup | None = None
            if op is not None and is_lookup(op.name):
                launch = launch_of(op)
                waiting += [launch] if launch else []
            elif op is not None and is_lookup_backward(op.name) and waiting:
                launch = _of_gradient(op, waiting)
                waiting.remove(launch)
            times.append(None if launch is None or op is None else self._timed(op, launch))
        return times

    def _timed(self, op: TraceOp, launch: TracedLookup) -> Timed:
        backward = op is not launch.op
        estimates = embedding_estimate(
            self.workload.tables,
            num_samples=self._samples(launch),
            optimizer=self.workload.optimizer,
            hardware=self.hardware,
            output_type=self.workload.output_type,
            share=launch.elements / self._elements([launch]),
        )
        return Timed(
            name=op.name,
            family=OperatorFamily.SCATTER if backward else OperatorFamily.GATHER,
            num_bytes=launch.elements * launch.op.outputs[0].element_bytes,
            estimate=estimates[backward],
        )

    def _samples(self, launch: TracedLookup) -> int:
        return launch.samples or self.workload.local_batch_size * self.world_size

    def _elements(self, launches: Sequence[TracedLookup]) -> float:
        """Return the elements that all tables have for the samples of the largest launch."""
        samples = max((self._samples(each) for each in launches), default=0)
        tables = self.workload.tables
        return samples * sum(each.pooling_factor * each.embedding_dim for each in tables)


def _launches(work: RankWork) -> list[TracedLookup]:
    ops = (item.op for item in work.items)
    found = (launch_of(op) for op in ops if op is not None and is_lookup(op.name))
    return [each for each in found if each is not None]


def _of_gradient(op: TraceOp, waiting: Sequence[TracedLookup]) -> TracedLookup:
    """Return the lookup whose output has a gradient's shape: the last such one, or the last."""
    shapes = {each.shape for each in op.inputs}
    alike = (each for each in reversed(waiting) if each.op.outputs[0].shape in shapes)
    return next(alike, waiting[-1])
