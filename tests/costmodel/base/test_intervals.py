import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.base.intervals import covered

spans = st.tuples(st.integers(0, 3), st.integers(0, 20), st.integers(0, 20))


def seconds(*given: tuple[int, float, float], num_owners: int = 2) -> list[float]:
    owners, begins, ends = (np.array(each) for each in zip(*given, strict=True))
    total: list[float] = covered(owners, begins, ends, num_owners).tolist()
    return total


def test_by_hand() -> None:
    # owner 0: 1-3 and 2-5 are 4 together, and 7-8; owner 1: one within another
    assert seconds((0, 2, 5), (1, 0, 9), (0, 1, 3), (1, 2, 3), (0, 7, 8)) == [5.0, 9.0]


def test_nobody_else_s_stretches_count() -> None:
    assert seconds((1, 4, 5), num_owners=3) == [0.0, 1.0, 0.0]


def test_no_stretches_cover_nothing() -> None:
    none = np.array([])
    assert covered(none.astype(np.intp), none, none, 2).tolist() == [0.0, 0.0]


@given(st.lists(spans, min_size=1))
def test_as_many_units_as_some_stretch_holds(given: list[tuple[int, int, int]]) -> None:
    held = {(owner, unit) for owner, begin, end in given for unit in range(begin, end)}
    counts = [sum(owner == own for own, _ in held) for owner in range(4)]
    assert seconds(*given, num_owners=4) == pytest.approx(counts)
