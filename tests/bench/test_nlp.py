"""The committed predictions of language models are those of today's code."""

import json
from typing import Any

import pytest

from bench.nlp.__main__ import PROFILE, TABLE, table
from bench.nlp.cpu_profile import read_cpu_profile


@pytest.fixture(scope="module")
def kept() -> Any:  # noqa: ANN401 - JSON
    return json.loads(TABLE.read_text(encoding="utf-8"))


@pytest.mark.nightly
def test_the_table_is_that_of_what_is_committed(kept: Any) -> None:  # noqa: ANN401 - JSON
    made = table()
    assert [row["model"] for row in made["rows"]] == [row["model"] for row in kept["rows"]]
    for row, old in zip(made["rows"], kept["rows"], strict=True):
        assert row["predicted_s"] == pytest.approx(old["predicted_s"], rel=1e-6)
    assert made["geomean_error"] == pytest.approx(kept["geomean_error"], rel=1e-4)


def test_every_model_at_several_batch_sizes(kept: Any) -> None:  # noqa: ANN401 - JSON
    for model in ("bert", "gpt2", "xlnet"):
        sizes = {r["local_batch_size"] for r in kept["rows"] if r["model"] == model}
        assert len(sizes) >= 3
    assert {row["optimizer"] for row in kept["rows"]} == {"for-loop", "foreach", "fused"}


def test_nearly_all_time_is_of_known_operators(kept: Any) -> None:  # noqa: ANN401 - JSON
    assert all(row["unknown_share"] < 0.005 for row in kept["rows"])


def test_the_profile_has_errors_of_held_out_sizes() -> None:
    profile = read_cpu_profile(PROFILE)
    assert all(times.error is not None for times in profile.products.values())
    assert all(times.error is not None for times in profile.operators.values())
    assert profile.host.python_call_time + profile.host.function_time > 0
