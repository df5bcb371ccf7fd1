"""The models whose steps are predicted and then measured, and their plans on one or two ranks."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bench.gpu_study.points import StepPoint
from bench.plans import sharded
from costmodel.base.units import Bytes
from costmodel.domain.hardware import HardwareProfile, Topology
from costmodel.domain.plan import ShardingPlan, ShardingType
from costmodel.domain.workload import DataType, EmbeddingTable, Pipeline, Workload
from costmodel.memory.rank_memory import RankMemory, memory_per_rank
from planner.files.plans import PlanFile
from planner.files.workload_reading import load_workload

_WORKLOADS = Path(__file__).parent.parent / "workloads"
MODELS: Mapping[str, str] = {
    "dlrm": "dlrm_mlperf.yaml",
    "dcnv2": "dlrm_dcnv2.yaml",
    "heavy": "heavy_00.yaml",
    "light": "light_00.yaml",
    "wide": "cpu/communication.yaml",
}
"""Workload files, by what the study calls them."""
EXAMPLE_SAMPLES: Mapping[str, int] = {"sasrec": 128, "mmoe": 1024}
"""Models of ``examples/models``, and the samples of their batches (``bench.dense_steps``)."""
_FEWEST_ROWS = 10


def step_workload(point: StepPoint, *, on_cpu: bool) -> Workload:
    """Return a point's workload in a form that TorchRec trains on one machine.

    FP32 outputs, TorchRec's pipeline, the point's batch; the largest tables lose rows until all
    weigh what the point allows; a CPU multiplies in FP32. Models of ``examples/models`` are as
    they are read.
    """
    if point.model in EXAMPLE_SAMPLES:
        from bench.gpu_study.examples import example

        return example(point.model).workload
    made = load_workload(_WORKLOADS / MODELS[point.model])
    pipeline = Pipeline.SPARSE_DIST if made.pipeline is Pipeline.DLRM else made.pipeline
    dense = replace(made.dense, precision=DataType.FP32) if on_cpu else made.dense
    return replace(
        made,
        tables=fitting_tables(made, point.table_bytes),
        local_batch_size=point.local_batch_size,
        pipeline=pipeline,
        output_type=DataType.FP32,
        dense=dense,
    )


def fitting_tables(workload: Workload, most: Bytes) -> tuple[EmbeddingTable, ...]:
    """Return the tables with so few rows that weights and optimizer state fit: one cap for all."""
    tables = workload.tables
    row_bytes = [
        t.row_bytes + workload.optimizer.state_bytes_per_row(t.embedding_dim) for t in tables
    ]
    low, high = _FEWEST_ROWS, max(table.num_embeddings for table in tables)
    while low < high:  # the largest cap that fits
        cap = (low + high + 1) // 2
        sizes = zip(tables, row_bytes, strict=True)
        fits = sum(min(t.num_embeddings, cap) * row for t, row in sizes) <= most
        low, high = (cap, high) if fits else (low, cap - 1)
    return tuple(replace(t, num_embeddings=min(t.num_embeddings, low)) for t in tables)


def step_file(point: StepPoint, *, on_cpu: bool) -> PlanFile:
    """Return the workload and its plan: every table whole, ranks in turn."""
    workload = step_workload(point, on_cpu=on_cpu)
    world = point.world_size
    tables = tuple(
        sharded(table, ShardingType.TABLE_WISE, (index % world,), world_size=world)
        for index, table in enumerate(workload.tables)
    )
    plan = ShardingPlan(tables=tables, world_size=world, local_world_size=world)
    return PlanFile(plan=plan, workload=workload, hardware="profile.yaml")


def step_memory(file: PlanFile, hardware: HardwareProfile) -> tuple[RankMemory, ...]:
    """Return what every rank is predicted to hold."""
    world = file.plan.world_size
    topology = Topology(hardware=hardware, world_size=world, local_world_size=world)
    return memory_per_rank(file.workload, topology, file.plan)
