"""The committed replay results hold what the project claims; ablations keep the graph sound."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.replay import ABLATIONS, SETS, TRACES, load
from bench.traced_dlrm import side_by_side, synthesized
from costmodel.step.graph import NodeKind
from costmodel.step.simulator import simulate

RESULTS = Path(__file__).parents[2] / "bench/results/replay.json"


@pytest.fixture(scope="module")
def kept() -> Any:  # noqa: ANN401 - JSON
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def test_eight_v100_are_within_one_percent(kept: Any) -> None:  # noqa: ANN401
    errors = kept["sets"][0]["errors"]["graph"]
    assert errors["worst_step"] < 0.01
    assert abs(errors["makespan"]) < 0.01


def test_every_rank_alone_is_within_two_percent_of_its_step(kept: Any) -> None:  # noqa: ANN401
    assert kept["sets"][0]["one_rank"]["worst_step"] < 0.01
    assert kept["one_rank"]["worst_step"] < 0.02
    for each in kept["sets"]:
        off = [abs(row["alone_s"] / row["measured_s"] - 1) for row in each["steps"]]
        assert max(off) == pytest.approx(each["one_rank"]["worst_step"])


def test_four_v100_are_within_six_percent_and_two_on_the_mean(kept: Any) -> None:  # noqa: ANN401
    sets = [each["errors"]["graph"] for each in kept["sets"][1:]]
    assert max(errors["worst_step"] for errors in sets) < 0.06
    assert sum(errors["mean_step"] for errors in sets) / len(sets) < 0.02


def test_the_graph_is_better_than_algorithm1_and_that_than_the_baseline(kept: Any) -> None:  # noqa: ANN401
    for each in kept["sets"]:
        errors = [each["errors"][mode]["mean_step"] for mode in ("graph", "algorithm1", "baseline")]
        assert errors == sorted(errors)


def test_synchronization_and_host_blocks_matter(kept: Any) -> None:  # noqa: ANN401
    errors = kept["sets"][0]["errors"]
    assert errors["no inter-rank synchronization"]["worst_step"] > 0.25
    assert errors["no host blocks"]["worst_step"] > 0.25


@pytest.mark.slow
@pytest.mark.skipif(not TRACES.is_dir(), reason="../shared/data/traces is absent")
def test_every_ablation_can_be_simulated(kept: Any) -> None:  # noqa: ANN401
    run = load(SETS[0]).run
    assert simulate(run.graph, drain=True).ends
    for name, change in ABLATIONS.items():
        ends = simulate(change(run.graph), drain=True).ends
        error = max(ends) / run.makespan - 1
        assert error == pytest.approx(kept["sets"][0]["errors"][name]["makespan"], abs=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(not TRACES.is_dir(), reason="../shared/data/traces is absent")
def test_collectives_side_by_side() -> None:
    pairs = side_by_side(load(SETS[0]).run.graph, synthesized())
    assert len(pairs) == 8
    assert all(pair.same and len(pair.imported_bytes) == 8 for pair in pairs)


def test_another_size_or_order_is_not_the_same() -> None:
    made = synthesized()
    first = next(n for n in made.nodes if n.kind is NodeKind.COLLECTIVE and n.rank == 5)
    larger = replace(first, num_bytes=first.num_bytes + 4)
    other = replace(made, nodes=[larger if node == first else node for node in made.nodes])
    before, after = side_by_side(made, made)[0], side_by_side(other, made)[0]
    assert before.same
    assert not after.same
    assert after.imported_bytes[5] == before.imported_bytes[5] + 4
    fewer = replace(made, nodes=[node for node in made.nodes if node != first])
    assert not side_by_side(fewer, made)[-1].same
