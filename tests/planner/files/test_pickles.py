"""Pickles as data: what pickle wrote comes back, and no bytes do more than raise ValueError."""

import contextlib
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.files import pickles
from planner.files.pickles import Name, PickledObject, load_pickle

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS | st.binary(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(), inner) | st.lists(inner, max_size=5).map(tuple)
    ),
    max_leaves=20,
)


@given(value=VALUES, protocol=st.integers(3, 5))
def test_plain_data_comes_back(value: object, protocol: int) -> None:
    assert load_pickle(pickle.dumps(value, protocol)) == value


class Held:
    def __init__(self, x: int) -> None:
        self.x = x


@pytest.mark.parametrize("protocol", range(2, 6))
def test_objects_are_what_was_put_into_them(protocol: int) -> None:
    records = load_pickle(pickle.dumps([Held(3), Held(4), Held(5)], protocol))
    assert all(isinstance(record, PickledObject) for record in records)
    assert {record.of for record in records} == {Name(Held.__module__, "Held")}
    assert [record.state for record in records] == [{"x": 3}, {"x": 4}, {"x": 5}]


@pytest.mark.parametrize("protocol", range(2, 6))
def test_what_stands_among_others_is_filled_and_recalled(protocol: int) -> None:
    shared = {5: 6}
    value = [[1], {2: 3}, shared, shared, [3, 4], {7: 8, 9: 0}, (1,), (1, 2), (1, 2, 3), 4]
    found = load_pickle(pickle.dumps(value, protocol))
    assert found == value
    assert found[2] is found[3]


def test_the_last_value_is_doubled() -> None:
    assert load_pickle(b"\x80\x02(K\x01K\x02K\x032l.") == [1, 2, 3, 3]


def test_as_many_operations_as_are_allowed_are_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"\x80\x02K\x01\x85."  # protocol, number, tuple, stop
    monkeypatch.setattr(pickles, "MOST_OPERATIONS", 4)
    assert load_pickle(data) == (1,)
    monkeypatch.setattr(pickles, "MOST_OPERATIONS", 3)
    with pytest.raises(ValueError, match="a pickle of more than 3 operations"):
        load_pickle(data)


@settings(max_examples=500)
@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        load_pickle(data)


@settings(max_examples=200)
@given(value=VALUES, at=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_any_byte_changed(value: object, at: int, byte: int) -> None:
    data = bytearray(pickle.dumps([value, Held(1)], 4))
    data[at % len(data)] = byte
    with contextlib.suppress(ValueError):
        load_pickle(bytes(data))
