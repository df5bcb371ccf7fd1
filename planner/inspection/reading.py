"""Files of recorded ids: told apart by their first bytes, not by their names."""

import gzip
import io
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.errors import InputError, MissingDependencyError, Problem
from planner.inspection.samples import (
    FeatureSample,
    Samples,
    concatenated,
    from_arrays,
    from_jagged,
    from_lengths,
    from_matrix,
    from_offsets,
)
from planner.inspection.torch_files import Opaque, is_legacy, load_torch
from planner.io.files import read_bytes, source_name

_EXPECTED = "expected .pt of torch.save, .npz, .npy or .parquet"


def read_samples(path: str | Path) -> Samples:
    """Read the ids that a file recorded (``-`` is standard input).

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
    except ValueError as error:
        problem = Problem(message=str(error), hint=_hint(data))
        raise InputError(source_name(path), (problem,)) from None
    except (zipfile.BadZipFile, EOFError, OSError, zlib.error) as error:
        problem = Problem(message=f"the file is damaged: {error}")
        raise InputError(source_name(path), (problem,)) from None


def _with_ids(samples: Samples) -> Samples:
    if not samples.features:
        raise ValueError("there are no ids in it: nothing of whole numbers")
    if not any(len(feature.ids) for feature in samples.features):
        raise ValueError("there are no ids in it: every sample is empty")
    return samples


def _reader(data: bytes) -> Callable[[bytes], Samples]:
    if data.startswith(b"\x1f\x8b"):
        return _gzipped
    if data.startswith(b"PAR1"):
        return _parquet
    if data.startswith(b"\x93NUMPY"):
        return _npy
    if data.startswith(b"PK"):
        return _zipped
    if is_legacy(data):
        raise ValueError("written by torch.save in its old format, before torch 1.6")
    raise ValueError("the file is empty" if not data else "not a file of recorded ids")


def _hint(data: bytes) -> str | None:
    if is_legacy(data):
        return "load and save it again with a newer torch"
    known = (b"\x1f\x8b", b"PAR1", b"\x93NUMPY", b"PK")
    return None if data.startswith(known) else _EXPECTED


def _gzipped(data: bytes) -> Samples:
    plain = gzip.decompress(data)
    return _reader(plain)(plain)


def _npy(data: bytes) -> Samples:
    array = np.load(io.BytesIO(data), allow_pickle=False)
    samples = from_arrays({"t0": array})
    return Samples(features=samples.features, named=False)


def _zipped(data: bytes) -> Samples:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = archive.namelist()
    if any(name.endswith("data.pkl") for name in names):
        return _saved(load_torch(data))
    if not any(name.endswith(".npy") for name in names):
        raise ValueError(f"a zip archive, but of neither numpy nor torch; {_EXPECTED}")
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return from_arrays({name: arrays[name] for name in arrays.files})


def _parquet(data: bytes) -> Samples:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise MissingDependencyError(
            package="pyarrow", needed_for="reading a parquet file", extra="inspect"
        ) from None
    try:
        table = parquet.read_table(io.BytesIO(data))
    except pa.ArrowException as error:
        raise ValueError(f"not a readable parquet file: {error}") from None
    features, skipped = [], []
    for name in table.column_names:
        column = table[name].combine_chunks()
        feature = _column(name, column)
        if feature is None:
            skipped.append(name)
        else:
            features.append(feature)
    return Samples(features=tuple(features), skipped=tuple(skipped))


def _column(name: str, column: Any) -> FeatureSample | None:  # noqa: ANN401 - pyarrow has no types
    """Return the ids of a column of whole numbers, or of lists of them; None: others."""
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


def _saved(value: Any) -> Samples:  # noqa: ANN401 - whatever torch.save was given
    """Return the samples of a saved tensor, tuple, mapping, KeyedJaggedTensor or batch."""
    if isinstance(value, Opaque):
        return _object(value)
    if isinstance(value, np.ndarray):
        return Samples(features=(from_matrix("t0", value),), named=False)
    if isinstance(value, Mapping):
        return _mapping(value)
    if isinstance(value, (tuple, list)) and value:
        if all(isinstance(part, np.ndarray) for part in value):
            return _tensors(list(value))
        if all(isinstance(part, (Opaque, Mapping, tuple, list)) for part in value):
            return concatenated([_saved(part) for part in value])
    raise ValueError(f"a saved `{type(value).__name__}`, not tensors of ids")


def _tensors(parts: list[Any]) -> Samples:
    """Return a tuple of tensors: indices, offsets and lengths, as the open DLRM dataset has it."""
    if len(parts) not in {2, 3}:
        raise ValueError(
            f"{len(parts)} tensors without names; expected indices, offsets and lengths"
        )
    return from_arrays(dict(zip(("indices", "offsets", "lengths"), parts, strict=False)))


def _object(value: Opaque) -> Samples:
    state = value.state
    if "sparse_features" in state:
        return _saved(state["sparse_features"])
    if "_keys" in state:
        ids, lengths = _jagged(type(value).__name__, state)
        return Samples(features=from_jagged([str(key) for key in state["_keys"]], ids, lengths))
    if "_values" in state:
        ids, lengths = _jagged(type(value).__name__, state)
        return Samples(features=(from_lengths("t0", ids, lengths),), named=False)
    raise ValueError(f"a saved `{type(value).__name__}`, not tensors of ids")


def _jagged(name: str, state: Mapping[str, Any]) -> tuple[Any, Any]:
    values, lengths, offsets = (state.get(f"_{part}") for part in ("values", "lengths", "offsets"))
    if isinstance(values, np.ndarray) and isinstance(lengths, np.ndarray):
        return values, lengths
    if isinstance(values, np.ndarray) and isinstance(offsets, np.ndarray):
        return values, from_offsets(name, values, offsets).lengths
    raise ValueError(f"the saved `{name}` has no values, or neither lengths nor offsets")


def _mapping(value: Mapping[Any, Any]) -> Samples:
    """Return named tensors, or named pairs of values and lengths."""
    arrays: dict[str, Any] = {}
    for key, part in value.items():
        name = str(key)
        if isinstance(part, Opaque) and "_keys" in part.state:
            return _object(part)
        if isinstance(part, Opaque) and "_values" in part.state:
            arrays[f"{name}.values"], arrays[f"{name}.lengths"] = _jagged(name, part.state)
        elif isinstance(part, (tuple, list)) and len(part) == 2:
            arrays[f"{name}.values"], arrays[f"{name}.lengths"] = part
        else:
            arrays[name] = part
    return from_arrays(arrays)
