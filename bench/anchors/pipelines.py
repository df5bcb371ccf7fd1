"""Memory of TorchRec's pipelines, predicted beside measured.

TorchRec's pull request 2916 trained one model under three pipelines (rows of
``../shared/data/torchrec_steps.csv``); its benchmark at that commit (f03bd791,
``benchmark_train_sparsenn.py``) says what the model is. It does not say which GPU: an A100 is
assumed. What it says of times is in docs/reference/pipelines.md.
"""

import csv
from collections.abc import Iterator

from bench.anchors.anchor import Anchor, single
from bench.anchors.steps import RANKS, round_robin_plan
from bench.fitting.sources import DATA
from costmodel.base.units import GB
from costmodel.domain.hardware import Topology
from costmodel.domain.workload import DenseModel, EmbeddingTable, Optimizer, Pipeline, Workload
from costmodel.inputs.distribution import Zipf
from costmodel.memory.rank_memory import memory_per_rank
from planner.files.profiles import load_profile

SOURCE = "#2916"
MACHINE = "a100-sxm-80gb"
PIPELINES = {
    Pipeline.SPARSE_DIST: "TrainPipelineSparseDist",
    Pipeline.FUSED_SPARSE_DIST: "TrainPipelineFusedSparseDist",
    Pipeline.SEMI_SYNC: "TrainPipelineSemiSync",
}
"""And the variants of their rows."""


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


def rows() -> dict[Pipeline, dict[str, str]]:
    """Return every pipeline's row."""
    with (DATA / "torchrec_steps.csv").open(newline="", encoding="utf-8") as file:
        found = {row["variant"]: row for row in csv.DictReader(file) if row["source_pr"] == SOURCE}
    return {each: found[name] for each, name in PIPELINES.items()}


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
    topology = Topology(hardware=load_profile(MACHINE), world_size=RANKS, local_world_size=RANKS)
    return max(rank.total for rank in memory_per_rank(work, topology, round_robin_plan(work)))
