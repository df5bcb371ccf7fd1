"""Ids of one feature in some samples, as they are read and as they are counted."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RawIds:
    """Ids of one feature in consecutive samples, before padding is taken away."""

    keys: NDArray[Any]
    """Ids one after the other; of texts their hashes, of uint64 their bits; floats if not whole."""
    lengths: NDArray[np.int64] | None
    """Number of ids of every sample; None: one each."""
    is_whole: bool = True
    """Whether all are whole numbers, or texts."""
    unsigned: bool = False
    """Whether keys are the bits of numbers without a sign."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ids:
    """Ids of one feature in consecutive samples: all are lookups."""

    keys: NDArray[np.int64]
    lengths: NDArray[np.int64] | None
    """Number of ids of every sample; None: one each."""

    def first(self, num_samples: int) -> NDArray[np.int64]:
        """Return the ids of the first samples."""
        if self.lengths is None:
            return self.keys[:num_samples]
        return self.keys[: int(self.lengths[:num_samples].sum())]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IdBlock:
    """Consecutive samples: the ids of every feature."""

    num_samples: int
    ids: dict[str, RawIds]
    """By feature."""


@dataclass(frozen=True, slots=True)
class RecordedColumn:
    """A column that can be counted."""

    is_text: bool = False
    is_listed: bool = False
    is_given: bool = False
    """Whether the file's layout says that these are ids."""
    is_prepared: bool = False
    """Whether ids are as training takes them, so that few ids of many rows are hashed ones."""


HEAD_SAMPLES, HELD_VALUES = 2**16, 2**23
"""Samples that tell what columns are, and values that are held at once: 64 MiB of ids."""


def head_samples(row_values: float) -> int:
    """Return how many samples tell what columns are, fewer if each has many values."""
    return int(max(1, min(HEAD_SAMPLES, HELD_VALUES / row_values)))


def lengths_where(lengths: NDArray[np.int64] | None, there: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the lengths of samples without the ids that are not there."""
    if lengths is None:
        return there.astype(np.int64)
    ends = np.concatenate(([0], np.cumsum(there)))
    stops = np.cumsum(lengths)
    shorter: NDArray[np.int64] = ends[stops] - ends[stops - lengths]
    return shorter
