"""Several runs of a model as one list, whose sizes hold for any batch."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath

import numpy as np
from numpy.typing import NDArray
from torch import nn

from costmodel.operators.operator_list import (
    BatchSize,
    DenseOperator,
    DenseParameter,
    EmbeddingOutput,
    OperatorList,
    OperatorTensor,
    SequenceSize,
    SequenceTerms,
    Size,
)
from planner.operators.recording import RecordedOperator, RecordedTensor, Recording, element_type
from planner.operators.refusals import refused

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
    groups = grouped(runs)
    sizes = Sizes([size_of(each, groups) for each in runs])
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
        recorded=max(sizes.runs),
        groups=groups,
        assumed=(*assumed, *sizes.not_told_apart(groups)),
        unexplained=sizes.named(),
    )


def grouped(runs: Sequence[Recording]) -> tuple[tuple[str, ...], ...]:
    """Return the features whose sequences have one length in all runs, together."""
    alike: dict[tuple[SequenceSize | None, ...], list[str]] = {}
    for feature in runs[0].sequences:
        own = tuple(run.sequences.get(feature) for run in runs)
        alike.setdefault(own, []).append(feature)
    return tuple(map(tuple, alike.values()))


def size_of(run: Recording, groups: Sequence[Sequence[str]]) -> BatchSize:
    """Return the batch of a run."""
    return BatchSize(
        run.samples,
        tuple(
            SequenceSize(
                max(run.sequences[each].longest for each in group),
                sum(run.sequences[each].ids for each in group),
            )
            for group in groups
        ),
    )


def _operator(
    same: Sequence[RecordedOperator],
    sizes: "Sizes",
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
        causal=first.causal,
        ranks=first.ranks,
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
            f"what it runs depends on the data: from batch to batch the operators differ at {at}",
            "recurrent layers run as often as sequences are long on a CPU: batches whose sequences "
            "are padded to one length tell what that many steps take",
        )


@dataclass
class Sizes:
    """Solves sizes of tensors, one of each distinct series over the runs; the last run checks."""

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
        if values not in self.known:
            self.known[values] = self.solved(values[:-1])
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

    @cached_property
    def _terms(self) -> NDArray[np.float64]:
        """Terms of the runs that sizes are solved of, shape (runs, terms)."""
        return np.array([each.terms for each in self.runs[:-1]], dtype=np.float64)

    @cached_property
    def _kept(self) -> list[int]:
        """Terms that the runs tell apart: the first ones have what several would explain.

        Samples come first, then all ids of sequences, then the longest ones.
        """
        count = self._terms.shape[1]
        kept: list[int] = []
        for each in (0, 1, *range(4, count, 3), *range(2, count, 3), *range(3, count, 3)):
            if np.linalg.matrix_rank(self._terms[:, [*kept, each]]) > len(kept):
                kept.append(each)
        return kept

    def not_told_apart(self, groups: Sequence[Sequence[str]]) -> Iterator[str]:
        """Yield the groups of sequences whose longest one is as long in all runs."""
        for number, group in enumerate(groups):
            if not {2 + 3 * number, 3 + 3 * number} <= set(self._kept):
                longest = self.runs[-1].sequences[number].longest
                yield (
                    f"the longest sequence of {', '.join(group)} has {longest} ids, as in all "
                    "batches given"
                )

    def solved(self, values: Sequence[int]) -> Size:
        """Return the combination of terms that comes closest to a size in all runs but the last."""
        if len(set(values)) == 1:
            return Size(constant=values[0])
        found, *_ = np.linalg.lstsq(
            self._terms[:, self._kept], np.array(values, dtype=np.float64), rcond=None
        )
        coefficients = [0.0] * self._terms.shape[1]
        for each, value in zip(self._kept, found, strict=True):
            coefficients[each] = round(round(float(value) / _ROUNDED) * _ROUNDED, 6)
        constant, samples, *rest = coefficients
        groups = [SequenceTerms(*rest[at : at + 3]) for at in range(0, len(rest), 3)]
        while groups and not any(groups[-1]):
            groups.pop()
        return Size(constant, samples, tuple(groups))
