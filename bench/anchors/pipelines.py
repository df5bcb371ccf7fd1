"""What TorchRec's pipelines gain, predicted beside measured: `python -m bench.anchors.pipelines`.

TorchRec's pull request 2916 timed ten batches of one model under three pipelines (rows of
``../shared/data/torchrec_steps.csv``); its benchmark at that commit (f03bd791,
``benchmark_train_sparsenn.py``) says what the model is. It does not say which GPU: two are tried,
and nothing is fitted.

The benchmark runs with autograd's anomaly detection: the host reads back, after every operator of
the backward, whether its result has a NaN in it. So the host never runs ahead of the GPU, and what
it issues between two backwards is waited for. The second prediction has these reads; what the
tracebacks that anomaly detection keeps of every forward operator cost is not known.
"""

import csv
from collections.abc import Iterator
from typing import Any

from bench.anchors.anchor import Anchor, single
from bench.anchors.steps import RANKS, round_robin_plan
from bench.fitting.sources import DATA
from costmodel.base.units import GB, MS, Seconds
from costmodel.domain.hardware import Topology
from costmodel.domain.workload import DenseModel, EmbeddingTable, Optimizer, Pipeline, Workload
from costmodel.inputs.distribution import Zipf
from costmodel.memory.rank_memory import memory_per_rank
from costmodel.step.builder import StepBuilder
from costmodel.step.evaluation import evaluated
from costmodel.step.graph import Resource
from costmodel.step.loads import PlanLoads
from costmodel.step.program_timeline import program_timeline
from costmodel.step.sparse import SparsePart
from costmodel.step.synthesis import write_step
from costmodel.step.template import GroupFormulas
from planner.files.profiles import load_profile

SOURCE, BATCHES = "#2916", 10
MACHINES = ("a100-sxm-80gb", "h100-sxm")
PIPELINES = {
    Pipeline.SPARSE_DIST: "TrainPipelineSparseDist",
    Pipeline.FUSED_SPARSE_DIST: "TrainPipelineFusedSparseDist",
    Pipeline.SEMI_SYNC: "TrainPipelineSemiSync",
}
"""And the variants of their rows."""


class AnomalyDetection(StepBuilder):
    """A builder whose host reads something back after every kernel of the backward."""

    def kernel(self, *args: Any, **facts: Any) -> int:  # noqa: ANN401 -- those of any kernel
        """Add a kernel; on the autograd thread, and a wait for it."""
        number = super().kernel(*args, **facts)
        if self.thread is Resource.AUTOGRAD:
            self.wait("check for NaN", self.last(self.stream))
        return number


def sparse_nn(pipeline: Pipeline) -> Workload:
    """Return the benchmark's model: 100 tables, and 100 whose ids have weights."""

    def tables(prefix: str, *, weighted: bool) -> tuple[EmbeddingTable, ...]:
        return tuple(
            EmbeddingTable(
                name=f"{prefix}_{index}",
                num_embeddings=100_000,
                embedding_dim=512,
                pooling_factor=10.0,
                weighted=weighted,
                inputs=Zipf(exponent=0.0),
            )
            for index in range(100)
        )

    return Workload(
        name="SparseNN",
        tables=(*tables("table", weighted=False), *tables("weighted_table", weighted=True)),
        dense=DenseModel(num_dense_features=10, bottom_mlp=(8,), top_mlp=(1000,) * 6),
        local_batch_size=8192,
        pipeline=pipeline,
        optimizer=Optimizer.ADAGRAD,
    )


def step_time(work: Workload, topology: Topology, builder: type[StepBuilder]) -> Seconds:
    """Return the predicted step of whole tables, spread over the ranks one by one."""
    loads = PlanLoads(work, topology).groups(round_robin_plan(work))
    formulas = tuple(GroupFormulas.of(load.key, tuple(load.traffic)) for load in loads)
    template = write_step(SparsePart(builder(topology), work, formulas))
    return program_timeline(evaluated(template, loads)).step_time


def gains(machine: str, builder: type[StepBuilder]) -> dict[Pipeline, tuple[Seconds, float]]:
    """Return every pipeline's predicted step, and how much longer it is than sparse_dist's."""
    topology = Topology(hardware=load_profile(machine), world_size=RANKS, local_world_size=RANKS)
    times = {each: step_time(sparse_nn(each), topology, builder) for each in PIPELINES}
    first = times[Pipeline.SPARSE_DIST]
    return {each: (seconds, seconds / first - 1) for each, seconds in times.items()}


def rows() -> dict[Pipeline, dict[str, str]]:
    """Return every pipeline's row."""
    with (DATA / "torchrec_steps.csv").open(newline="", encoding="utf-8") as file:
        found = {row["variant"]: row for row in csv.DictReader(file) if row["source_pr"] == SOURCE}
    return {each: found[name] for each, name in PIPELINES.items()}


def measured() -> dict[Pipeline, tuple[Seconds, float]]:
    """Return every pipeline's measured batch, and its difference to sparse_dist."""
    times = {each: float(row["total_ms_P90"]) * MS / BATCHES for each, row in rows().items()}
    first = times[Pipeline.SPARSE_DIST]
    return {each: (seconds, seconds / first - 1) for each, seconds in times.items()}


def pipelines() -> Iterator[Anchor]:
    """Yield steps of the other pipelines over sparse_dist's, on both GPUs."""
    known = measured()
    for machine in MACHINES:
        for pipeline, (_, gain) in gains(machine, AnomalyDetection).items():
            if pipeline is not Pipeline.SPARSE_DIST:
                yield single(
                    "step over that of sparse_dist",
                    f"{SOURCE}, {PIPELINES[pipeline]}, {machine} assumed",
                    measured=1 + known[pipeline][1],
                    predicted=1 + gain,
                    unit="ratio",
                )


def memory() -> Iterator[Anchor]:
    """Yield predicted memory beside the allocator's peaks."""
    for pipeline, row in rows().items():
        for what, column in (("allocated", "peak_alloc_GB"), ("reserved", "peak_reserved_GB")):
            yield single(
                f"memory {what}",
                f"{SOURCE}, {PIPELINES[pipeline]}",
                measured=float(row[column]) * GB,
                predicted=peak_bytes(pipeline),
                unit="bytes",
            )


def peak_bytes(pipeline: Pipeline) -> float:
    """Return the predicted memory of the fullest rank."""
    work = sparse_nn(pipeline)
    topology = Topology(
        hardware=load_profile(MACHINES[0]), world_size=RANKS, local_world_size=RANKS
    )
    return max(rank.total for rank in memory_per_rank(work, topology, round_robin_plan(work)))


def main() -> None:
    """Print a row for every pipeline."""
    sources = {"measured": measured()}
    for machine in MACHINES:
        sources[machine] = gains(machine, StepBuilder)
        sources[f"{machine}, anomaly detection"] = gains(machine, AnomalyDetection)
    for source, times in sources.items():
        said = (f"{p} {s / MS:6.1f} ms {gain:+6.2%}" for p, (s, gain) in times.items())
        print(f"{source:34} " + "   ".join(said))
    for pipeline, row in rows().items():
        predicted = peak_bytes(pipeline) / GB
        print(f"{pipeline:20} {row['peak_alloc_GB']} GB allocated, {predicted:6.2f} GB predicted")


if __name__ == "__main__":
    main()
