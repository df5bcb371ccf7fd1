"""Facts of columns, and what is told to be padding."""

import numpy as np
import pytest

from planner.inspection.block_ids import RawIds
from planner.inspection.column_facts import ColumnFacts, told_padding


def rows_of(matrix: object) -> RawIds:
    rows = np.asarray(matrix)
    return RawIds(keys=rows.reshape(-1), lengths=np.full(len(rows), rows.shape[1]))


def padded(padding: int, *, front: bool = False, rows: int = 200, width: int = 8) -> np.ndarray:
    random = np.random.default_rng(0)
    made = np.full((rows, width), padding)
    for row in made:
        length = random.integers(1, width + 1)
        row[width - length if front else 0 :][:length] = random.integers(1, 50, length)
    return made


@pytest.mark.parametrize("front", [True, False])
@pytest.mark.parametrize("padding", [0, 999])
def test_what_fills_the_ends_of_lists_is_padding(padding: int, *, front: bool) -> None:
    assert told_padding(rows_of(padded(padding, front=front))) == padding


def test_what_is_anywhere_is_none() -> None:
    random = np.random.default_rng(0)
    assert told_padding(rows_of(random.integers(0, 50, (200, 8)))) is None
    assert told_padding(rows_of(np.minimum(random.zipf(1.5, (200, 8)), 50))) is None
    assert told_padding(rows_of(np.full((200, 8), 7))) is None
    lengths = random.integers(0, 4, 200)
    assert told_padding(RawIds(keys=np.zeros(lengths.sum(), int), lengths=lengths)) is None
    assert told_padding(RawIds(keys=np.zeros(200, int), lengths=None)) is None


def test_padding_and_negative_ids_are_no_lookups() -> None:
    facts = ColumnFacts("x", 0, is_listed=True, padding=0)
    ids = facts.take(rows_of([[1, 2, 0], [3, -1, 0], [0, 0, 0]]), 3)
    assert ids is not None
    assert (ids.keys.tolist(), ids.lengths.tolist()) == ([1, 2, 3], [2, 1, 0])
    assert (facts.num_padding, facts.num_ids, facts.least, facts.largest) == (6, 3, -1, 3)


def test_samples_without_an_id_are_missing() -> None:
    facts = ColumnFacts("x", 0)
    facts.take(RawIds(keys=np.array([5, 6]), lengths=np.array([1, 0, 1])), 3)
    facts.take(RawIds(keys=np.array([7]), lengths=None), 1)
    assert (facts.num_missing, facts.num_samples, facts.num_ids) == (1, 4, 3)


def test_fractions_end_the_counting_and_one_is_kept() -> None:
    facts = ColumnFacts("x", 0)
    assert facts.take(RawIds(keys=np.array([1.0, 2.5]), lengths=None, is_whole=False), 2) is None
    assert facts.take(RawIds(keys=np.array([1]), lengths=None), 1) is None
    assert (facts.is_whole, facts.fraction) == (False, 2.5)


def test_counting_up_goes_over_the_ends_of_blocks() -> None:
    facts = ColumnFacts("x", 0)
    facts.take(RawIds(keys=np.arange(5, 8), lengths=None), 3)
    facts.take(RawIds(keys=np.arange(8, 10), lengths=None), 2)
    assert facts.counts_up
    facts.take(RawIds(keys=np.arange(11, 12), lengths=None), 1)
    assert not facts.counts_up


def test_unsigned_bits_are_large_numbers() -> None:
    bits = np.array([2**64 - 1, 3], np.uint64).view(np.int64)
    facts = ColumnFacts("x", 0)
    ids = facts.take(RawIds(keys=bits, lengths=None, unsigned=True), 2)
    assert ids is not None
    assert (len(ids.keys), facts.least, facts.largest) == (2, 3, 2**64 - 1)
