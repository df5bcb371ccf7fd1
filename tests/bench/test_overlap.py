import json

import pytest

from bench.overlap import RESULTS, kind_of, overlapped_share, slowdown
from planner.traces.replay.breakdown import union


def test_intervals_that_touch_are_one() -> None:
    assert union([(5.0, 7.0), (0.0, 2.0), (1.0, 3.0)]) == [(0.0, 3.0), (5.0, 7.0)]


def test_a_run_is_overlapped_by_what_lies_inside_it() -> None:
    # of 4 to 14, 4 to 5 and 10 to 12 are busy: 3 of 10
    assert overlapped_share(4.0, 14.0, [(0.0, 5.0), (10.0, 12.0)]) == pytest.approx(0.3)
    assert overlapped_share(4.0, 14.0, []) == 0.0


def test_kernels_are_told_apart_by_name() -> None:
    assert kind_of("volta_sgemm_128x64_nn") == "matrix product"
    assert kind_of("split_embedding_codegen_forward_unweighted_kernel") == "lookup"
    assert kind_of("void at::native::vectorized_elementwise_kernel<4>") == "elementwise"
    assert kind_of("fbgemm_gpu::permute_2D_data_kernel") is None
    assert kind_of("cub::DeviceScanKernel") is None


def test_a_slowdown_is_that_of_a_run_that_is_overlapped_all_along() -> None:
    # 10 us alone; half overlapped 11, wholly 12: 20% longer
    assert slowdown(10.0, [(11.0, 0.5), (12.0, 1.0)]) == pytest.approx(1.2)


def test_collectives_slow_matrix_products_down_by_more_than_their_scatter() -> None:
    rows = [row for row in json.loads(RESULTS.read_text("utf-8")) if row["overlapped_ms"] > 1]
    products = [row for row in rows if row["kind"] == "matrix product"]
    assert len(products) == 4
    for row in products:
        assert 1.05 < row["slowdown"] < 1.15
        assert row["slowdown"] - 1 > 2 * row["scatter_alone"]


def test_collectives_inside_a_node_slow_lookups_down() -> None:
    rows = json.loads(RESULTS.read_text("utf-8"))
    (row,) = [row for row in rows if row["set"].startswith("A100-PG509-200")]
    assert row["slowdown"] - 1 > 20 * row["scatter_alone"]
