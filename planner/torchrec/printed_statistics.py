"""What TorchRec's planner statistics say of a plan, read from the printout in a job's log.

Headings say which column is which: versions have different ones (torchrec 1.9.2,
distributed/planner/stats.py). Sizes are printed in GB that are GiB (``utils.bytes_to_gb``).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel.base.errors import InputError, Problem
from costmodel.base.units import GIB, Bytes
from costmodel.domain.plan import ShardingType
from planner.files.archives import gunzipped
from planner.files.disk import decoded, file_error, read_bytes, source_name
from planner.torchrec.printed_cells import COLUMNS, heading, number, whole_number
from planner.torchrec.printed_rows import Row, find_printouts

STORAGE_STEP = 0.001 * GIB
"""Step in which sizes are printed."""
_GZIP = b"\x1f\x8b"
_MEMORY = re.compile(r"HBM: (?P<hbm>[\d.]+) GB(?:, DDR: (?P<ddr>[\d.]+) GB)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedTable:
    """One table's row of the printout."""

    line: int
    """Line of the log, from 1."""
    fqn: str
    """Path of its module, and its name."""
    sharding_type: ShardingType
    compute_kernel: str
    pooling_factor: float
    """Ids of a pooling, added up over features."""
    pooled: bool
    embedding_dim: int
    shard_dim: int | None
    """Columns of a column shard; None: not split by columns."""
    num_embeddings: int
    ranks: tuple[int, ...]
    """In order, a rank as often as it has shards; not in the order of the shards."""
    storage: Bytes | None = None
    """HBM, host memory and SSD of all shards, as TorchRec estimates them."""
    cache_load_factor: float | None = None
    num_poolings: float | None = None
    """Added up over features; None: one for each."""
    num_indices: float | None = None
    """Ids of a sample in all features; None: the pooling factor."""
    weighted: bool | None = None
    sharder: str | None = None
    num_features: int = 1
    batch_sizes: tuple[int, ...] = ()
    """Samples of each feature's batch, if not the job's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedMemory:
    """The memory of a rank that tables were planned in."""

    hbm: Bytes
    """What the reservation leaves of HBM."""
    ddr: Bytes
    """A rank's share of host memory."""
    dense: Bytes
    """What dense parameters take of ``hbm``."""
    inputs: Bytes
    """What a batch's inputs take of it."""

    @property
    def for_tables(self) -> Bytes:
        """What is left of a rank's memory for tables; on CPUs that is the host's."""
        return max(0.0, (self.hbm or self.ddr) - self.dense - self.inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedStatistics:
    """A printout of planner statistics."""

    source: str
    """The log's name."""
    line: int
    """Line of the log that it begins on, from 1."""
    num_printouts: int
    """Printouts in the log, of which it is the last."""
    world_size: int
    local_batch_size: int
    tables: tuple[PrintedTable, ...]
    memory: PrintedMemory | None
    weights: Mapping[str, Bytes]
    """Weights of all tables, by compute kernel; older versions print none."""


def read_statistics(path: str | Path) -> PrintedStatistics:
    """Return the last planner statistics of a log, which may be gzipped (``-``: standard input).

    Raises
    ------
    InputError
        There are none, or they are cut off or garbled; with every problem and its line.

    """
    data = read_bytes(path)
    if data.startswith(_GZIP):
        try:
            data = gunzipped(data)
        except ValueError as error:
            raise file_error(path, f"cannot be unpacked: {error}") from None
    return parse_statistics(decoded(data, path), source_name(path))


def parse_statistics(text: str, source: str) -> PrintedStatistics:
    """Return the last planner statistics in a log's text; ``source`` is what messages call it."""
    printouts = find_printouts(text)
    if not printouts:
        problem = Problem(
            message="no planner statistics are in this log",
            hint="TorchRec's planner logs them at level INFO, from `torchrec.distributed.planner."
            "stats`, in a frame of #; the frame's first line must be there",
        )
        raise InputError(source, (problem,))
    reader = _Reader(printouts[-1])
    found = reader.statistics(source, len(printouts))
    if found is None or reader.problems:
        raise InputError(source, tuple(reader.problems), text)
    return found


class _Reader:
    """Reads the rows of one printout, and notes what is wrong with them."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        self.problems: list[Problem] = []

    def statistics(self, source: str, num_printouts: int) -> PrintedStatistics | None:
        """Return what the printout says; None: too much of it is missing."""
        world_size, tables = self._world_size(), tuple(self._tables())
        batch = self._after("Batch Size: ")
        if not self.problems:
            self._check_whole(batch, tables)
        if world_size is None or batch is None or self.problems:
            return None
        return PrintedStatistics(
            source=source,
            line=max(1, self._rows[0].line - 1),
            num_printouts=num_printouts,
            world_size=world_size,
            local_batch_size=whole_number(batch),
            tables=tables,
            memory=self._memory(),
            weights=self._sizes("Compute Kernels Embedding Weights:"),
        )

    def _note(self, row: Row, message: str, *, column: int = 1, hint: str | None = None) -> None:
        self.problems.append(Problem(message=message, line=row.line, column=column, hint=hint))

    def _place(self, title: str) -> int | None:
        """Return the index of the row after a title; None: there is no such row."""
        return next((n + 1 for n, row in enumerate(self._rows) if row.text.strip() == title), None)

    def _section(self, title: str) -> Iterator[Row]:
        """Yield the rows under a title, up to an empty one."""
        place = self._place(title)
        for row in () if place is None else self._rows[place:]:
            if not row.text.strip():
                return
            yield row

    def _after(self, label: str) -> str | None:
        """Return what stands behind a label; None: no row begins with it."""
        texts = (row.text.strip() for row in self._rows)
        return next((text[len(label) :] for text in texts if text.startswith(label)), None)

    def _sizes(self, title: str) -> dict[str, Bytes]:
        """Return sizes by compute kernel, of rows such as ``fused: 1.5 GB``."""
        found = (
            re.fullmatch(r"(\w+): ([\d.]+) GB", row.text.strip()) for row in self._section(title)
        )
        return {match[1]: number(match[2]) * GIB for match in found if match}

    def _world_size(self) -> int | None:
        """Return the number of ranks, each of which has a row."""
        head = next((row for row in self._rows if "HBM (GB)" in row.text), None)
        if head is None:
            self._note(
                self._rows[0],
                "the planner found no plan: there is no table of ranks"
                if self._after("World Size: ")
                else "there is no table of ranks",
            )
            return None
        rows = self._rows[self._rows.index(head) + 2 :]
        for rank, row in enumerate(rows):
            if not row.text.strip():
                return rank
            if row.cells[0].text != str(rank):
                self._note(row, f"the row of rank {rank} is missing", hint=_ALL_LINES)
                return None
        self._note(self._rows[-1], "the log ends within the table of ranks")
        return None

    def _tables(self) -> Iterator[PrintedTable]:
        place = self._place("Parameter Info:")
        if place is None:
            last = self._rows[-1]
            self._note(
                last, "there is no table of parameters up to here",
                hint="the planner prints it with debug=True, which is its default",
            )  # fmt: skip
            return
        head = self._rows[place] if place < len(self._rows) else self._rows[-1]
        columns = {cell.end: heading(cell.text) for cell in head.cells}
        missing = [
            name for name, each in COLUMNS.items() if each.needed and name not in columns.values()
        ]
        if missing:
            names = ", ".join(f"`{name}`" for name in missing)
            cut = (
                "" if head.whole else f", and the row is cut off after {len(head.text)} characters"
            )
            self._note(
                head, f"the table of parameters has no column {names}{cut}", hint=_WHOLE_LINES
            )
            return
        for row in self._rows[place + 2 :]:
            if not row.text.strip():
                return
            table = self._table(row, columns)
            if table is not None:
                yield table

    def _table(self, row: Row, columns: Mapping[int, str]) -> PrintedTable | None:
        """Return a table's row, or note what is wrong with it."""
        cells = {columns.get(cell.end): cell for cell in row.cells}
        if None in cells or (lost := [n for n in columns.values() if n not in cells]):
            what = f"`{lost[0]}`" if None not in cells else f"`{cells[None].text[:40]}`"
            self._note(
                row, f"the row is cut off: it ends before {what}" if not row.whole
                else f"the columns of this row are not those of the table, at {what}",
                hint=_WHOLE_LINES,
            )  # fmt: skip
            return None
        values: dict[str, Any] = {}
        for name, cell in cells.items():
            column = COLUMNS.get(name or "")
            if column is None:
                continue
            try:
                values[column.field] = column.read(cell.text)
            except ValueError as error:
                at = cell.end - len(cell.text) + 2
                self._note(row, f"`{name}` {error}", column=at)
                return None
        values["embedding_dim"], values["shard_dim"] = values.pop("widths")
        return PrintedTable(line=row.line, **values)

    def _memory(self) -> PrintedMemory | None:
        """Return the memory of a rank; None: it is not printed."""
        found = {}
        for title in ("Planning Memory", *_USES):
            rows = self._section(f"{title}:")
            sizes = next((match for row in rows if (match := _MEMORY.search(row.text))), None)
            found[title] = (0.0, 0.0) if sizes is None else (
                number(sizes["hbm"]) * GIB, number(sizes["ddr"] or "0") * GIB
            )  # fmt: skip
        hbm, ddr = found["Planning Memory"]
        if not hbm and not ddr:
            return None
        own = 0 if hbm else 1
        dense, inputs = (found[title][own] for title in _USES)
        return PrintedMemory(hbm=hbm, ddr=ddr, dense=dense, inputs=inputs)

    def _check_whole(self, batch: str | None, tables: Sequence[PrintedTable]) -> None:
        """Note that rows are missing, if any are."""
        last = self._rows[-1]
        if batch is None or not batch.isdecimal() or not int(batch):
            self._note(last, "the log ends before the printout's batch size", hint=_ALL_LINES)
            return
        counts = [row.text.strip() for row in self._section("Compute Kernels Count:")]
        numbers = [int(text.rpartition(": ")[2]) for text in counts if re.search(r": \d+$", text)]
        if numbers and sum(numbers) != len(tables):
            self._note(
                last, f"the printout counts {sum(numbers):,} tables and has rows of "
                f"{len(tables):,}: lines are missing from the log", hint=_ALL_LINES,
            )  # fmt: skip


_USES = ("Dense Storage (per rank)", "KJT Storage (per rank)")
_WHOLE_LINES = "the log must keep lines whole, or wrap them at one width; and keep their blanks"
_ALL_LINES = "the log must keep every line of the printout"
