"""What a step does, as a list of facts: which operator, in which part of the step, on how much."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

LEAST = 16
"""Elements of a tensor worth a fact: smaller ones are counters, factors and biases."""


class Fact(NamedTuple):
    """One operator of a step on one rank."""

    part: str
    """Part of the step: input, lookup, output, gradient, update, reduce, optimizer, dense."""
    kind: str
    """What it does: cat, copy, cast, all_to_all, lookup, ..."""
    num_bytes: int
    """Read and written; of a collective, sent. 0 where shapes do not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Facts of which one side has more than the other."""

    fact: Fact
    trained: int
    """How often it is in the real step."""
    synthesized: int

    def __str__(self) -> str:
        part, kind, num_bytes = self.fact
        return f"{part} {kind} of {num_bytes} B: {self.trained} real, {self.synthesized} ours"


_ADDED_UP = frozenset(("copy", "concatenation"))


def merged(facts: Iterable[Fact]) -> list[Fact]:
    """Return facts with the copies of a part as one, and concatenations that follow one another.

    A tensor is copied whole or in pieces, and columns are put together table by table. In the dense
    model, module by module, among outputs that arrive.
    """
    copied: Counter[tuple[str, str]] = Counter()
    found: list[Fact] = []
    for fact in facts:
        if fact.kind in _ADDED_UP:
            copied[fact[:2]] += fact.num_bytes
        elif found and fact.kind == "cat" and found[-1][:2] == fact[:2]:
            found[-1] = fact._replace(num_bytes=found[-1].num_bytes + fact.num_bytes)
        else:
            found.append(fact)
    return [*found, *(Fact(part, kind, size) for (part, kind), size in copied.items())]


def differences(trained: Iterable[Fact], synthesized: Iterable[Fact]) -> tuple[Difference, ...]:
    """Return what two steps do not have in common, whatever the order."""
    left, right = Counter(merged(trained)), Counter(merged(synthesized))
    return tuple(
        Difference(fact=fact, trained=left[fact], synthesized=right[fact])
        for fact in sorted({*left, *right})
        if left[fact] != right[fact]
    )


def order(facts: Sequence[Fact]) -> tuple[tuple[str, str], ...]:
    """Return collectives and lookups in their order: what the host issues one after the other."""
    return tuple((fact.part, fact.kind) for fact in facts if fact.kind in ORDERED)


ORDERED = frozenset((
    "all_to_all", "all_reduce", "reduce_scatter", "all_gather", "lookup", "lookup backward",
))  # fmt: skip
