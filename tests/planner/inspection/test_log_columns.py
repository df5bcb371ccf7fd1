"""Columns of every Arrow type as ids."""

import decimal

import numpy as np
import pyarrow as pa
import pytest

from planner.inspection.log_columns import Form, form_of, hashed_texts, raw_ids, told_form

VALUES = [3, 1, 4, 1, 5, 9, 2, 6]
WHOLE = [
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(),
    pa.uint64(), pa.float16(), pa.float32(), pa.float64(),
]  # fmt: skip
TEXTS = [
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.large_binary(),
    pa.string_view(),
    pa.binary_view(),
]


def ids_of(array: pa.Array) -> tuple[list[int], list[int] | None]:
    column = pa.chunked_array([array.slice(0, 3), array.slice(3)])
    form = told_form(form_of(array.type), column, None)
    found = raw_ids(form, column)
    return found.keys.tolist(), None if found.lengths is None else found.lengths.tolist()


@pytest.mark.parametrize("type_", WHOLE, ids=str)
def test_whole_numbers_of_any_width(type_: pa.DataType) -> None:
    array = pa.array(np.array(VALUES, type_.to_pandas_dtype()))
    assert ids_of(array) == (VALUES, None)
    if type_ != pa.float16():  # older pyarrows have no dictionaries of them
        assert ids_of(array.dictionary_encode()) == (VALUES, None)
    gaps = pa.array([None if value == 1 else value for value in VALUES]).cast(type_)
    assert ids_of(gaps) == ([3, 4, 5, 9, 2, 6], [1, 0, 1, 0, 1, 1, 1, 1])


def test_decimals_and_truths_are_whole_numbers() -> None:
    assert ids_of(pa.array([decimal.Decimal(value) for value in VALUES]))[0] == VALUES
    assert ids_of(pa.array([True, False, True, True])) == ([1, 0, 1, 1], None)


@pytest.mark.parametrize("type_", TEXTS, ids=str)
def test_texts_have_a_key_each_whatever_holds_them(type_: pa.DataType) -> None:
    texts = ["x", "", None, "ab", "x", "ba", "x" * 300, "abab"]
    plain = [None if text is None else text.encode() for text in texts]
    array = pa.array(texts if "string" in str(type_) else plain, type_)
    keys, lengths = ids_of(array)
    assert lengths == [1, 0, 0, 1, 1, 1, 1, 1]  # an empty text is no id
    assert keys[0] == keys[2]
    assert len(set(keys)) == 5
    assert keys == ids_of(pa.array(texts).dictionary_encode())[0]


@pytest.mark.parametrize("type_", [pa.list_(pa.int32()), pa.large_list(pa.int64())], ids=str)
def test_lists(type_: pa.DataType) -> None:
    array = pa.array([[1, 2], None, [], [3, None, 4], [5]], type_)
    assert ids_of(array) == ([1, 2, 3, 4, 5], [2, 0, 0, 2, 1])


def test_lists_of_one_length_and_of_texts() -> None:
    assert ids_of(pa.array([[1, 2], None, [3, 4], [5, 6]], pa.list_(pa.int64(), 2))) == (
        [1, 2, 3, 4, 5, 6], [2, 0, 2, 2],
    )  # fmt: skip
    keys, lengths = ids_of(pa.array([["a", "b"], [], ["a"], ["c"]]))
    assert (lengths, len(set(keys)), keys[0]) == ([2, 0, 1, 1], 3, keys[2])


def test_runs_and_extensions_are_what_they_hold() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([3, 5], pa.int32()), pa.array([7, 8]))
    assert ids_of(runs) == ([7, 7, 7, 8, 8], None)
    opaque = pa.ExtensionArray.from_storage(pa.opaque(pa.int64(), "x", "y"), pa.array(VALUES))
    assert ids_of(opaque) == (VALUES, None)


@pytest.mark.parametrize(
    ("type_", "of"),
    [
        (pa.null(), "none"), (pa.struct([("a", pa.int64())]), "none"),
        (pa.list_view(pa.int64()), "none"),
        (pa.map_(pa.string(), pa.int64()), "none"), (pa.list_(pa.list_(pa.int64())), "none"),
        (pa.dictionary(pa.int32(), pa.list_(pa.int64())), "none"), (pa.list_(pa.date32()), "none"),
        (pa.sparse_union([pa.field("a", pa.int64())]), "none"), (pa.timestamp("ns", "UTC"), "time"),
        (pa.date32(), "time"), (pa.time64("us"), "time"), (pa.duration("s"), "time"),
        (pa.month_day_nano_interval(), "time"), (pa.uuid(), "text"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_not_counted_is_told_by_its_type(type_: pa.DataType, of: str) -> None:
    assert form_of(type_).of == of


@pytest.mark.parametrize(
    ("texts", "form"),
    [
        (["a|b", "c", "a|c", "b"] * 5, Form("text", listed=True, separator=b"|")),
        (["1 2", "3", "4 5 6", ""] * 5, Form("text", listed=True, separator=b" ", numeric=True)),
        (["1,2", "3", None, "4"] * 5, Form("text", listed=True, separator=b",", numeric=True)),
        (["red wine", "cheese", "white wine", "bread"] * 5, Form("text")),
        (["a,b", "c", "a,c", "b"] * 5, Form("text")),
        (["2024-01-02T10:00:00Z", "2024-03-04 11:00"] * 5, Form("time")),
        ([None, ""], Form("text")),
    ],
)
def test_separators_and_dates_are_told_by_first_texts(texts: list[str], form: Form) -> None:
    assert told_form(Form("text"), pa.chunked_array([texts], pa.string()), None) == form


def test_a_given_separator_splits_and_brackets_do_not_count() -> None:
    column = pa.chunked_array([["[1; 2]", "[3]", "[]", None, "x;4"]])
    found = raw_ids(Form("text", listed=True, separator=b";", numeric=True), column)
    # what is no whole number is left out
    assert found.keys.tolist() == [1, 2, 3, 4]
    assert found.lengths is not None
    assert found.lengths.tolist() == [2, 1, 0, 0, 1]


def test_fractions_are_kept_as_they_are() -> None:
    found = raw_ids(Form("float"), pa.chunked_array([[0.5, None, float("nan"), 2.0, float("inf")]]))
    assert (found.is_whole, found.keys.tolist()) == (False, [0.5, 2.0])


def test_unsigned_numbers_keep_their_bits() -> None:
    found = raw_ids(Form("whole"), pa.chunked_array([pa.array([2**64 - 1, 5], pa.uint64())]))
    assert (found.unsigned, found.keys.view(np.uint64).tolist()) == (True, [2**64 - 1, 5])


def test_keys_of_texts_rarely_collide() -> None:
    # short ones, long ones, and ones that differ in one place
    texts = [f"{n:08x}" for n in range(200_000)] + ["a" * n for n in range(300)]
    assert len(np.unique(hashed_texts(pa.array(texts).cast(pa.large_binary())))) == len(texts)
