import json

import pytest

from bench.search_figure import RESULTS, figure, watched
from planner.examples import example_problem, example_workload
from planner.planning.search import Search


def test_a_search_is_noted_part_by_part() -> None:
    found = watched(example_problem(example_workload(12)), Search(max_plans=2000))
    parts = [part for _, part in found["parts"]]
    assert parts[0] == "naive"
    assert {"... linear programs", "... tune a greedy", "... anneal"} <= set(parts)
    assert [at for at, _ in found["parts"]] == sorted(at for at, _ in found["parts"])
    steps = [step for _, step in found["steps"]]
    assert steps == sorted(steps, reverse=True)
    assert found["step_s"] == pytest.approx(steps[-1])


def test_the_figure_ends_where_the_search_did() -> None:
    pytest.importorskip("matplotlib")
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    (line,) = figure(found).axes[0].lines
    gap = 100 * (found["step_s"] / found["bound_s"] - 1)
    assert line.get_xydata()[-1] == pytest.approx([found["cpu_s"], gap])
