"""The committed predictions of language models are those of today's code."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from execution_trace_files import PROFILE as PROFILE_TEXT
from execution_trace_files import EtMaker, rank, tensor

from bench.nlp import fit
from bench.nlp.__main__ import PROFILE, TABLE, TRACES, table
from bench.nlp.cpu_model import CpuModel
from bench.nlp.cpu_profile import read_cpu_profile
from bench.nlp.shorten import shortened
from planner.traces.predict.operator_trace import operator_traces
from planner.traces.predict.walk import RankWork, rank_work


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


def test_traces_are_small_enough_to_keep() -> None:
    assert TRACES.stat().st_size < 300 * 1024


def work(document: dict[str, Any]) -> RankWork:
    (trace,) = operator_traces([("rank0.json", document)], "job")
    return rank_work(trace.ops)


def test_a_shortened_trace_has_the_same_work() -> None:
    maker = rank()
    product = next(node["id"] for node in maker.nodes if node["name"] == "aten::mm")
    maker.add("aten::resolve_conj", parent=product)
    short = shortened(maker.document())
    assert len(short["nodes"]) == len(maker.nodes) - 1
    assert work(short) == work(maker.document())


def test_curves_are_those_of_long_rows_without_what_rows_cost() -> None:
    # 1 ns an element and 100 ns a row: near; twice that far
    rows = [
        {
            "operator": "aten::relu",
            "elements": size,
            "runs": size // width,
            "width": width,
            "held_out": size == 300_000,
            "seconds": size * 1e-9 + size // width * 1e-7,
            "far_seconds": size * 2e-9 + size // width * 1e-7,
        }
        for width in (1000, 50)
        for size in (10_000, 100_000, 300_000, 1_000_000)
    ]
    made = fit.operators(rows, 1000)["aten::relu"]
    assert made.run_time == pytest.approx(1e-7)
    assert made.time(100_000, 100) == pytest.approx(1.1e-4)
    assert made.time(100_000, 100, far=1.0) == pytest.approx(2.1e-4)
    assert made.error == pytest.approx(0.0, abs=1e-6)


def test_products_are_fitted() -> None:
    shapes = [(1, 32 * i, 64, 32 * j) for i in range(1, 7) for j in range(1, 7)]
    rows = [
        {
            "operator": "aten::mm",
            "shape": (count, m, n, k),
            "seconds": 2e-6 + 2e-11 * m * n * k,
            "far_seconds": 2e-6 + 2e-11 * m * n * k + 4e-10 * (m * k + k * n + m * n),
        }
        for count, m, n, k in shapes
    ]
    made = fit.products(rows)["aten::mm"]
    assert made.flop_time == pytest.approx(1e-11, rel=1e-3)
    assert made.far_byte_time == pytest.approx(1e-10, rel=1e-3)
    assert made.call_time + made.product_time == pytest.approx(2e-6, rel=1e-3)


def test_larger_all_reduces_are_not_faster() -> None:
    times = ((4e3, 5e-3, 4e-3), (1e5, 1e-3, 5e-4), (1e6, 4e-3, 3e-3))
    rows = [{"bytes": size, "wall_s": wall, "work_s": work} for size, wall, work in times]
    made = fit.all_reduce(rows, 2)
    assert made.seconds == (1e-3, 1e-3, 4e-3)
    assert made.work == (5e-4, 5e-4, 3e-3)


def test_kernels_that_take_longer_within_steps_are_noticed(tmp_path: Path) -> None:
    # as many calls of more and more work: products of 2 us, and relu of 1 us, by themselves
    path = tmp_path / "core.yaml"
    path.write_text(PROFILE_TEXT, encoding="utf-8")
    profile = read_cpu_profile(path)
    steps = []
    for sizes in ((1, 1), (1, 8), (8, 1), (8, 8), (20, 3), (3, 20)):
        maker = rank(work=0)
        for times, name in zip(sizes, ("aten::mm", "aten::relu"), strict=True):
            for _ in range(20):
                add(maker, name, 100 * times)
        known = fit.MeasuredStep(work=work(maker.document()), wall=1.0, cpu=1.0)
        own = fit.kernel_times(known.work, CpuModel(profile))
        steps.append(replace(known, cpu=1e-3 + 1.1 * own[0] + 1.5 * own[1] + 20e-6))
    _, in_step = fit.steps(profile, steps)
    assert in_step.products == pytest.approx(1.1, rel=0.05)
    assert in_step.operators == pytest.approx(1.5, rel=0.05)


def add(maker: EtMaker, name: str, size: int) -> None:
    tensors = [tensor(size, 1), tensor(1, size)] if name == "aten::mm" else [tensor(size, 10)]
    maker.add(name, inputs=tensors, outputs=[tensor(size, size)])


def test_waiting_within_steps_is_that_beyond_the_cpu_time(tmp_path: Path) -> None:
    # the all-reduce of 400 bytes waits 30 us; here it is 60 us that no core works
    path = tmp_path / "core.yaml"
    path.write_text(PROFILE_TEXT, encoding="utf-8")
    step = fit.MeasuredStep(work=work(rank().document()), wall=260e-6, cpu=200e-6)
    assert fit.waiting(read_cpu_profile(path), [step]) == pytest.approx(2.0)
