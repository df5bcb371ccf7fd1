"""Write the example workloads in bench/workloads: ``python -m bench.draw_workloads``.

The MLPerf models are copied from ``../shared/data/models.json``. The others are drawn, with fixed
seeds, the way the tasks of the paper are drawn (Lin et al., Towards Universal Performance Modeling
for Machine Learning Training on Multi-GPU Platforms, arXiv 2404.12674, section IV-B). What is known
of that comes from the paper's code, github.com/owensgroup/ml_perf_model at 5b2522a:

- tables come from the open DLRM dataset of 2021 (856 tables), without those no sample reads;
- a heavy task takes tables with a pooling factor of at least 20 only, a light one any table;
- 13 tables per GPU (the code lets the number vary by 30%; here it is 52 for 4 GPUs always);
- tasks that need more than 80% of the memory of the GPUs are drawn again;
- embedding dimensions are picked from 32, 64, 128, 256 at random: the dataset has none;
- dense input 512, bottom MLP 1024-256-128, top MLP 1024-512-256-1, plain SGD, FP32, and global
  batches up to 4096 (``--mini-batch-size``, which facebookresearch/dlrm divides by the ranks).

The dataset's tables themselves are not published, only their aggregates (``tables_2021.csv``). So
the 856 tables are made up here so that the aggregates agree (see ``OpenTables``), and the tasks
draw from these. Our own choices are the constants below that say so.
"""

import csv
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import NormalDist

from bench.fitting.sources import DATA, REPOSITORY
from costmodel.base.units import GIB
from costmodel.domain.workload import (
    DataType,
    DenseModel,
    EmbeddingTable,
    Interaction,
    Optimizer,
    Pipeline,
    Workload,
)
from costmodel.inputs.distribution import ReuseHistogram, Zipf
from planner.files.disk import write_text
from planner.files.workload_text import dump_workload

WORKLOADS = REPOSITORY / "bench" / "workloads"

NUM_OPEN_TABLES = 856
OPEN_BATCH = 65536
"""Samples in the batches that ``tables_2021.csv`` counts."""
OPEN_FILE = "fbgemm_t856_bs65536_0.pt"
"""The row of ``tables_2021.csv`` to match; the other fifteen of its kind agree with it to 0.1%."""
NUM_BINS = 17
EMBEDDING_DIMS = (32, 64, 128, 256)

POOLING_SPREAD = 1.5
"""Our choice: pooling factors are log-normal with this sigma, which leaves about 9% of the tables
at 20 and above, enough for heavy tasks."""
MAX_POOLING_FACTOR = 200.0
"""Our choice."""
SKEW_SPREAD = 0.25
"""Our choice: per bin, the standard deviation of how a table's log reuse tilts from the mean."""
ROWS_PER_HIT_ROW = (3.0, 0.5)
"""Our choice: median and sigma (log-normal) of a table's rows over the rows one batch hits."""
MIN_ROWS = 100
"""As in the paper's code."""

TASK_GPUS = 4
TABLES_PER_GPU = 13
HEAVY_POOLING_FACTOR = 20.0
TASK_GPU_BYTES = 16 * GIB
"""The V100 of the paper's code."""
TASK_MEMORY_SHARE = 0.8
TASK_GLOBAL_BATCH = 4096
NUM_HEAVY_TASKS = 10

PAPER_DENSE = DenseModel(
    num_dense_features=512,
    bottom_mlp=(1024, 256, 128),
    interaction=Interaction.CAT,
    top_mlp=(1024, 512, 256, 1),
)
"""The paper's MLPs; concatenation is our choice, as a dot product needs equal dimensions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregates:
    """What is known of the open dataset's tables in one batch."""

    num_lookups: float
    unique_rows: float
    row_shares: tuple[float, ...]
    """Share of the distinct rows hit 1, 2, 3-4, 5-8, ... times."""
    lookup_shares: tuple[float, ...]
    """Share of the lookups that go to such rows."""


def read_aggregates(path: Path) -> Aggregates:
    """Read one row of ``tables_2021.csv``."""
    with path.open(newline="", encoding="utf-8") as file:
        row = next(row for row in csv.DictReader(file) if row["file"] == OPEN_FILE)
    return Aggregates(
        num_lookups=float(row["total_indices"]),
        unique_rows=float(row["unique_rows"]),
        row_shares=tuple(float(row[name]) for name in row if name.startswith("rowfrac")),
        lookup_shares=tuple(float(row[name]) for name in row if name.startswith("idxfrac")),
    )


CRITEO_LAW = Zipf(exponent=1.45)
"""The power law of NVIDIA's synthetic stand-in for Criteo (NVIDIA/DeepLearningExamples,
prepare_synthetic_dataset.py)."""


def criteo_tables(rows: Sequence[int], pooling: Sequence[int]) -> tuple[EmbeddingTable, ...]:
    """Return the 26 Criteo tables of the MLPerf models.

    MLPerf's multi-hot ids are synthetic and uniform, so only one-hot tables follow Criteo's law.
    """
    return tuple(
        EmbeddingTable(
            name=f"t_cat_{number}",
            feature_names=(f"cat_{number}",),
            num_embeddings=num_embeddings,
            embedding_dim=128,
            pooling_factor=float(hot),
            inputs=CRITEO_LAW if hot == 1 else Zipf(exponent=0.0),
        )
        for number, (num_embeddings, hot) in enumerate(zip(rows, pooling, strict=True))
    )


def mlperf_dlrm(models: dict[str, dict[str, list[int]]]) -> Workload:
    """Return MLPerf's DLRM of training v1.0 at its global batch of 55,296 on 8 GPUs."""
    model = models["mlperf_dlrm_v1"]
    return Workload(
        name="dlrm_mlperf",
        tables=criteo_tables(model["num_embeddings"], model["pooling"]),
        dense=DenseModel(interaction=Interaction.DOT, precision=DataType.FP16),
        local_batch_size=55296 // 8,
        optimizer=Optimizer.SGD,
        output_type=DataType.FP16,
    )


def mlperf_dcnv2(models: dict[str, dict[str, list[int]]]) -> Workload:
    """Return MLPerf's DLRM-DCNv2 of training v3.0 at a global batch of 65,536 on 8 GPUs."""
    model = models["mlperf_dlrm_dcnv2"]
    return Workload(
        name="dlrm_dcnv2",
        tables=criteo_tables(model["num_embeddings"], model["multi_hot"]),
        dense=DenseModel(
            interaction=Interaction.DCN_V2, precision=DataType.FP16, optimizer=Optimizer.ADAGRAD
        ),
        local_batch_size=65536 // 8,
        optimizer=Optimizer.ADAGRAD,
        output_type=DataType.FP16,
    )


def open_tables(aggregates: Aggregates) -> tuple[EmbeddingTable, ...]:
    """Draw 856 tables whose batch of 65,536 samples has the dataset's aggregates.

    Pooling factors are log-normal, scaled to the dataset's number of lookups. Every table spreads
    its lookups over the reuse bins as the dataset does, tilted by a random skew towards rarely or
    often hit rows; then the table x bin matrix of lookups is fitted to both its known margins, the
    tables' lookups and the dataset's lookup shares, by iterative proportional fitting (Deming and
    Stephan, 1940). Distinct rows follow: the lookups of a bin over its mean hits per row.
    """
    random = Random(2021)  # noqa: S311 - a drawing, not a secret
    pooling = _pooling_factors(random, aggregates.num_lookups / OPEN_BATCH)
    lookups = _fitted_lookups(random, [OPEN_BATCH * factor for factor in pooling], aggregates)
    hits = _bin_means()
    tables = []
    for number, (factor, row) in enumerate(zip(pooling, lookups, strict=True)):
        rows = [share / hit for share, hit in zip(row, hits, strict=True)]
        median, spread = ROWS_PER_HIT_ROW
        factor_rows = max(1.05, median * math.exp(spread * _normal(random)))
        tables.append(
            EmbeddingTable(
                name=f"t{number}",
                num_embeddings=max(MIN_ROWS, _rounded(factor_rows * sum(rows), 3)),
                embedding_dim=EMBEDDING_DIMS[int(random.random() * len(EMBEDDING_DIMS))],
                pooling_factor=factor,
                inputs=ReuseHistogram(
                    row_shares=_shares(rows), num_lookups=_rounded(OPEN_BATCH * factor, 6)
                ),
            )
        )
    return tuple(tables)


def _pooling_factors(random: Random, total: float) -> list[float]:
    drawn = [math.exp(POOLING_SPREAD * _normal(random)) for _ in range(NUM_OPEN_TABLES)]
    scale = 1.0
    for _ in range(50):  # the cap makes the sum not quite linear in the scale
        factors = [min(MAX_POOLING_FACTOR, scale * factor) for factor in drawn]
        scale *= total / sum(factors)
    return [float(f"{factor:.4g}") for factor in factors]


def _fitted_lookups(
    random: Random, totals: Sequence[float], aggregates: Aggregates
) -> list[list[float]]:
    """Return the lookups of every table that go to rows of every bin."""
    hits = _bin_means()
    matrix = []
    for total in totals:
        skew = SKEW_SPREAD * _normal(random)
        matrix.append([
            share * math.exp(skew * bin_) if hit <= total / 4 else 0.0
            for bin_, (share, hit) in enumerate(zip(aggregates.lookup_shares, hits, strict=True))
        ])
    wanted = [
        share * sum(totals) / sum(aggregates.lookup_shares) for share in aggregates.lookup_shares
    ]
    for _ in range(200):
        columns = [sum(column) for column in zip(*matrix, strict=True)]
        matrix = [
            [x * want / have for x, want, have in zip(row, wanted, columns, strict=True)]
            for row in matrix
        ]
        matrix = [
            [x * total / sum(row) for x in row] for row, total in zip(matrix, totals, strict=True)
        ]
    return matrix


def _bin_means() -> tuple[float, ...]:
    return ReuseHistogram(row_shares=(1.0,) * NUM_BINS, num_lookups=1.0).bin_means()


def _shares(rows: Sequence[float]) -> tuple[float, ...]:
    """Return shares of the rows, to three digits, without trailing zeros."""
    shares = [float(f"{row / sum(rows):.3g}") for row in rows]
    while shares[-1] == 0.0:
        shares.pop()
    return tuple(shares)


def _normal(random: Random) -> float:
    """Return a standard normal number: from one uniform, so the same in every Python."""
    return NormalDist().inv_cdf(max(1e-12, random.random()))


def _rounded(value: float, digits: int) -> int:
    return round(float(f"{value:.{digits}g}"))


def draw_task(tables: Sequence[EmbeddingTable], seed: int) -> tuple[EmbeddingTable, ...]:
    """Draw the tables of one task, again and again until they fit the paper's GPUs."""
    random = Random(seed)  # noqa: S311 - a drawing, not a secret
    budget = TASK_MEMORY_SHARE * TASK_GPUS * TASK_GPU_BYTES
    while True:
        keyed = sorted((random.random(), number) for number in range(len(tables)))
        task = [tables[number] for _, number in keyed[: TASK_GPUS * TABLES_PER_GPU]]
        if sum(table.weight_bytes for table in task) <= budget:
            return tuple(task)


def paper_task(name: str, tables: Sequence[EmbeddingTable]) -> Workload:
    """Return tables as the paper trains them: plain DLRM, SGD, FP32."""
    return Workload(
        name=name,
        tables=tuple(tables),
        dense=PAPER_DENSE,
        local_batch_size=TASK_GLOBAL_BATCH // TASK_GPUS,
        pipeline=Pipeline.DLRM,
        optimizer=Optimizer.SGD,
    )


def open_model(tables: Sequence[EmbeddingTable]) -> Workload:
    """Return all tables of the open dataset in one model; the training setup is our choice."""
    return Workload(
        name="open_856",
        tables=tuple(tables),
        dense=PAPER_DENSE,
        local_batch_size=4096,
        optimizer=Optimizer.ROWWISE_ADAGRAD,
    )


def workload_files() -> Iterator[tuple[str, str]]:
    """Yield the name and text of every file."""
    models = json.loads((DATA / "models.json").read_text(encoding="utf-8"))
    yield _file(
        mlperf_dlrm(models),
        "MLPerf training v1.0 DLRM: 26 one-hot Criteo tables.",
        f"Source: {models['mlperf_dlrm_v1']['source']}",
        "Local batch: MLPerf's global 55,296 over 8 GPUs. FP16 mixed: FP32 weights, FP16 outputs.",
    )
    yield _file(
        mlperf_dcnv2(models),
        "MLPerf training v3.0 DLRM-DCNv2: 26 multi-hot Criteo tables, 214 lookups per sample.",
        f"Source: {models['mlperf_dlrm_dcnv2']['source']}",
        "Our choices: global batch 65,536 over 8 GPUs; multi-hot ids uniform, as they are",
        "synthetic; FP16 mixed: FP32 weights, FP16 outputs.",
    )
    tables = open_tables(read_aggregates(DATA / "tables_2021.csv"))
    yield _file(
        open_model(tables),
        "856 tables with the aggregates of the open DLRM dataset of 2021 (tables_2021.csv).",
        "The tables themselves are made up; see bench/draw_workloads.py for what is known, and",
        "what is our choice (dimensions, rows, the dense model, the local batch).",
    )
    heavy = [table for table in tables if table.pooling_factor >= HEAVY_POOLING_FACTOR]
    for number in range(NUM_HEAVY_TASKS):
        name = f"heavy_{number:02}"
        yield _file(paper_task(name, draw_task(heavy, seed=number)), *_about("heavy"))
    yield _file(paper_task("light_00", draw_task(tables, seed=100)), *_about("light"))


def _about(kind: str) -> tuple[str, ...]:
    which = f"at least {HEAVY_POOLING_FACTOR:.0f}" if kind == "heavy" else "any size"
    return (
        f"A {kind} task as in section IV-B of arXiv 2404.12674: 52 tables for 4 GPUs,",
        f"pooling factors of {which}, drawn from open_856.yaml; global batch 4,096.",
        "See bench/draw_workloads.py for what is known, and what is our choice.",
    )


def _file(workload: Workload, *about: str) -> tuple[str, str]:
    lines = [*about, "Written by `python -m bench.draw_workloads`; do not edit."]
    header = "".join(f"# {line}\n" for line in lines)
    return f"{workload.name}.yaml", header + dump_workload(workload)


def main() -> None:
    """Write all files."""
    for name, text in workload_files():
        write_text(WORKLOADS / name, text)


if __name__ == "__main__":
    main()
