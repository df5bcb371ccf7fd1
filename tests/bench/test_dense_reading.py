"""What is read of models' dense parts is what runs: as committed, and of the examples, now."""

import json
from functools import partial
from importlib import import_module

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

from bench.dense_reading.checkouts import CHECKED_OUT
from bench.dense_reading.models import TORCHREC
from bench.dense_reading.reading import EXAMPLES, RESULTS, made, row, table

KEPT = json.loads(RESULTS.read_text(encoding="utf-8"))["models"]
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


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_read_whole(name: str) -> None:
    found = row(partial(made, import_module(f"examples.models.{name}").make_model))
    assert found["flop"] == found["flop_counted"] > 0
    assert found["operators"] == found["operators_counted"]
    assert found["unexplained"] == []


def test_a_model_that_is_not_read_has_its_reason_in_the_table() -> None:
    text = table(KEPT)
    assert len(text.splitlines()) == len(KEPT) + 2
    assert "refused: the model's operators cannot be read" in text
