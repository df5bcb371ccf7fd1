"""Several runs of a model as one list, whose sizes hold for any batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

import numpy as np
from torch import nn

from costmodel.operators.operator_list import (
    BatchSize,
    DenseOperator,
    DenseParameter,
    EmbeddingOutput,
    OperatorList,
    OperatorTensor,
    Size,
)
from planner.operators.recording import RecordedOperator, RecordedTensor, Recording, element_type
from planner.operators.refusals import refused

_ORDER = (0, 1, 4, 2, 3)
"""Terms of a size in the order that they are tried: the first ones explain what several would."""
_ROUNDED = 1e-6
"""Coefficients are rounded to multiples of this: what is left is the solver's error."""
_MOST_NAMED = 8
"""Operators with sizes that nothing explains that are named."""


def combined(
    runs: Sequence[Recording], model: nn.Module, *, name: str, assumed: Sequence[str]
) -> OperatorList[Size]:
    """Return the list of several runs, the last of which only checks the others.

    Raises
    ------
    ReadingError
        They have other operators than each other; with the line where the first differs.

    """
    _check_alike(runs)
    sizes = _Sizes([each.size for each in runs])
    parameters = {path: i for i, (path, _) in enumerate(model.named_parameters())}
    places = {path: i for i, path in enumerate(runs[0].embeddings)}
    operators = [
        _operator(same, sizes, parameters, places)
        for same in zip(*(run.operators for run in runs), strict=True)
    ]
    trained = {each for operator in operators for each in operator.parameters}
    return OperatorList(
        name=name,
        operators=tuple(operators),
        parameters=tuple(
            DenseParameter(
                name=path,
                num_elements=each.numel(),
                data_type=element_type(each.dtype),
                trained=parameters[path] in trained,
            )
            for path, each in model.named_parameters()
        ),
        embeddings=tuple(
            EmbeddingOutput(
                name=path, tensor=sizes.tensor([run.embeddings[path] for run in runs], path)
            )
            for path in places
        ),
        recorded=max(each.size for each in runs),
        assumed=tuple(assumed),
        unexplained=sizes.named(),
    )


def _operator(
    same: Sequence[RecordedOperator],
    sizes: "_Sizes",
    parameters: Mapping[str, int],
    places: Mapping[str, int],
) -> DenseOperator[Size]:
    """Return the operator that all recordings are of, with sizes that follow the batch."""
    first = same[0]
    line = "/".join(PurePath(first.line).parts[-2:])  # the file may go to another machine
    where = first.name + (f" ({line})" if line else "")
    return DenseOperator(
        name=first.name,
        direction=first.direction,
        inputs=tuple(
            sizes.tensor(each, where) for each in zip(*(run.inputs for run in same), strict=True)
        ),
        outputs=tuple(
            sizes.tensor(each, where) for each in zip(*(run.outputs for run in same), strict=True)
        ),
        reads=tuple(places[each] for each in first.reads),
        parameters=tuple(parameters[each] for each in first.parameters),
        embeddings=tuple(places[each] for each in first.embeddings),
        transposed=first.transposed,
    )


def _check_alike(runs: Sequence[Recording]) -> None:
    for run in runs[1:]:
        if list(run.embeddings) != list(runs[0].embeddings):
            raise refused("its embedding modules are called otherwise from batch to batch")
        pairs = zip(runs[0].operators, run.operators, strict=False)
        other = next(((a, b) for a, b in pairs if a.form != b.form), None)
        if other is None and len(run.operators) == len(runs[0].operators):
            continue
        shorter = min(runs[0].operators, run.operators, key=len)
        a, b = other or (shorter[-1], shorter[-1])
        lines = dict.fromkeys(filter(None, (a.line, b.line)))
        at = " or ".join(lines) or f"the backward, after {a.name}"
        raise refused(
            f"what it runs depends on the data: from batch to batch the operators differ at {at}"
        )


@dataclass
class _Sizes:
    """Solves sizes of tensors, one of each distinct series over the runs."""

    runs: Sequence[BatchSize]
    known: dict[tuple[int, ...], Size] = field(default_factory=dict)
    wrong: dict[str, int] = field(default_factory=dict)
    """Sizes that no combination explains, by where they are."""

    def tensor(self, same: Sequence[RecordedTensor], where: str) -> OperatorTensor[Size]:
        """Return a tensor of all runs."""
        first = same[-1]
        shapes = zip(*(each.sizes for each in same), strict=True)
        return OperatorTensor(
            sizes=tuple(self._size(each, where) for each in shapes),
            data_type=first.data_type,
            storage=first.storage,
            expanded=first.expanded,
        )

    def _size(self, values: tuple[int, ...], where: str) -> Size:
        """Return the form that gives the recorded values; note where a recording has another."""
        if values not in self.known:
            self.known[values] = solved(self.runs[:-1], values[:-1])
        found = self.known[values]
        if any(found.at(run) != n for run, n in zip(self.runs, values, strict=True)):
            self.wrong[where] = self.wrong.get(where, 0) + 1
        return found

    def named(self) -> tuple[str, ...]:
        """Return where sizes are not explained."""
        most = sorted(self.wrong, key=self.wrong.__getitem__, reverse=True)
        named = [f"{self.wrong[each]} sizes of {each}" for each in most[:_MOST_NAMED]]
        rest = len(most) - _MOST_NAMED
        return (*named, f"those of {rest} other operators") if rest > 0 else tuple(named)


def solved(runs: Sequence[BatchSize], values: Sequence[int]) -> Size:
    """Return the combination of a batch's terms that comes closest to a size in all runs.

    Of terms that the runs do not tell apart, the first in ``_ORDER`` has all of it.
    """
    if len(set(values)) == 1:
        return Size(constant=values[0])
    terms = np.array([each.terms for each in runs], float)
    kept: list[int] = []
    for each in _ORDER:
        if np.linalg.matrix_rank(terms[:, [*kept, each]]) > len(kept):
            kept.append(each)
    found, *_ = np.linalg.lstsq(terms[:, kept], np.array(values, float), rcond=None)
    coefficients = [0.0] * len(_ORDER)
    for each, value in zip(kept, found, strict=True):
        coefficients[each] = round(round(float(value) / _ROUNDED) * _ROUNDED, 6)
    return Size(*coefficients)
