"""Tensors that ``torch.save`` wrote, read without torch and without running what a pickle says.

Such a file is a zip archive: one pickle, and the raw numbers of every storage beside it. The pickle
may only name classes here, not call them: tensors become numpy arrays, anything else an ``Opaque``
object that keeps what the pickle put into it. So a KeyedJaggedTensor needs no torchrec either.

Format: pytorch, docs/source/notes/serialization.rst; torch 2.13 and torchrec 1.9 in the tests.
"""

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

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
"""The magic number, pickled, with which files start that torch wrote before version 1.6."""


class Opaque:
    """An object of a class that is not looked up; its state is all there is."""

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments
        self.state: dict[str, Any] = {}

    def __new__(cls, *arguments: object) -> Self:
        """Make one with an empty state, also where unpickling skips ``__init__``."""
        made = super().__new__(cls)
        made.arguments = arguments
        made.state = {}
        return made

    def __setstate__(self, state: object) -> None:
        """Keep the state; an object with slots pickles a pair, the second being those."""
        parts = state if isinstance(state, tuple) else (state,)
        for part in parts:
            if isinstance(part, Mapping):
                self.state.update(part)


class _Storage:
    """The raw numbers of a tensor, and the type of one."""

    def __init__(self, dtype: str, data: bytes) -> None:
        self.values: NDArray[Any] = np.frombuffer(data, dtype=np.dtype(dtype))


def is_legacy(data: bytes) -> bool:
    """Tell a file in torch's format before version 1.6."""
    return _LEGACY in data[:64]


def load_torch(data: bytes) -> Any:  # noqa: ANN401 - whatever was saved
    """Return what ``torch.save`` saved, tensors as numpy arrays.

    Raises
    ------
    ValueError
        The archive is not torch's, or a pickle asks for something else than data.

    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = archive.namelist()
        pickled = next((name for name in names if name.endswith("data.pkl")), None)
        if pickled is None:
            raise ValueError("a zip archive without `data.pkl`, so not of torch.save")
        folder = pickled.removesuffix("data.pkl")
        if f"{folder}byteorder" in names and archive.read(f"{folder}byteorder") != b"little":
            raise ValueError("written on a big-endian machine")
        try:
            return _Unpickler(archive, folder, archive.read(pickled)).load()
        except (pickle.UnpicklingError, EOFError, AttributeError, IndexError, KeyError) as error:
            raise ValueError(f"not readable as data: {error}") from None
        except TypeError as error:
            raise ValueError(f"not plain tensors: {error}") from None


class _Unpickler(pickle.Unpickler):
    """Reads one pickle; the classes it names are only markers."""

    def __init__(self, archive: zipfile.ZipFile, folder: str, pickled: bytes) -> None:
        super().__init__(io.BytesIO(pickled))
        self._archive = archive
        self._folder = folder

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - a class or function
        """Return what stands for a class of the file."""
        if module == "torch._utils" and name == "_rebuild_tensor_v2":
            return _tensor
        if module == "torch._utils" and name == "_rebuild_parameter":
            return _parameter
        if module == "collections" and name == "OrderedDict":
            return OrderedDict
        return type(name, (Opaque,), {"__module__": module})

    def persistent_load(self, pid: Any) -> _Storage:  # noqa: ANN401 - torch's tuple
        """Return the storage that a tensor refers to."""
        _, storage_class, key, *_ = pid
        dtype = _DTYPES.get(storage_class.__name__)
        if dtype is None:
            raise ValueError(f"numbers of type `{storage_class.__name__}` are not supported")
        return _Storage(dtype, self._archive.read(f"{self._folder}data/{key}"))


def _tensor(
    storage: _Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: object
) -> NDArray[Any]:
    values = storage.values
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if min(size, default=1) > 0 and not 0 <= offset <= last < len(values):
        raise ValueError("a tensor reaches beyond its numbers")
    steps = tuple(step * values.itemsize for step in stride)
    return np.lib.stride_tricks.as_strided(values[offset:], size, steps, writeable=False)


def _parameter(data: NDArray[Any], *_: object) -> NDArray[Any]:
    return data
