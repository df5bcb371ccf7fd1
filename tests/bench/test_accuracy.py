import json
import re

import numpy as np
import pytest
from needed import needs_data

pytest.importorskip("matplotlib", reason="figures need matplotlib, the `fit` extra")

from bench import accuracy_tables as tables
from bench import paper
from bench.accuracy import curves, figures, scaling, steps
from bench.accuracy.__main__ import PARTS, QUOTED, RESULTS
from bench.accuracy.report import report
from bench.fitting.dense_kernels import MODELS, by_kind, held_out_errors, kernel_rows
from bench.published_steps import program_of, published_rows
from bench.readme import TABLES
from costmodel.domain.hardware import CollectiveOp
from costmodel.step.graph import Stage
from planner.calibration.curves import Accuracy
from planner.files.profiles import load_profile

GOOD = Accuracy(median=0.01, mape=0.02, gmae=0.01, p90=0.05)
BAD = Accuracy(median=0.1, mape=0.2, gmae=0.1, p90=0.5)


def curve(best: Accuracy, *, flag: str = "", ranks: int = 8) -> curves.MeasuredCurve:
    return curves.MeasuredCurve(
        platform="machine",
        variant="",
        op=CollectiveOp.ALL_TO_ALL,
        num_ranks=ranks,
        num_nodes=1,
        num_points=10,
        repeat=0.0,
        flag=flag,
        form="log_pchip",
        errors=dict.fromkeys(curves.ALL_FORMS, best),
    )


def test_the_committed_report_is_that_of_the_committed_results() -> None:
    results = json.loads((RESULTS / "accuracy.json").read_text("utf-8"))
    assert report(results) == (RESULTS / "accuracy.md").read_text("utf-8")
    assert set(PARTS) <= results.keys()
    assert set(QUOTED) <= TABLES.keys()


def test_every_figure_is_there_twice() -> None:
    names = {path.name for path in figures.FOLDER.iterdir()}
    assert names >= {f"steps.{kind}" for kind in ("png", "svg")}
    shown = re.findall(r"\(figures/(\S+)\)", (RESULTS / "accuracy.md").read_text("utf-8"))
    assert set(shown) <= names


def test_the_aims_for_collectives_are_met() -> None:
    total = json.loads((RESULTS / "accuracy.json").read_text("utf-8"))["collectives"]["overall"]
    assert total["chosen_mape"] < 0.05
    assert total["above_15_percent"] == 0
    assert total["chosen_mape"] < total["mape"]["paper_sigmoid"] < total["mape"]["alpha_beta"]


def test_the_paper_s_table_stands_beside_ours() -> None:
    results = json.loads((RESULTS / "accuracy.json").read_text("utf-8"))
    rows = tables.table_i(results).splitlines()
    # all-to-all: 6.28% on four GV100, 5.25% on four A100, then ours
    assert rows[2].startswith("| all to all | 6.28 | 5.25 | ")
    assert [row.split(" | ")[0] for row in rows[4:]] == [
        "| embedding forward",
        "| embedding backward",
    ]
    platforms = {row["platform"] for row in results["collectives"]["by_platform"]}
    assert set(paper.ON) <= platforms
    assert "Table I's" in tables.collectives(results["collectives"])


def test_the_paper_s_rule_for_uneven_messages_is_the_authors_best() -> None:
    best = min(paper.UNEVEN.values())
    assert best is next(iter(paper.UNEVEN.values()))
    assert "| 5.36 | 7.43 | 4.93 |" in tables.uneven_authors()


def test_reuse_factors_help_learned_lookups() -> None:
    models = json.loads((RESULTS / "accuracy.json").read_text("utf-8"))["learned"]["models"]
    for form in ("paper's form", "sum of tables"):
        for phase in ("forward", "backward"):
            without = models[f"{form}, without reuse"][phase]["gmae"]
            assert models[f"{form}, 17 bins"][phase]["gmae"] < without


def test_suspect_data_is_kept_apart() -> None:
    made = [curve(GOOD), curve(GOOD, ranks=4), curve(BAD, flag="suspect_no_P2P")]
    assert curves.overall(made)["worst_mape"] == GOOD.mape
    assert [(row["platform"], row["curves"]) for row in curves.summary(made)] == [
        ("machine", 2),
        ("machine (flagged)", 1),
    ]


def test_table_ii_by_hand() -> None:
    # geometric mean of 2% and 8% is 4%
    rows = [{"set": "a", "error": 0.02}, {"set": "a", "error": -0.08}, {"set": "b", "error": 0.5}]
    first = next(row for row in steps.table_ii(rows) if row["set"] == "a")
    assert [first[name] for name in ("geomean", "mean", "min", "max")] == pytest.approx([
        0.04,
        0.05,
        0.02,
        0.08,
    ])


def test_the_rules_for_uneven_messages() -> None:
    sizes = np.array([1.0, 2.0, 6.0])
    values = [rule(sizes) for rule in scaling.RULES.values()]
    assert values == [6.0, 3.0, 1.0, 9.0]


def test_the_rules_for_both_sides() -> None:
    # two ranks send 4 each, all of it to rank 0
    values = [rule(np.array([4.0, 4.0]), np.array([8.0, 0.0])) for rule in scaling.SIDES.values()]
    assert values == [8.0, 6.0, 4.0, 4.0, 4.0]


def test_an_explanation_names_the_least_changes() -> None:
    worst = {
        "name": "a step",
        "measured_s": 2e-3,
        "predicted_s": 1e-3,
        "stages_s": {"lookup_forward": 0.6e-3, "host": 0.4e-3},
        "remedies": [
            {"stage": "host", "critical_s": 0.4e-3, "factor": 3.5},
            {"stage": "lookup_forward", "critical_s": 0.6e-3, "factor": 2.67},
        ],
    }
    text = steps.explanation(worst)
    assert "1.00 ms predicted, 2.00 ms measured, 1.00 ms too short" in text
    assert "lookup forward 2.67 times as long; host 3.50 times as long" in text
    assert "No single stage" in steps.explanation({**worst, "remedies": []})


@needs_data
def test_a_stage_s_factor_brings_the_step_to_what_was_asked() -> None:
    row = next(row for row in published_rows() if row["num_gpus"] == "1")
    step = program_of(row)[0]
    longer = steps._scaled(step, Stage.DENSE_BACKWARD, 1.5)
    assert steps._factor(step, Stage.DENSE_BACKWARD, longer) == pytest.approx(1.5, rel=0.01)
    assert steps._factor(step, Stage.LOOKUP_FORWARD, longer * 1e3) is None


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
    assert float(str(kinds["relu"]["median_error"])) < 0.1
    assert len(held_out_errors(rows)) == len(rows) - 4
    for kind in ("interaction", "interaction backward", "lower triangle"):
        assert all(abs(row.error) < 0.25 for row in rows if row.kind == kind)
