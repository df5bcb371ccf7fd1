"""Tensors of ``torch.save``, made and laid out by hand."""

import os
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_archives import (
    Call,
    LongStorage,
    OtherStorage,
    Storage,
    built,
    long_storage,
    parameter,
    rebuild,
    torch_archive,
)

from planner.files.pickles import Name, PickledObject
from planner.files.torch_files import is_legacy, load_torch

NUMBERS = list(range(10, 22))


def test_a_tensor_is_where_offset_and_strides_say() -> None:
    # the last of its numbers, 5 + 1 * 4 + 2 * 1, is the storage's
    found = load_torch(torch_archive(built(0, (2, 3), (4, 1), 5), NUMBERS))
    assert found.tolist() == [[15, 16, 17], [19, 20, 21]]
    turned = load_torch(torch_archive(built(0, [3, 4], (1, 3)), NUMBERS))  # all of them
    assert turned.tolist() == np.array(NUMBERS).reshape(4, 3).T.tolist()


def test_tensors_may_share_numbers_and_be_one_or_none() -> None:
    value = [built(0, (1, 2), (2, 1)), built(1, (2,), (1,)), built(0, (0, 3), (3, 1))]
    first, second, empty = load_torch(torch_archive(value, [1, 2], [3, 4]))
    assert (first.tolist(), second.tolist(), empty.shape) == ([[1, 2]], [3, 4], (0,))
    one = load_torch(torch_archive(Call(rebuild, long_storage(0)), [7, 8]))
    assert (one.shape, one.item()) == ((), 7)


def test_parameters_and_ordered_mappings_are_what_they_hold() -> None:
    value = OrderedDict(weight=Call(parameter, built(0, (2,), (1,)), 1, None))
    assert load_torch(torch_archive(value, [1, 2]))["weight"].tolist() == [1, 2]


def test_bytes_beyond_the_last_whole_number_are_left_out() -> None:
    raw = np.array([1, 2], "<i8").tobytes() + b"1234"
    assert load_torch(torch_archive(built(0, (2,), (1,)), raw)).tolist() == [1, 2]


@pytest.mark.parametrize("dimensions", [16, 17])
def test_a_tensor_has_sixteen_dimensions_at_most(dimensions: int) -> None:
    data = torch_archive(built(0, (1,) * dimensions, (1,) * dimensions), [3])
    if dimensions == 16:
        assert load_torch(data).item() == 3
    else:
        with pytest.raises(ValueError, match="a tensor of 17 dimensions"):
            load_torch(data)


@pytest.mark.parametrize(
    ("size", "stride", "offset", "message"),
    [
        ((2, 3), (4, 1), 6, "beyond its numbers"),
        ((2,), (2**40,), 0, "beyond its numbers"),
        ((1,), (1,), 2**62 - 1, "beyond its numbers"),
        ((1,), (1,), 2**62, "no whole number"),
        ((-1,), (1,), 0, "no whole number"),
        ((2**62, 2), (-1, 1), 0, "no whole number"),
        ((2,), (0.5,), 0, "no whole number"),
        (3, (1,), 0, "no whole number"),
        ((13,), (0,), 0, "more elements than numbers"),
        ((2,), (1, 1), 0, "not plain tensors$"),
    ],
)
def test_a_tensor_reads_nothing_but_its_numbers(
    size: Any,  # noqa: ANN401 - what a file may say
    stride: tuple[Any, ...],
    offset: int,
    message: str,
) -> None:
    with pytest.raises(ValueError, match=message):
        load_torch(torch_archive(built(0, size, stride, offset), NUMBERS))


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (Storage("storage"), "not torch's way"),
        (Storage("storage", LongStorage), "not torch's way"),
        (Storage("storage", "LongStorage", "0"), "not torch's way"),
        (Storage("storage", OtherStorage, "0"), "type `ComplexFloatStorage` are not supported"),
        (Storage("storage", LongStorage, "9"), "the archive has no `ids/data/9`"),
        (7, "not plain tensors$"),
    ],
)
def test_numbers_are_found_in_torch_s_way_alone(reference: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_torch(torch_archive(Call(rebuild, reference, 0, (1,), (1,)), [1]))


def test_the_way_needs_no_more_than_three_parts() -> None:
    value = Call(rebuild, Storage("storage", LongStorage, "0"), 0, (1,), (1,))
    assert load_torch(torch_archive(value, [5])).tolist() == [5]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"other/data.pkl": ""}, "a zip archive with 2 `data.pkl`"),
        ({"ids/constants.pkl": ""}, "a TorchScript archive"),
        ({"ids/code/model.py": ""}, "a TorchScript archive"),
        ({"ids/byteorder": "big"}, "big-endian"),
    ],
)
def test_another_archive_is_refused(more: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_torch(torch_archive([1], more=more))


def test_torch_before_2_1_does_not_say_how_bytes_are_ordered() -> None:
    data = torch_archive([1]).replace(b"byteorder", b"something")
    assert load_torch(data) == [1]


def test_nothing_that_a_pickle_names_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = load_torch(torch_archive(Call(os.mkdir, "evil")))
    assert isinstance(made, PickledObject)
    assert (made.of, made.arguments) == (Name(os.mkdir.__module__, "mkdir"), ("evil",))
    assert not Path("evil").exists()


@pytest.mark.parametrize(("before", "is_old"), [(0, True), (52, True), (53, False)])
def test_the_old_format_begins_with_its_number(before: int, *, is_old: bool) -> None:
    # 12 bytes of it, which end within the first 64
    number = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)[2:-1]
    assert is_legacy(b"\0" * before + number) is is_old
