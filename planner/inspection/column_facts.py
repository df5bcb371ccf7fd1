"""What all values of a column have in common, gathered block by block, and its padding."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.inspection.block_ids import Ids, RawIds, lengths_where

_LEAST_LISTS = 20
"""Lists from which one tells what is padding; negative ids always are."""
LEAST_PADDED = 0.02
"""Share of the samples that end (or begin) with an id, so that it may be padding."""


@dataclass(slots=True)
class ColumnFacts:
    """What is known of a column so far; the ids of blocks go through it and lose their padding."""

    name: str
    place: int
    """Its place among the columns."""
    is_text: bool = False
    is_listed: bool = False
    is_given: bool = False
    """Whether the file's layout says that these are ids."""
    is_prepared: bool = False
    """Whether ids are as training takes them."""
    padding: int | None = None
    """The id that is no lookup."""
    is_whole: bool = True
    num_samples: int = 0
    num_ids: int = 0
    """Ids without padding."""
    num_missing: int = 0
    """Samples without an id, of a column with one each."""
    num_padding: int = 0
    """Ids that are padding."""
    least: int = 2**64
    """The least number, a negative one, too."""
    largest: int = -(2**64)
    fraction: float = 0.5
    """An example of what is not whole."""
    counts_up: bool = True
    _last: int | None = None

    def take(self, raw: RawIds, num_samples: int) -> Ids | None:
        """Return the ids of a block without padding; None: they are no whole numbers."""
        self.num_samples += num_samples
        if not raw.is_whole and self.is_whole:
            self.is_whole = False
            bad = raw.keys[raw.keys != np.rint(raw.keys)]
            self.fraction = float(bad[0]) if len(bad) else float(raw.keys[0])
        if not self.is_whole:
            return None
        self._note(raw)
        keys, lengths, unwanted = raw.keys, raw.lengths, self._unwanted(raw)
        if unwanted is not None:
            self.num_padding += int(unwanted.sum())
            lengths = lengths_where(lengths, ~unwanted)
            keys = keys[~unwanted]
        if not self.is_listed and lengths is not None:
            self.num_missing += num_samples - int(lengths.sum())
        self.num_ids += len(keys)
        return Ids(keys=keys, lengths=lengths)

    def _unwanted(self, raw: RawIds) -> NDArray[np.bool_] | None:
        """Return which ids are padding: negative ones, and the one said to be; None: none."""
        unwanted = None
        if not self.is_text and not raw.unsigned and self.least < 0 and len(raw.keys):
            unwanted = raw.keys < 0
        if self.padding is not None:
            padding = raw.keys == self.padding
            unwanted = padding if unwanted is None else unwanted | padding
        return unwanted if unwanted is not None and unwanted.any() else None

    def _note(self, raw: RawIds) -> None:
        keys = raw.keys
        if self.is_text or not len(keys):
            return
        known = keys.view(np.uint64) if raw.unsigned else keys
        self.least = min(self.least, int(known.min()))
        self.largest = max(self.largest, int(known.max()))
        if self.counts_up:
            first, last = int(known[0]), int(known[-1])
            follows = self._last is None or first == self._last + 1
            steady = last - first == len(known) - 1 and bool(np.all(known[1:] > known[:-1]))
            self.counts_up, self._last = follows and steady, last


def told_padding(raw: RawIds) -> int | None:
    """Return the id that fills the tails, or heads, of lists of one length; None: there is none.

    It is in every list only as one run at that end, and fills one entry of some lists at least.
    """
    lengths, keys = raw.lengths, raw.keys
    if lengths is None or not raw.is_whole or raw.unsigned or len(lengths) < _LEAST_LISTS:
        return None
    width = int(lengths[0])
    if width < 2 or not np.all(lengths == width):
        return None
    rows = keys.reshape(-1, width)
    for ends in (rows, rows[:, ::-1]):
        values, often = np.unique(ends[:, -1], return_counts=True)
        padding = int(values[np.argmax(often)])
        filled = ends == padding
        # nothing but padding follows the first padding
        one_run = np.all(filled == np.maximum.accumulate(filled, axis=1), axis=1)
        repeated = filled[:, -2:].all(axis=1).mean() >= LEAST_PADDED or (
            width == 2 and not filled[:, -1].all()
        )
        often_there = repeated and often.max() >= LEAST_PADDED * len(rows)
        if often_there and one_run.mean() >= 0.99 and _is_told(rows, filled, padding):
            return padding
    return None


def _is_told(rows: NDArray[np.int64], filled: NDArray[np.bool_], padding: int) -> bool:
    """Return whether an id at the ends of lists is there more often than by chance.

    It must fill more of the lists than any other id does.
    """
    if filled.all():
        return False
    _, others = np.unique(rows[rows != padding], return_counts=True)
    return bool(filled.any(axis=1).sum() >= 2 and (not len(others) or filled.sum() >= others.max()))
