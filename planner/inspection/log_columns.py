"""Columns of Arrow tables as ids: whole numbers as they are, texts by their hash."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.inspection.block_ids import RawIds, lengths_where
from planner.inspection.key_counts import mixed

Arrow: TypeAlias = Any
"""An array or a type of pyarrow, which has no types for mypy."""

_SEPARATORS = (b"|", b"^", b";", b"\x01", b"\x02", b"\x03", b"\x1d", b",", b" ")
"""What may separate ids in a text; a comma and a blank do so only between whole numbers."""
_ONLY_NUMBERS = (b",", b" ")
_WHOLE = re.compile(rb"-?\d{1,18}")
_DATE = re.compile(rb"\d{4}[-/.]\d\d?[-/.]\d\d?([ T]\d.*)?|\d\d?[-/.]\d\d?[-/.]\d{4}( \d.*)?")
_LOOKED_AT = 2_000
"""Texts that tell whether they are dates, or have a separator."""
_PROSE = 64
"""Mean bytes of texts that are prose."""
_OFTEN, _SHORT = 0.2, 64
"""Share of the texts that have a separator, and bytes of a part, so that they are lists of ids."""

_NEARLY_ALL = 0.9
"""Share of a column's texts that are whole numbers, so that the others are worth a remark."""


@dataclass(frozen=True, slots=True)
class Form:
    """How a column is read: its ids' type, whether samples have lists, and how texts are split."""

    of: str
    """``whole``, ``float`` or ``text``; ``none`` for what is not counted."""
    listed: bool = False
    separator: bytes | None = None
    """What separates ids inside of a text."""
    numeric: bool = False
    """Whether the parts of texts are whole numbers."""
    why: str = ""
    """What it is if it is not counted: its type in words."""


def form_of(type_: Arrow) -> Form:
    """Return how a column of a type is read."""
    import pyarrow as pa
    from pyarrow import types

    if isinstance(type_, pa.BaseExtensionType):
        return form_of(type_.storage_type)
    if types.is_dictionary(type_) or types.is_run_end_encoded(type_):
        inner = form_of(type_.value_type)
        return Form("none", why=f"of type {str(type_)[:100]}") if inner.listed else inner
    if any(is_list(type_) for is_list in _lists()):
        inner = form_of(type_.value_type)
        if inner.of in {"whole", "float", "text"} and not inner.listed:
            return Form(inner.of, listed=True)
    found = next((form for form, tests in _forms() if any(test(type_) for test in tests)), "none")
    why = "no value at all" if types.is_null(type_) else f"of type {str(type_)[:100]}"
    return Form(found, why=why if found == "none" else "")


def _forms() -> Sequence[tuple[str, Sequence[Any]]]:
    from pyarrow import types

    return (
        ("whole", (types.is_integer, types.is_boolean)),
        ("float", (types.is_floating, types.is_decimal)),
        ("time", (types.is_temporal,)),
        ("text", _texts()),
    )


def _texts() -> Sequence[Any]:
    from pyarrow import types

    return (
        types.is_string, types.is_large_string, types.is_binary, types.is_large_binary,
        types.is_fixed_size_binary, types.is_string_view, types.is_binary_view,
    )  # fmt: skip


def _lists() -> Sequence[Any]:
    from pyarrow import types

    return types.is_list, types.is_large_list, types.is_fixed_size_list


def told_form(form: Form, column: Arrow, separator: str | None) -> Form:
    """Return the form of a column of texts, told by its first ones, or by the given separator."""
    if form.of != "text" or form.listed:
        return form
    if separator is not None:
        split = separator.encode()
        parts = [part for text in _first_texts(column) for part in _parts(text, split)]
        return Form("text", listed=True, separator=split, numeric=_are_whole(parts))
    texts = _first_texts(column)
    if texts and sum(bool(_DATE.fullmatch(text)) for text in texts) >= 0.95 * len(texts):
        return Form("time")
    if sum(map(len, texts)) > _PROSE * len(texts) and len(set(texts)) > len(texts) / 2:
        lists = [each for each in _SEPARATORS if _are_whole(_parts(texts[0], each))]
        if not lists:
            spaced = sum(b" " in text for text in texts) > len(texts) / 2
            hint = "; lists? say `--separator`" if spaced else ""
            return Form("none", why=f"long texts, few of them twice{hint}")
    for each in _SEPARATORS:
        apart = [_parts(text, each) for text in texts]
        many = sum(len(parts) > 1 for parts in apart)
        parts = [part for text in apart for part in text]
        if not texts or many < _OFTEN * len(texts) or max(map(len, parts)) > _SHORT:
            continue
        numeric = _are_whole(parts)
        if numeric or (each not in _ONLY_NUMBERS and len(set(parts)) < len(set(texts))):
            return Form("text", listed=True, separator=each, numeric=numeric)
    return form


def stray_text(column: Arrow) -> bytes | None:
    """Return a text among whole numbers, which nearly all texts of a column are; None: not so."""
    import pyarrow.compute as pc

    texts = _binary(_plain(column)).drop_null()
    whole = pc.match_substring_regex(texts, r"^-?\d+$")
    share = pc.mean(whole).as_py()
    if share is None or not _NEARLY_ALL <= share < 1:
        return None
    found: bytes = texts.filter(pc.invert(whole))[0].as_py()
    return found


def _first_texts(column: Arrow) -> list[bytes]:
    first = _binary(_plain(column.slice(0, 10 * _LOOKED_AT))).drop_null()
    values = [value.as_py() for value in first.slice(0, _LOOKED_AT)]
    return [value for value in values if value]


def _parts(text: bytes, separator: bytes) -> list[bytes]:
    return [part for part in text.strip(b"[](){} ").split(separator) if part]


def _are_whole(parts: Sequence[bytes]) -> bool:
    return bool(parts) and all(_WHOLE.fullmatch(part.strip()) for part in parts)


def raw_ids(form: Form, column: Arrow) -> RawIds:
    """Return the ids of a chunked column, of all its samples."""
    plain = _plain(column)
    if form.of == "text" and form.separator is not None:
        return _split(plain, form)
    lengths, flat = _flattened(plain) if form.listed else (None, plain)
    keys, is_whole, unsigned, there = _keys(form, flat)
    if there is not None:
        lengths = lengths_where(lengths, there)
    return RawIds(keys=keys, lengths=lengths, is_whole=is_whole, unsigned=unsigned)


def _plain(column: Arrow) -> Arrow:
    """Return a column as one array, without extensions and run lengths."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import types

    if column.num_chunks != 1:
        array = column.combine_chunks()
        column = array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])
    array = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    return array


def _flattened(array: Arrow) -> tuple[NDArray[np.int64], Arrow]:
    """Return the lengths of lists, and what is in them one after the other."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    flat = _plain(pa.chunked_array([pc.list_flatten(array)]))
    return lengths.astype(np.int64), flat


def _keys(form: Form, flat: Arrow) -> tuple[NDArray[Any], bool, bool, NDArray[np.bool_] | None]:
    """Return keys of what is there, whether all are whole, unsigned, and where something is."""
    import pyarrow as pa
    from pyarrow import types

    if types.is_dictionary(flat.type):
        return _of_dictionary(form, flat)
    if form.of == "text":
        encoded = _plain(pa.chunked_array([_binary(flat).dictionary_encode()]))
        return _of_dictionary(form, encoded)
    there = flat.is_valid().to_numpy(zero_copy_only=False) if flat.null_count else None
    kept = flat.drop_null() if flat.null_count else flat
    if form.of == "float":
        numbers = kept.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        finite = np.isfinite(numbers)
        if not finite.all():
            numbers = numbers[finite]
            there = _inside(there, finite)
        is_whole = bool(np.all(np.abs(numbers) < 2.0**53) and np.all(numbers == np.rint(numbers)))
        return (numbers.astype(np.int64) if is_whole else numbers), is_whole, False, there
    unsigned = bool(types.is_uint64(flat.type))
    if types.is_boolean(flat.type):
        kept = kept.cast(pa.int8())
    numbers = kept.to_numpy(zero_copy_only=False)
    return (numbers.view(np.int64) if unsigned else numbers), True, unsigned, there


def _of_dictionary(
    form: Form, flat: Arrow
) -> tuple[NDArray[Any], bool, bool, NDArray[np.bool_] | None]:
    """Return the keys of a column that names its values by their place in a dictionary."""
    import pyarrow as pa

    values = _plain(pa.chunked_array([flat.dictionary]))
    filled = values.fill_null(b"" if form.of == "text" else 0) if values.null_count else values
    if form.of == "text":
        binary = _binary(filled)
        keys, is_whole, unsigned = hashed_texts(binary), True, False
        usable = np.diff(_offsets(binary)) > 0
    else:
        keys, is_whole, unsigned, found = _keys(form, filled)
        usable = np.ones(len(values), bool)
        if found is not None:
            keys, usable = np.zeros(len(values), keys.dtype), found
            keys[found] = _keys(form, filled)[0]
    if values.null_count:
        usable = usable & values.is_valid().to_numpy(zero_copy_only=False)
    indices = flat.indices
    there = indices.is_valid().to_numpy(zero_copy_only=False) if indices.null_count else None
    places = indices.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
    if len(usable) and not usable.all():
        good = usable[places]
        places, there = places[good], _inside(there, good)
    return keys[places] if len(keys) else keys[:0], is_whole, unsigned, there


def _inside(there: NDArray[np.bool_] | None, good: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return where there is something good, given which of those that are there are good."""
    if there is None:
        return good
    both = there.copy()
    both[there] = good
    return both


def _binary(array: Arrow) -> Arrow:
    import pyarrow as pa

    return array if array.type == pa.large_binary() else array.cast(pa.large_binary())


def _offsets(array: Arrow) -> NDArray[np.int64]:
    """Return where the texts of a large binary array begin and end."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(len(array) + 1, np.int64)
    return np.frombuffer(buffer, np.int64)[array.offset : array.offset + len(array) + 1]


_FACTORS = mixed(np.arange(1, 4097)) | np.uint64(1)
"""A factor for every place in a text; longer ones use them again."""


def hashed_texts(array: Arrow) -> NDArray[np.int64]:
    """Return a 64-bit key for every text of a large binary array, the same in every batch.

    The sum of (byte + 1) times a factor of its place, mixed with the length: texts that differ by
    more than chance do not collide (10^8 texts: a pair in 3,700 logs).
    """
    offsets = _offsets(array)
    lengths = np.diff(offsets)
    data = array.buffers()[2]
    if data is None or not len(array) or offsets[-1] == offsets[0]:
        return mixed(lengths).view(np.int64)
    content = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    filled = lengths > 0
    starts = (offsets[:-1] - offsets[0])[filled]
    sums = np.zeros(len(array), np.uint64)
    sums[filled] = _sums(content, starts)
    return mixed((sums + mixed(lengths)).view(np.int64)).view(np.int64)


def _sums(content: NDArray[np.uint8], starts: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the sum over each text of its bytes times the factors of their places."""
    ends = np.append(starts[1:], len(content))
    places = np.arange(len(content)) - np.repeat(starts, ends - starts)
    # a byte is spread over 64 bits before it is multiplied, or sums of short texts would collide
    terms = _FACTORS[places % len(_FACTORS)] * _SPREAD[content]
    return np.add.reduceat(terms, starts)


_SPREAD = mixed(np.arange(1, 257) << 8)


def _split(array: Arrow, form: Form) -> RawIds:
    """Return the ids in texts that a separator splits; parts that are no numbers are left out."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import types

    encoded = array if types.is_dictionary(array.type) else _binary(array).dictionary_encode()
    texts = _binary(_plain(pa.chunked_array([encoded.dictionary])).fill_null(b""))
    trimmed = pc.replace_substring_regex(
        texts.cast(pa.binary()), r"^[\[\](){}\s]+|[\[\](){}\s]+$", ""
    )
    lists = pc.split_pattern(trimmed, form.separator)
    lengths, flat = _flattened(lists)
    if form.numeric:
        flat = pc.replace_substring_regex(flat, r"^\s+|\s+$", "")
        good = pc.match_substring_regex(flat, r"^-?[0-9]{1,18}$").to_numpy(zero_copy_only=False)
        kept = flat.filter(pa.array(good))
        keys = kept.cast(pa.string()).cast(pa.int64()).to_numpy(zero_copy_only=False)
    else:
        flat = _binary(flat)
        good = np.diff(_offsets(flat)) > 0
        keys = hashed_texts(flat)[good]
    own = lengths_where(lengths, good)
    places, of_sample = _taken(encoded.indices, own)
    return RawIds(keys=keys[places], lengths=of_sample, is_whole=True, unsigned=False)


def _taken(indices: Arrow, own: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the places of the ids of samples that each name a list, and how many each has."""
    import pyarrow.compute as pc

    if not len(own):
        return np.empty(0, np.int64), np.zeros(len(indices), np.int64)
    there = indices.is_valid().to_numpy(zero_copy_only=False)
    names = pc.fill_null(indices, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    lengths = np.where(there, own[names], 0)
    starts = (np.cumsum(own) - own)[names]
    before = np.cumsum(lengths) - lengths
    places = np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
    return places, lengths
