"""From recorded ids to tables: what columns are, which tables they go to, and what batches read."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from costmodel.base.errors import InputError, Problem
from costmodel.domain.workload import Workload
from planner.environment.extras import require
from planner.inspection.asked import Asked
from planner.inspection.block_ids import HELD_VALUES
from planner.inspection.column_facts import ColumnFacts
from planner.inspection.counter import ColumnCounter, Watch, counter_of
from planner.inspection.features import check_names, check_rows, features_of_tables, matched
from planner.inspection.key_counts import Spectrum
from planner.inspection.kinds import ColumnKind, Kind, is_unnamed, kind_of, table_kind
from planner.inspection.logs import RestartError
from planner.inspection.recorded import Recorded, open_recorded
from planner.inspection.statistics import (
    TableObservation,
    TableRows,
    length_spread,
    observe,
    rows_of,
)

MOST_BATCH, LEAST_BATCH, MANY_BATCHES = 2**16, 2**12, 8
"""Samples of a batch of a log if none are given: so many at most and at least, or so few that there
are eight batches; 4,096 are those of a GPU that a workload has if it says nothing."""
_MOST_NAMED = 5
"""Columns that an error names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """Observations of the tables in recorded ids."""

    source: str
    num_samples: int
    batch_samples: int
    """Number of samples of one batch."""
    tables: tuple[TableObservation, ...]
    columns: tuple[ColumnKind, ...] = ()
    """What every column is taken for, and why."""
    unknown: tuple[str, ...] = ()
    """Features of the file that the workload does not have."""
    missing: tuple[str, ...] = ()
    """Tables of the workload that the file does not have."""
    absent: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By table, features that the file lacks while it has others of the table; such a table stays
    as it is."""
    length_spread: float | None = None
    """Standard deviation of the ids in batches of ``local_batch_size``, over their mean."""
    padding: Mapping[str, int] = field(default_factory=dict)
    """Number of ids by feature that are padding, not lookups."""
    padding_ids: Mapping[str, int] = field(default_factory=dict)
    """By feature the id that is padding besides negative ones, as given or told by the file."""
    shuffled: bool = False
    """Whether batches are those of a training that shuffles samples."""
    planned_samples: int = LEAST_BATCH
    """Samples of a batch that is planned: asked for, or of one GPU."""
    spoilt_lines: int = 0
    """Lines left out, as they have another number of fields."""
    caveats: tuple[str, ...] = ()
    """What was found in columns that their kinds do not show."""
    interrupted: bool = False
    """Whether only the first samples were counted."""


def inspect(
    *paths: str | Path,
    workload: Workload | None = None,
    asked: Asked | None = None,
    watch: Watch | None = None,
) -> Inspection:
    """Return what files of recorded ids say about tables.

    Parameters
    ----------
    paths
        Files of one format, folders, globs; ``-`` is standard input.
    workload
        Whose tables to look at: features go to the tables that name them, or, if the file has no
        names, in order. Without it every column of ids is a table.
    asked
        What columns are, where that is not to be guessed.
    watch
        Is told of the progress, and may end the counting.

    Raises
    ------
    InputError
        The files are not ones of recorded ids, or do not fit the workload.
    MissingDependencyError
        SciPy, which fits laws to counts, or pyarrow, which reads logs, is not installed.

    """
    require("`planner inspect`", "inspect", "scipy", "pyarrow")
    asked = asked or Asked()
    with open_recorded(paths, asked) as recorded:
        check_names(recorded, asked)
        absent: Mapping[str, tuple[str, ...]] = {}
        while True:
            tables = features_of_tables(recorded, asked)
            if workload is not None:
                of_model, absent = matched(recorded, workload)
                used = {column for columns in of_model.values() for column in columns}
                own = {name: each for name, each in tables.items() if not used & {*each}}
                tables = {**of_model, **{n: e for n, e in own.items() if n not in of_model}}
            size = _batch_samples(recorded, asked)
            local = None if workload is None else workload.local_batch_size
            try:
                counter = counter_of(recorded, asked, tables, local)
                counter.count(recorded, size, watch)
            except RestartError:
                continue
            return _Result(recorded, asked, workload, counter, size, absent).inspection()


def _batch_samples(recorded: Recorded, asked: Asked) -> int:
    """Return the samples of a batch: those asked for, as recorded, or so that there are some."""
    given = asked.batch_samples or recorded.batch_samples
    if given:
        return min(given, recorded.num_rows or given) if not asked.batch_samples else given
    rows = recorded.num_rows
    most = int(max(1, HELD_VALUES / recorded.row_values))
    if rows is not None and rows < 2 * LEAST_BATCH:
        return min(2 * LEAST_BATCH, most)
    size = MOST_BATCH
    while rows is not None and size > LEAST_BATCH and rows < MANY_BATCHES * size:
        size //= 2
    return min(size, most)


@dataclass(frozen=True, slots=True)
class _Result:
    """What was counted, and how it becomes tables."""

    recorded: Recorded
    asked: Asked
    workload: Workload | None
    counter: ColumnCounter
    size: int
    absent: Mapping[str, tuple[str, ...]]

    def inspection(self) -> Inspection:
        """Return the observations.

        Raises
        ------
        InputError
            There is no table in it, or what was said of its columns cannot be.

        """
        counter, workload = self.counter, self.workload
        tables, kinds, unknown = [], dict(self._refused()), []
        of_tables = {
            name for table in (workload.tables if workload else ()) for name in table.features
        }
        for name in counter.features:
            found = self._table(name, kinds)
            if found is None:
                continue
            if workload is not None and not self._is_of_model(name):
                unknown += [name] if name not in of_tables else []
            else:
                tables.append(found)
        self._heed_neighbours(tables, kinds)
        if not tables:
            raise InputError(self.recorded.name, (_no_tables(kinds, counter.num_samples),))
        check_rows(
            ((t.name, t.num_embeddings, t.largest_id) for t in tables
             if t.largest_id is not None and t.rows_from in {"given", "the workload"}
             and t.kind is not Kind.RAW),
            self.recorded.name,
        )  # fmt: skip
        seen = {table.name for table in tables}
        used = [counter.facts[name] for table in tables for name in counter.features[table.name]]
        return Inspection(
            source=self.recorded.name,
            num_samples=counter.num_samples,
            batch_samples=min(self.size, counter.num_samples),
            tables=tuple(tables),
            columns=tuple(kinds[name] for name in self._in_order() if name in kinds),
            unknown=tuple(unknown) if self.recorded.named else (),
            missing=tuple(
                table.name
                for table in (workload.tables if workload else ())
                if table.name not in seen and table.name not in self.absent
            ),
            absent=self.absent,
            length_spread=length_spread(counter.ranks.ids) if counter.ranks else None,
            padding={each.name: each.num_padding for each in used if each.num_padding},
            padding_ids={each.name: each.padding for each in used if each.padding is not None},
            shuffled=self.asked.shuffle,
            planned_samples=self.asked.batch_samples
            or (workload.local_batch_size if workload else LEAST_BATCH),
            spoilt_lines=self.recorded.spoilt_lines,
            caveats=tuple(self.recorded.caveats),
            interrupted=counter.interrupted,
        )

    def _heed_neighbours(
        self, tables: list[TableObservation], kinds: dict[str, ColumnKind]
    ) -> None:
        """Take small whole numbers between numbers, in columns without names, as numbers, too."""
        names = list(self.counter.facts)
        for before, name, after in zip(names, names[1:], names[2:], strict=False):
            around = {kinds[each].kind for each in (before, after) if each in kinds}
            guessed = kinds.get(name)
            if guessed is None or guessed.kind is not Kind.IDS or around != {Kind.NUMBER}:
                continue
            if is_unnamed(name) and guessed.reason.startswith("whole numbers"):
                kinds[name] = ColumnKind(
                    name=name, kind=Kind.NUMBER, reason="whole numbers between columns of numbers"
                )
                tables[:] = [table for table in tables if table.name != name]

    def _in_order(self) -> list[str]:
        return list(dict.fromkeys([*self.recorded.names, *self.counter.facts]))

    def _refused(self) -> Iterator[tuple[str, ColumnKind]]:
        for name, why in self.recorded.refused.items():
            kind = Kind.TIME if why == "time" else Kind.OTHER
            reason = "dates or times" if why == "time" else why
            yield name, ColumnKind(name=name, kind=kind, reason=reason)

    def _is_of_model(self, table: str) -> bool:
        return self.workload is not None and any(table == t.name for t in self.workload.tables)

    def _table(self, name: str, kinds: dict[str, ColumnKind]) -> TableObservation | None:
        """Return the observation of a table, and note what its columns are; None: it is none."""
        counter = self.counter
        facts = tuple(counter.facts[column] for column in counter.features[name])
        counts = counter.tables.get(name)
        spectrum = None if counts is None else counts.log.spectrum()
        found = []
        for each in facts:
            kind = self._kind(each, spectrum, name)
            kinds[each.name] = ColumnKind(name=each.name, kind=kind[0], reason=kind[1])
            found.append(kind)
        usable = counts is not None and counts.num_batches > 0
        if (
            not usable
            or spectrum is None
            or counts is None
            or not all(k.is_table for k, _ in found)
        ):
            return None
        listed = [each for each in found if each[0] is Kind.RAW] or found
        return observe(
            name,
            counts,
            facts,
            spectrum,
            kind=listed[0],
            rows=self._rows(name, listed[0][0], spectrum),
            shuffled=self.asked.shuffle,
        )

    def _kind(self, facts: ColumnFacts, spectrum: Spectrum | None, table: str) -> tuple[Kind, str]:
        """Return what a column is: as told, or as it looks."""
        asked, name = self.asked, facts.name
        told = asked.kinds.get(name)
        if told is not None and not told.is_table:
            return told, "--as"
        nothing = Spectrum(
            keys=np.empty(0, np.int64), hits=np.empty(0), weights=np.empty(0), exact=True
        )
        known = nothing if spectrum is None else spectrum
        why = self._why(name, table, told=told is not None)
        if why is None:
            return kind_of(facts, known)
        try:
            kind, reason = table_kind(facts, known, why)
        except ValueError as error:
            raise InputError(self.recorded.name, (Problem(message=str(error)),)) from None
        if name in asked.hashed or (told is Kind.IDS and kind is Kind.RAW):
            kind = Kind.SEQUENCE if facts.is_listed else Kind.IDS
        is_raw = told is Kind.RAW and not facts.is_text
        return (Kind.RAW if is_raw else kind), reason

    def _why(self, column: str, table: str, *, told: bool) -> str | None:
        """Return what says that a column is a table, in words; None: nothing does."""
        asked = self.asked
        said = {
            "--as": told,
            "of the workload": self._is_of_model(table),
            "--share": table in asked.share,
            "--tables": column in asked.tables,
            "--hash": column in asked.hashed,
            "--rows": column in asked.rows,
        }
        return next((option for option, given in said.items() if given), None)

    def _rows(self, name: str, kind: Kind, spectrum: Spectrum) -> TableRows:
        asked, columns = self.asked, self.counter.features[name]
        hashed = self.counter.tables[name].hash_rows
        given = next((asked.rows[each] for each in (name, *columns) if each in asked.rows), None)
        source = "given"
        if self.workload is not None and self._is_of_model(name):
            given, source = self.workload.table(name).num_embeddings, "the workload"
        largest = max(self.counter.facts[column].largest for column in columns)
        rows = rows_of(kind, largest, spectrum, given=given, hashed=hashed)
        return replace(rows, source=source) if rows.source == "given" else rows


def _no_tables(kinds: Mapping[str, ColumnKind], num_samples: int) -> Problem:
    if not num_samples:
        return Problem(message="there are no ids in it: it has no samples")
    if not kinds:
        return Problem(message="there are no ids in it: it is empty")
    said = [f"`{each.name}` is {each.kind.value} ({each.reason})" for each in kinds.values()]
    more = f" and {len(said) - _MOST_NAMED} more" if len(said) > _MOST_NAMED else ""
    return Problem(
        message=f"there are no ids in it: {'; '.join(said[:_MOST_NAMED])}{more}",
        hint="name columns that are ids: `--tables a,b`, or `--as a=ids`",
    )
