import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.base.units import GIB, MIB
from planner.show.format import (
    bandwidth,
    bar,
    change,
    count,
    duration,
    durations,
    memory,
    printable,
    rate,
    signed_duration,
    significant,
)
from planner.show.layout import Column, flow, table


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
    assert signed_duration(-1.31e-3) == "-1.31 ms"
    assert count(1, "plan") == "1 plan"
    assert count(18400, "plan") == "18,400 plans"
    assert printable("a\x1bb") == "a\ufffdb"


def test_a_bar_ends_in_an_eighth() -> None:
    assert bar(0.5, 4) == "██  "
    assert bar(1 / 8, 1) == "▏"
    assert bar(2.0, 2, "·") == "██"
    assert bar(0.0, 2, "·") == "··"


def test_columns_go_by_priority() -> None:
    columns = [
        Column(header="a", cells=["1"]),
        Column(header="bb", cells=["22"], right=True, priority=2),
        Column(header="cc", cells=["3"], priority=1),
    ]
    assert table(columns, width=80) == ["  a   bb   cc", "  1   22   3"]
    assert table(columns, width=10) == ["  a   cc", "  1   3"]
    assert table(columns, width=1) == ["  a", "  1"]


def test_items_flow_over_lines() -> None:
    assert flow(["aa", "bb", "cc"], width=10, indent=2, gap=2) == ["aa  bb", "cc"]
