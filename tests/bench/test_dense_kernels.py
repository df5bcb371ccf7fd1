import pytest
from needed import needs_data

from bench.fitting.dense_kernels import MODELS, by_kind, held_out_errors, kernel_rows
from planner.files.profiles import load_profile


def test_parameters_of_the_profiled_models() -> None:
    # default: 512-512-64 and 100-1024-1024-1024-1, weights and biases
    weights = 512 * 512 + 512 * 64 + 100 * 1024 + 2 * 1024 * 1024 + 1024
    biases = 512 + 64 + 3 * 1024 + 1
    assert sum(MODELS["DLRM_default"].parameters) == weights + biases
    assert MODELS["DLRM_MLPerf"].pairs == 27 * 26 // 2


@needs_data
def test_streaming_kernels_on_v100_are_near_what_was_profiled() -> None:
    rows = kernel_rows(load_profile("v100-nvlink").gpu)
    kinds = {row["kind"]: row for row in by_kind(rows)}
    assert kinds["relu"]["kernels"] == 12
    assert float(str(kinds["relu"]["median_error"])) == pytest.approx(0.0, abs=0.1)
    assert len(held_out_errors(rows)) == len(rows) - 4
    for kind in ("interaction", "interaction backward", "lower triangle"):
        assert all(abs(row.error) < 0.25 for row in rows if row.kind == kind)
