"""Bytes of lookup kernels beside the counters of a V100."""

from collections.abc import Mapping
from typing import Any

import pytest

from bench.fitting.embedding_anchors import SHARED, predict
from bench.fitting.embedding_rows import measured_rows

pytestmark = pytest.mark.skipif(
    not (SHARED / "embedding.csv").exists(), reason="needs the public measurements in ../shared"
)


def counted(phase: str) -> list[Mapping[str, Any]]:
    rows = [row for row in measured_rows() if row["dram_bytes"] and row["phase"].startswith(phase)]
    return [predict(row) for row in rows]


def test_l2_bytes_of_lookups_are_those_that_the_l1_lacks() -> None:
    rows = counted("forward")
    assert len(rows) == 10
    for row in rows:
        behind, gathered = (
            row[f"predicted_l2_bytes_{name}"] / row["measured_l2_bytes"]
            for name in ("behind_l1", "without_l1")
        )
        assert 0.88 < behind < 1.0
        assert abs(behind - 1) < gathered - 1 + 0.02


def test_dram_bytes_of_lookups_lack_at_most_a_sixth() -> None:
    ratios = [row["predicted_hbm_bytes"] / row["measured_dram_bytes"] for row in counted("forward")]
    assert 0.83 < min(ratios) <= max(ratios) < 1.0


def test_dram_bytes_of_updates_are_what_the_l2_lost() -> None:
    rows = counted("backward")
    assert len(rows) == 10
    ratios = [row["predicted_hbm_bytes"] / row["measured_dram_bytes"] for row in rows]
    assert 0.84 < min(ratios) <= max(ratios) < 1.0
