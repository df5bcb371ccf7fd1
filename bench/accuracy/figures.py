"""Figures of `bench.accuracy`, as PNG and SVG; the same numbers give the same bytes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from bench.accuracy.curves import samples_by_curve
from matplotlib.figure import Figure

from bench.fitting.forms import ALL_FORMS
from costmodel.base.units import MS, US
from costmodel.domain.hardware import CollectiveOp
from planner.calibration.curves import fitted_form
from planner.planned.report import STAGE_NAMES

FOLDER = Path(__file__).parents[1] / "results" / "figures"
COLORS = (
    "#4477aa", "#66ccee", "#228833", "#99cc77", "#ccbb44", "#ee8866", "#ee6677", "#aa3377",
    "#882255", "#997700", "#555555", "#bbbbbb",
)  # fmt: skip
"""Colours of the stages in their order; P. Tol's schemes, told apart when colour-blind."""
SHOWN = ("A100, NVSwitch", "H100, NVSwitch", "RTX PRO 6000, PCIe", "GB200, NVL72")
FORMS = {"alpha_beta": ":", "paper_sigmoid": "--", "log_pchip": "-"}
RANKS = 8
STYLE = {"svg.hashsalt": "bench.accuracy", "font.size": 8.0, "svg.fonttype": "none"}


def write_all(results: Mapping[str, Any]) -> list[Path]:
    """Draw every figure."""
    with mpl.rc_context(STYLE):  # type: ignore[arg-type] # keys are names that matplotlib knows
        return [
            *_write(steps_figure(results["steps"]["rows"]), "steps"),
            *_write(curves_figure(), "collectives"),
            *_write(errors_figure(results["collectives"]["by_platform"]), "collective_errors"),
        ]


def steps_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw measured steps beside the predicted critical path by stage, as the paper's Fig. 10."""
    rows = [row for row in rows if row["stages_s"]]
    figure = Figure(figsize=(9.5, 4.2), layout="constrained")
    axes = figure.add_subplot()
    at = np.arange(len(rows), dtype=np.float64)
    longest = np.array([max(row["measured_s"], row["predicted_s"]) for row in rows])
    axes.bar(
        at - 0.2, [row["measured_s"] / m for row, m in zip(rows, longest, strict=True)], 0.38,
        color="white", edgecolor="black", label="measured",
    )  # fmt: skip
    bottom = np.zeros(len(rows))
    for (stage, name), color in zip(STAGE_NAMES.items(), COLORS, strict=True):
        heights = np.array([row["stages_s"].get(stage.value, 0.0) for row in rows]) / longest
        if heights.any():
            axes.bar(at + 0.2, heights, 0.38, bottom=bottom, color=color, label=name)
        bottom += heights
    for x, row, m in zip(at, rows, longest, strict=True):
        axes.text(
            x - 0.2, row["measured_s"] / m, _ms(row["measured_s"]), ha="center", va="bottom",
            fontsize=6.5,
        )  # fmt: skip
        axes.text(
            x + 0.2, row["predicted_s"] / m, _ms(row["predicted_s"]), ha="center", va="bottom",
            fontsize=6.5,
        )  # fmt: skip
    axes.set_xticks(at, [_step_label(row) for row in rows], rotation=30, ha="right")
    axes.set_ylabel("share of the longer of the two")
    axes.set_ylim(0, 1.12)
    axes.set_title("Training steps: measured (white), and predicted critical path by stage; ms")
    figure.legend(loc="outside right center")
    return figure


def curves_figure() -> Figure:
    """Draw measured all-to-alls and all-reduces of four platforms, and three forms of each."""
    figure = Figure(figsize=(9.5, 4.6), layout="constrained")
    panels = figure.subplots(2, len(SHOWN), sharex=True, sharey="row")
    curves = {(key[0], key[2], key[3]): s for key, s in samples_by_curve().items() if not key[5]}
    for row, op in enumerate((CollectiveOp.ALL_TO_ALL, CollectiveOp.ALL_REDUCE)):
        for column, platform in enumerate(SHOWN):
            axes = panels[row, column]
            samples = curves[platform, op, RANKS]
            axes.loglog(samples.sizes, samples.times / US, ".", color="#4477aa", markersize=3)
            sizes = np.geomspace(samples.sizes.min(), samples.sizes.max(), 200)
            for (form, line), color in zip(
                FORMS.items(), ("#bbbbbb", "#ee6677", "#228833"), strict=True
            ):
                times = fitted_form(ALL_FORMS[form], samples)(sizes) / US
                axes.loglog(sizes, times, line, color=color, linewidth=1, label=form)
            axes.set_title(f"{platform}, {op.value.replace('_', '-')}")
    panels[0, 0].set_ylabel("us")
    panels[1, 0].set_ylabel("us")
    figure.supxlabel("bytes (nccl-tests' size), 8 GPUs")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside right center")
    return figure


def errors_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the hold-out MAPE of four forms and of the choice, by platform and operation."""
    figure = Figure(figsize=(9.5, 4.4), layout="constrained")
    axes = figure.add_subplot()
    at = np.arange(len(rows), dtype=np.float64)
    bars = {
        "alpha-beta": [row["mape"]["alpha_beta"] for row in rows],
        "paper, its rules": [row["mape"]["paper_rules"] for row in rows],
        "paper, searched": [row["mape"]["paper_sigmoid"] for row in rows],
        "chosen": [row["chosen_mape"] for row in rows],
    }
    colors = ("#bbbbbb", "#ee8866", "#ee6677", "#228833")
    for index, ((name, values), color) in enumerate(zip(bars.items(), colors, strict=True)):
        axes.bar(at + 0.2 * (index - 1.5), 100 * np.array(values), 0.2, color=color, label=name)
    labels = [f"{row['platform']}, {row['op'].replace('_', '-')}" for row in rows]
    axes.set_xticks(at, labels, rotation=90)
    axes.set_ylim(0, 30)
    axes.axhline(5, color="black", linewidth=0.5)
    axes.set_ylabel("hold-out MAPE, % (cut at 30)")
    axes.legend(ncols=4)
    return figure


def _step_label(row: Mapping[str, Any]) -> str:
    framework = "SOK " if "SOK" in row["set"] else ""
    return f"{framework}{row['name']}"


def _ms(seconds: float) -> str:
    return f"{seconds / MS:.3g}"


def _write(figure: Figure, name: str) -> list[Path]:
    FOLDER.mkdir(parents=True, exist_ok=True)
    paths = [FOLDER / f"{name}.{kind}" for kind in ("png", "svg")]
    figure.savefig(paths[0], dpi=130, metadata={"Software": None})
    figure.savefig(paths[1], metadata={"Date": None, "Creator": None})
    return paths
