"""Pickles as data: what pickle wrote comes back, and no bytes do more than raise ValueError."""

import contextlib
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    (record,) = load_pickle(pickle.dumps([Held(3)], protocol))
    assert isinstance(record, PickledObject)
    assert record.of == Name(Held.__module__, "Held")
    assert record.state == {"x": 3}


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
