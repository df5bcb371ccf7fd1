import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from costmodel.base.units import GIB, MIB
from planner.show.columns import NUMBER, Column
from planner.show.format import (
    bandwidth,
    bar,
    change,
    count,
    duration,
    durations,
    memories,
    memory,
    printable,
    rate,
    signed_duration,
    significant,
)
from planner.show.layout import flow, rows_text
from planner.show.output import Output


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (5.7e-3, "5.70 ms"),
        (12.345e-3, "12.3 ms"),
        (123.4e-3, "123 ms"),
        (0.9996e-3, "1.00 ms"),
        (760e-6, "760 us"),
        (7.1e-6, "7.10 us"),
        (0.0, "0.00 us"),
        (1.5, "1.50 s"),
    ],
)
def test_durations_have_three_digits(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_column_has_one_unit() -> None:
    assert durations([1.97e-3, 0.6e-3, 0.0]) == ["1.97 ms", "0.60 ms", "0.00 ms"]
    assert durations([]) == []


@given(st.floats(min_value=1e-9, max_value=1e9))
def test_significant_digits_keep_half_a_percent(value: float) -> None:
    assert float(significant(value).replace(",", "")) == pytest.approx(value, rel=5.001e-3)


def test_memory_is_in_gib_unless_small() -> None:
    assert memory(56.5 * GIB) == "56.5 GiB"
    assert memory(3 * MIB) == "3.0 MiB"
    assert memory(0) == "0.0 GiB"


def test_other_units() -> None:
    assert rate(11.5e6) == "11.5 M"
    assert rate(12.0) == "12.0"
    assert bandwidth(3.35e12) == "3,350 GB/s"
    assert change(1.067) == "+6.7%"
    assert (change(0.9997), change(1.0003), change(0.999)) == ("0.0%", "0.0%", "-0.1%")
    assert signed_duration(-1.31e-3) == "-1.31 ms"
    assert signed_duration(5.2e-18) == "0 us"
    assert count(1, "plan") == "1 plan"
    assert count(18400, "plan") == "18,400 plans"
    assert printable("a\x1bb") == "a\ufffdb"


def test_a_bar_ends_in_an_eighth() -> None:
    assert bar(0.5, 4) == "██  "
    assert bar(1 / 8, 1) == "▏"
    assert bar(2.0, 2, "·") == "██"
    assert bar(0.0, 2, "·") == "··"


def test_columns_go_by_priority() -> None:
    columns: list[Column[int]] = [
        Column("a", lambda row: row),
        Column("bb", lambda row: 22 * row, NUMBER, priority=2),
        Column("cc", lambda row: 3 * row, priority=1),
    ]

    def table(width: int) -> list[str]:
        return [line.plain for line in rows_text(columns, [1], width=width)]

    assert table(80) == ["  a   bb   cc", "  1   22   3"]
    assert table(10) == ["  a   cc", "  1   3"]
    assert table(1) == ["  a", "  1"]


def test_items_flow_over_lines() -> None:
    assert flow(["aa", "bb", "cc"], width=10, indent=2, gap=2) == ["aa  bb", "cc"]


def test_memory_sizes_of_a_column_have_one_unit() -> None:
    assert memories([40 * GIB, 100 * MIB]) == ["40.0 GiB", "0.1 GiB"]
    assert memories([50 * MIB, 0.0]) == ["50.0 MiB", "0.0 MiB"]
    assert memories([]) == []


def test_a_style_is_of_its_cell_alone() -> None:
    columns: list[Column[tuple[int, int]]] = [
        Column("Rank", lambda row: row[0], NUMBER),
        Column(
            "Wait", lambda row: row[1], NUMBER, style=lambda row: "yellow" if row[1] > 8 else ""
        ),
    ]
    head, calm, late = rows_text(columns, [(0, 1), (1, 9)], width=40)
    assert [line.plain for line in (head, calm, late)] == [
        "  Rank   Wait", "     0      1", "     1      9",
    ]  # fmt: skip
    assert [span.style for span in head.spans] == ["bold"]
    assert calm.spans == []
    (span,) = late.spans
    assert (span.style, late.plain[span.start : span.end].strip()) == ("yellow", "9")


def test_a_table_without_titles_begins_with_its_first_row() -> None:
    columns: list[Column[str]] = [Column("", lambda row: row, style=lambda _: "red")]
    assert [line.plain for line in rows_text(columns, ["a", "b"], width=40)] == ["  a", "  b"]


def test_colours_are_left_out_where_nobody_wants_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def shown(*, color: bool = True) -> str:
        Output(color=color).lines(lambda _: [Text("late", style="yellow")])
        return capsys.readouterr().out

    assert "\x1b[33m" in shown()
    assert "\x1b[33m" not in shown(color=False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[33m" not in shown()
