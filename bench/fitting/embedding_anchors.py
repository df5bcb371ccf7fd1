"""Lookups beside public measurements: `python -m bench.fitting.embedding_anchors [--write]`.

Not a test of the model: the efficiencies of the profiles were fitted to the first V100 rows and the
H100 rows (``planner profiles show``), so those agree by construction.

Every row of ``../shared/data/embedding.csv`` that names its GPU and its shapes, predicted with the
shipped profiles. Not all rows are the kernel the model describes (FBGEMM's TBE, forward in training
and fused backward); the last column says which are not, and the summary counts only those that
are:

* ``sparse-ads``: facebookresearch/sparse-ads-baselines, the paper's batched embedding. Its forward
  reads what TBE's reads; its backward adds every id's gradient by itself, without sorting, so it
  moves several times the bytes where rows repeat.
* ``eval``: the forward of inference, another template of TBE.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.fitting.embedding_rows import PROFILES, Row, compute_kernel, measured_rows, tables
from bench.fitting.lookups_alone import lookups_alone
from costmodel.base.units import KIB, US
from costmodel.domain.hardware import HardwareProfile
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType, Optimizer
from costmodel.inputs.distribution import unique_curve
from costmodel.kernels.embedding import embedding_estimate
from costmodel.kernels.lookup_shards import LookupShard, LookupShards
from costmodel.kernels.shard_traffic import KEY_BYTES, Caches, gpu_caches, l1_misses, shard_traffic
from costmodel.kernels.traffic import Traffic

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared/data"
RESULTS = ROOT / "bench/results/embedding_anchors.json"
L1_BYTES = {"V100": 128 * KIB, "NVIDIA H100 80GB HBM3": 256 * KIB}
"""Per SM, with shared memory (NVIDIA's V100 and H100 whitepapers)."""


def remark(row: Row) -> str:
    """Name why the row is not the modelled kernel; empty if it is."""
    if "sparse-ads" in row["kernel"]:
        return "sparse-ads"
    if row["phase"].startswith("eval"):
        return "eval"
    return ""


def predicted_bytes(row: Row, caches: Caches) -> tuple[float, float]:
    """Return predicted DRAM and L2 traffic of the row's kernel.

    L2 traffic is what the L1 lacks, in forward. The backward of ``sparse-ads`` reads and writes the
    row of every id, one by one, so rows that the L2 has lost in between count again:
    2 cold(n, L2) instead of TBE's 2 U(n).
    """
    backward = row["phase"].startswith("backward")
    hbm = on_chip = 0.0
    for table in tables(row):
        shard = LookupShard(
            table=table,
            first_row=0,
            num_rows=table.num_embeddings,
            num_columns=table.embedding_dim,
            num_samples=float(row["B"]),
            compute_kernel=compute_kernel(row),
            cache_load_factor=table.cache_share,
        )
        traffic = shard_traffic(
            shard,
            optimizer=Optimizer(row["optimizer"]),
            output_type=DataType.FP32,
            caches=caches,
        )
        curve, alone = unique_curve(table.inputs, table.num_embeddings), LookupShards.of([shard])
        lookups, row_bytes = float(alone.num_lookups[0]), float(alone.row_bytes[0])
        again = curve.cold_misses(lookups, caches.l2_bytes / row_bytes)
        hbm += traffic[Traffic.BACKWARD_HBM if backward else Traffic.FORWARD_HBM]
        # ids and outputs pass through the L2 on their way from and to DRAM
        streamed = traffic[Traffic.FORWARD_HBM] - again * row_bytes
        on_chip += float(l1_misses(alone, caches)[0]) * row_bytes + streamed
        if backward and "sparse-ads" in row["kernel"]:
            lost = again - curve.unique_rows(lookups)
            hbm += 2.0 * lost * row_bytes + lookups * KEY_BYTES
    return hbm, on_chip


def predict(row: Row, hardware: HardwareProfile | None = None) -> dict[str, Any]:
    """Return a row beside its prediction, with the shipped profile unless another is given."""
    hardware = hardware or lookups_alone(PROFILES[row["gpu"]])
    forward, backward = embedding_estimate(
        tables(row),
        num_samples=int(float(row["B"])),
        optimizer=Optimizer(row["optimizer"]),
        hardware=hardware,
    )
    estimate = backward if row["phase"].startswith("backward") else forward
    measured = float(row["us"]) * US
    return {
        "gpu": row["gpu"],
        "kernel": row["kernel"],
        "shape": f"{int(float(row['T']))} x {row['E']} x {int(float(row['D']))}, "
        f"batch {int(float(row['B']))}, {float(row['L']):g} ids",
        "optimizer": row["optimizer"],
        "phase": row["phase"],
        "measured_s": measured,
        "predicted_s": estimate.seconds,
        "error": estimate.seconds / measured - 1.0,
        "bound_by": estimate.bound_by,
        "measured_dram_bytes": float(row["dram_bytes"]) if row["dram_bytes"] else None,
        "measured_l2_bytes": float(row["l2_bytes"]) if row["l2_bytes"] else None,
        **_bytes(row, hardware),
        "remark": remark(row),
    }


def _bytes(row: Row, hardware: HardwareProfile) -> dict[str, float]:
    """Return predicted DRAM and L2 bytes, L2 without and with the L1 before it."""
    caches = gpu_caches(hardware.gpu)
    hbm, _ = predicted_bytes(row, caches)
    block = re.search(r"rows_per_block=(\d+)", row["kernel"])
    l1 = caches._replace(
        l1_bytes=L1_BYTES[row["gpu"]],
        bags_per_block=int(block[1]) if block else caches.bags_per_block,
    )
    _, behind_l1 = predicted_bytes(row, l1)
    _, all_gathered = predicted_bytes(row, caches._replace(l1_bytes=0.0))
    return {
        "predicted_hbm_bytes": hbm,
        "predicted_l2_bytes_behind_l1": behind_l1,
        "predicted_l2_bytes_without_l1": all_gathered,
    }


def show(found: Sequence[Mapping[str, Any]]) -> None:
    """Print the table, and the errors of the rows that are the modelled kernel."""
    print(
        f"{'GPU, shape':52}{'phase':19}{'measured':>11}{'predicted':>11}{'error':>8}"
        "  bytes over counted: DRAM, L2 without L1 -> with; remark"
    )
    for row in found:
        dram = row["measured_dram_bytes"]
        ratio = "" if dram is None else f"{row['predicted_hbm_bytes'] / dram:.2f} {_l2_ratios(row)}"
        where = compute_kernel(row)
        place = "" if where is ComputeKernel.FUSED else f" {where.value}"
        gpu = row["gpu"].removeprefix("NVIDIA ").split(" ")[0]
        print(
            f"{gpu + place + ', ' + row['shape']:52.51}{row['phase']:19}"
            f"{row['measured_s'] / US:8.1f} us{row['predicted_s'] / US:8.1f} us{row['error']:+8.0%}"
            f"  {' '.join((ratio, row['remark'])).strip()}"
        )
    for name, some in {
        "modelled kernel": [row for row in found if not row["remark"]],
        "others": [row for row in found if row["remark"]],
    }.items():
        errors = np.abs([row["error"] for row in some])
        print(
            f"{name}: {len(some)} rows, median error {np.median(errors):.0%}, "
            f"worst {errors.max():.0%}"
        )


def _l2_ratios(row: Mapping[str, Any]) -> str:
    """Return L2 bytes over those counted; the model's backward is another kernel."""
    if row["phase"].startswith("backward"):
        return ""
    counted = row["measured_l2_bytes"]
    without, behind = row["predicted_l2_bytes_without_l1"], row["predicted_l2_bytes_behind_l1"]
    return f"{without / counted:.2f} -> {behind / counted:.2f}"


def results() -> list[dict[str, Any]]:
    """Return every measured row beside its prediction."""
    return [predict(row) for row in measured_rows()]


def main() -> None:
    """Print every row; with --write keep them."""
    found = results()
    show(found)
    if "--write" in sys.argv:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
