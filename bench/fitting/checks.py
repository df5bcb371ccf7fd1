"""What the laws between measurements are worth: other numbers of ranks, and several nodes."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from bench.fitting.collectives import Measurements
from bench.fitting.sources import rows
from costmodel.base.arrays import Array
from costmodel.base.units import US
from costmodel.domain.hardware import CollectiveOp, HardwareProfile
from costmodel.kernels.collectives import RankGroup, collective_time
from planner.calibration.curves import rounded

ACROSS_RANKS = {
    "a100-sxm-80gb": ("A100-SXM4-80GB",),
    "h100-sxm": ("H100-SXM5-80GB",),
    "h200-sxm": ("H200-SXM5-141GB",),
}


def across_ranks(
    measured: Measurements, profiles: Mapping[str, HardwareProfile]
) -> dict[str, float]:
    """Median error on the rows of one number of ranks, predicted from the curves of the others."""
    errors = {}
    for name, gpus in ACROSS_RANKS.items():
        for op in CollectiveOp:
            for num_ranks in (2, 4, 8):
                samples, _ = measured.samples(gpus, op, num_ranks)
                group = RankGroup(num_ranks=num_ranks, ranks_per_node=num_ranks)
                others = _without(profiles[name], num_ranks)
                predicted = collective_time(op, samples.sizes, group, others)
                key = f"{name} {op}: {num_ranks} ranks from the others"
                errors[key] = rounded(float(np.median(np.abs(predicted / samples.times - 1))))
    return errors


def across_nodes(profile: HardwareProfile) -> dict[str, float]:
    """Median signed error on H100 nodes with 400 Gb/s ports (cluster01), from 32 MiB up.

    Only the bandwidth of 2 x 8 all_to_all went into the profile.
    """
    return {
        f"{op} on {nodes} nodes x {local}, {len(errors)} points": rounded(float(np.median(errors)))
        for (op, nodes, local), errors in sorted(_node_errors(profile).items())
    }


def node_errors(profile: HardwareProfile) -> Array:
    """Signed errors of all rows of `across_nodes` but those of 2 x 8, which were fitted."""
    groups = _node_errors(profile).items()
    return np.concatenate([
        errors for (_, nodes, local), errors in groups if (nodes, local) != (2, 8)
    ])


def _node_errors(profile: HardwareProfile) -> dict[tuple[CollectiveOp, int, int], list[float]]:
    groups: dict[tuple[CollectiveOp, int, int], list[float]] = {}
    ops = {op.value: op for op in CollectiveOp}
    for row in rows("collectives.csv.gz"):
        if row["op"] not in ops or not row["variant"].startswith("example-cluster01"):
            continue
        op, num_ranks, nodes = ops[row["op"]], int(row["num_gpus"]), int(row["num_nodes"])
        if nodes == 1:
            continue
        group = RankGroup(num_ranks=num_ranks, ranks_per_node=num_ranks // nodes)
        predicted = float(collective_time(op, float(row["nccl_size_bytes"]), group, profile))
        ratio = predicted / (float(row["latency_us"]) * US) - 1
        groups.setdefault((op, nodes, num_ranks // nodes), []).append(ratio)
    return groups


def _without(profile: HardwareProfile, num_ranks: int) -> HardwareProfile:
    kept = tuple(curve for curve in profile.curves if curve.num_ranks != num_ranks)
    return replace(profile, curves=kept)
