"""Object code of functions does what they do, without numba, and nothing else is written."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from costmodel.execution.native_code import Native
from planner.machine_code import read
from planner.object_code import noted, write


class Pair(NamedTuple):
    numbers: Any
    flags: Any
    keep: bool


class Sums(NamedTuple):
    count: int
    total: float
    good: bool


def _scaled(value: float) -> float:
    return 10.0 * value


scaled = Native(_scaled)


def _add(pair: Pair, factor: float, count: int) -> Sums:
    total = 0.0
    for row in range(count):
        for column in range(pair.numbers.shape[1]):
            if pair.flags[row]:
                total += scaled(pair.numbers[row, column]) * factor
                if not pair.keep:
                    pair.numbers[row, column] = 0.0
    return Sums(count, total, total > 0)


def _is_first(values: NDArray[np.uint64], value: int) -> bool:
    return bool(values[0] == value)


def _third(values: NDArray[np.float64], index: int) -> float:
    if index > 2:
        raise ValueError("too far")
    return float(values[index])


def _random(seed: int) -> float:
    np.random.seed(seed)  # noqa: NPY002 - numba's own
    return np.random.random()  # noqa: NPY002


OPTIONS = {"_nrt": False, "nogil": True}
PAIR = Pair(np.arange(6.0).reshape(3, 2), np.array([False, True, True]), keep=True)


@pytest.mark.slow
def test_code_read_back_takes_and_returns_what_the_function_does(tmp_path: Path) -> None:
    add, is_first, third = (Native(each, **OPTIONS) for each in (_add, _is_first, _third))
    words = np.array([7, 8], dtype=np.uint64)
    with noted([add, is_first, third]) as calls:
        add(PAIR, 0.5, 3)
        is_first(words, 1)
        third(np.arange(3.0), 2)
    write(tmp_path / "some.o", calls)
    assert [each.name for each in tmp_path.iterdir()] == ["some.o"]
    code = read(tmp_path / "some.o", ["_add", "_is_first", "_third"])

    taken = PAIR._replace(keep=False)
    for pair in (PAIR, taken):
        assert code["_add"](pair, 0.5, 3) == (3, 0.5 * 10 * (2 + 3 + 4 + 5), True)
    assert taken.numbers.tolist() == [[0, 1], [0, 0], [0, 0]]
    assert code["_add"](taken, 0.5, 3) == (3, 0.0, False)  # as the arrays are now
    other = Pair(np.ones((2, 5)), np.ones(2, dtype=bool), keep=False)
    assert code["_add"](other, 1.0, 2) == (2, 100.0, True)
    assert code["_is_first"](words, 7) is True
    assert code["_is_first"](words, 8) is False

    assert code["_third"](np.arange(3.0), 2) == 2.0
    with pytest.raises(RuntimeError, match="`_third` failed"):
        code["_third"](np.arange(5.0), 3)
    for wrong in (np.arange(3), np.zeros((3, 1)), np.arange(6.0)[::2]):
        with pytest.raises(TypeError, match=r"takes float64\[1\]"):
            code["_third"](wrong, 2)
    with pytest.raises(ValueError, match="shorter"):
        code["_third"](np.arange(3.0))


def test_what_needs_numba_is_not_written(tmp_path: Path) -> None:
    function = Native(_random, **OPTIONS)
    with noted([function]) as calls:
        function(1)
    with pytest.raises(RuntimeError, match="needs numba"):
        write(tmp_path / "random.o", calls)
    assert not list(tmp_path.iterdir())


def test_what_was_not_written_like_that_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nothing"):
        read(tmp_path / "nothing.o", [])
    function = Native(_third, **OPTIONS)
    with noted([function]) as calls:
        function(np.arange(3.0), 2)
    write(tmp_path / "right.o", calls)
    right = (tmp_path / "right.o").read_bytes()
    for content in (b"", b"something else", right[:-1], right[:-1] + b"!"):
        (tmp_path / "wrong.o").write_bytes(content)
        with pytest.raises(RuntimeError):
            read(tmp_path / "wrong.o", ["_third"])
