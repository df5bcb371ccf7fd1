from collections.abc import Sequence

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

from costmodel.operators.operator_list import BatchSize, Size
from planner.operators.combining import solved
from planner.operators.made_batches import SIZES

RUNS = SIZES[:-1]


@pytest.mark.parametrize(
    "size",
    [
        Size(constant=7),
        Size(samples=3),
        Size(constant=-1, longest=1),
        Size(positions=2, ids=-1),
        Size(constant=4, samples=0.5, longest=2, positions=1, ids=3),
    ],
)
def test_a_combination_is_found_again(size: Size) -> None:
    runs = [each._replace(samples=2 * each.samples) for each in RUNS]
    assert solved(runs, [size.at(each) for each in runs]) == size


@pytest.mark.parametrize(
    ("runs", "values", "expected"),
    [
        # all sequences of 5 ids: what could be of several terms is of samples
        ([BatchSize(n, 5, 5 * n) for n in (2, 4, 7)], (10, 20, 35), Size(samples=5)),
        ([BatchSize(n) for n in (2, 4, 7)], (3, 5, 8), Size(constant=1, samples=1)),
    ],
)
def test_terms_that_runs_do_not_tell_apart_are_the_first(
    runs: Sequence[BatchSize], values: Sequence[int], expected: Size
) -> None:
    assert solved(runs, values) == expected


def test_what_is_no_combination_comes_near() -> None:
    runs = [BatchSize(n) for n in (10, 20, 40)]
    found = solved(runs, [101, 199, 401])
    assert [found.at(each) for each in runs] == pytest.approx([100, 200, 400], abs=2)
