"""Reading files of recorded ids; their first bytes tell the kind, not their names."""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.base.errors import InputError, MissingDependencyError, Problem
from planner.files.archives import check_expanded, gunzipped, open_archive
from planner.files.disk import read_bytes, source_name
from planner.files.pickles import PickledObject
from planner.files.torch_files import is_legacy, load_torch
from planner.inspection.samples import (
    FeatureSample,
    RecordedIds,
    concatenated,
    from_arrays,
    from_jagged,
    from_lengths,
    from_matrix,
    from_offsets,
    names_from,
)
from planner.show.format import count

_EXPECTED = "expected .pt of torch.save, .npz, .npy or .parquet"
_NO_HEADER = (ValueError, TypeError, SyntaxError, TokenError, RecursionError, MemoryError)
"""Errors of numpy at bad headers of .npy files, which it evaluates as Python's literals."""
_ID_BYTES = 8
_MOST_NAMED, _LONGEST = 5, 200
"""Most skipped arrays that an error names, and most characters of one with its type."""
_DEEPEST = 3
"""Deepest nesting of lists: batches of batches of tensors."""


def read_samples(path: str | Path) -> RecordedIds:
    """Return the ids that a file recorded (``-`` is standard input).

    Raises
    ------
    InputError
        The file cannot be read, is of another kind, or what is in it is no ids.
    MissingDependencyError
        The file is a parquet file and pyarrow is not installed.

    """
    data = read_bytes(path)
    try:
        return _with_ids(_reader(data)(data))
    except (ValueError, OverflowError) as error:
        problem = Problem(message=str(error), hint=_hint(data))
        raise InputError(source_name(path), (problem,)) from None
    except MemoryError:
        problem = Problem(message="what it holds does not fit in memory")
        raise InputError(source_name(path), (problem,)) from None


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


def _parquet(data: bytes) -> RecordedIds:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise MissingDependencyError(
            package="pyarrow", needed_for="reading a parquet file", extra="inspect"
        ) from None
    try:
        batches, size = [], 0
        file = parquet.ParquetFile(io.BytesIO(data))
        check_expanded(_ID_BYTES * _num_values(file.metadata), len(data))
        for batch in file.iter_batches():
            size += batch.nbytes
            check_expanded(size, len(data))
            batches.append(batch)
        table = pa.Table.from_batches(batches, file.schema_arrow)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"not a readable parquet file: {str(error)[:200]}") from None
    features, skipped = [], []
    for name in dict.fromkeys(table.column_names):
        column = table.column(table.column_names.index(name)).combine_chunks()
        feature = _column(name, column)
        if feature is None:
            skipped.append(f"{name} ({column.type})"[:_LONGEST])
        else:
            features.append(feature)
    return RecordedIds(features=tuple(features), skipped=tuple(skipped))


def _num_values(metadata: Any) -> int:  # noqa: ANN401 - pyarrow has no types
    """Return how many numbers a parquet file holds: equal numbers take no bytes."""
    return sum(
        metadata.row_group(group).column(column).num_values
        for group in range(metadata.num_row_groups)
        for column in range(metadata.num_columns)
    )


def _column(name: str, column: Any) -> FeatureSample | None:  # noqa: ANN401 - pyarrow has no types
    """Return the ids of a column of whole numbers, or of lists of them; None: it has others."""
    import pyarrow.compute as pc
    from pyarrow import types

    kind = column.type
    if types.is_integer(kind):
        there = column.is_valid().to_numpy(zero_copy_only=False)
        ids = column.drop_null().to_numpy(zero_copy_only=False)
        return from_lengths(name, ids, there.astype(np.int64))
    lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if not lists or not types.is_integer(kind.value_type):
        return None
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    flat = pc.list_flatten(column)
    if flat.null_count:
        raise ValueError(f"`{name}` has empty places (null) inside its lists")
    return from_lengths(name, flat.to_numpy(zero_copy_only=False), lengths)


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
        return RecordedIds(features=(from_lengths("t0", ids, lengths),), named=False)
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


_READERS = {b"\x1f\x8b": _gzipped, b"PAR1": _parquet, b"\x93NUMPY": _npy, b"PK": _zipped}
"""Readers by the first bytes of a file."""
