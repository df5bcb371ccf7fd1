"""Collectives: every form of every measured curve, judged on held-out points."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np

from bench.fitting.forms import ALL_FORMS, CANDIDATES
from bench.fitting.sources import rows
from costmodel.base.units import MIB, US
from costmodel.domain.hardware import CollectiveOp
from planner.calibration.curves import (
    Accuracy,
    Array,
    Samples,
    accuracy,
    holdout_errors,
    rounded,
)
from planner.calibration.fit_collectives import chosen

PLATFORMS = {
    "A100-SXM4-80GB": "A100, NVSwitch",
    "H100-SXM5-80GB": "H100, NVSwitch",
    "H200-SXM5-141GB": "H200, NVSwitch",
    "L40S": "L40S, PCIe",
    "RTX PRO 6000 Blackwell": "RTX PRO 6000, PCIe",
    "GB200": "GB200, NVL72",
    "GB300/B300": "GB300, NVL72",
    "V100-SXM2": "4 x V100, DGX-1",
    "NVIDIA H100 80GB HBM3": "H100 clusters",
}
FEWEST_SIZES = 8
"""Sizes that a curve needs to be fitted to half of them."""
NOISY = 0.05
"""Mean deviation of repeats from their size's median from which on data is called noisy."""
ASKED_ABOVE = (16 * MIB, 128 * MIB)
"""Largest sizes that the forms are given when they are asked for larger ones."""
FEWEST_GIVEN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCurve:
    """One collective on one number of ranks of one machine, and what each form misses."""

    platform: str
    variant: str
    op: CollectiveOp
    num_ranks: int
    num_nodes: int
    num_points: int
    repeat: float
    """Mean deviation of the rows from their size's median: what no curve can avoid."""
    flag: str
    """What the data says against itself; empty: nothing."""
    form: str
    """The form with the smallest hold-out MAPE."""
    errors: Mapping[str, Accuracy]

    @property
    def best(self) -> Accuracy:
        """Errors of the chosen form."""
        return self.errors[self.form]


def samples_by_curve() -> dict[tuple[str, str, CollectiveOp, int, int, str], Samples]:
    """Return all measurements of the four operations, one entry for each curve."""
    ops = {op.value: op for op in CollectiveOp}
    grouped = defaultdict(list)
    for row in rows("collectives.csv.gz"):
        if row["op"] in ops:
            ranks, nodes = int(row["num_gpus"]), int(row["num_nodes"])
            flag = row["quality"] if row["quality"].startswith("suspect") else ""
            key = (PLATFORMS[row["gpu_type"]], _variant(row), ops[row["op"]], ranks, nodes, flag)
            grouped[key].append((float(row["nccl_size_bytes"]), float(row["latency_us"]) * US))
    made = {}
    for key, points in sorted(grouped.items()):
        sizes, times = np.array(points).T
        if len(np.unique(sizes)) >= FEWEST_SIZES:
            made[key] = Samples(sizes=sizes, times=times)
    return made


def measured_curves() -> list[MeasuredCurve]:
    """Judge every form on every curve, alternate sizes held out."""
    made = []
    for key, samples in samples_by_curve().items():
        platform, variant, op, ranks, nodes, flag = key
        errors = {name: accuracy(each) for name, each in holdout_errors(samples, ALL_FORMS).items()}
        points = samples.medians()
        middle = points.times[np.searchsorted(points.sizes, samples.sizes)]
        repeat = rounded(float(np.mean(np.abs(samples.times / middle - 1))))
        noisy = f"repeats differ by {repeat:.1%}" if repeat > NOISY else ""
        made.append(
            MeasuredCurve(
                platform=platform,
                variant=variant,
                op=op,
                num_ranks=ranks,
                num_nodes=nodes,
                num_points=len(samples.sizes),
                repeat=repeat,
                flag=flag or noisy,
                form=chosen(errors, CANDIDATES),
                errors=errors,
            )
        )
    return made


def extrapolation_errors(samples: Samples, largest: float) -> dict[str, Array]:
    """Return relative errors of every form above the largest size it was given."""
    points, weights = samples.medians(), samples.weights()
    given, rows = points.sizes <= largest, samples.sizes > largest
    return {
        name: fit(points.sizes[given], points.times[given], weights[given])(samples.sizes[rows])
        / samples.times[rows]
        - 1
        for name, fit in ALL_FORMS.items()
    }


def extrapolated() -> dict[str, dict[str, float]]:
    """Return every form's median MAPE above the largest size it was given."""
    found: dict[str, dict[str, list[float]]] = {}
    for largest in ASKED_ABOVE:
        errors: dict[str, list[float]] = {name: [] for name in ALL_FORMS}
        for samples in samples_by_curve().values():
            sizes = np.unique(samples.sizes)
            if (sizes <= largest).sum() < FEWEST_GIVEN or sizes[-1] <= largest:
                continue
            for name, each in extrapolation_errors(samples, largest).items():
                errors[name].append(float(np.mean(np.abs(each))))
        found[f"{largest / MIB:.0f} MiB"] = errors
    return {
        limit: {name: rounded(median(values)) for name, values in errors.items()}
        for limit, errors in found.items()
    }


def summary(curves: Sequence[MeasuredCurve]) -> list[dict[str, Any]]:
    """Sum up curves by platform and operation: medians over numbers of ranks."""
    groups: dict[tuple[str, str], list[MeasuredCurve]] = defaultdict(list)
    for curve in curves:
        label = (
            f"{curve.platform} (flagged)" if curve.flag.startswith("suspect") else curve.platform
        )
        groups[label, curve.op.value].append(curve)
    return [
        {
            "platform": platform,
            "op": op,
            "curves": len(group),
            "points": sum(curve.num_points for curve in group),
            "mape": {name: median(c.errors[name].mape for c in group) for name in ALL_FORMS},
            "gmae": {name: median(c.errors[name].gmae for c in group) for name in ALL_FORMS},
            "chosen_mape": median(curve.best.mape for curve in group),
            "chosen_gmae": median(curve.best.gmae for curve in group),
            "worst_mape": max(curve.best.mape for curve in group),
            "repeat": median(curve.repeat for curve in group),
        }
        for (platform, op), group in groups.items()
    ]


def overall(curves: Sequence[MeasuredCurve]) -> dict[str, Any]:
    """Return the medians and worst over all curves whose data is not flagged as suspect."""
    trusted = [curve for curve in curves if not curve.flag.startswith("suspect")]
    best = sorted(curve.best.mape for curve in trusted)
    return {
        "curves": len(trusted),
        "points": sum(curve.num_points for curve in trusted),
        "mape": {name: median(c.errors[name].mape for c in trusted) for name in ALL_FORMS},
        "gmae": {name: median(c.errors[name].gmae for c in trusted) for name in ALL_FORMS},
        "chosen_mape": median(best),
        "chosen_gmae": median(curve.best.gmae for curve in trusted),
        "worst_mape": best[-1],
        "above_15_percent": sum(mape > 0.15 for mape in best),
    }


def results() -> dict[str, Any]:
    """Return everything about collective curves as plain data."""
    curves = measured_curves()
    return {
        "overall": overall(curves),
        "by_platform": summary(curves),
        "extrapolated": extrapolated(),
        "curves": [asdict(curve) for curve in curves],
    }


def _variant(row: Mapping[str, str]) -> str:
    """Return what tells two machines, or two programs, of one GPU type apart."""
    if row["gpu_type"] == "V100-SXM2":
        return row["variant"]
    return row["variant"].split("/")[0] if "cluster" in row["variant"] else ""
