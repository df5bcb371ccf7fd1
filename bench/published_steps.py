"""Predicted step times beside published ones: `python -m bench.published_steps [--write]`.

The rows of ``../shared/data/step_times.csv`` whose model is public: NVIDIA's PyTorch DLRM (1 and
8 GPUs, hybrid parallel) and its row-wise twin on SparseOperationKit (SOK). Nothing in the model
is fitted to them. Their programs are written out below, with the builders the planner uses, as
those code bases run them:

* NVIDIA's DLRM (NVIDIA/DeepLearningExamples, PyTorch/Recommendation/DLRM) on 8 GPUs puts the
  bottom MLP on the first one, for the whole batch, and at most ceil(26 / 7) tables on each of the
  others (``utils/distributed.py``); one all-to-all brings 27 vectors to the data-parallel top MLP,
  and nothing overlaps it (``model/distributed.py``). The embedding update is not fused: backward
  writes a sparse gradient, the loss scaler reads and writes it (AMP), SGD scales it and adds it row
  by row (``nn/embeddings.py``, ``scripts/main.py``). The host synchronises every step.
* SOK's All2AllDenseEmbedding hashes the rows of all tables over 8 GPUs, sends each id to the
  owner of its row and the row back, and keeps both MLPs data-parallel. Rows are sent as they are
  looked up and put in order once by the receiver; their gradients are gathered once in the order
  in which they are sent, and used as they come (NVIDIA-Merlin/HugeCTR, sparse_operation_kit,
  ``all2all_output_dispatcher.cu``): of the passes of TorchRec's unpooled tables
  ``NOT_IN_SOK`` are missing. Its hash table is not modelled.

Table sizes: the two Criteo variants of ``prepare_synthetic_dataset.py`` in the same repository
(frequency limits 15 and 3), one-hot, with its power law of 1.45; MLPerf's for SOK.
"""

from collections.abc import Mapping, Sequence
from csv import DictReader
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.fitting.lookups_alone import lookups_alone
from bench.kept import print_and_keep
from bench.plans import sharded
from costmodel.base.units import MS
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan, ShardingType
from costmodel.domain.workload import (
    DataType,
    DenseModel,
    EmbeddingTable,
    Interaction,
    LaunchMode,
    Optimizer,
    Pipeline,
    Pooling,
    Workload,
)
from costmodel.inputs.distribution import Zipf
from costmodel.kernels.traffic import Traffic
from costmodel.step.buckets import GradientBuckets
from costmodel.step.builder import Mark, StepBuilder
from costmodel.step.dense import DensePart, dense_kernels
from costmodel.step.evaluation import evaluated
from costmodel.step.graph import Resource, Stage
from costmodel.step.loads import GroupLoad, PlanLoads
from costmodel.step.operation_timeline import operation_timeline
from costmodel.step.optimizer import DenseOptimizer
from costmodel.step.sparse import SparsePart
from costmodel.step.step_operations import StepOperations
from costmodel.step.synthesis import step_operations
from costmodel.step.template import Event, GroupFormulas, Work, WorkKind

ROOT = Path(__file__).parents[1]
MEASURED = ROOT.parent / "shared/data/step_times.csv"
RESULTS = ROOT / "bench/results/published_steps.json"
GLOBAL_BATCH = 65536
FL15 = (
    7912889, 33823, 17139, 7339, 20046, 4, 7105, 1382, 63, 5554114, 582469, 245828, 11, 2209, 10667,
    104, 4, 968, 15, 8165896, 2675940, 7156453, 302516, 12022, 97, 35,
)  # fmt: skip
FL3 = (
    45833188, 36747, 1572176, 345139, 11, 2209, 11268, 128, 4, 975, 15, 48937457, 17246, 11316796,
    40094537, 452104, 12607, 105, 36, 7414, 20244, 4, 7115, 1442, 63, 29275261,
)  # fmt: skip
MLPERF = (
    39884406, 39043, 17289, 7420, 20263, 3, 7120, 1543, 63, 38532951, 2953546, 403346, 10, 2208,
    11938, 155, 4, 976, 14, 39979771, 25641295, 39664984, 585935, 12972, 108, 36,
)  # fmt: skip
PRECISION = {
    "TF32": DataType.TF32,
    "FP32": DataType.FP32,
    "AMP fp16": DataType.FP16,
    "AMP": DataType.FP16,
    "FP32/TF32": DataType.TF32,
}


NOT_IN_SOK = (
    "permute outputs", "zero rows", "add rows", "permute rows' gradients", "scale gradients",
)  # fmt: skip
_GIVEN = Work(kind=WorkKind.GIVEN)
_UPDATED = Mark("parameters updated")
Given = dict[int, NDArray[np.float64]]
"""Seconds of operations on every rank, by their number, which no formula of the planner gives."""


@dataclass(frozen=True, slots=True)
class FirstGpuOnly:
    """A builder whose kernels run on rank 0 alone, as the bottom MLP does in NVIDIA's DLRM."""

    builder: StepBuilder
    given: Given

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 -- everything else is the builder's
        return getattr(self.builder, name)

    def kernel(self, name: str, stage: Stage, seconds: float, **more: Any) -> int:  # noqa: ANN401
        """Add a kernel of no length on all other ranks."""
        only = np.zeros(self.builder.world_size)
        only[0] = seconds
        number = self.builder.kernel(name, stage, _GIVEN, **more)
        self.given[number] = only
        return number


def workload(sizes: Sequence[int], precision: DataType, num_gpus: int) -> Workload:
    """Return the public DLRM: 26 one-hot tables of 128 columns, SGD, global batch 65,536."""
    half = precision is DataType.FP16
    return Workload(
        name="dlrm_criteo",
        tables=tuple(
            EmbeddingTable(
                name=f"cat_{i}", num_embeddings=rows, embedding_dim=128, inputs=Zipf(exponent=1.45)
            )
            for i, rows in enumerate(sizes)
        ),
        dense=DenseModel(
            interaction=Interaction.DOT,
            fused_interaction=True,
            precision=precision,
            optimizer=Optimizer.SGD,
        ),
        local_batch_size=GLOBAL_BATCH // num_gpus,
        pipeline=Pipeline.DLRM,
        optimizer=Optimizer.SGD,
        output_type=DataType.FP16 if half else DataType.FP32,
    )


def sok_workload(precision: DataType, num_gpus: int) -> Workload:
    """Return the same model on TensorFlow: unpooled rows come back, XLA compiles the dense model.

    It is launched as a compiled one is. What XLA fuses of the interaction is not known.
    """
    work = workload(MLPERF, precision, num_gpus)
    return replace(
        work,
        dense=replace(work.dense, fused_interaction=False, launch=LaunchMode.COMPILED),
        pipeline=Pipeline.NONE,
        tables=tuple(replace(table, pooling=Pooling.NONE) for table in work.tables),
    )


def table_wise_plan(work: Workload, ranks: Sequence[int], world_size: int) -> ShardingPlan:
    """Place tables by decreasing size, each on the rank with the fewest bytes that is not full.

    NVIDIA's ``distribute_to_buckets``: no rank holds more than its share of the tables.
    """
    most = -(-len(work.tables) // len(ranks))
    held: dict[int, list[EmbeddingTable]] = {rank: [] for rank in ranks}
    for table in sorted(work.tables, key=lambda t: -t.num_embeddings):
        open_ranks = [rank for rank in ranks if len(held[rank]) < most]
        rank = min(open_ranks, key=lambda r: (sum(t.num_embeddings for t in held[r]), r))
        held[rank].append(table)
    home_of = {table.name: rank for rank, tables in held.items() for table in tables}
    return ShardingPlan(
        tables=tuple(
            sharded(t, ShardingType.TABLE_WISE, (home_of[t.name],), world_size=world_size)
            for t in work.tables
        ),
        world_size=world_size,
        local_world_size=world_size,
    )


def row_wise_plan(work: Workload, world_size: int) -> ShardingPlan:
    """Spread the rows of every table over all ranks."""
    shardings = tuple(
        sharded(t, ShardingType.ROW_WISE, (), world_size=world_size) for t in work.tables
    )
    return ShardingPlan(tables=shardings, world_size=world_size, local_world_size=world_size)


def nvidia_program(work: Workload, topology: Topology) -> StepOperations:
    """Return NVIDIA's hybrid-parallel step: the bottom MLP is one more table, on rank 0."""
    size, whole_batch = topology.world_size, replace(work, local_batch_size=GLOBAL_BATCH)
    builder, given, gpu = StepBuilder(topology), Given(), topology.hardware.gpu
    plan = table_wise_plan(work, range(min(1, size - 1), size), size)
    (load,) = PlanLoads(work, topology).groups(plan)
    sparse = SparsePart(builder, work, (GroupFormulas.of(load.key, tuple(load.traffic)),))
    dense = DensePart(builder, dense_kernels(work, gpu), work.dense.launch)
    on_first: Any = FirstGpuOnly(builder, given)
    bottom = DensePart(on_first, dense_kernels(whole_batch, gpu), work.dense.launch)
    alone = GradientBuckets(builder, "bottom", capacity=float("inf"))
    gradients = GradientBuckets(builder, "top")
    builder.wait("synchronize", (_UPDATED,))
    bottom.before_lookups()
    sparse.forward()
    sparse.gather_outputs()
    dense.after_lookups()
    builder.join(Resource.AUTOGRAD)
    dense.before_exchange(gradients)
    gradients.flush()
    gradients_sent = tuple(sparse.gradients.split().values())
    given |= unfused_backward(builder, work, load, after=gradients_sent)
    bottom.after_exchange(alone)
    builder.join(Resource.MAIN)
    builder.kernel("wait for all-reduces", Stage.OPTIMIZER, 0.0, after=tuple(gradients.sent))
    DenseOptimizer(builder, work).write()
    update = unfused_update(builder, work, load)
    builder.mark(_UPDATED, max(update))
    return evaluated(builder.template(), [load], given | update)


def unfused_backward(
    builder: StepBuilder, work: Workload, load: GroupLoad, after: tuple[Event, ...]
) -> Given:
    """Write the sparse gradient: one FP32 row per id, from the output's gradient."""
    row_bytes = 128 * (4 + work.output_type.num_bytes)
    seconds = load.ids * row_bytes / builder.hardware.gpu.memory_bandwidth
    number = builder.kernel("sparse gradient", Stage.LOOKUP_BACKWARD, _GIVEN, after=after)
    return {number: seconds}


def unfused_update(builder: StepBuilder, work: Workload, load: GroupLoad) -> Given:
    """Unscale the sparse gradient (AMP), scale it by the rate, add it to the distinct rows."""
    (traffic,) = load.traffic.values()
    bandwidth = builder.hardware.gpu.memory_bandwidth
    pass_time = load.ids * 128 * 4 * 2 / bandwidth
    given = {}
    if work.dense.precision is DataType.FP16:
        unscaled = builder.kernel("unscale sparse gradient", Stage.OPTIMIZER, _GIVEN)
        given[unscaled] = pass_time
    given[builder.kernel("scale sparse gradient", Stage.OPTIMIZER, _GIVEN)] = pass_time
    added = builder.kernel("add sparse gradient", Stage.LOOKUP_BACKWARD, _GIVEN)
    given[added] = traffic[:, Traffic.BACKWARD_HBM] / bandwidth
    return given


def sok_program(work: Workload, topology: Topology) -> StepOperations:
    """Return SOK's step: a row-wise one whose rows are not copied around their exchanges."""
    made = step_operations(work, topology, row_wise_plan(work, topology.world_size))
    missing = {index for index, op in enumerate(made.ops) if op.name.endswith(NOT_IN_SOK)}
    launches = (made.ops[index].launched_by for index in missing)
    missing |= {each for each in launches if each is not None}
    nothing = np.zeros(topology.world_size)
    ops = (
        replace(op, seconds=nothing) if index in missing else op
        for index, op in enumerate(made.ops)
    )
    return replace(made, ops=tuple(ops))


def program_of(row: dict[str, str]) -> tuple[StepOperations, Topology]:
    """Return the step of a published row, and the machine it ran on."""
    num_gpus, name = int(row["num_gpus"]), profile_name(row["gpu"])
    topology = Topology(
        hardware=lookups_alone(name), world_size=num_gpus, local_world_size=num_gpus
    )
    precision = PRECISION[row["precision"]]
    if "V100" in row["gpu"] and precision is DataType.TF32:
        precision = DataType.FP32
    if "SOK" in row["framework"]:
        return sok_program(sok_workload(precision, num_gpus), topology), topology
    sizes = FL15 if num_gpus == 1 else FL3
    return nvidia_program(workload(sizes, precision, num_gpus), topology), topology


def predict(row: dict[str, str]) -> tuple[float, dict[str, float]]:
    """Return predicted seconds of a published row, and the critical path by stage."""
    timeline = operation_timeline(program_of(row)[0])
    return timeline.step_time, {str(k): v for k, v in timeline.breakdown().items()}


def profile_name(gpu: str) -> str:
    """Return the profile of a GPU as the rows name it."""
    return "v100-nvlink" if "V100" in gpu else "a100-sxm-80gb"


def published_rows() -> list[dict[str, str]]:
    """Return the rows whose model is public; the paper's own task set is not."""
    with MEASURED.open(newline="") as file:
        return [row for row in DictReader(file) if "Table IV" not in row["source_repo"]]


def results() -> list[dict[str, Any]]:
    """Return every published row beside its prediction."""
    rows = []
    for row in published_rows():
        seconds, stages = predict(row)
        measured = float(row["step_ms"]) * MS
        rows.append({
            "framework": row["framework"],
            "gpu": row["gpu"],
            "num_gpus": int(row["num_gpus"]),
            "precision": row["precision"],
            "measured_s": measured,
            "predicted_s": seconds,
            "error": seconds / measured - 1,
            "breakdown_s": stages,
        })
    return rows


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the table, and the critical path by stage."""
    heading = ("framework", "GPU", "GPUs", "precision", "measured", "predicted", "error")
    print("{:21}{:19}{:>5} {:11}{:>10}{:>11}{:>9}".format(*heading))
    for row in rows:
        print(
            f"{row['framework']:21}{row['gpu']:19}{row['num_gpus']:5} {row['precision']:11}"
            f"{row['measured_s'] / MS:7.2f} ms{row['predicted_s'] / MS:8.2f} ms{row['error']:+9.1%}"
        )
        stages = list(row["breakdown_s"].items())[:6]
        print("      ", ", ".join(f"{stage} {s / MS:.2f}" for stage, s in stages))
    errors = np.abs([row["error"] for row in rows])
    print(
        f"geometric mean of the error {np.exp(np.log(errors).mean()):.1%}, worst {errors.max():.1%}"
    )


if __name__ == "__main__":
    print_and_keep(__doc__, RESULTS, results, show)
