import pytest

from bench.accuracy import ON_CORES, table, table_ii


def test_steps_are_summed_up_by_hand() -> None:
    # geometric mean of 2% and 8% is 4%
    rows = [{"set": "a", "error": 0.02}, {"set": "a", "error": -0.08}, {"set": "b", "error": 0.5}]
    rows.append({"set": ON_CORES, "error": 0.9})
    first, _, on_gpus, on_cores = table_ii(rows)
    found = [first[name] for name in ("geomean", "mean", "min", "max")]
    assert found == pytest.approx([0.04, 0.05, 0.02, 0.08])
    assert (on_gpus["steps"], on_gpus["max"]) == (3, 0.5)
    assert (on_cores["steps"], on_cores["max"]) == (1, 0.9)
    assert table([first]).splitlines()[-1] == "| a | 2 | 4.0% | 5.0% | 2.0% | 8.0% |"
