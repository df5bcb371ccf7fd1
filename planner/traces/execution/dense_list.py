"""A dense part as a list of operators, read from an execution trace of a real training step."""

import re
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

from costmodel.base.errors import InputError, Problem
from costmodel.base.limits import LONGEST_NAME, MOST_DIMENSIONS, MOST_OPERANDS
from costmodel.operators.operator_families import OperatorFamily, family_of
from costmodel.operators.operator_list import (
    BatchSize,
    DenseOperator,
    DenseParameter,
    ElementType,
    EmbeddingOutput,
    OperatorList,
    Size,
)
from costmodel.operators.products import check_form
from planner.show.format import count as counted
from planner.traces.execution.communications import group_sizes
from planner.traces.execution.dense_items import DenseItem, DenseItems, dense_items
from planner.traces.execution.dense_sizes import TracedMemory
from planner.traces.execution.operator_trace import OperatorTrace, operator_traces
from planner.traces.execution.step_work import work_of_step
from planner.traces.execution.trace_operators import element_type, operator_with, results
from planner.traces.execution.walk import Gradient, RankWork
from planner.traces.trace_files import read_documents

_SHOWN = 100
"""Characters of an operator's name that are shown."""
_OPTIMIZER = re.compile(r"Optimizer\.step#(\w+)\.step")


def traced_operators(path: str | Path, samples: int | None = None) -> OperatorList[Size]:
    """Return what the dense part of a traced step runs, of the first rank.

    Parameters
    ----------
    path
        Execution traces of all ranks: a file, a folder or an archive.
    samples
        Those of a rank's batch in the step: sizes of tensors computed of the batch that are
        multiples of it grow with a batch. None: the commonest first size of what forward is given.

    Raises
    ------
    InputError
        They cannot be used, hold no dense part, or no batch of so many samples.

    """
    source = str(path)
    traces = operator_traces(read_documents(path), source)
    work = work_of_step(traces, source)[0]
    found = dense_items(work)
    if not found.items:
        raise InputError(source, (_nothing(),))
    gradients = [each for each in work.gradients if each.tensor.shape not in found.table_shapes]
    memory = TracedMemory(found, gradients, samples or 0)
    if samples is None:
        memory.infer_samples()
    memory.grow()
    if samples and not memory.growing:
        message = f"nothing that the model is given has {samples:,} rows, or a multiple of them"
        hint = "`--batch-size` is the samples of a rank's batch in the traced step"
        raise InputError(source, (Problem(message=message, hint=hint),))
    return _List(traces, work, found, gradients, memory).made(asked=samples is not None)


class _List:
    """Makes the list of a step's dense part."""

    def __init__(
        self,
        traces: Sequence[OperatorTrace],
        work: RankWork,
        found: DenseItems,
        gradients: Sequence[Gradient],
        memory: TracedMemory,
    ) -> None:
        self.traces = traces
        self.work = work
        self.found = found
        self.gradients = gradients
        self.memory = memory
        read = dict.fromkeys(number for item in found.items for number in item.reads)
        self.embeddings = {number: found.embeddings[number] for number in read}
        self.places = {number: place for place, number in enumerate(read)}
        self.group_sizes = group_sizes(work.ops)
        self.incomplete: Counter[str] = Counter()
        """Operators that multiply what the trace does not have, or have more than a list holds."""

    def made(self, *, asked: bool) -> OperatorList[Size]:
        """Return it; ``asked``: the user said how many samples the batch has."""
        listed = self._operators()
        parameters = self._ready({item.place for item, _ in listed})
        sent = self._sent()
        operators = tuple(
            replace(
                operator,
                reads=tuple(self.places[each] for each in item.reads),
                parameters=tuple(parameters.get(item.place, ())),
                embeddings=tuple(sent.get(item.place, ())),
            )
            for item, operator in listed
        )
        try:
            return OperatorList(
                name=self.traces[0].source,
                operators=operators,
                parameters=tuple(map(_parameter, count(1), self.gradients)),
                embeddings=tuple(self._embeddings()),
                recorded=BatchSize(self.memory.samples),
                assumed=tuple(self._assumed(asked=asked)),
                unexplained=tuple(
                    f"{counted(number, 'call')} of {name} left out, whose tensors are not all there"
                    for name, number in self.incomplete.items()
                ),
            )
        except ValueError as error:
            raise InputError(self.traces[0].source, (Problem(message=str(error)),)) from error

    def _operators(self) -> list[tuple[DenseItem, DenseOperator[Size]]]:
        listed = []
        for item in self.found.items:
            operator = operator_with(
                item.op, item.direction, results(item.op), partial(self.memory.tensor, item)
            )
            if _is_whole(operator):
                listed.append((item, replace(operator, ranks=self._ranks(item))))
            else:
                self.incomplete[item.op.name[:_SHOWN]] += 1
        if not listed:
            raise InputError(self.traces[0].source, (_nothing(),))
        return listed

    def _ranks(self, item: DenseItem) -> int:
        """Return the ranks of a collective, those traced where it does not say it; 1 of others."""
        return self.group_sizes.get(item.op.id, len(self.traces)) if _is_collective(item) else 1

    def _ready(self, places: Container[int]) -> dict[int, list[int]]:
        """Return the parameters whose gradients are there once a kernel ends, by its place.

        It is what wrote the gradient, or else what runs before autograd hands it on.
        """
        found: dict[int, list[int]] = {}
        items = [item for item in self.found.items if item.place in places]
        for number, gradient in enumerate(self.gradients):
            before = [item for item in items if item.place < gradient.place]
            writers = (
                item.place
                for item in reversed(before)
                if any(item.number(each) == gradient.memory for each in results(item.op))
            )
            place = next(writers, before[-1].place if before else items[-1].place)
            found.setdefault(place, []).append(number)
        return found

    def _sent(self) -> dict[int, list[int]]:
        """Return the embeddings whose gradients are there once a kernel ends, by its place.

        Those of one size with the gradient; all others, with what goes on to tables last.
        """
        found: dict[int, list[int]] = {}
        left = {self.places[number]: each.num_elements for number, each in self.embeddings.items()}
        for place, tensors in self.found.sent.items():
            size = sum(each.num_elements for each in tensors)
            alike = [each for each, elements in left.items() if elements == size]
            found[place] = alike
            left = {each: elements for each, elements in left.items() if each not in alike}
        found.setdefault(max(found, default=self.found.items[-1].place), []).extend(left)
        return found

    def _embeddings(self) -> Iterator[EmbeddingOutput[Size]]:
        for number, tensor in self.embeddings.items():
            data_type = element_type(tensor)
            if data_type is not None:
                growing = self.memory.first_multiple(tensor)
                yield EmbeddingOutput(
                    name=f"embeddings {self.places[number] + 1}",
                    tensor=self.memory.sized(number, tensor, data_type, growing),
                )

    def _assumed(self, *, asked: bool) -> Iterator[str]:
        """Yield what was assumed in reading it, as sentences."""
        ranks = len(self.traces)
        yield "one traced step" + (f", that of rank 0 of {ranks}" if ranks > 1 else "")
        if self.memory.samples:
            by = "" if asked else ", the first size of most of what the model is given"
            samples = counted(self.memory.samples, "sample")
            yield (
                f"its batch has {samples}{by}: multiples of them grow with the batch, in tensors "
                "that are computed of it"
            )
        else:
            yield (
                "how many samples its batch has is not known: sizes are those of that step at any "
                "batch (`trace-model --batch-size` says it)"
            )
        joined = {item.op.id for item in self.found.items if _is_collective(item)}
        if joined - self.group_sizes.keys():
            yield f"collectives that do not say of which ranks they are, are of all {ranks}"
        names = (_OPTIMIZER.match(each.name) for each in self.work.ops)
        optimizer = next((match[1] for match in names if match), None)
        if optimizer is not None:
            yield f"its optimizer is {optimizer} (`dense: optimizer` of the workload says it)"


def _is_collective(item: DenseItem) -> bool:
    return family_of(item.op.name) is OperatorFamily.COLLECTIVE


def _nothing() -> Problem:
    hint = "record a whole training step of the model, forward and backward"
    return Problem(message="no dense part is in it", hint=hint)


def _is_whole(operator: DenseOperator[Size]) -> bool:
    """Return whether a list can hold an operator, and has what it multiplies."""
    tensors = (*operator.inputs, *operator.outputs)
    within = len(operator.name) <= LONGEST_NAME and len(tensors) <= MOST_OPERANDS
    if not within or any(len(each.sizes) > MOST_DIMENSIONS for each in tensors):
        return False
    try:
        check_form(operator)
    except ValueError:
        return False
    return True


def _parameter(number: int, gradient: Gradient) -> DenseParameter:
    """Return the parameter of a gradient; a trace has no names of parameters."""
    return DenseParameter(
        name=f"parameter {number}",
        num_elements=gradient.tensor.num_elements,
        data_type=element_type(gradient.tensor) or ElementType.FLOAT32,
    )
