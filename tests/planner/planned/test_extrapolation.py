from dataclasses import replace

import pytest
from timelines import two_ranks

from costmodel.base.units import MS, US
from costmodel.step.graph import ExecutionGraph, Stage
from costmodel.step.timeline import Timeline
from planner import plan
from planner.examples import example_workload
from planner.planned.extrapolation import critical_share, extrapolations
from planner.show.ranks import shown_ranks
from planner.views.report_text import beyond_text
from planner.views.timeline_text import timeline_text


def timeline(*beyond: str) -> Timeline:
    """The timeline made by hand, with some of its operations outside what was measured."""
    whole = two_ranks()
    nodes = [
        replace(node, basis=node.basis._replace(extrapolated=True)) if node.name in beyond else node
        for node in whole.graph.nodes
    ]
    return replace(whole, graph=ExecutionGraph(nodes=nodes, world_size=2))


def test_nothing_is_said_where_all_was_measured() -> None:
    assert extrapolations(timeline()) == ()


def test_the_longest_rank_and_the_critical_path_count() -> None:
    # lookups of 0.4 and 0.2 ms, the longer one is on the critical path of 1 ms
    (lookup,) = extrapolations(timeline("lookup"))
    assert (lookup.stage, lookup.kernels) == (Stage.LOOKUP_FORWARD, ("lookup",))
    assert lookup.time == pytest.approx(400 * US)
    assert lookup.critical == pytest.approx(400 * US)


def test_the_most_critical_comes_first() -> None:
    found = extrapolations(timeline("lookup", "output", "mlp"))
    assert [each.critical for each in found] == pytest.approx([500 * US, 400 * US, 100 * US])
    assert critical_share(found, 1 * MS) == pytest.approx(1.0)
    assert critical_share(found[2:], 1 * MS) == pytest.approx(0.1)
    assert critical_share((), 1 * MS) == 0.0


def test_two_stages_are_named_and_the_rest_counted() -> None:
    found = extrapolations(timeline("lookup", "output", "mlp"))
    said = "of the step rests on no measurement: "
    assert beyond_text(found[1:]) == f"{said}lookup forward, all-to-all"
    assert beyond_text(found) == f"{said}dense forward, lookup forward, 1 more"


def test_a_simulated_step_says_what_part_of_it_was_extrapolated() -> None:
    made = plan(example_workload(2), gpus=2, sharder="naive", baseline="none").report

    def said(step: Timeline) -> list[str]:
        found = extrapolations(step, host_assumed=True)
        shown = shown_ranks(step)
        sure = replace(made.confidence, step_time=step.step_time)
        lines = timeline_text(step, 100, replace(made, confidence=sure, extrapolated=found), shown)
        return [line.plain for line in lines if "rests on" in line.plain]

    assert said(timeline("output")) == ["  10% of the step rests on no measurement: all-to-all"]
    assert said(timeline()) == []
