"""What is read of models' dense parts is what runs: as committed, and of the examples, now."""

import json
from typing import Any

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

from bench.dense_reading.checkouts import CHECKED_OUT
from bench.dense_reading.models import TORCHREC
from bench.dense_reading.reading import EXAMPLES, RESULTS, example_row, table

KEPT = json.loads(RESULTS.read_text(encoding="utf-8"))["models"]
VIEWS = {"aten::as_strided", "aten::view", "aten::_unsafe_view", "aten::_reshape_alias"}
READ = {name: each for name, each in KEPT.items() if "flop" in each}


def test_most_of_what_others_wrote_is_read() -> None:
    theirs = [name for name in READ if name.startswith("TorchEasyRec")]
    assert len(theirs) >= 38
    assert len(READ) == len(theirs) + len(EXAMPLES) + len(TORCHREC) + len(CHECKED_OUT)


@pytest.mark.parametrize("name", READ)
def test_what_is_read_is_what_is_counted(name: str) -> None:
    kept = READ[name]
    assert kept["flop"] == pytest.approx(kept["flop_counted"], rel=0.02)
    assert kept["parameters"] == kept["parameters_counted"]
    assert kept["operators"] == kept["operators_counted"]


def check_profiled(step: dict[str, Any]) -> None:
    assert step["differences"] == {}
    assert set(step["unlisted"]) <= VIEWS
    for place in ("peak", "at_loss"):
        listed, traced = step[place]
        assert listed == pytest.approx(traced, rel=0.02)


@pytest.mark.parametrize("name", EXAMPLES)
def test_kept_steps_run_and_hold_what_the_list_says(name: str) -> None:
    check_profiled(KEPT[f"examples/models, {name}"]["profiled"])


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_read_whole(name: str) -> None:
    found = example_row(name)
    assert found["flop"] == found["flop_counted"] > 0
    assert found["operators"] == found["operators_counted"]
    assert found["unexplained"] == []
    check_profiled(found["profiled"])


def test_a_model_that_is_not_read_has_its_reason_in_the_table() -> None:
    text = table(KEPT)
    assert len(text.splitlines()) == len(KEPT) + 2
    assert "refused: the model's operators cannot be read" in text
