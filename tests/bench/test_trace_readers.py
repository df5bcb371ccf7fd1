"""HolisticTraceAnalysis finds in a replay's trace what it finds in the profiler's own."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench.replay import SETS, TRACES
from bench.trace_readers import RESULTS, analyses, device_work, replayed


@pytest.fixture(scope="module")
def kept() -> Any:  # noqa: ANN401 - JSON
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def test_every_run_was_read_with_a_named_version(kept: Any) -> None:  # noqa: ANN401
    assert [row["name"] for row in kept["sets"]] == list(SETS)
    assert kept["versions"]["HolisticTraceAnalysis"]


def test_no_kernel_is_lost_and_none_takes_another_time(kept: Any) -> None:  # noqa: ANN401
    for row in kept["sets"]:
        assert row["steps_read_back"] == row["steps_profiled"]
        assert row["missing_device_events"] == 0
        assert row["largest_difference_of_device_time"] < 0.05


def test_every_analysis_has_an_answer(kept: Any) -> None:  # noqa: ANN401
    for row in kept["sets"]:
        assert min(row["rows"].values()) > 0
        assert row["rows"]["temporal_breakdown"] == row["num_ranks"]


@pytest.mark.filterwarnings("ignore:.*:FutureWarning", "ignore:.*:DeprecationWarning")
@pytest.mark.skipif(not TRACES.is_dir(), reason="../shared/data/traces is absent")
def test_the_eight_ranks_are_read(tmp_path: Path) -> None:
    pytest.importorskip("hta", reason="HolisticTraceAnalysis is not installed")
    made = replayed(SETS[0], tmp_path / "replayed")
    assert sorted(rank for rank, _ in device_work(made)) == list(range(8))
    assert analyses(made)["critical_path"] > 100
