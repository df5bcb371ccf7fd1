"""Logs as people have them, read by pyarrow batch by batch.

Parquet, Feather, ORC, texts with separators, JSON lines; one file or many.
"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import Any

from costmodel.base.errors import InputError, Problem
from planner.inspection.arrow_files import (
    BLOCK_BYTES,
    common_schema,
    feather_batches,
    json_format,
    open_feather,
    row_values,
    valid_batch,
)
from planner.inspection.asked import Asked
from planner.inspection.block_ids import IdBlock, RecordedColumn, head_samples
from planner.inspection.delimited import LATIN, MOST_COLUMNS, Layout, layout_of, looser
from planner.inspection.log_columns import Form, form_of, raw_ids, stray_text, told_form
from planner.inspection.sources import HEAD_BYTES, LogSource, unpacked_head
from planner.show.format import printable

READ_ROWS = 2**16
"""Rows that are read at once, and that tell what columns are."""
_READ_VALUES = 2**23
"""Values that are read at once, where rows have many."""
_VALUE_BYTES = 4
"""Bytes of a value in a text, where its lines are long."""
_READ_AHEAD = 4
_SHOWN = 20
"""Characters of a value that are shown."""
_SPOILT = 0.1
"""Share of a text's lines that may have other numbers of fields than the rest."""


class RestartError(Exception):
    """A column's type turned out to be another one: the log is to be read again."""


@dataclass(slots=True)
class Log:
    """Files of one log, and how their columns are read."""

    sources: Sequence[LogSource]
    asked: Asked
    name: str
    """Name in messages."""
    forms: dict[str, Form] = field(default_factory=dict)
    """By column that is read, in order; after the first samples were."""
    spoilt_lines: int = 0
    """Lines of a text that have another number of fields."""
    caveats: list[str] = field(default_factory=list)
    """What was found in columns that their kinds do not show."""
    num_rows: int | None = None
    """Rows in all; of texts an estimate."""
    _layout: Layout | None = None
    _schema: Any = None
    _refused: dict[str, str] = field(default_factory=dict)
    """Columns that are not counted, and why."""
    row_values: float = 1.0
    """Values in a row, in all columns."""

    def __post_init__(self) -> None:
        with _errors(self.name):
            self._open()

    @property
    def names(self) -> Sequence[str]:
        """All columns, also those that are not read."""
        return list(self._schema.names)

    @property
    def refused(self) -> Mapping[str, str]:
        """Columns that cannot be counted, and why."""
        return self._refused

    @property
    def columns(self) -> Mapping[str, RecordedColumn]:
        """The columns that are counted."""
        return {
            name: RecordedColumn(form.of == "text" and not form.numeric, form.listed)
            for name, form in self.forms.items()
        }

    @property
    def batch_samples(self) -> int | None:
        """Samples of a batch of the log: it does not say."""
        return None

    @property
    def named(self) -> bool:
        """Whether columns have names: a log's do."""
        return True

    def _open(self) -> None:
        format_ = self.sources[0].format
        if format_ == "text":
            self._open_text()
        elif format_ == "json":
            self._open_json()
        elif format_ == "feather":
            self._open_feather()
        else:
            self._schema = self._dataset().schema
        names = [name for name in self._schema.names if "\0" not in name]
        if len(names) > MOST_COLUMNS:
            raise ValueError(f"{len(names):,} columns; up to {MOST_COLUMNS:,} can be")
        for name in dict.fromkeys(names):
            form = form_of(self._schema.types[self._schema.names.index(name)])
            if self._layout is not None and name in self._layout.times:
                form = Form("time")
            if names.count(name) > 1:
                form = Form("none", why="two columns of this name")
            self._take(name, form)
        if format_ == "parquet":
            self.row_values = row_values(self._dataset())
        if format_ in {"parquet", "orc"}:
            self.num_rows = self._dataset().count_rows()

    def _take(self, name: str, form: Form) -> None:
        if not self.asked.is_read(name):
            return
        if form.of in {"none", "time"}:
            self._refused[name] = form.why or "time"
        else:
            self.forms[name] = form

    def _open_text(self) -> None:
        source = self.sources[0]
        head, packed = unpacked_head(source.path, source.packed, source.name)
        whole = len(head) < HEAD_BYTES
        self._layout = layout_of(
            head, whole=whole, separator=self.asked.delimiter, names=self.asked.columns or None
        )
        self._schema = self._text_schema()
        self._estimate_rows(head, packed)

    def _open_json(self) -> None:
        from pyarrow import json as arrow_json

        source = self.sources[0]
        head, packed = unpacked_head(source.path, source.packed, source.name)
        lines = head if len(head) < HEAD_BYTES else head[: head.rfind(b"\n") + 1]
        if not lines:
            raise ValueError(f"its first line has more than {HEAD_BYTES:,} bytes")
        options = arrow_json.ReadOptions(block_size=2 * HEAD_BYTES)
        self._schema = arrow_json.read_json(BytesIO(lines), read_options=options).schema
        self._estimate_rows(head, packed)

    def _open_feather(self) -> None:
        """Take the schema of the first file; as many rows are expected as if batches were alike."""
        for place, source in enumerate(self.sources):
            with open_feather(source) as reader:
                if not place:
                    self._schema = reader.schema
                if not self.num_rows and reader.num_record_batches:
                    batch = valid_batch(reader, 0)
                    self.num_rows = batch.num_rows * reader.num_record_batches * len(self.sources)
                    self.row_values = max(1.0, batch.nbytes / max(1, batch.num_rows) / 8)

    def _estimate_rows(self, head: bytes, packed: int) -> None:
        size, lines = sum(each.path.stat().st_size for each in self.sources), head.count(b"\n") + 1
        self.num_rows = max(1, round(lines * size / max(packed, 1)))
        self.row_values = max(1.0, len(head) / lines / _VALUE_BYTES)

    def _dataset(self) -> Any:  # noqa: ANN401 - pyarrow has no types
        from pyarrow import dataset

        paths = [str(source.path) for source in self.sources]
        format_ = self.sources[0].format
        if format_ == "json":
            schema = self._schema
            return dataset.dataset(paths, format=json_format(schema), schema=schema)
        if format_ == "text":
            return dataset.dataset(paths, format=self._text_format(), schema=self._text_schema())
        found = dataset.dataset(paths[0], format=format_)
        schema = common_schema(paths[:100], format_) if len(paths) > 1 else found.schema
        plain = format_
        if format_ == "parquet":
            texts = [each.name for each in schema if form_of(each.type) == Form("text")]
            read = dataset.ParquetReadOptions(dictionary_columns=texts)
            # without buffers of whole row groups it takes 190 MB less, and no more time from disks
            scan = dataset.ParquetFragmentScanOptions(pre_buffer=False)
            plain = dataset.ParquetFileFormat(read_options=read, default_fragment_scan_options=scan)
            schema = schema if len(paths) > 1 else None
        return dataset.dataset(paths, format=plain, schema=schema)

    def _text_format(self) -> Any:  # noqa: ANN401 - pyarrow has no types
        from pyarrow import dataset

        assert self._layout is not None  # noqa: S101 - opened before
        parse = self._layout.parse_options()
        parse.invalid_row_handler = self._skip
        return dataset.CsvFileFormat(
            parse_options=parse,
            convert_options=self._layout.convert_options(),
            read_options=self._layout.read_options(BLOCK_BYTES),
        )

    def _text_schema(self) -> Any:  # noqa: ANN401 - as above
        import pyarrow as pa

        assert self._layout is not None  # noqa: S101 - opened before
        types = self._layout.types
        return pa.schema([(name, pa.type_for_alias(types[name])) for name in self._layout.names])

    def _skip(self, _: object) -> str:
        self.spoilt_lines += 1
        return "skip"

    def blocks(self, samples: int) -> Iterator[IdBlock]:
        """Yield the ids of so many samples after the other; the last block may have fewer.

        Raises
        ------
        InputError
            The log cannot be read.
        RestartError
            A column has other values than its first ones; it is read otherwise the next time.

        """
        import pyarrow as pa

        self.spoilt_lines, seen = 0, 0
        with _errors(self.name):
            try:
                for table in self._tables(samples):
                    seen += table.num_rows
                    ids = {
                        name: raw_ids(form, table.column(name)) for name, form in self.forms.items()
                    }
                    yield IdBlock(num_samples=table.num_rows, ids=ids)
            except pa.ArrowInvalid as error:
                self._loosen(str(error))
                raise
            if self.spoilt_lines > _SPOILT * (seen + self.spoilt_lines):
                raise ValueError(
                    f"{self.spoilt_lines:,} of {seen + self.spoilt_lines:,} lines have other "
                    "numbers of fields than the first ones"
                )

    def tell_forms(self) -> None:
        """Tell by the first samples how texts are read, and refuse columns that cannot be read."""
        with _errors(self.name):
            table = self._first_table()
            for name in list(self.forms):
                form = self.forms.pop(name)
                if table is None:
                    self._take(name, form)
                    continue
                given = self.asked.separators.get(name, self.asked.separators.get(""))
                column = table.column(name)
                try:
                    told = told_form(form, column, given)
                    if told.of not in {"none", "time"}:
                        raw_ids(told, column)
                    stray = stray_text(column) if told.of == "text" and not told.listed else None
                    if stray is not None:
                        shown = printable(stray[:_SHOWN].decode("utf-8", "replace"))
                        self.caveats.append(f"`{name}` has `{shown}` among numbers: taken as texts")
                except _UNREADABLE as error:
                    told = Form("none", why=_short(error))
                    self.caveats.append(f"`{name}` cannot be read, and is left out: {told.why}")
                self._take(name, told)

    def _first_table(self) -> Any:  # noqa: ANN401 - pyarrow has no types
        """Return the first samples, of the columns that can be read; None: there are none."""
        import pyarrow as pa

        while True:
            try:
                return next(self._tables(head_samples(self.row_values)), None)
            except (pa.ArrowException, OSError) as error:
                try:
                    self._loosen(str(error))
                except RestartError:
                    continue
                if not self._refuse_unreadable():
                    raise

    def _refuse_unreadable(self) -> bool:
        """Refuse columns that cannot be read alone; return whether others can."""
        forms, bad = dict(self.forms), {}
        for name, form in forms.items():
            self.forms = {name: form}
            try:
                next(self._tables(head_samples(self.row_values)), None)
            except _UNREADABLE as error:
                bad[name] = _short(error)
        self.forms = {name: form for name, form in forms.items() if name not in bad}
        self._refused |= bad
        self.caveats += [
            f"`{name}` cannot be read, and is left out: {why}" for name, why in bad.items()
        ]
        return bool(bad and self.forms)

    def _loosen(self, message: str) -> None:
        """Change how a column is read that an error names, and raise RestartError."""
        text = re.search(r"In CSV column #(\d+): .*?invalid value '(.*)'", message, re.DOTALL)
        if text and self._layout is not None:
            name = list(self._layout.names)[int(text[1]) // self._layout.repeat]
            type_ = self._layout.types.get(name, "binary")
            if type_ != "binary":
                self._layout = self._layout.with_type(name, looser(type_, text[2]))
                self._schema = self._text_schema()
                self.forms[name] = form_of(self._schema.field(name).type)
                raise RestartError
        if self._layout is not None and self._layout.encoding != LATIN and "Expected" in message:
            # a line with another number of fields whose bytes pyarrow cannot show
            self._layout = replace(self._layout, encoding=LATIN)
            raise RestartError
        mixed = re.search(r"Column\(/([^/)]*)[^)]*\) changed from (\w+) to (\w+)", message)
        if mixed and mixed[1] in self.forms:
            del self.forms[mixed[1]]
            self._refused[mixed[1]] = f"both {mixed[2]} and {mixed[3]}"
            at = self._schema.get_field_index(mixed[1])
            self._schema = self._schema.remove(at)
            raise RestartError

    def _batches(self) -> Iterator[Any]:
        """Yield batches of rows as they are read."""
        import pyarrow.dataset as ds

        if self.sources[0].format == "feather":
            # read one by one: of a damaged file pyarrow's dataset reads where there is nothing
            yield from feather_batches(self.sources, list(self.forms))
            return
        scanner = self._dataset().scanner(
            columns={name: ds.field((name,)) for name in self.forms},
            batch_size=int(max(1, min(READ_ROWS, _READ_VALUES / self.row_values))),
            batch_readahead=_READ_AHEAD,
            fragment_readahead=1,
        )
        yield from scanner.to_batches()

    def _tables(self, samples: int) -> Iterator[Any]:
        """Yield tables of so many rows, the last one of fewer."""
        import pyarrow as pa

        waiting, held = [], 0
        for batch in self._batches():
            waiting.append(batch)
            held += batch.num_rows
            if held >= samples:
                table = pa.Table.from_batches(waiting)
                whole = held // samples * samples
                for start in range(0, whole, samples):
                    yield table.slice(start, samples).unify_dictionaries()
                rest = table.slice(whole)
                waiting, held = rest.to_batches(), rest.num_rows
        if held:
            yield pa.Table.from_batches(waiting).unify_dictionaries()


_UNREADABLE = (ValueError, OSError, NotImplementedError, TypeError, KeyError)
"""Errors of pyarrow at what it cannot read; ``ArrowException`` is the base of none of its own."""


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


@contextmanager
def _errors(name: str) -> Iterator[None]:
    """Make errors of pyarrow, and ours without a file's name, those of a file."""
    import pyarrow as pa

    hook = sys.unraisablehook
    # pyarrow cannot show some lines to `_skip`, prints so, and fails: they are then read as Latin-1
    sys.unraisablehook = lambda note: (
        None if isinstance(note.exc_value, UnicodeDecodeError) else hook(note)
    )
    try:
        yield
    except (MemoryError, OverflowError):
        raise _error(name, "what it holds at once does not fit in memory") from None
    except InputError:
        raise
    except _UNREADABLE as error:
        foreign = isinstance(error, pa.ArrowException)
        said = f"cannot be read: {_short(error)}" if foreign else _short(error)
        raise _error(name, said) from None
    finally:
        sys.unraisablehook = hook


def _error(name: str, message: str) -> InputError:
    return InputError(name, (Problem(message=message),))
