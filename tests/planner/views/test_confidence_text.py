from dataclasses import replace

import pytest
from test_report_text import CONFIDENCE, made, written

from costmodel.base.units import MS, US
from costmodel.uncertainty.error_model import Cause
from planner.planned.report import Report
from planner.show.format import odds, span
from planner.views.compare_text import sharders_text
from planner.views.confidence_text import CAUSE_NAMES, confidence_text
from planner.views.report_data import report_data


def sure(**changes: object) -> Report:
    return replace(made(), confidence=replace(CONFIDENCE, **changes))  # type: ignore[arg-type]


def test_an_interval_has_one_unit() -> None:
    assert span((5.4 * MS, 6.6 * MS)) == "5.40 - 6.60 ms"
    assert span((900 * US, 1100 * US)) == "0.90 - 1.10 ms"


@pytest.mark.parametrize(
    ("probability", "text"),
    [(1.0, ">99%"), (0.93, "93%"), (0.5, "50%"), (0.0, "<1%")],
)
def test_odds_of_samples_are_never_certain(probability: float, text: str) -> None:
    assert odds(probability) == text


def test_every_cause_has_a_name() -> None:
    assert set(CAUSE_NAMES) == set(Cause)


def test_what_matters_is_named() -> None:
    text = " ".join(written(confidence_text(sure(), 100)).split())
    assert text == "Its width comes from host time 50%, steps that kernels do not explain 30%"


def test_data_has_units_and_shares() -> None:
    data = report_data(sure())["uncertainty"]
    assert data["interval_s"] == [0.9 * MS, 1.1 * MS]
    assert data["variance_shares"]["host"] == 0.5
    assert report_data(sure())["step_time_interval_s"] == (0.9 * MS, 1.1 * MS)


def test_a_comparison_says_who_beats_whom() -> None:
    best, other = sure(), sure(probability_fastest=0.4, probability_beaten=0.62)
    other = replace(other, tables=other.tables[::-1])  # another plan
    text = written(sharders_text((best, other), 100))
    assert "P(fastest)" in text
    assert "62%." in text.splitlines()[-1]


def test_sharders_that_found_one_plan_share_a_row() -> None:
    one = same = sure(probability_fastest=0.45)
    other = replace(sure(probability_fastest=0.1), tables=one.tables[::-1])
    lines = written(sharders_text((one, same, other), 140)).splitlines()
    first, second = [line for line in lines if line.startswith("  size_greedy")][:2]
    assert first.startswith("  size_greedy and 1 more ")
    assert "90%" in first.split()  # their chances together
    assert second.startswith("  size_greedy  ")
    text = written(sharders_text((one, same), 100))
    assert "beats" not in text
    many = written(sharders_text((one, same, same), 120))
    assert "size_greedy and 2 more" in many
    assert "size_greedy, size_greedy, size_greedy found the same plan." in many
