"""Tensors that ``torch.save`` wrote, read without torch and without running a pickle.

Such a file is a zip archive: one pickle, and the raw numbers of every storage beside it. Tensors
become numpy arrays, anything else a ``Record`` that keeps what the pickle put into it
(``planner.files.pickles``). So a KeyedJaggedTensor needs no torchrec either.

Format: pytorch, docs/source/notes/serialization.rst; torch 2.13 and torchrec 1.9 in the tests.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.files.archives import Archive, open_archive
from planner.files.pickles import Name, Rebuild, load_pickle

_DTYPES = {
    "LongStorage": "i8",
    "IntStorage": "i4",
    "ShortStorage": "i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "?",
    "DoubleStorage": "f8",
    "FloatStorage": "f4",
    "HalfStorage": "f2",
    "BFloat16Storage": "V2",
}
_LEGACY = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19"
"""Pickled magic number at the start of files that torch wrote before version 1.6."""
_MOST_DIMENSIONS = 16
_PICKLE = "data.pkl"
_SCRIPT = ("constants.pkl", "code")


def is_legacy(data: bytes) -> bool:
    """Return whether a file has torch's format before version 1.6."""
    return _LEGACY in data[:64]


def read_pickle(archive: Archive) -> tuple[str, bytes]:
    """Return the folder and the pickle of an archive of ``torch.save``.

    Raises
    ------
    ValueError
        It is another archive, such as one of TorchScript, which holds code.

    """
    pickles = [name for name in archive.names if name.rpartition("/")[2] == _PICKLE]
    if len(pickles) != 1:
        raise ValueError(f"a zip archive with {len(pickles)} `{_PICKLE}`, so not of torch.save")
    folder = pickles[0].removesuffix(_PICKLE)
    inside = {name.removeprefix(folder).partition("/")[0] for name in archive.names}
    if not inside.isdisjoint(_SCRIPT):
        raise ValueError("a TorchScript archive, which holds code; only torch.save's are read")
    if "byteorder" in inside and archive.read(f"{folder}byteorder") != b"little":
        raise ValueError("written on a big-endian machine")
    return folder, archive.read(pickles[0])


def load_torch(data: bytes) -> Any:  # noqa: ANN401 - whatever was saved
    """Return the object that ``torch.save`` saved, with tensors as numpy arrays.

    Raises
    ------
    ValueError
        The archive is not torch's, or a pickle asks for something else than data.

    """
    with open_archive(data) as archive:
        folder, pickled = read_pickle(archive)
        storages = _Storages(archive, folder)
        rebuild: dict[str, Rebuild] = {
            "torch._utils._rebuild_tensor_v2": _tensor,
            "torch._utils._rebuild_parameter": _parameter,
            "collections.OrderedDict": _ordered,
        }
        return load_pickle(pickled, rebuild=rebuild, persistent=storages.read)


class _Storages:
    """The raw numbers of tensors, each storage read once; several tensors may share one."""

    def __init__(self, archive: Archive, folder: str) -> None:
        self._archive = archive
        self._folder = folder
        self._known: dict[tuple[str, str], NDArray[Any]] = {}

    def read(self, pid: object) -> NDArray[Any]:
        """Return the numbers of the storage that torch's persistent id in a pickle names."""
        if not isinstance(pid, tuple) or len(pid) < 3 or not isinstance(pid[1], Name):
            raise ValueError("not readable as data: not torch's way to refer to numbers")
        kind, key = pid[1].name, str(pid[2])
        dtype = _DTYPES.get(kind)
        if dtype is None:
            raise ValueError(f"numbers of type `{kind}` are not supported")
        if (kind, key) not in self._known:
            data = self._archive.read(f"{self._folder}data/{key}")
            usable = len(data) - len(data) % np.dtype(dtype).itemsize
            self._known[kind, key] = np.frombuffer(data[:usable], dtype=np.dtype(dtype))
        return self._known[kind, key]


def _tensor(
    values: object = None, offset: object = 0, size: object = (), stride: object = (), *_: object
) -> NDArray[Any]:
    """Return a tensor as a view of its storage; ValueError if it goes beyond."""
    lengths, steps = _shape(size), _shape(stride)
    (first,) = _shape((offset,))
    if not isinstance(values, np.ndarray) or len(lengths) != len(steps):
        raise ValueError("not plain tensors")
    if len(lengths) > _MOST_DIMENSIONS:
        raise ValueError(f"a tensor of {len(lengths)} dimensions")
    if 0 in lengths:
        return np.empty((0,), dtype=values.dtype)
    last = first + sum((n - 1) * s for n, s in zip(lengths, steps, strict=True))
    if last >= len(values):
        raise ValueError("a tensor reaches beyond its numbers")
    if math.prod(lengths) > len(values):
        raise ValueError("a tensor has more elements than numbers: save a copy, `x.contiguous()`")
    strides = tuple(step * values.itemsize for step in steps)
    return np.lib.stride_tricks.as_strided(values[first:], lengths, strides, writeable=False)


def _shape(numbers: object) -> tuple[int, ...]:
    """Return the whole numbers of a tensor's shape; ValueError if one is negative."""
    if not isinstance(numbers, tuple | list) or not all(
        isinstance(number, int) and 0 <= number < 2**62 for number in numbers
    ):
        raise ValueError("not plain tensors: a size, stride or offset that is no whole number")
    return tuple(numbers)


def _parameter(data: object = None, *_: object) -> object:
    return data


def _ordered(*pairs: object) -> Mapping[Any, Any]:
    if pairs:
        raise ValueError("not readable as data: an OrderedDict with arguments")
    return {}
