"""Finding TorchRec's planner statistics in a job's log: the rows inside its frame of ``#``.

Every row of a printout begins and ends with ``#``; the first and the last are ``#`` alone, as wide
as all rows (torchrec 1.9.2, distributed/planner/stats.py, ``EmbeddingStats.log``). A log puts its
prefix before each line (a time, a rank, ``{"log": "``), and sometimes something behind it. It may
have wrapped the lines, whose pieces then are as many as those of the first row, or cut them.
torch is not used here: a log is read where no job can run.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

TITLE = "--- Planner Statistics ---"
_SIGNS = (TITLE, "HBM (GB)", "World Size: ")
"""What only a printout's first rows have; the title is in their middle, and may be cut off."""
_FIRST_ROWS = 5
_LEAST_BORDER = 40
"""Least ``#`` of a line that may be a printout's first; TorchRec's narrowest has 90."""
_BAR = re.compile(r"(?P<prefix>.*?)(?P<bar>#+)(?P<suffix>(?:[^#\s][^#]*)?)")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_CELL = re.compile(r"\S+(?: {1,2}\S+)*")
"""A table's cell: cells are three blanks apart, words of one at most two."""


@dataclass(frozen=True, slots=True)
class PrintedCell:
    """A cell of a table of the printout; all tables are set flush right."""

    text: str
    end: int
    """The column behind its last character, by which it belongs to a heading."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a printout, without its frame."""

    text: str
    line: int
    """Line of the log that it begins on, from 1."""
    whole: bool
    """Whether the row's end is there."""

    @property
    def cells(self) -> list[PrintedCell]:
        """The row as cells of a table."""
        return [PrintedCell(match.group(), match.end()) for match in _CELL.finditer(self.text)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """How a log holds the rows of one printout."""

    marks: int
    """Number of ``#`` in the prefix."""
    has_suffix: bool
    first_piece: int
    """Characters of a wrapped row's first piece."""
    prefix_of_pieces: int
    """Characters before its other pieces."""
    pieces: int
    width: int

    def begins(self, line: str) -> str | None:
        """Return what a line has of a row that begins on it; None: none does."""
        start = -1
        for _ in range(self.marks + 1):
            start = line.find("#", start + 1)
            if start < 0:
                return None
        row = line[start:].rstrip()
        if self.has_suffix and row.rfind("#") > 0:
            row = row[: row.rfind("#") + 1]
        return row if row[1:2] in {"", " ", "#"} else None


def find_printouts(text: str) -> list[list[Row]]:
    """Return the rows of every printout of planner statistics in a log, in the log's order.

    A printout whose last row is missing has the rows that are there.
    """
    lines = [_COLOURS.sub("", line) for line in text.splitlines()]
    found: list[list[Row]] = []
    index = 0
    while index < len(lines):
        frame = _frame_at(lines, index)
        if frame is None:
            index += 1
            continue
        rows, after = _rows(lines, index + frame.pieces, frame)
        if any(sign in row.text for row in rows[:_FIRST_ROWS] for sign in _SIGNS):
            found.append(rows)
            index = after
        else:
            index += frame.pieces
    return found


def _frame_at(lines: Sequence[str], index: int) -> _Frame | None:
    """Return the frame of the printout whose first row begins on a line; None: none does."""
    match = _BAR.fullmatch(lines[index])
    if match is None or not _is_border(lines[index]):
        return None
    bars = [match, *_more_bars(lines[index + 1 :], match)]
    return _Frame(
        marks=match["prefix"].count("#"),
        has_suffix=bool(match["suffix"]),
        first_piece=len(match["bar"]),
        prefix_of_pieces=len(bars[-1]["prefix"]),
        pieces=len(bars),
        width=sum(len(each["bar"]) for each in bars),
    )


def _is_border(line: str) -> bool:
    """Return whether a line may be a printout's first or last, or its first piece."""
    match = _BAR.fullmatch(line)
    return match is not None and len(match["bar"]) >= _LEAST_BORDER


def _more_bars(lines: Sequence[str], first: re.Match[str]) -> Iterator[re.Match[str]]:
    """Yield the other pieces of a wrapped row of ``#``: as long as the first, the last shorter.

    A line of a single ``#`` may as well be the next row's first piece, its blanks cut off: a row
    begins behind the last piece.
    """
    for line, after in pairwise(lines):
        bar = _BAR.fullmatch(line)
        if bar is None or len(bar["prefix"]) > len(first["prefix"]):
            return
        longest, length = len(first["bar"]), len(bar["bar"])
        ended = length == longest or after[len(bar["prefix"]) :].startswith("#")
        if length > longest or not ended:
            return
        yield bar
        if length < longest:
            return


def _rows(lines: Sequence[str], start: int, frame: _Frame) -> tuple[list[Row], int]:
    """Return a printout's rows from a line on, and the index of the line after them."""
    rows: list[Row] = []
    index = start
    while index < len(lines):
        if _is_border(lines[index]):
            index += frame.pieces
            break
        row = frame.begins(lines[index])
        if row is None:  # a line of somebody else
            index += 1
            continue
        whole = row
        if frame.pieces > 1:
            whole = "".join(_pieces(lines[index : index + frame.pieces], row, frame))
        index += frame.pieces
        closed = whole.endswith("#") and len(whole) == frame.width
        rows.append(Row(whole[1:-1] if closed else whole[1:], index - frame.pieces + 1, closed))
    return rows, index


def _pieces(lines: Sequence[str], first: str, frame: _Frame) -> Iterator[str]:
    """Yield the pieces of a wrapped row, with the blanks that ended them."""
    yield first.ljust(frame.first_piece)
    for number, line in enumerate(lines[1:], start=2):
        piece = line[frame.prefix_of_pieces :].rstrip()
        yield piece if number == frame.pieces else piece.ljust(frame.first_piece)
