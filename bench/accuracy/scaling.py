"""Laws between curves: other numbers of ranks, several nodes, uneven messages."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.accuracy.curves import samples_by_curve
from bench.fitting.checks import across_nodes
from bench.fitting.sources import DATA
from costmodel.domain.hardware import CollectiveCurve, CollectiveOp, HardwareProfile, Source
from costmodel.kernels.collectives import RankGroup, collective_time, curve_time
from costmodel.step.graph import Node, Stage
from planner.calibration.curves import (
    Array,
    Samples,
    accuracy,
    fitted_form,
    knots_beyond,
    log_pchip,
)
from planner.files.profiles import load_profile
from planner.traces.replay.importing import load_run

ONE_DOMAIN = ("A100", "H100, NV", "H200", "L40S", "RTX", "GB200", "GB300")
"""Platforms with several numbers of ranks in one domain of links."""
UNEVEN_GLOO = Path(__file__).parents[1] / "results" / "uneven_exchange.json"
UNEVEN_RUN = DATA / "traces" / "dlrm8_v100"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """One number of ranks, predicted from the curves of the others."""

    platform: str
    op: CollectiveOp
    num_ranks: int
    known: tuple[int, ...]
    mape: float
    gmae: float
    large: float
    """Median error from 1 MiB up: the law of bandwidth, without that of latency."""


def left_out() -> list[LeftOut]:
    """Hold out every number of ranks of every platform that has at least three."""
    domains: dict[tuple[str, CollectiveOp], dict[int, Samples]] = {}
    for (platform, _, op, ranks, _, flag), samples in samples_by_curve().items():
        if platform.startswith(ONE_DOMAIN) and not flag:
            domains.setdefault((platform, op), {})[ranks] = samples
    return [
        _left_out(platform, op, by_ranks, ranks)
        for (platform, op), by_ranks in domains.items()
        if len(by_ranks) >= 3
        for ranks in by_ranks
    ]


def _left_out(
    platform: str, op: CollectiveOp, by_ranks: Mapping[int, Samples], num_ranks: int
) -> LeftOut:
    others = [ranks for ranks in sorted(by_ranks) if ranks != num_ranks]
    carrier = load_profile("h100-sxm")
    hardware = replace(carrier, curves=tuple(_curve(op, n, by_ranks[n]) for n in others))
    samples = by_ranks[num_ranks]
    group = RankGroup(num_ranks=num_ranks, ranks_per_node=num_ranks)
    errors = collective_time(op, samples.sizes, group, hardware) / samples.times - 1
    found = accuracy(errors)
    large = np.abs(errors[samples.sizes >= 2**20])
    return LeftOut(
        platform=platform,
        op=op,
        num_ranks=num_ranks,
        known=tuple(others),
        mape=found.mape,
        gmae=found.gmae,
        large=float(np.median(large)),
    )


def _curve(op: CollectiveOp, num_ranks: int, samples: Samples) -> CollectiveCurve:
    inside, outside = knots_beyond(fitted_form(log_pchip, samples), samples.medians())
    return CollectiveCurve(
        op=op,
        num_ranks=num_ranks,
        knots=(*inside, *outside),
        source=Source.FITTED,
        origin="bench.accuracy",
    )


def by_platform(rows: Iterable[LeftOut]) -> list[dict[str, Any]]:
    """Return medians by platform, and whether the number of ranks lay inside or outside."""
    groups: dict[tuple[str, str], list[LeftOut]] = {}
    for row in rows:
        inside = min(row.known) < row.num_ranks < max(row.known)
        groups.setdefault((row.platform, "between" if inside else "beyond"), []).append(row)
    return [
        {
            "platform": platform,
            "held_out": where,
            "cases": len(group),
            "mape": median(row.mape for row in group),
            "large": median(row.large for row in group),
            "worst_mape": max(row.mape for row in group),
        }
        for (platform, where), group in groups.items()
    ]


RULES: Mapping[str, Callable[[Array], float]] = {
    "largest of any rank (the paper)": lambda sizes: float(sizes.max()),
    "mean over ranks": lambda sizes: float(sizes.mean()),
    "smallest of any rank": lambda sizes: float(sizes.min()),
    "sum over ranks": lambda sizes: float(sizes.sum()),
}
"""What size an uneven all-to-all counts as, of the larger of sent and received by each rank."""

SIDES: Mapping[str, Callable[[Array, Array], float]] = {
    "largest sent or received (the paper)": lambda sent, got: float(np.maximum(sent, got).max()),
    "mean of the larger side": lambda sent, got: float(np.maximum(sent, got).mean()),
    "largest sent": lambda sent, _: float(sent.max()),
    "mean sent": lambda sent, _: float(sent.mean()),
    "smallest of the larger side": lambda sent, got: float(np.maximum(sent, got).min()),
}
"""The same, where both sides are known by rank."""


def uneven(hardware: HardwareProfile) -> list[dict[str, Any]]:
    """Return the uneven all-to-alls of a profiled run beside what each rule predicts.

    Their time is the shortest of the ranks' kernels: the others wait for peers.
    """
    curve = next(
        curve
        for curve in hardware.curves
        if (curve.op, curve.num_ranks) == (CollectiveOp.ALL_TO_ALL, 8)
    )
    found = []
    for nodes in _all_to_alls():
        sizes = np.array([node.num_bytes for node in nodes])
        if sizes.max() == sizes.min():
            continue
        predicted = {name: float(curve_time(curve, rule(sizes))) for name, rule in RULES.items()}
        found.append({
            "largest_bytes": float(sizes.max()),
            "mean_bytes": float(sizes.mean()),
            "measured_s": min(node.seconds for node in nodes),
            "predicted_s": predicted,
        })
    return found


def uneven_gloo() -> dict[str, Any] | None:
    """Return what each rule misses on uneven all-to-alls of CPU ranks, by the curve of even ones.

    None where `bench.uneven_exchange` has not kept any.
    """
    if not UNEVEN_GLOO.exists():
        return None
    kept = json.loads(UNEVEN_GLOO.read_text(encoding="utf-8"))
    even = [row for row in kept["rows"] if not row["focus"]]
    curve = fitted_form(
        log_pchip,
        Samples(
            sizes=np.array([max(row["sent"]) for row in even]),
            times=np.array([row["seconds"] for row in even]),
        ),
    )
    errors: dict[str, list[float]] = {name: [] for name in SIDES}
    for row in (row for row in kept["rows"] if row["focus"]):
        sent, received = np.array(row["sent"]), np.array(row["received"])
        for name, rule in SIDES.items():
            predicted = float(curve(np.array([rule(sent, received)]))[0])
            errors[name].append(predicted / row["seconds"] - 1)
    return {
        "machine": kept["machine"],
        "date": kept["date"],
        "cases": len(kept["rows"]) - len(even),
        "rules": {
            name: {"mape": float(np.mean(np.abs(each))), "bias": float(np.median(each))}
            for name, each in errors.items()
        },
    }


def _all_to_alls() -> list[list[Node]]:
    members: dict[int, list[Node]] = {}
    for node in load_run(UNEVEN_RUN).graph.nodes:
        if node.collective is not None and node.stage is Stage.ALL_TO_ALL:
            members.setdefault(node.collective, []).append(node)
    return list(members.values())


def results() -> dict[str, Any]:
    """Return everything about laws between curves as plain data."""
    return {
        "ranks": by_platform(left_out()),
        "nodes": across_nodes(load_profile("h100-sxm")),
        "uneven": uneven(load_profile("v100-nvlink")),
        "uneven_gloo": uneven_gloo(),
    }
