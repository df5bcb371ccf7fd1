"""Anchors of whole steps, of the order of plans, and of memory. Nothing is fitted to them.

``torchrec_workloads`` are placed as TorchRec's benchmark logs show: tables round-robin over two
ranks, the large table as its ``sharding_types`` say. The GPU of ``prefetch_emo`` is not named; its
description fits an H100 (PCIe at 50 to 60 GB/s, "non-GH such as H100"), and H100s of the same
benchmarks have HBM2e (pull requests 4634, 4720).

More rows of April 2026 are in ``torchrec_steps.csv`` beside this file. Those of
``sparse_data_dist_base`` name no GPU, either: same weeks, author and memory beside what is reserved
(2.0 to 2.6 GB) as ``prefetch_emo``, so that it is taken to be the same.

Rows with a time of ten batches are first runs of a fresh process that nothing warmed up
(``num_benchmarks: 1`` in both configurations, TorchRec's ``benchmark/base.py``): a tenth of them
has a tenth of what a run starts with (tracing the model, first collectives, allocations) in it.
One configuration gives both, in one week on one machine: 320 ms a batch of the run, 269 ms between
two batches in its trace (pull requests 3797 and 3807). Hence a family of its own for such runs. Of
``base_pipeline_light`` (pull request 3580) the start is most: ten batches in 1.87 s, ten predicted
steps in 0.58 s. It counts for its memory alone.

Plans of ``prefetch_emo`` were timed once each in pull request 4099. The one with a cache of a fifth
had been timed the day before (4096, where the load factor is FBGEMM's default of 0.2): 336 ms a
batch, not 467, with the same 27.0 GB reserved. So its difference to all in HBM is known as 51 ms
and as 182, and whether it is faster than a table in host memory (374) is not known. The traces of
4099 agree with the first: lookup and prefetch, 45 ms, and a backward of which the plan without a
cache shows that what found no place costs about 15 ms. Two runs that locked no rows took 415 and
442 ms (4096 and 3899), with 44 ms of lookup and prefetch: what sets single cold runs 130 ms apart
is in no published kernel.

Lookup and prefetch in those traces are the least disturbed figures. Of all in HBM the caption has
2.07 ms "fwd + bwd": more than the 1.1 ms of the same forward from a cache that is in HBM, too (1.2
predicted), and less than HBM takes for both (5.7 GB at 2.4 TB/s). It is kept as a forward's.
The profile's rate of host memory is from the lookup of the plan without a cache, 37 ms.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from statistics import median_high
from typing import Any

from bench.anchors.anchor import Anchor, single
from bench.fitting.sources import DATA
from bench.plans import sharded
from bench.published_steps import results as published
from costmodel.base.units import GB, MS, Bytes, Seconds
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ComputeKernel, ShardingPlan, ShardingType, TableSharding
from costmodel.domain.workload import (
    DataType,
    DenseModel,
    EmbeddingTable,
    Optimizer,
    Pipeline,
    Workload,
)
from costmodel.inputs.distribution import Zipf
from costmodel.kernels.embedding import forward_time
from costmodel.memory.rank_memory import memory_per_rank
from costmodel.memory.storage import RESERVE_SHARE
from costmodel.step.loads import PlanLoads
from costmodel.step.operation_timeline import plan_timeline
from planner.files.profiles import load_profile
from planner.files.workload_reading import load_workload

RANKS = 2
CONFIGS: Mapping[str, str] = {
    "sdd": "sparse_data_dist_base.yml",
    "emo_fused": "all in HBM (fused; sparse_dist)",
    "emo_uvm": "large table fused_uvm (sparse_dist)",
    "emo_emo02": "uvm_caching 0.2 prefetch pipeline",
    "emo_emo04": "uvm_caching 0.4 prefetch pipeline",
    "light_base": "base pipeline",
    "light_sparse_dist": "sparse_dist",
}
"""Workload, and the configuration or variant of its rows in ``torchrec_steps.csv``."""
LIGHT = {"light_base": Pipeline.NONE, "light_sparse_dist": Pipeline.SPARSE_DIST}
"""Pipelines of ``base_pipeline_light``: its configuration at TorchRec's commit 7c30d398."""
MEASURED_USE = {"emo_emo02": 30.01 * GB}
"""What was in use of a GPU where ``torchrec_steps.csv`` has no column for it: the same plan in pull
request 3899, with the same 18.34 GB allocated."""
PRESSED = 67.19 / 58.98
"""Reserved over allocated where the allocator could get no more: ``sparse_data_dist_mpzch``
(TorchRec's pull request 3642) trained so after 138 calls of cudaMalloc had failed, upon each of
which the allocator gives its free blocks back and tries again."""
MOST_BESIDE = 2.5 * GB
"""The most in use beside what is reserved (context, libraries): ``sdd`` on a GB200."""
MEMORY_NEEDED = "memory needed of a GPU"
COLD_RUN = "TorchRec run of ten batches, cold"
OWN_ROWS = Path(__file__).parent / "torchrec_steps.csv"
SDD_MACHINES = {
    "a100-sxm-80gb": "unnamed (80 GB class)",
    "gb200-nvl72": "GB200",
    "h100-hbm2e": "unnamed",
}
"""Profiles of ``sparse_data_dist_base``, and how its rows name the GPU."""
EMO_MACHINE = "h100-hbm2e"
LIGHT_MACHINE = "a100-sxm-80gb"
"""Not named, either. 1 GB more is in use than reserved, as where the benchmarks' settings said
A100; on a GB200 2.4, and 2.0 in ``prefetch_emo``."""
TRACED_VARIANT = "per-iteration from trace"
SDD_VARIANTS = ("base", "skip_regroup", TRACED_VARIANT)
"""Rows of the step as we synthesize it; the others restore, stash or use another optimizer."""
PREFETCHING = ("emo_emo02", "emo_emo04")
"""Run with TorchRec's ``PrefetchTrainPipelineSparseDist``, which the workload files do not say."""
EMO = ("emo_fused", "emo_emo04", "emo_uvm", "emo_emo02")
"""From the fastest to the slowest measured."""
LARGE_TABLE: Mapping[str, tuple[Seconds, Seconds]] = {
    "emo_fused": (0.0, 2.07e-3),
    "emo_emo04": (29e-3, 1.1e-3),
    "emo_uvm": (0.0, 37e-3),
    "emo_emo02": (27e-3, 18e-3),
}
"""Prefetch and forward of ``prefetch_emo``'s large table in the traces of TorchRec's pull request
4099 (commit 6a2d4be3, section 3.2). With a cache of a fifth they say less than the others: after K
rows that found a place, 1 M - 0.82 K of the next batch do, which swings for about ten batches."""
UNLOCKED: Mapping[str, tuple[Seconds, Seconds]] = {
    "in its own lookup": (0.0, 37e-3),
    "prefetched": (41e-3, 3e-3),
}
"""The same of a cache of a fifth that locks no rows (without ``prefetch_pipeline``), in the traces
of pull request 3899 (commit bea7c47d, section 3)."""
Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MeasuredPlan:
    """A configuration on a machine: its workload, plan and rows."""

    workload: Workload
    topology: Topology
    plan: ShardingPlan
    rows: tuple[Row, ...]

    def step_time(self) -> Seconds:
        """Return the predicted step."""
        return plan_timeline(self.workload, self.topology, self.plan).step_time


def published_steps() -> Iterator[Anchor]:
    """Yield DLRM steps on one and eight GPUs."""
    for row in published():
        name = f"{row['framework']}, {row['num_gpus']} x {row['gpu']}, {row['precision']}"
        yield single(
            "published step", name, measured=row["measured_s"], predicted=row["predicted_s"]
        )


def torchrec_steps() -> Iterator[Anchor]:
    """Yield TorchRec's own pipeline benchmarks, and what they say of plans of one model."""
    for profile in SDD_MACHINES:
        case = case_of("sdd", profile)
        for row in case.rows:
            name = f"sparse_data_dist_base, {profile}, {row['source_pr']} {row['variant']}"
            yield single(
                "TorchRec step" if row["variant"] == TRACED_VARIANT else COLD_RUN,
                name,
                measured=seconds_of(row),
                predicted=case.step_time(),
            )
    yield from _plans_of_one_model()


def _plans_of_one_model() -> Iterator[Anchor]:
    cases = {name: case_of(name, EMO_MACHINE) for name in EMO}
    predicted = {name: case.step_time() for name, case in cases.items()}
    runs = [
        (name, "" if row is case.rows[0] else f", {row['source_pr']}", seconds_of(row))
        for name, case in cases.items()
        for row in case.rows
    ]
    for name, source, seconds in runs:
        yield single(
            COLD_RUN,
            f"prefetch_emo, {EMO_MACHINE}, {CONFIGS[name]}{source}",
            measured=seconds,
            predicted=predicted[name],
        )
    yield from _lookups_of_large_table(cases)
    for name, source, seconds in runs:
        if name != EMO[0]:
            yield single(
                "difference of plans",
                f"prefetch_emo, {CONFIGS[name]}{source}, less all in HBM",
                measured=seconds - seconds_of(cases[EMO[0]].rows[0]),
                predicted=predicted[name] - predicted[EMO[0]],
            )
    once = {name: (seconds_of(case.rows[0]),) for name, case in cases.items()}
    all_runs = {name: tuple(map(seconds_of, case.rows)) for name, case in cases.items()}
    yield _order("four plans", predicted, once)
    yield _order("plans that no run contradicts", predicted, all_runs)


def seconds_of(row: Row) -> Seconds:
    """Return what a batch took."""
    return float(row["ms_per_step"]) * MS


def _lookups_of_large_table(cases: Mapping[str, MeasuredPlan]) -> Iterator[Anchor]:
    small = cases["emo_emo02"]
    unlocked = replace(small, workload=replace(small.workload, pipeline=Pipeline.SPARSE_DIST))
    rows = [(cases[name], CONFIGS[name], seconds) for name, seconds in LARGE_TABLE.items()]
    rows += [
        (unlocked, f"uvm_caching 0.2, no row locked, {how}", seconds)
        for how, seconds in UNLOCKED.items()
    ]
    for case, name, seconds in rows:
        yield single(
            "lookup and prefetch",
            f"prefetch_emo, {EMO_MACHINE}, large table, {name}",
            measured=sum(seconds),
            predicted=large_table_forward(case),
        )


def _order(
    plans: str, predicted: Mapping[str, Seconds], measured: Mapping[str, tuple[Seconds, ...]]
) -> Anchor:
    """Return the share of pairs in the wrong order, of those that all runs order alike."""
    pairs = [
        (fast, slow)
        for fast, slow in permutations(EMO, 2)
        if max(measured[fast]) < min(measured[slow])
    ]
    wrong = sum(predicted[fast] >= predicted[slow] for fast, slow in pairs)
    return Anchor(
        family="order of plans",
        name=f"prefetch_emo, {plans}: pairs in the wrong order, of all",
        points=len(pairs),
        error=wrong / len(pairs),
        tolerance=0.0,
    )


def large_table_forward(case: MeasuredPlan) -> Seconds:
    """Return the forward of the row-wise table, prefetch included, on the slowest rank."""
    loads = PlanLoads(case.workload, case.topology).groups(case.plan)
    (load,) = (each for each in loads if each.key.sharding_type is ShardingType.ROW_WISE)
    (traffic,) = load.traffic.values()
    lookup = forward_time(traffic, case.topology.hardware)
    return float((lookup + load.fetch_time).max())


def memory() -> Iterator[Anchor]:
    """Yield predicted memory beside the allocator's peaks and what the GPU had in use.

    And the smallest GPU on which such a plan counts as fitting, beside what it needs of one: what
    it allocates at most with gaps between blocks as where they are pressed, and what is in use
    beside the allocator's.
    """
    for name, machine in _memory_cases():
        case = case_of(name, machine)
        predicted = max(
            rank.total for rank in memory_per_rank(case.workload, case.topology, case.plan)
        )
        medians = {}
        for what, known in _peaks(name, case).items():
            medians[what] = median_high(known)
            yield single(
                f"memory {what}",
                f"{name}, {machine}, median of {len(known)}",
                measured=medians[what],
                predicted=predicted,
                unit="bytes",
            )
        beside = medians["used"] - medians["reserved"] if "used" in medians else MOST_BESIDE
        yield single(
            MEMORY_NEEDED,
            f"{name}, {machine}",
            measured=medians["allocated"] * PRESSED + beside,
            predicted=predicted / (1 - RESERVE_SHARE),
            unit="bytes",
        )


def _peaks(name: str, case: MeasuredPlan) -> dict[str, list[Bytes]]:
    """Return what is known of a plan's memory; none of some kinds."""
    columns = {"peak_alloc_GB": "allocated", "peak_reserved_GB": "reserved", "gpu_used_GB": "used"}
    peaks = {
        what: [float(row[column]) * GB for row in case.rows if row[column]]
        for column, what in columns.items()
    }
    peaks["used"] += [MEASURED_USE[name]] if name in MEASURED_USE else []
    return {what: known for what, known in peaks.items() if known}


def _memory_cases() -> Iterator[tuple[str, str]]:
    yield from (("sdd", machine) for machine in SDD_MACHINES)
    yield from ((name, EMO_MACHINE) for name in EMO)
    yield from ((name, LIGHT_MACHINE) for name in LIGHT)


def case_of(name: str, profile: str) -> MeasuredPlan:
    """Return a configuration on a machine, and its measured rows."""
    workload = _workload(name)
    topology = Topology(hardware=load_profile(profile), world_size=RANKS, local_world_size=RANKS)
    return MeasuredPlan(workload, topology, round_robin_plan(workload), tuple(_rows(name, profile)))


def _workload(name: str) -> Workload:
    if name in LIGHT:
        return light_workload(LIGHT[name])
    workload = load_workload(DATA / "torchrec_workloads" / f"{name}.yaml")
    return replace(workload, pipeline=Pipeline.PREFETCH) if name in PREFETCHING else workload


def light_workload(pipeline: Pipeline) -> Workload:
    """Return ``base_pipeline_light``: TorchRec's TestSparseNN with 42 tables."""

    def table(name: str, dim: int, **more: Any) -> EmbeddingTable:  # noqa: ANN401 -- any field
        fields = {"num_embeddings": 100_000, "pooling_factor": 10.0, **more}
        return EmbeddingTable(name=name, embedding_dim=dim, inputs=Zipf(exponent=0.0), **fields)

    columns = (ShardingType.COLUMN_WISE,)
    return Workload(
        name="base_pipeline_light",
        tables=(
            *(table(f"table_{i}", 256) for i in range(20)),
            *(table(f"weighted_table_{i}", 256, weighted=True) for i in range(20)),
            table("FP16_table", 512, data_type=DataType.FP16),
            table("large_table", 2048, num_embeddings=1_000_000, sharding_types=columns),
        ),
        dense=DenseModel(num_dense_features=10, bottom_mlp=(8,), top_mlp=(16, 1)),
        local_batch_size=32768,
        pipeline=pipeline,
        optimizer=Optimizer.SGD,
    )


def round_robin_plan(work: Workload) -> ShardingPlan:
    """Place whole tables on one rank after the other; split those that must be split."""
    return ShardingPlan(
        tables=tuple(_sharding(table, i % RANKS) for i, table in enumerate(work.tables)),
        world_size=RANKS,
        local_world_size=RANKS,
    )


def _sharding(table: EmbeddingTable, rank: int) -> TableSharding:
    kind = (table.sharding_types or (ShardingType.TABLE_WISE,))[0]
    ranks = range(RANKS) if kind is ShardingType.COLUMN_WISE else (rank,)
    kernel = (table.compute_kernels or (ComputeKernel.FUSED,))[0]
    made = sharded(table, kind, ranks, world_size=RANKS, kernel=kernel)
    cached = kernel is ComputeKernel.FUSED_UVM_CACHING
    return replace(made, cache_load_factor=table.cache_load_factor) if cached else made


def _rows(name: str, profile: str) -> Iterator[Row]:
    for path in (DATA / "torchrec_steps.csv", OWN_ROWS):
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if _is_of(row, name, profile):
                    yield row


def _is_of(row: Row, name: str, profile: str) -> bool:
    """Tell whether a row is of a configuration, on the machine that a profile is taken to be."""
    if name == "sdd":
        same = row["config"] == CONFIGS[name] and row["variant"] in SDD_VARIANTS
        return same and row["gpu"].removesuffix(" (inferred)") == SDD_MACHINES[profile]
    return row["variant"] == CONFIGS[name] and (name not in LIGHT or "light" in row["config"])
