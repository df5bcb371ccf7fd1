"""Collective curves of every profile, from nccl-tests and PARAM measurements."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bench.fitting.forms import CANDIDATES
from bench.fitting.sigmoid import SigmoidCurve, sigmoid_time
from bench.fitting.sources import author_parameters, rows
from costmodel.base.arrays import Array
from costmodel.base.units import GB, US
from costmodel.domain.hardware import CollectiveCurve, CollectiveOp, Source
from costmodel.kernels.collectives import curve_time
from planner.calibration.curves import Form, Samples, knots
from planner.calibration.fit_collectives import Fit, fit_samples

NVSWITCH = {
    "a100-sxm-80gb": ("A100-SXM4-80GB",),
    "h100-sxm": ("H100-SXM5-80GB", "NVIDIA H100 80GB HBM3"),
    "h200-sxm": ("H200-SXM5-141GB",),
}
"""GPU types, as the data has them, of the profiles measured at 2, 4 and 8 ranks."""
NVL72 = "GB200"
"""Its "nodes" are trays of four GPUs in one NVLink domain."""
V100_ALL_TO_ALL_FLOOR = 8 * US
"""Small all_to_alls of the 8 x V100 TorchRec trace, the shortest of the ranks' kernels: 7-10 us."""
V100_COPY_BANDWIDTH = 816.953 * GB
"""author_params.json, HW_PARAMS: peak_DRAM_GBps of the V100."""


class Measurements:
    """The rows of collectives.csv.gz that are fit to use, by GPU, operation and ranks."""

    def __init__(self) -> None:
        self._rows = [
            row
            for row in rows("collectives.csv.gz")
            if not row["quality"].startswith("suspect")
            and (row["num_nodes"] == "1" or row["gpu_type"] == NVL72)
        ]

    def samples(
        self, gpus: tuple[str, ...], op: CollectiveOp, num_ranks: int, variant: str = ""
    ) -> tuple[Samples, str]:
        """Return sizes and times, and the repositories they come from."""
        chosen = [
            row
            for row in self._rows
            if row["gpu_type"] in gpus
            and row["op"] == op
            and int(row["num_gpus"]) == num_ranks
            and variant in {"", row["variant"]}
        ]
        samples = Samples(
            sizes=np.array([float(row["nccl_size_bytes"]) for row in chosen]),
            times=np.array([float(row["latency_us"]) * US for row in chosen]),
        )
        origins = sorted({f"{row['source_repo']}@{row['commit'][:8]}" for row in chosen})
        return samples, ", ".join(origins)


def fit_all(measured: Measurements) -> dict[str, list[Fit]]:
    """Fit every profile's curves."""
    fits = {
        profile: [
            fit_curve(measured, gpus, op, num_ranks)
            for op in CollectiveOp
            for num_ranks in (2, 4, 8)
        ]
        for profile, gpus in NVSWITCH.items()
    }
    fits["a100-sxm-40gb"] = [
        _renamed(fit, "measured on A100-SXM4-80GB, the same NVSwitch generation: ")
        for fit in fits["a100-sxm-80gb"]
    ]
    floors = [fit.curve for fit in fits["a100-sxm-80gb"]]
    fits["v100-nvlink"] = [*v100_fits(measured, floors), *v100_author_curves(floors)]
    fits["v100-nvlink"] += v100_ring_curves([fit.curve for fit in fits["v100-nvlink"]])
    fits |= later_fits(measured, fits["h100-sxm"])
    pairs = [fit_curve(measured, ("L40S",), op, 2) for op in CollectiveOp]
    fits["l40s-pcie"] = pairs + [pcie_scaled(measured, p.curve, n) for p in pairs for n in (4, 8)]
    return fits


def later_fits(measured: Measurements, h100: Sequence[Fit]) -> dict[str, list[Fit]]:
    """Fit NVL72 at 4, 8 and 16 ranks, and say whose curves others of its generation have."""
    gb200 = [
        fit_curve(measured, (NVL72,), op, num_ranks)
        for op in CollectiveOp
        for num_ranks in (4, 8, 16)
    ]
    same = "measured on GB200 NVL72, the same NVLink generation: "
    return {
        "gb200-nvl72": gb200,
        "b200-sxm": [_renamed(fit, same) for fit in gb200 if fit.curve.num_ranks <= 8],
        "h100-hbm2e": [_renamed(fit, "measured on h100-sxm, the same NVSwitch: ") for fit in h100],
        "mi300x": [],
    }


def fit_curve(
    measured: Measurements, gpus: tuple[str, ...], op: CollectiveOp, num_ranks: int
) -> Fit:
    """Fit one curve to its measurements."""
    samples, origin = measured.samples(gpus, op, num_ranks)
    return fit_samples(samples, origin, op, num_ranks, forms=CANDIDATES)


def v100_fits(measured: Measurements, floors: list[CollectiveCurve]) -> list[Fit]:
    """Fit four V100 of a DGX-1, with the measuring harness's host time taken off.

    PARAM ran blocking: every iteration waits for the host, so the floor of 70-160 us is host
    time plus the collective's own latency (`_v100_floor`); the rest of the floor is subtracted
    everywhere. The reduce_scatter was
    PyTorch's list form, which first copies its whole input into one buffer: 2 S / 817 GB/s is
    subtracted too (afterwards it agrees with all_gather within 4% above 64 MiB).
    """
    variants = {
        CollectiveOp.ALL_TO_ALL: "",
        CollectiveOp.ALL_REDUCE: "",
        CollectiveOp.REDUCE_SCATTER: "",
        CollectiveOp.ALL_GATHER: "all_gather_base",
    }
    fits = []
    for op, variant in variants.items():
        samples, origin = measured.samples(("V100-SXM2",), op, 4, variant)
        floor = _v100_floor(floors, op, 4)
        host = float(np.median(samples.times[samples.sizes <= 8192])) - floor
        copied = 2 * samples.sizes if op is CollectiveOp.REDUCE_SCATTER else 0.0
        times = samples.times - host - copied / V100_COPY_BANDWIDTH
        origin += f", digitised; {host / US:.0f} us of host time per call subtracted"
        if op is CollectiveOp.REDUCE_SCATTER:
            origin += ", and the copy of its input"
        corrected = Samples(sizes=samples.sizes, times=np.maximum(times, floor))
        fits.append(fit_samples(corrected, origin, op, 4, forms=CANDIDATES))
    return fits


def v100_author_curves(floors: list[CollectiveCurve]) -> list[Fit]:
    """Sample the authors' sigmoids of eight V100: their measurements are not published."""
    fits = []
    for op in (CollectiveOp.ALL_TO_ALL, CollectiveOp.ALL_REDUCE):
        sigmoid = author_sigmoid(op, 8)
        floor = _v100_floor(floors, op, 8)
        host = sigmoid.latency - floor

        def form(
            m: Array, sigmoid: SigmoidCurve = sigmoid, host: float = host, floor: float = floor
        ) -> Array:
            return np.maximum(sigmoid_time(sigmoid, m) - host, floor)

        origin = (
            f"owensgroup/ml_perf_model@e389b07e, the authors' fit; {host / US:.0f} us of host time "
            "per call subtracted"
        )
        fits.append(_derived(form, op, 8, (512.0, 2.0**29), origin))
    return fits


def v100_ring_curves(curves: list[CollectiveCurve]) -> list[Fit]:
    """Derive reduce_scatter and all_gather on eight V100, of which there is no data.

    Both run on the rings that all_reduce runs on: the wire time of all_reduce on eight, times
    what the operation takes of all_reduce's on four ranks at the same bytes per rank.
    """
    by_key = {(curve.op, curve.num_ranks): curve for curve in curves}
    reduce4, reduce8 = by_key[CollectiveOp.ALL_REDUCE, 4], by_key[CollectiveOp.ALL_REDUCE, 8]
    fits = []
    for op in (CollectiveOp.REDUCE_SCATTER, CollectiveOp.ALL_GATHER):
        op4 = by_key[op, 4]

        def form(m: Array, op4: CollectiveCurve = op4) -> Array:
            ratio = _wire(op4, m / 2) / np.maximum(_wire(reduce4, m / 2), 1e-9)
            return op4.knots[0][1] + _wire(reduce8, m) * np.clip(ratio, 0.4, 0.7)

        origin = "no data: all_reduce on 8, times this operation's share of it on 4"
        fits.append(_derived(form, op, 8, (512.0, 2.0**29), origin))
    return fits


def pcie_scaled(measured: Measurements, pair: CollectiveCurve, num_ranks: int) -> Fit:
    """Derive L40S curves on 4 and 8 ranks from 2, as another PCIe machine scales.

    The data's own rows are of a machine without peer-to-peer access (flagged suspect: bus
    bandwidth under 6 GB/s), and say nothing about one with it.
    """
    other = ("RTX PRO 6000 Blackwell",)
    two = fit_curve(measured, other, pair.op, 2).curve
    many = fit_curve(measured, other, pair.op, num_ranks).curve

    def form(m: Array) -> Array:
        return curve_time(pair, m) * curve_time(many, m) / curve_time(two, m)

    origin = (
        f"2 x L40S, scaled as RTX PRO 6000 scales from 2 to {num_ranks}; "
        "assumes peer-to-peer access, without which it is up to ten times slower"
    )
    return _derived(form, pair.op, num_ranks, (512.0, 2.0**29), origin)


def author_sigmoid(op: CollectiveOp, num_ranks: int) -> SigmoidCurve:
    """Read one of the paper's authors' fits."""
    entry = author_parameters()[f"V100x{num_ranks}_{op}"]
    height, midpoint, steepness, offset = entry["sigmoid"]
    return SigmoidCurve(
        op=op,
        num_ranks=num_ranks,
        latency=entry["overhead"] * US,
        latency_log2_bytes=entry["ln_p"],
        bandwidth_log2_bytes=entry["sats_p"],
        bandwidth=entry["max_bw"] * GB,
        height=height,
        midpoint=midpoint,
        steepness=steepness,
        offset=offset,
    )


def _derived(
    form: Form, op: CollectiveOp, num_ranks: int, span: tuple[float, float], origin: str
) -> Fit:
    curve = CollectiveCurve(
        op=op,
        num_ranks=num_ranks,
        knots=knots(form, *span),
        source=Source.FITTED,
        origin=origin,
    )
    return Fit(curve=curve, form="derived", errors={})


def _renamed(fit: Fit, prefix: str) -> Fit:
    return replace(fit, curve=replace(fit.curve, origin=prefix + fit.curve.origin))


def _v100_floor(curves: list[CollectiveCurve], op: CollectiveOp, num_ranks: int) -> float:
    """Latency on V100: for all_to_all a trace's, else what nccl-tests measures on as many A100.

    The trace's small all_reduce takes 20 us on eight ranks, nccl-tests' on A100 22 us.
    """
    if op is CollectiveOp.ALL_TO_ALL:
        return V100_ALL_TO_ALL_FLOOR
    return next(c.knots[0][1] for c in curves if (c.op, c.num_ranks) == (op, num_ranks))


def _wire(curve: CollectiveCurve, sizes: Array) -> Array:
    return curve_time(curve, sizes) - curve.knots[0][1]
