"""What a column of a log is: ids of a table, or a label, a time, a number; and why it is taken so.

Only names and what was counted tell; a guess is printed with what it rests on, and may be
overruled.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from costmodel.base.limits import MOST_ROWS
from planner.inspection.column_facts import ColumnFacts
from planner.inspection.column_words import (
    ID_WORDS,
    LABEL_WORDS,
    NUMBER_WORDS,
    ROW_NAMES,
    TIME_WORDS,
)
from planner.inspection.key_counts import Spectrum


class Kind(Enum):
    """What a column is."""

    IDS = "ids"
    SEQUENCE = "sequence"
    RAW = "raw ids"
    CATEGORY = "category"
    NUMBER = "number"
    LABEL = "label"
    TIME = "time"
    ROW_NUMBER = "row number"
    CONSTANT = "constant"
    OTHER = "other"

    @property
    def is_table(self) -> bool:
        """Whether columns of this kind are tables."""
        return self in {Kind.IDS, Kind.SEQUENCE, Kind.RAW, Kind.CATEGORY}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnKind:
    """A column's kind, and what says so."""

    name: str
    kind: Kind
    reason: str


_INTEGERS = re.compile(r"(i|int|int_?col|integer|dense|num|numeric)_?\d+", re.IGNORECASE)
_FIRST_COLUMNS = 3
"""Columns that may be labels where there are no names; a row number may come first."""
_FEW, _SMALL = 32, 100
"""Distinct labels, and the largest of them, at most."""
_EPOCHS = ((1.0, "seconds"), (1e3, "milliseconds"), (1e6, "microseconds"), (1e9, "nanoseconds"))
_FIRST, _LAST = 631_152_000, 2_208_988_800
"""1990 and 2040, in seconds."""
LEAST_ROWS = 100
"""Samples from which a column without a repetition is a row number, whatever its name."""
_LEAST_RAW = 10_000
"""Largest id below which a table up to it is small enough."""
SPARSE = 20
"""Rows up to the largest id for every distinct one, seen and unseen, from which ids are raw: tables
are not so empty. The sample must have a twentieth as many ids, or it could not tell."""
_LARGE = 10**8
"""Largest id from which it takes no more samples to say so: few tables have as many rows."""
_COVERED = 0.5
"""Coverage (Good-Turing) from which the number of unseen ids is told well enough for that."""
_MONTHS, _DAYS = 12, 31
_UNNAMED = re.compile(r"c\d+|t\d+|Unnamed: \d+")


def words(name: str) -> frozenset[str]:
    """Return the words of a name: ``clickTime`` and ``click_time`` have the same."""
    found = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return frozenset(word.lower() for word in found)


def kind_of(facts: ColumnFacts, spectrum: Spectrum) -> tuple[Kind, str]:
    """Return the kind of a column, and the reason.

    Parameters
    ----------
    facts
        What all its values have in common.
    spectrum
        Its distinct ids and their hits.

    """
    for rule in _RULES:
        found = rule(facts, spectrum)
        if found is not None:
            return found
    if facts.is_text:
        return Kind.CATEGORY, "lists of texts" if facts.is_listed else "texts"
    if facts.is_listed:
        return Kind.SEQUENCE, "lists of whole numbers"
    gaps = " with gaps" if facts.num_missing else ""
    return Kind.IDS, f"whole numbers{gaps}"


def is_unnamed(name: str) -> bool:
    """Return whether a name was made up for a column of a file without names."""
    return bool(_UNNAMED.fullmatch(name))


def table_kind(facts: ColumnFacts, spectrum: Spectrum, why: str) -> tuple[Kind, str]:
    """Return the kind of a column that is said to be a table, and the reason.

    Raises
    ------
    ValueError
        It cannot be one.

    """
    if not facts.is_whole:
        raise ValueError(f"`{facts.name}` cannot be a table: {facts.fraction} is no whole number")
    found = kind_of(facts, spectrum)
    if found[0].is_table:
        return found[0], f"{found[1]}; {why}"
    raw = _raw(facts, spectrum)
    if raw is not None:
        return raw
    if facts.is_text:
        return Kind.CATEGORY, why
    return (Kind.SEQUENCE if facts.is_listed else Kind.IDS), why


Found: TypeAlias = tuple[Kind, str] | None


def _impossible(facts: ColumnFacts, spectrum: Spectrum) -> Found:
    del spectrum
    if not facts.is_whole:
        return Kind.NUMBER, "not whole numbers"
    if facts.num_ids == 0 and facts.num_padding:
        return Kind.NUMBER, "nothing but padding and negative ones"
    if facts.num_ids == 0:
        return Kind.CONSTANT, "no value at all"
    return None


def _given(facts: ColumnFacts, spectrum: Spectrum) -> Found:
    """Return the kind of what the file's layout says are ids."""
    if not facts.is_given:
        return None
    raw = _raw(facts, spectrum)
    if raw is not None:
        return raw
    return (Kind.SEQUENCE if facts.is_listed else Kind.IDS), "ids by the file's layout"


def _constant(facts: ColumnFacts, spectrum: Spectrum) -> Found:
    """Return whether there is one value; an array that training takes is ids all the same."""
    varies = spectrum.num_distinct > 1 or facts.num_missing or facts.is_prepared
    if not varies and facts.num_samples > 1:
        return Kind.CONSTANT, "one value in all samples"
    return None


def _row_number(facts: ColumnFacts, spectrum: Spectrum) -> Found:
    if facts.is_listed or facts.num_missing or not _all_distinct(facts, spectrum):
        return None
    if facts.name.lower() in ROW_NAMES or facts.name.startswith("Unnamed"):
        return Kind.ROW_NUMBER, f"another one in every sample, named `{facts.name}`"
    if facts.num_samples < LEAST_ROWS or words(facts.name) & ID_WORDS:
        return None
    if facts.is_text:
        return Kind.ROW_NUMBER, "another text in every sample"
    if facts.counts_up:
        return Kind.ROW_NUMBER, "counts up by one"
    return None


def _all_distinct(facts: ColumnFacts, spectrum: Spectrum) -> bool:
    return (
        facts.num_samples > 1
        and spectrum.hit(1) >= 0.999 * facts.num_samples - 0.5
        and (not spectrum.exact or len(spectrum.keys) == facts.num_samples)
    )


def _time(facts: ColumnFacts, spectrum: Spectrum) -> Found:
    if facts.is_text or facts.is_listed:
        return None
    named = bool(words(facts.name) & TIME_WORDS)
    if words(facts.name) & ID_WORDS and not named:
        return None
    for factor, unit in _EPOCHS:
        if factor * _FIRST <= facts.least and facts.largest <= factor * _LAST:
            first, last = (_day(each / factor) for each in (facts.least, facts.largest))
            return Kind.TIME, f"{first} to {last} in {unit}"
    why = _like_a_time(facts, spectrum) if named else ""
    return (Kind.TIME, f"{why}, named `{facts.name}`") if why else None


def _like_a_time(facts: ColumnFacts, spectrum: Spectrum) -> str:
    """Return what is like a time in numbers that are named as one; empty: nothing."""
    pattern = _calendar(facts.least)
    if pattern is not None and pattern == _calendar(facts.largest):
        return f"digits of a date ({pattern})"
    if spectrum.num_distinct > _DAYS and all(map(_is_day, spectrum.keys.tolist())):
        return "digits of a date (MMDD)"
    rare = facts.largest >= _LEAST_RAW and spectrum.coverage < _COVERED
    return "few of them twice" if rare else ""


def _is_day(number: int) -> bool:
    """Return whether digits are a month and a day of it."""
    month, day = divmod(number, 100)
    return 1 <= month <= _MONTHS and 1 <= day <= _DAYS


def _day(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, tz=UTC):%Y-%m-%d}"


def _calendar(number: int) -> str | None:
    """Return the pattern by which digits are a date: ``YYYYMMDD``, ``YYMMDDHH``."""
    digits = str(number)
    for pattern in (
        "YYYYMMDDHHMMSS",
        "YYYYMMDDHHMM",
        "YYYYMMDDHH",
        "YYYYMMDD",
        "YYMMDDHH",
        "YYYYMM",
    ):
        year = int(digits[:4]) if pattern.startswith("YYYY") else 2000 + int(digits[:2])
        start = 4 if pattern.startswith("YYYY") else 2
        if len(digits) != len(pattern) or not 1990 <= year <= 2040:
            continue
        month, day = int(digits[start : start + 2]), int(digits[start + 2 : start + 4] or 1)
        if _is_day(100 * month + day):
            return pattern
    return None


def _label(facts: ColumnFacts, spectrum: Spectrum) -> Found:
    if facts.is_listed or spectrum.num_distinct > _FEW:
        return None
    if words(facts.name) & LABEL_WORDS and (facts.is_text or facts.largest <= _SMALL):
        return Kind.LABEL, f"{round(spectrum.num_distinct)} values, named `{facts.name}`"
    if facts.is_text or not is_unnamed(facts.name) or facts.num_missing:
        return None
    values = sorted(spectrum.keys.tolist())
    if facts.place < _FIRST_COLUMNS and values in ([0, 1], [-1, 1]):
        return Kind.LABEL, f"{values[0]} and {values[1]} in one of the first columns"
    if values in ([1, 2, 3, 4, 5], list(range(1, 11)), list(range(6)), list(range(11))):
        return Kind.LABEL, f"whole numbers {values[0]} to {values[-1]}, as ratings are"
    return None


def _number(facts: ColumnFacts, spectrum: Spectrum) -> Found:
    if facts.is_listed or facts.is_text:
        return None
    named = words(facts.name)
    if _INTEGERS.fullmatch(facts.name) or (named & NUMBER_WORDS and not named & ID_WORDS):
        return Kind.NUMBER, f"whole numbers, named `{facts.name}`"
    if facts.least < -1:
        return Kind.NUMBER, f"negative ones, to {facts.least:,}"
    if (
        (is_unnamed(facts.name) or facts.least < 0)
        and not named & ID_WORDS
        and _falls(facts, spectrum)
    ):
        return Kind.NUMBER, "mostly small, rarely large and then with gaps, as counts are"
    return None


def _falls(facts: ColumnFacts, spectrum: Spectrum) -> bool:
    """Return whether hits fall with the value, from the smallest on, and large ones have gaps.

    Ids in the order of their hits fall, too, but have no gaps.
    """
    if spectrum.num_distinct < 10 or facts.largest + 1 < 2 * spectrum.num_distinct:
        return False
    order = np.argsort(spectrum.keys)
    keys, hits = spectrum.keys[order], spectrum.hits[order]
    if int(keys[np.argmax(hits)]) > 2 or int(keys[0]) > 1:
        return False
    # of the smaller half of the values nearly all are there, and they have most lookups
    small = keys <= int(np.median(keys))
    dense = small.sum() >= 0.3 * (float(np.median(keys)) + 1) or len(keys) < 50
    tenth, quarter = max(1, len(keys) // 10), len(keys) // 4
    means = [part.mean() for part in np.split(hits, (quarter, 2 * quarter, 3 * quarter))]
    falls = all(after < before or after <= 1.1 for before, after in pairwise(means))
    return bool(dense and falls and hits[:tenth].sum() >= 0.3 * hits.sum())


def _raw(facts: ColumnFacts, spectrum: Spectrum) -> Found:
    if facts.is_text:
        return None
    seen = f"{spectrum.num_distinct:,.0f} distinct ones up to {facts.largest:,}"
    if facts.largest >= MOST_ROWS:
        return Kind.RAW, f"{seen}: more than rows of any table"
    if facts.is_prepared or facts.largest < _LEAST_RAW:
        return None
    least = int(spectrum.keys.min()) if len(spectrum.keys) else 0
    if spectrum.num_distinct >= 20 and least > facts.largest / 2:
        return Kind.RAW, f"{seen}, none below {least:,}"
    rows = spectrum.num_distinct + spectrum.unseen
    enough = SPARSE * facts.num_ids >= facts.largest or facts.largest >= _LARGE
    if enough and spectrum.coverage >= _COVERED and facts.largest + 1 >= SPARSE * rows:
        return Kind.RAW, seen
    return None


_RULES: tuple[Callable[[ColumnFacts, Spectrum], Found], ...] = (
    _impossible,
    _given,
    _constant,
    _time,
    _row_number,
    _label,
    _number,
    _raw,
)
"""In this order; the first that says something is right."""
