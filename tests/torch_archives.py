"""Files as ``torch.save`` writes them, made without torch."""

import io
import pickle
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


class Storage:
    """Pickles as torch's reference to raw numbers does."""

    def __init__(self, *pid: object) -> None:
        self.pid = pid


class LongStorage:
    """Stands for ``torch.LongStorage``."""


class OtherStorage:
    """Stands for ``torch.ComplexFloatStorage``."""


def rebuild(*arguments: object) -> None:
    """Stand for torch's function of that use."""
    del arguments


def parameter(*arguments: object) -> None:
    """Stand for torch's function of that use."""
    del arguments


THEIRS = {
    "rebuild": "torch._utils\n_rebuild_tensor_v2",
    "parameter": "torch._utils\n_rebuild_parameter",
    "LongStorage": "torch\nLongStorage",
    "OtherStorage": "torch\nComplexFloatStorage",
}


class Call:
    """Pickles as a call of a function."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.parts = function, arguments

    def __reduce__(self) -> Any:  # noqa: ANN401 - pickle's protocol
        return self.parts


class Pickler(pickle.Pickler):
    """Writes storages as torch does."""

    def persistent_id(self, obj: object) -> object:
        """Return what a storage pickles as; None: anything else pickles as usual."""
        return (obj.pid if len(obj.pid) > 1 else obj.pid[0]) if isinstance(obj, Storage) else None


def long_storage(key: int) -> Storage:
    """Return the reference to the storage of a number."""
    return Storage("storage", LongStorage, str(key), "cpu", 1)


def built(key: int, size: object, stride: object, offset: object = 0) -> Call:
    """Return the call that rebuilds a tensor of whole numbers."""
    return Call(rebuild, long_storage(key), offset, size, stride, 0, None)


def torch_archive(
    value: object, *storages: Sequence[int] | bytes, more: Mapping[str, str] | None = None
) -> bytes:
    """Return what torch.save would write of a value and the numbers of its storages."""
    pickled = io.BytesIO()
    Pickler(pickled, protocol=2).dump(value)
    data = pickled.getvalue()
    for ours, theirs in THEIRS.items():
        data = data.replace(f"c{__name__}\n{ours}\n".encode(), f"c{theirs}\n".encode())
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("ids/data.pkl", data)
        for name, text in {"ids/byteorder": "little", **(more or {})}.items():
            made.writestr(name, text)
        for number, storage in enumerate(storages):
            raw = storage if isinstance(storage, bytes) else np.array(storage, "<i8").tobytes()
            made.writestr(f"ids/data/{number}", raw)
    return archive.getvalue()
