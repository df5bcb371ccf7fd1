"""Recorded ids behind one interface, be they arrays in memory or logs of any length."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from costmodel.base.errors import InputError, Problem
from planner.inspection.asked import Asked
from planner.inspection.block_ids import IdBlock, RawIds, RecordedColumn
from planner.inspection.logs import Log
from planner.inspection.reading import read_samples
from planner.inspection.samples import RecordedIds, concatenated
from planner.inspection.sources import found_sources


class Recorded(Protocol):
    """Samples that were recorded, of some columns."""

    @property
    def name(self) -> str:
        """Its name in messages."""

    @property
    def names(self) -> Sequence[str]:
        """All columns, also those that are not read."""

    @property
    def columns(self) -> Mapping[str, RecordedColumn]:
        """The columns that are read, in order."""

    @property
    def refused(self) -> Mapping[str, str]:
        """Columns that cannot be counted, and why."""

    @property
    def named(self) -> bool:
        """Whether columns have names; else they are in the order of a model's features."""

    @property
    def batch_samples(self) -> int | None:
        """Samples of a batch, if it says; all of them if they are one."""

    @property
    def num_rows(self) -> int | None:
        """Samples in all, maybe an estimate; None: nobody knows."""

    @property
    def row_values(self) -> float:
        """Values in a row, in all columns, on average: a row may have long lists."""

    @property
    def spoilt_lines(self) -> int:
        """Lines left out, as they are not like the others."""

    @property
    def caveats(self) -> Sequence[str]:
        """What was found in columns that their kinds do not show."""

    def blocks(self, samples: int) -> Iterator[IdBlock]:
        """Yield blocks of so many samples, the last one of fewer."""


@dataclass(slots=True)
class Arrays:
    """Recorded ids in memory: of .npz, .npy and .pt files."""

    name: str
    samples: RecordedIds
    asked: Asked
    columns: Mapping[str, RecordedColumn] = field(init=False)
    row_values: float = 1.0
    spoilt_lines: int = 0
    caveats: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.columns = {
            feature.name: RecordedColumn(
                is_listed=bool(np.any(feature.lengths != 1)),
                is_given=feature.is_given or not self.samples.named,
                is_prepared=True,
            )
            for feature in self.samples.features
            if self.asked.is_read(feature.name)
        }

    @property
    def names(self) -> Sequence[str]:
        """All arrays."""
        return [*(feature.name for feature in self.samples.features), *self.samples.skipped]

    @property
    def refused(self) -> Mapping[str, str]:
        """Arrays that are not of whole numbers."""
        return dict.fromkeys(self.samples.skipped, "not whole numbers in one or two dimensions")

    @property
    def named(self) -> bool:
        """Whether features have names."""
        return self.samples.named

    @property
    def num_rows(self) -> int:
        """Number of samples."""
        return self.samples.features[0].num_samples

    @property
    def batch_samples(self) -> int:
        """Samples of the batches that are kept apart, or all."""
        return self.samples.batch_samples or max(1, self.num_rows)

    def blocks(self, samples: int) -> Iterator[IdBlock]:
        """Yield blocks of so many samples, the last one of fewer."""
        features = [each for each in self.samples.features if each.name in self.columns]
        ends = {
            each.name: np.concatenate(([0], np.cumsum(each.lengths, dtype=np.int64)))
            for each in features
        }
        for start in range(0, self.num_rows, samples):
            stop = min(start + samples, self.num_rows)
            ids = {}
            for each in features:
                end = ends[each.name]
                keys = each.ids[end[start] : end[stop]]
                unsigned = keys.dtype == np.uint64
                ids[each.name] = RawIds(
                    keys=keys.astype(np.uint64).view(np.int64) if unsigned else keys,
                    lengths=each.lengths[start:stop].astype(np.int64),
                    unsigned=unsigned,
                )
            yield IdBlock(num_samples=stop - start, ids=ids)


@contextmanager
def open_recorded(paths: Sequence[str | Path], asked: Asked) -> Iterator[Recorded]:
    """Open files of recorded ids, whose first bytes tell the format.

    Raises
    ------
    InputError
        They cannot be read, or are no files of recorded ids.

    """
    with found_sources(paths) as sources:
        first = sources[0]
        more = f" and {len(sources) - 1:,} more" if len(sources) > 1 else ""
        name = f"{first.name}{more}"
        if first.format == "arrays":
            yield Arrays(
                name, _joined([read_samples(each.path, each.name) for each in sources], name), asked
            )
            return
        log = Log(sources, asked, name)
        log.tell_forms()
        yield log


def _joined(parts: Sequence[RecordedIds], name: str) -> RecordedIds:
    if len(parts) == 1:
        return parts[0]
    try:
        return concatenated(parts)
    except ValueError as error:
        raise InputError(name, (Problem(message=str(error)),)) from None
