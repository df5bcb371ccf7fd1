"""Reading files of recorded ids; their first bytes tell the kind, not their names."""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.base.errors import InputError, Problem
from planner.files.archives import gunzipped, open_archive
from planner.files.disk import read_bytes, source_name
from planner.files.pickles import PickledObject
from planner.files.torch_files import is_legacy, load_torch
from planner.inspection.samples import (
    FeatureSample,
    RecordedIds,
    concatenated,
    from_arrays,
    from_jagged,
    from_matrix,
    from_offsets,
    names_from,
)
from planner.show.format import count

_EXPECTED = "expected .pt of torch.save, .npz or .npy"
_NO_HEADER = (ValueError, TypeError, SyntaxError, TokenError, RecursionError, MemoryError)
"""Errors of numpy at bad headers of .npy files, which it evaluates as Python's literals."""
_MOST_NAMED = 5
"""Most skipped arrays that an error names."""
_DEEPEST = 3
"""Deepest nesting of lists: batches of batches of tensors."""


def read_samples(path: str | Path, name: str | None = None) -> RecordedIds:
    """Return the ids that a file of arrays recorded.

    Parameters
    ----------
    path
        A .pt, .npz or .npy file.
    name
        Its name in messages, if it is another one.

    Raises
    ------
    InputError
        The file cannot be read, is of another kind, or what is in it is no ids.

    """
    data, name = read_bytes(path), name or source_name(path)
    try:
        return _with_ids(_reader(data)(data))
    except (ValueError, OverflowError) as error:
        problem = Problem(message=str(error), hint=_hint(data))
        raise InputError(name, (problem,)) from None
    except MemoryError:
        problem = Problem(message="what it holds does not fit in memory")
        raise InputError(name, (problem,)) from None


def _with_ids(samples: RecordedIds) -> RecordedIds:
    """Return the samples, if there are ids in them and equally many samples of every feature."""
    if not samples.features:
        raise ValueError(_no_ids(samples.skipped))
    if not any(len(feature.ids) for feature in samples.features):
        raise ValueError("there are no ids in it: every sample is empty")
    first = samples.features[0]
    for feature in samples.features:
        if feature.num_samples != first.num_samples:
            raise ValueError(
                f"`{first.name}` has {first.num_samples:,} samples and `{feature.name}` "
                f"{feature.num_samples:,}: those of one batch have equally many"
            )
    return samples


def _no_ids(skipped: Sequence[str]) -> str:
    if not skipped:
        return "there are no ids in it: it is empty"
    more = f" and {len(skipped) - _MOST_NAMED} more" if len(skipped) > _MOST_NAMED else ""
    return (
        "there are no ids in it: nothing of whole numbers or lists of them, but "
        f"{', '.join(skipped[:_MOST_NAMED])}{more}"
    )


def _reader(data: bytes) -> Callable[[bytes], RecordedIds]:
    """Return what reads a file that begins like this."""
    for magic, reader in _READERS.items():
        if data.startswith(magic):
            return reader
    if is_legacy(data):
        raise ValueError("written by torch.save in its old format, before torch 1.6")
    raise ValueError("the file is empty" if not data else "not a file of recorded ids")


def _hint(data: bytes) -> str | None:
    if is_legacy(data):
        return "load and save it again with a newer torch"
    return None if data.startswith(tuple(_READERS)) else _EXPECTED


def _gzipped(data: bytes) -> RecordedIds:
    plain = gunzipped(data)
    reader = _reader(plain)
    if reader is _gzipped:
        raise ValueError("gzip within gzip: unpack it once")
    return reader(plain)


def _npy(data: bytes) -> RecordedIds:
    samples = from_arrays({"t0": _array(data)})
    return RecordedIds(features=samples.features, named=False)


def _array(data: bytes) -> NDArray[Any]:
    """Return the array of a .npy file; ValueError if the file's length is wrong."""
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            shape, by_column, dtype = np.lib.format.read_array_header_1_0(stream)
        else:
            shape, by_column, dtype = np.lib.format.read_array_header_2_0(stream)
    except _NO_HEADER as error:
        raise ValueError(f"not a readable .npy file: {str(error)[:80]}") from None
    if dtype.hasobject:
        raise ValueError("an array of objects, not of ids")
    start, length = stream.tell(), math.prod(shape)
    if min(shape, default=0) < 0 or length * dtype.itemsize > len(data) - start:
        raise ValueError(f"an array said to be {shape}, of which the end is missing")
    numbers = np.frombuffer(data, dtype=dtype, count=length, offset=start)
    return numbers.reshape(shape, order="F" if by_column else "C")


def _zipped(data: bytes) -> RecordedIds:
    with open_archive(data) as archive:
        if any(name.endswith("data.pkl") for name in archive.names):
            return _saved(load_torch(data))
        arrays = {name.removesuffix(".npy"): name for name in archive.names}
        if not any(name.endswith(".npy") for name in archive.names):
            raise ValueError(f"a zip archive, but of neither numpy nor torch; {_EXPECTED}")
        return from_arrays({key: _array(archive.read(name)) for key, name in arrays.items()})


def _saved(value: Any, depth: int = 0) -> RecordedIds:  # noqa: ANN401 - whatever torch.save was given
    """Return the samples of a saved tensor, tuple, mapping, KeyedJaggedTensor or batch."""
    if depth > _DEEPEST:
        raise ValueError("lists within lists within lists, not tensors of ids")
    if isinstance(value, PickledObject):
        return _object(value, depth)
    if isinstance(value, np.ndarray):
        return RecordedIds(features=(from_matrix("t0", value),), named=False)
    if isinstance(value, Mapping):
        return _mapping(value)
    if isinstance(value, list) and (listed := _listed("t0", value)):
        return RecordedIds(features=from_arrays(listed).features, named=False)
    if isinstance(value, (tuple, list)) and value:
        if all(isinstance(part, np.ndarray) for part in value):
            return _tensors(list(value))
        if all(isinstance(part, (PickledObject, Mapping, tuple, list)) for part in value):
            return concatenated([_saved(part, depth + 1) for part in value])
    raise ValueError(f"a saved `{type(value).__name__}`, not tensors of ids")


def _tensors(parts: list[Any]) -> RecordedIds:
    """Return a tuple of tensors: indices, offsets and lengths, as the open DLRM dataset has it."""
    if len(parts) not in {2, 3}:
        raise ValueError(
            f"{count(len(parts), 'tensor')} without names; expected indices, offsets and lengths"
        )
    return from_arrays(dict(zip(("indices", "offsets", "lengths"), parts, strict=False)))


def _object(value: PickledObject, depth: int = 0) -> RecordedIds:
    """Return the ids of a saved batch or tensor of TorchRec's."""
    state = value.state
    if "sparse_features" in state:
        return _saved(state["sparse_features"], depth + 1)
    if "_keys" in state:
        ids, lengths = _jagged(value.of.name, state)
        return RecordedIds(features=from_jagged(names_from(state["_keys"]), ids, lengths))
    if "_values" in state:
        ids, lengths = _jagged(value.of.name, state)
        return RecordedIds(
            features=(FeatureSample(name="t0", ids=ids, lengths=lengths),), named=False
        )
    raise ValueError(f"a saved `{value.of.name}`, not tensors of ids")


def _jagged(name: str, state: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the values and lengths of a saved jagged tensor."""
    values, lengths, offsets = (state.get(f"_{part}") for part in ("values", "lengths", "offsets"))
    if isinstance(values, np.ndarray) and isinstance(lengths, np.ndarray):
        return values, lengths
    if isinstance(values, np.ndarray) and isinstance(offsets, np.ndarray):
        return values, from_offsets(name, values, offsets).lengths
    raise ValueError(f"the saved `{name}` has no values, or neither lengths nor offsets")


def _mapping(value: Mapping[Any, Any]) -> RecordedIds:
    """Return named tensors, or named pairs of values and lengths."""
    arrays: dict[str, Any] = {}
    for key, part in value.items():
        name = str(key)
        if isinstance(part, PickledObject) and "_keys" in part.state:
            return _object(part)
        if isinstance(part, PickledObject) and "_values" in part.state:
            arrays[f"{name}.values"], arrays[f"{name}.lengths"] = _jagged(name, part.state)
        elif isinstance(part, (tuple, list)) and (listed := _listed(name, part)):
            arrays |= listed
        elif isinstance(part, (tuple, list)) and len(part) == 2:
            arrays[f"{name}.values"], arrays[f"{name}.lengths"] = part
        else:
            arrays[name] = part
    return from_arrays(arrays)


def _listed(name: str, value: Sequence[Any]) -> dict[str, NDArray[Any]]:
    """Return lists of numbers as arrays: an id, or a list of ids, for every sample."""
    if _are_numbers(value):
        return {name: np.array(value, dtype=np.int64)}
    if value and all(isinstance(part, list) and (not part or _are_numbers(part)) for part in value):
        flat = [number for part in value for number in part]
        lengths = np.array([len(part) for part in value], dtype=np.int64)
        return {f"{name}.values": np.array(flat, dtype=np.int64), f"{name}.lengths": lengths}
    return {}


def _are_numbers(value: Sequence[Any]) -> bool:
    return bool(value) and all(type(number) is int for number in value)


_READERS = {b"\x1f\x8b": _gzipped, b"\x93NUMPY": _npy, b"PK": _zipped}
"""Readers by the first bytes of a file."""
