"""The order of points: if time runs out, fine steps are missing, not whole ranges.

Every family has its points in *units*, lookups by the set of tables that is in memory. Units come
in rounds: a round has some of every family, by its weight. The first round is the least that a
profile needs.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, zip_longest
from typing import NamedTuple, TypeAlias, TypeVar

from planner.calibration.points import (
    CollectivePoint,
    EmbeddingPoint,
    Family,
    GemmPoint,
    OperatorPoint,
    Point,
    StreamPoint,
    TableSet,
)

Unit: TypeAlias = tuple[Point, ...]
"""Points that are measured one after another, because they share what is in memory."""
_ITEMS = TypeVar("_ITEMS")
_WEIGHTS: Mapping[Family, int] = {
    Family.HOST: 8,
    Family.STREAM: 25,  # five sizes of each operator: a fold without one can still be fitted
    Family.OPERATOR: 4,
    Family.GEMM: 4,  # of every type
    Family.COLLECTIVE: 50,  # ten sizes of each operation: a curve needs as many
}
"""Number of units in a round, by family."""
_SETS, _CPU_SETS = 6, 4
"""Number of sets of tables in a round; fewer on a CPU, which takes long for each."""


class Ordered(NamedTuple):
    """A family's units, the most informative first, and how many a round has."""

    family: str
    weight: int
    units: Sequence[Unit]


def ordered_families(grid: Mapping[Family, Sequence[Point]], *, on_cpu: bool) -> Iterator[Ordered]:
    """Yield the families of a grid."""
    for family, points in grid.items():
        if family is Family.EMBEDDING:
            sets = [tuple(some) for _, some in groupby(points, key=tables_in)]
            yield Ordered(family, _CPU_SETS if on_cpu else _SETS, sets)
            continue
        if family is Family.OPERATOR:
            sizes = [tuple(some) for some in grouped(points, _operator)]
            yield Ordered(family, _WEIGHTS[family], sizes)
            continue
        groups = list(grouped(points, _kind))
        even = family in {Family.STREAM, Family.COLLECTIVE}
        each = [spread(some) if even else some for some in groups]
        weight = _WEIGHTS[family] * (len(groups) if family is Family.GEMM else 1)
        yield Ordered(family, weight, [(point,) for point in in_turn(each)])


def in_rounds(families: Iterable[Ordered]) -> tuple[list[Unit], list[Unit]]:
    """Return the units of the first round, and all others, the most informative first."""
    keyed = sorted(
        (((index + 1) / weight, family, unit) for family, weight, units in families
         for index, unit in enumerate(units)),
        key=lambda entry: entry[0],
    )  # fmt: skip
    first = [unit for key, _, unit in keyed if key <= 1]
    return first, [unit for key, _, unit in keyed if key > 1]


def spread(items: Sequence[_ITEMS]) -> Iterator[_ITEMS]:
    """Yield items so that the first few are spread evenly, in van der Corput's order."""
    bits = max(len(items) - 1, 1).bit_length()
    for number in range(2**bits):
        place = int(f"{number:0{bits}b}"[::-1], 2)
        if place < len(items):
            yield items[place]


def in_turn(groups: Iterable[Iterable[_ITEMS]]) -> Iterator[_ITEMS]:
    """Yield the first of every group, then the second of every group, and so on."""
    missing = object()
    for row in zip_longest(*groups, fillvalue=missing):
        yield from (item for item in row if item is not missing)  # type: ignore[misc]


def grouped(points: Iterable[Point], key: Callable[[Point], Hashable]) -> Iterable[Sequence[Point]]:
    """Return points grouped by a key, in the order of each group's first one."""
    groups: dict[Hashable, list[Point]] = {}
    for point in points:
        groups.setdefault(key(point), []).append(point)
    return groups.values()


def _kind(point: Point) -> Hashable:
    """Return the properties of a point that are no sizes; of a collective, whether it is even."""
    if isinstance(point, StreamPoint):
        return point.op
    if isinstance(point, GemmPoint):
        return point.data_type, point.num_products > 1
    return (point.op, point.focus > 0) if isinstance(point, CollectivePoint) else None


def _operator(point: Point) -> Hashable:
    return point.operator if isinstance(point, OperatorPoint) else None


def tables_in(point: Point) -> TableSet | None:
    """Return the tables that a lookup needs in memory; None: it is no lookup."""
    return point.tables if isinstance(point, EmbeddingPoint) else None
