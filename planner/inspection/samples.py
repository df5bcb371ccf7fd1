"""Recorded ids of features in one form: an array of ids, and the number of ids per sample.

Readers turn files into nested names and arrays; the layouts people use are told apart here. Errors
are ValueErrors, which callers who know the file make InputErrors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Integers: TypeAlias = NDArray[np.integer[Any]]

_VALUES = ("values", "indices", "ids")
_LENGTHS = ("lengths", "offsets")
_SEPARATORS = (".", "/", "_")
_LONGEST_NAME = 1000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FeatureSample:
    """The ids of one feature in consecutive samples."""

    name: str
    ids: Integers
    """Ids of all samples, one after the other."""
    lengths: Integers
    """Number of ids of every sample."""
    is_given: bool = True
    """Whether the file's layout says that these are ids; else they may be other whole numbers."""

    def __post_init__(self) -> None:
        for array, what in ((self.ids, "ids"), (self.lengths, "lengths")):
            if array.ndim != 1 or array.dtype.kind not in "iu":
                raise ValueError(f"{what} of `{self.name}` must be whole numbers in one row")
        if len(self.lengths) and int(self.lengths.min()) < 0:
            raise ValueError(f"lengths of `{self.name}` must not be negative")
        if len(self.lengths) and int(self.lengths.max()) > len(self.ids):
            raise ValueError(
                f"a length of `{self.name}` is {int(self.lengths.max()):,}, "
                f"but there are {len(self.ids):,} ids"
            )
        if int(self.lengths.sum()) != len(self.ids):
            raise ValueError(
                f"lengths of `{self.name}` add up to {int(self.lengths.sum()):,}, "
                f"but there are {len(self.ids):,} ids"
            )

    @property
    def num_samples(self) -> int:
        """Number of samples."""
        return len(self.lengths)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedIds:
    """The features recorded in a file."""

    features: tuple[FeatureSample, ...]
    named: bool = True
    """Whether the file names its features; else they are called t0, t1, ... by place."""
    batch_samples: int | None = None
    """Samples of the batches that the file keeps apart, of all but a shorter last one."""
    skipped: tuple[str, ...] = ()
    """Names of arrays that are not ids."""


def from_offsets(name: str, ids: Integers, offsets: Integers) -> FeatureSample:
    """Return a feature, given where every sample begins, with or without the last end."""
    offsets = offsets.astype(np.int64)
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] > len(ids):
        raise ValueError(f"offsets of `{name}` must go from 0 to at most {len(ids):,}")
    if offsets[-1] != len(ids):
        offsets = np.append(offsets, len(ids))
    return FeatureSample(name=name, ids=ids, lengths=offsets[1:] - offsets[:-1])


def from_matrix(name: str, ids: Integers) -> FeatureSample:
    """Return a feature, given a row or a single number per sample, which may be padding."""
    if not _are_ids(ids):
        raise ValueError(f"`{name}` must be whole numbers, one or a row of them for every sample")
    rows = ids.reshape(len(ids), -1) if ids.size else ids.reshape(0, 1)
    lengths = np.full(len(rows), rows.shape[1])
    return FeatureSample(name=name, ids=rows.reshape(-1), lengths=lengths, is_given=False)


def from_jagged(
    names: Sequence[str], ids: Integers, lengths: Integers, *, named: bool = True
) -> tuple[FeatureSample, ...]:
    """Return features whose ids are stored feature after feature, as in a KeyedJaggedTensor."""
    if not names or lengths.size % len(names):
        raise ValueError(
            f"{lengths.size:,} lengths cannot be those of {len(names):,} features and equally "
            "many samples of each"
        )
    rows = lengths.reshape(len(names), -1)
    ends = np.cumsum(rows.sum(axis=1))
    if len(ends) and int(ends[-1]) != len(ids):
        what = "keys" if named else "tables"
        raise ValueError(
            f"lengths of all {what} add up to {int(ends[-1]):,}, but there are {len(ids):,} ids"
        )
    parts = np.split(ids, ends[:-1])
    return tuple(
        FeatureSample(name=name, ids=part, lengths=row)
        for name, part, row in zip(names, parts, rows, strict=True)
    )


def from_arrays(arrays: Mapping[str, Any]) -> RecordedIds:
    """Return the features that named arrays record.

    The layouts: ``keys`` with ``values`` and ``lengths`` or ``offsets`` (a KeyedJaggedTensor taken
    apart); ``indices`` with ``offsets`` and two-dimensional ``lengths``, tables by samples (the
    open DLRM dataset); ``NAME.values`` (or ``indices``, ``ids``) with ``NAME.lengths`` or
    ``NAME.offsets``, the dot also as ``/`` or ``_``; ``NAME`` with ``NAME.lengths`` likewise;
    ``NAME`` alone, an id or a row per sample.
    """
    if "keys" in arrays:
        names = names_from(arrays["keys"])
        ids, lengths = _values_and_lengths("keys", arrays)
        return RecordedIds(features=from_jagged(names, ids, lengths))
    if any(name in arrays for name in _VALUES) and any(name in arrays for name in _LENGTHS):
        return _unnamed(arrays)
    pairs = {name: _lengths_beside(name, arrays) for name in arrays}
    used = {key for beside in pairs.values() for key in beside.values()}
    features, skipped = [], []
    for name, array in arrays.items():
        if pairs[name]:
            parts = {what: arrays[key] for what, key in pairs[name].items()}
            base = _base(name)[0] or name
            ids, lengths = _values_and_lengths(base, {"values": array, **parts})
            features.append(FeatureSample(name=base, ids=ids, lengths=lengths))
        elif name not in used and _are_ids(array):
            features.append(from_matrix(name, array))
        elif name not in used:
            skipped.append(name)
    return RecordedIds(features=tuple(features), skipped=tuple(skipped))


def names_from(keys: object) -> list[str]:
    """Return the feature names in a list or an array of text."""
    listed = keys.tolist() if isinstance(keys, np.ndarray) else keys
    if not isinstance(listed, list | tuple) or not all(
        isinstance(key, str | bytes | int) for key in listed
    ):
        raise ValueError("`keys` must be a list of names")
    return [str(key)[:_LONGEST_NAME] for key in listed]


def _lengths_beside(name: str, arrays: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the lengths and offsets that belong to ``NAME.values`` or ``NAME``."""
    base, separator = _base(name)
    if not base and name.rpartition("_")[2] in _LENGTHS:
        return {}
    separators = (separator,) if base else _SEPARATORS
    return {
        what: key
        for what in _LENGTHS
        for key in ((base or name) + each + what for each in separators)
        if key in arrays
    }


def _unnamed(arrays: Mapping[str, Any]) -> RecordedIds:
    """Return arrays `values` and `lengths` as features t0, t1, ..., one a row of lengths."""
    lengths = arrays.get("lengths")
    if isinstance(lengths, np.ndarray) and lengths.ndim == 2:
        ids, flat = _values_and_lengths("values", {**arrays, "lengths": lengths.reshape(-1)})
        names = [f"t{number}" for number in range(len(lengths))]
        return RecordedIds(features=from_jagged(names, ids, flat, named=False), named=False)
    ids, flat = _values_and_lengths("values", arrays)
    return RecordedIds(features=(FeatureSample(name="t0", ids=ids, lengths=flat),), named=False)


def _values_and_lengths(name: str, arrays: Mapping[str, Any]) -> tuple[Integers, Integers]:
    """Return a feature's ids, and how many each sample has."""
    ids = next((arrays[what] for what in _VALUES if what in arrays), None)
    if ids is None or not _are_ids(ids):
        raise ValueError(f"`{name}` comes without whole numbers as values")
    if "lengths" in arrays:
        return ids.reshape(-1), _counted(name, "lengths", arrays).reshape(-1)
    if "offsets" not in arrays:
        raise ValueError(f"`{name}` comes without lengths or offsets")
    offsets = _counted(name, "offsets", arrays).reshape(-1)
    return ids.reshape(-1), from_offsets(name, ids.reshape(-1), offsets).lengths


def _counted(name: str, what: str, arrays: Mapping[str, Any]) -> Integers:
    """Return an array of whole numbers by its name, or refuse it."""
    array: Integers = arrays[what]
    if not _are_ids(array):
        raise ValueError(f"{what} of `{name}` must be whole numbers")
    return array


def _base(name: str) -> tuple[str, str]:
    """Return ``user`` and ``.`` of ``user.values``; empty texts if the name ends otherwise."""
    for separator in _SEPARATORS:
        base, found, what = name.rpartition(separator)
        if found and what in _VALUES:
            return base, separator
    return "", ""


def _are_ids(array: object) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.kind in "iu" and array.ndim in {1, 2}


def concatenated(batches: Sequence[RecordedIds]) -> RecordedIds:
    """Return the samples of batches after each other; all must have the same features."""
    first = batches[0]
    names = [feature.name for feature in first.features]
    for batch in batches[1:]:
        if [feature.name for feature in batch.features] != names:
            raise ValueError("not all batches have the same features")
    features = tuple(
        FeatureSample(
            name=column[0].name,
            ids=np.concatenate([part.ids for part in column]),
            lengths=np.concatenate([part.lengths for part in column]),
            is_given=column[0].is_given,
        )
        for column in zip(*(batch.features for batch in batches), strict=True)
    )
    return RecordedIds(
        features=features,
        named=first.named,
        batch_samples=_batch_samples([batch.features[0].num_samples for batch in batches]),
        skipped=first.skipped,
    )


def _batch_samples(sizes: Sequence[int]) -> int | None:
    """Return the samples of batches in a list: the most common number; None: of one batch."""
    return max(set(sizes), key=lambda size: (sizes.count(size), size)) if len(sizes) > 1 else None
