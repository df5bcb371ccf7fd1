"""What the five models run and hold in a step is what their lists say: as committed, and now."""

from importlib import import_module
from typing import Any

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

from bench.dense_reading.reading import EXAMPLES
from bench.five_models.showing import RESULTS, difference
from bench.five_models.steps import beside_the_profiler
from bench.kept import read

KEPT = read(RESULTS)
VIEWS = {"aten::as_strided", "aten::view", "aten::_unsafe_view", "aten::_reshape_alias"}


def check_step(step: dict[str, Any]) -> None:
    assert step["differences"] == {}
    assert set(step["unlisted"]) <= VIEWS
    for place in ("peak", "at_loss"):
        listed, traced = step[place]
        assert listed == pytest.approx(traced, rel=0.02)


@pytest.mark.parametrize("name", EXAMPLES)
def test_kept_steps_are_those_of_the_lists(name: str) -> None:
    check_step(KEPT[name]["step"])
    assert difference(KEPT[name]["trained"]) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_profiled_step_runs_and_holds_what_the_list_says(name: str) -> None:
    check_step(beside_the_profiler(import_module(f"examples.models.{name}").make_model()))
