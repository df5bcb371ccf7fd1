from collections.abc import Sequence

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

from costmodel.operators.operator_list import BatchSize, SequenceSize, SequenceTerms, Size
from planner.operators.combining import Sizes, grouped, size_of
from planner.operators.made_batches import SIZES, sizes_apart
from planner.operators.recording import Recording

ONE = [BatchSize(n, (SequenceSize(longest, ids),)) for n, longest, ids, _ in SIZES]
TWO = [BatchSize(n, tuple(SequenceSize(*own) for own in each)) for n, _, _, each in sizes_apart(2)]


def of(longest: float = 0.0, positions: float = 0.0, ids: float = 0.0) -> tuple[SequenceTerms]:
    return (SequenceTerms(longest, positions, ids),)


@pytest.mark.parametrize(
    ("runs", "size"),
    [
        (ONE, Size(constant=7)),
        (ONE, Size(samples=3)),
        (ONE, Size(-1, 0, of(longest=1))),
        (ONE, Size(0, 0, of(positions=2, ids=-1))),
        (ONE, Size(4, 0.5, of(2, 1, 3))),
        (TWO, Size(4, 0.5, (SequenceTerms(2, 1, 3), SequenceTerms(5, 4, -1)))),
        (TWO, Size(0, 0, (SequenceTerms(), SequenceTerms(positions=64)))),
        (TWO, Size(0, 0, (SequenceTerms(ids=1),))),
    ],
)
def test_a_combination_is_found_again(runs: Sequence[BatchSize], size: Size) -> None:
    assert Sizes(runs).solved([size.at(each) for each in runs[:-1]]) == size


@pytest.mark.parametrize(
    ("runs", "values", "expected"),
    [
        # all sequences of 5 ids: what could be of several terms is of samples
        (
            [BatchSize(n, (SequenceSize(5, 5 * n),)) for n in (2, 4, 7, 9)],
            (10, 20, 35),
            Size(samples=5),
        ),
        ([BatchSize(n) for n in (2, 4, 7, 9)], (3, 5, 8), Size(constant=1, samples=1)),
    ],
)
def test_terms_that_runs_do_not_tell_apart_are_the_first(
    runs: Sequence[BatchSize], values: Sequence[int], expected: Size
) -> None:
    assert Sizes(runs).solved(values) == expected


def test_what_is_no_combination_comes_near() -> None:
    runs = [BatchSize(n) for n in (10, 20, 40, 60)]
    found = Sizes(runs).solved([101, 199, 401])
    assert [found.at(each) for each in runs[:3]] == pytest.approx([100, 200, 400], abs=2)


def run(samples: int, **sequences: tuple[int, int]) -> Recording:
    own = {name: SequenceSize(*each) for name, each in sequences.items()}
    return Recording(samples, own, [], {}, made_loss=False)


def test_features_whose_sequences_are_alike_in_all_runs_are_one_group() -> None:
    runs = [
        run(8, seen=(5, 20), bought=(5, 20), other=(5, 20)),
        run(9, seen=(6, 30), bought=(4, 25), other=(6, 30)),
    ]
    assert grouped(runs) == (("seen", "other"), ("bought",))
    assert size_of(runs[1], grouped(runs)) == BatchSize(
        9, (SequenceSize(6, 2 * 30), SequenceSize(4, 25))
    )
