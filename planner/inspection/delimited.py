"""Texts of lines with fields: what separates them, whether the first line has names, types."""

import csv
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any

from planner.inspection.sources import HEAD_BYTES

LATIN = "latin-1"
SEPARATORS = (("\t", ";", ",", "\x01"), ("::",), ("|",), (" ",))
"""What may separate fields, the surest first: `|` also separates ids in lists, a blank words."""
NULLS = ("", "NA", "N/A", "NULL", "null", "None", "nan", "NaN", "\\N")
"""Fields that say that there is no value."""
_ALIKE = 0.9
"""Share of the lines that have as many fields as most of them."""
_SEEN = 200
"""Lines that tell separator and names."""
MOST_COLUMNS = 20_000
_NAME = re.compile(r"[^\W\d][\w .:/()#%-]*|Unnamed: \d+|")
_ATOMIC = re.compile(r".+:(token|float|token_seq|float_seq)")
"""Names with a type, as RecBole's atomic files have them."""
_NUMBER = re.compile(r"\s*[-+]?(\d+([.,]\d*)?|\.\d+)([eE][-+]?\d+)?\s*")
_WHOLE = re.compile(rb"\s*-?\d+\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How the lines of a text are read."""

    delimiter: str
    repeat: int
    """How often the delimiter stands between two fields: 2 for ``::``."""
    names: tuple[str, ...]
    has_header: bool
    quoted: bool
    decimal_comma: bool
    types: Mapping[str, str]
    """By column ``int64``, ``uint64``, ``double`` or ``binary``."""
    times: frozenset[str]
    """Columns whose texts are dates or times."""
    encoding: str = "utf8"
    """How texts are decoded; as Latin-1 any bytes can be read, and differ as they do."""

    def parse_options(self) -> Any:  # noqa: ANN401 - pyarrow has no types
        """Return how pyarrow takes lines apart."""
        from pyarrow import csv as arrow_csv

        return arrow_csv.ParseOptions(
            delimiter=self.delimiter, quote_char='"' if self.quoted else False
        )

    def read_options(self, block_bytes: int) -> Any:  # noqa: ANN401 - as above
        """Return where pyarrow finds columns, in blocks of so many bytes."""
        from pyarrow import csv as arrow_csv

        names = [each for name in self.names for each in (name, *[f"{name}\0"] * (self.repeat - 1))]
        filled = [f"{name}{place}" if "\0" in name else name for place, name in enumerate(names)]
        last = len(filled) - (self.repeat - 1)
        return arrow_csv.ReadOptions(
            column_names=filled[:last],
            skip_rows=int(self.has_header),
            block_size=block_bytes,
            encoding=self.encoding,
        )

    def convert_options(self) -> Any:  # noqa: ANN401 - as above
        """Return the types that pyarrow makes of fields."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        return arrow_csv.ConvertOptions(
            column_types={name: pa.type_for_alias(type_) for name, type_ in self.types.items()},
            null_values=list(NULLS),
            strings_can_be_null=True,
            check_utf8=False,
            decimal_point="," if self.decimal_comma else ".",
        )

    def with_type(self, name: str, type_: str) -> "Layout":
        """Return the layout with another type of a column."""
        return replace(self, types={**self.types, name: type_})


def layout_of(
    head: bytes, *, whole: bool, separator: str | None, names: Sequence[str] | None
) -> Layout:
    """Return how the lines of a text are read, told by its first bytes.

    Parameters
    ----------
    head
        The first bytes of the text.
    whole
        Whether these are all.
    separator, names
        Given by the user; None: to be told.

    Raises
    ------
    ValueError
        It is no text of lines with as many fields each.

    """
    lines = _lines(head, whole=whole)
    text = [line.decode("utf-8", "replace") for line in lines[:_SEEN]]
    delimiter = separator or _delimiter(text)
    quoted = any('"' in line for line in text) or delimiter == ","
    rows = [_fields(line, delimiter, quoted=quoted) for line in text]
    width = Counter(map(len, rows)).most_common(1)[0][0]
    rows = [row for row in rows if len(row) == width]
    if width > MOST_COLUMNS:
        raise ValueError(f"{width:,} columns; up to {MOST_COLUMNS:,} can be")
    if names and len(names) != width:
        raise ValueError(f"{len(names):,} names are given for the {width:,} columns of its lines")
    has_header = len(rows[0]) == len(_fields(text[0], delimiter, quoted=quoted)) and _is_header(
        rows
    )
    found = names or (rows[0] if has_header else [f"c{place}" for place in range(1, width + 1)])
    made = Layout(
        delimiter=delimiter[0],
        repeat=len(delimiter),
        names=_distinct(found),
        has_header=has_header,
        quoted=quoted,
        decimal_comma=delimiter == ";" and _has_decimal_commas(rows[1:]),
        types={},
        times=frozenset(),
        encoding=_encoding(b"\n".join(lines)),
    )
    return _typed(made, b"\n".join(lines) + b"\n")


def _lines(head: bytes, *, whole: bool) -> list[bytes]:
    """Return the complete lines of the beginning of a text."""
    head = head.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if b"\0" in head:
        raise ValueError("not a file of recorded ids")
    lines = head.split(b"\n")
    if not whole and len(lines) == 1:
        raise ValueError(f"its first line has more than {HEAD_BYTES:,} bytes")
    lines = lines if whole else lines[:-1]
    lines = [line for line in lines if line.strip(b" ")]
    if not lines:
        raise ValueError("there is no line in it")
    return lines


def _fields(line: str, delimiter: str, *, quoted: bool) -> list[str]:
    if len(delimiter) > 1 or not quoted:
        return line.split(delimiter)
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:  # an odd quote, or a field that is too long
        return line.split(delimiter)


def _delimiter(lines: Sequence[str]) -> str:
    """Return what splits the lines alike; a column of numbers has nothing to be split by.

    Raises
    ------
    ValueError
        Nothing does.

    """
    for group in SEPARATORS:
        widths = {each: _width(lines, each) for each in group}
        widest = max(widths, key=lambda each: widths[each])
        if widths[widest] > 1:
            return widest
    if all(re.fullmatch(r"[\d\s,|;-]*\d[\d\s,|;-]*", line) for line in lines[1:] or lines):
        return "\x02"  # nothing is split by it
    raise ValueError("not a file of recorded ids: no separator gives its lines as many fields each")


def _width(lines: Sequence[str], delimiter: str) -> int:
    """Return how many fields lines have; 0: not all as many as the first."""
    counts = Counter(len(_fields(line, delimiter, quoted=delimiter != "\t")) for line in lines)
    (width, often), *_ = counts.most_common(1)
    alike = often >= _ALIKE * len(lines)
    alike = alike and len(_fields(lines[0], delimiter, quoted=delimiter != "\t")) == width
    return width if alike and (delimiter != " " or _are_numbers(lines, delimiter)) else 0


def _are_numbers(lines: Sequence[str], delimiter: str) -> bool:
    """Return whether most fields are numbers, so that it is no prose."""
    fields = [field for line in lines[1:] or lines for field in line.split(delimiter)]
    return sum(bool(_NUMBER.fullmatch(field)) for field in fields) >= _ALIKE * len(fields) / 2


def _is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first line has names: no numbers, none twice, nor among the values.

    Where columns have numbers below a first field that is none, it is sure; else names are what
    begins by a letter and does not come again.
    """
    first, rest = rows[0], rows[1:]
    if any(_NUMBER.fullmatch(field) for field in first) or not any(first):
        return False
    columns = list(zip(*rest, strict=True))
    if any(
        name and all(not value or _NUMBER.fullmatch(value) for value in column) and any(column)
        for name, column in zip(first, columns, strict=False)
    ):
        return True
    fresh = all(name not in column for name, column in zip(first, columns, strict=False))
    return (
        fresh and all(_NAME.fullmatch(name) for name in first) and not _same_lengths(first, columns)
    )


def _same_lengths(first: Sequence[str], columns: Sequence[Sequence[str]]) -> bool:
    """Return whether texts of a column are all as long as its first: hashes, and no names."""
    return any(
        len(name) >= 6
        and len(column) > 1
        and {len(value) for value in column if value} == {len(name)}
        for name, column in zip(first, columns, strict=False)
    )


def _has_decimal_commas(rows: Sequence[Sequence[str]]) -> bool:
    fields = [field for row in rows for field in row]
    commas = sum(bool(re.fullmatch(r"-?\d+,\d+", field)) for field in fields)
    return commas > sum(bool(re.fullmatch(r"-?\d+\.\d+", field)) for field in fields)


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Return names without blanks around them; empty ones and repeated ones get others."""
    given: dict[str, int] = {}
    made = []
    for place, name in enumerate(names, 1):
        known = name.replace("\0", "").strip()[:1000] or f"Unnamed: {place - 1}"
        given[known] = given.get(known, 0) + 1
        made.append(known if given[known] == 1 else f"{known}.{given[known]}")
    if all(_ATOMIC.fullmatch(name) for name in made):
        made = [name.rpartition(":")[0] for name in made]
    return (
        tuple(made) if len(set(made)) == len(made) else tuple(f"c{i + 1}" for i in range(len(made)))
    )


def _encoding(data: bytes) -> str:
    try:
        data.decode()
    except UnicodeDecodeError:
        return LATIN
    return "utf8"


def _typed(layout: Layout, data: bytes) -> Layout:
    """Return the layout with the types that the first lines have."""
    import pyarrow as pa

    untyped = replace(layout, types=dict.fromkeys(layout.names, "binary"))
    try:
        raw = _parsed(untyped, data)
        guessed = _parsed(untyped, data, typed=False)
    except pa.ArrowException as error:
        raise ValueError(f"not a readable text of fields: {str(error)[:200]}") from None
    types, times = {}, set()
    for name in layout.names:
        found = guessed.column(name).type
        if pa.types.is_temporal(found):
            times.add(name)
        if pa.types.is_int64(found):
            types[name] = "int64"
        elif pa.types.is_floating(found):
            types[name] = _of_numbers(raw.column(name))
        else:
            types[name] = "binary"
    return replace(layout, types=types, times=frozenset(times))


def _parsed(layout: Layout, data: bytes, *, typed: bool = True) -> Any:  # noqa: ANN401 - a pyarrow.Table
    from pyarrow import csv as arrow_csv

    options = layout.convert_options()
    options.include_columns = list(layout.names)
    if not typed:
        options.column_types = {}
    parse = layout.parse_options()
    parse.invalid_row_handler = lambda _: "skip"
    return arrow_csv.read_csv(
        BytesIO(data),
        read_options=layout.read_options(2 * HEAD_BYTES),
        parse_options=parse,
        convert_options=options,
    )


def _of_numbers(column: Any) -> str:  # noqa: ANN401 - pyarrow has no types
    """Return the type of a column of numbers that are no whole ones of 64 bits with a sign."""
    values = [value.as_py() for value in column if value.is_valid]
    if not all(_WHOLE.fullmatch(value) for value in values):
        return "double"
    return "uint64" if all(0 <= int(value) < 2**64 for value in values) else "binary"


def looser(type_: str, value: str) -> str:
    """Return the type of a column that has such a value, too, beside those of a type."""
    is_number = bool(_NUMBER.fullmatch(value)) and type_ != "double" and "," not in value
    return "double" if is_number else "binary"


def texts(values: Iterator[bytes]) -> list[str]:
    """Return texts of any bytes."""
    return [value.decode("utf-8", "replace") for value in values]
