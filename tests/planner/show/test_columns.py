"""One description of a table, as text, as HTML and as JSON."""

from dataclasses import dataclass
from enum import StrEnum

import pytest

from costmodel.base.units import MS, US
from planner.pages.html_tables import rows_html
from planner.show.columns import (
    NUMBER,
    SPAN,
    TIME,
    Column,
    json_column,
    part_columns,
    plain,
    rows_data,
    times,
)
from planner.show.layout import rows_text, wrapped


class Kind(StrEnum):
    FAST = "fast"


@dataclass(frozen=True)
class Run:
    name: str
    seconds: float | None
    kind: Kind = Kind.FAST
    spread: tuple[float, float] = (1 * MS, 2 * MS)


RUNS = [Run("<a>", 1.5 * MS), Run("b", 20 * US), Run("c", None)]
COLUMNS: list[Column[Run]] = [
    Column("Run", lambda run: run.name, key="name"),
    Column("Time", lambda run: run.seconds, TIME, key="time_s", page="Took", none="none"),
    Column("90%", lambda run: run.spread, SPAN, page=""),
    Column("Kind", lambda run: run.kind, key="kind", in_text=False),
    json_column("spread"),
]


def test_text_has_one_unit_per_column() -> None:
    assert [line.plain for line in rows_text(COLUMNS, RUNS, width=60)] == [
        "  Run      Time              90%",
        "  <a>   1.50 ms   1.00 - 2.00 ms",
        "  b     0.02 ms   1.00 - 2.00 ms",
        "  c        none   1.00 - 2.00 ms",
    ]


def test_pages_have_values_to_sort_by_and_every_number_in_its_unit() -> None:
    page = rows_html(COLUMNS, RUNS)
    assert "<th>Run</th><th>Took</th><th>Kind</th>" in page
    assert '<td>&lt;a&gt;</td><td style="text-align:right" data-v="0.0015">1.50 ms</td>' in page
    assert '<td>b</td><td style="text-align:right" data-v="2e-05">20.0 us</td>' in page
    assert '<td>c</td><td style="text-align:right" data-v="">none</td>' in page
    assert '<td colspan="3">1 more</td>' in rows_html(COLUMNS, RUNS, 2)


def test_a_pair_is_not_sorted_by() -> None:
    assert "data-v" not in rows_html([Column("90%", lambda run: run.spread, SPAN)], RUNS)


def test_long_cells_may_be_sorted_by_another_number() -> None:
    column: Column[Run] = Column(
        "Why", lambda run: run.name, prose=True, sorted_by=lambda run: run.seconds
    )
    assert '<td class="prose" data-v="0.0015">&lt;a&gt;</td>' in rows_html([column], RUNS)


def test_json_has_the_values_of_columns_with_a_key() -> None:
    first, *_ = rows_data(COLUMNS, RUNS)
    assert first == {"name": "<a>", "time_s": 1.5e-3, "kind": "fast", "spread": [1e-3, 2e-3]}
    assert type(first["kind"]) is str


def test_fields_go_by_the_names_of_json() -> None:
    keys = {Run: {"seconds": "time_s", "spread": ""}}
    assert plain({Kind.FAST: (RUNS[1], None)}, keys) == {
        "fast": [{"name": "b", "time_s": 20 * US, "kind": "fast"}, None]
    }


def test_the_unit_may_be_of_a_number_that_is_not_in_the_column() -> None:
    assert Column("", lambda _: 0.5 * MS, times(1 * MS)).texts([0]) == ["0.50 ms"]
    parts = [("a", 0.25 * MS), ("b", 0.75 * MS)]
    assert [column.texts(parts) for column in part_columns(1 * MS)] == [
        ["a", "b"], ["0.25 ms", "0.75 ms"], ["25%", "75%"],
    ]  # fmt: skip


@pytest.mark.parametrize("rows", [[], [Run("c", None)]])
def test_tables_of_nothing_have_their_titles(rows: list[Run]) -> None:
    assert next(rows_text(COLUMNS, rows, width=60)).plain.split() == ["Run", "Time", "90%"]


def test_lines_of_a_text_are_indented() -> None:
    lines = wrapped("one two three", 8, then=1, style="red")
    assert [(line.plain, line.style) for line in lines] == [
        ("  one", "red"), ("   two", "red"), ("   three", "red"),
    ]  # fmt: skip


def test_numbers_are_said_as_they_are() -> None:
    assert NUMBER(7) == "7"
