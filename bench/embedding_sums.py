"""One kernel for several tables against a kernel for each: `python -m bench.embedding_sums`.

Measures, on a core of this machine, kernels of the committed measurements again, and then every
table of them in a kernel of its own; needs torch and fbgemm. Processor time, medians, the same
ids. Takes about three minutes, and writes ``bench/results/cpu_embedding_sums.csv``.
"""

import csv
from collections.abc import Iterator

from bench.embedding_model import SUMS, measured_rows
from costmodel.base.units import MB, US
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType, Optimizer
from planner.calibration.points import EmbeddingPoint, TableSet

MOST_BYTES = 200 * MB
"""Most bytes of a set of tables, so that all fit beside the others that run here."""
EVERY = 13
"""Points that are measured: every so many of those that qualify, for small and large batches."""
CACHE_BYTES = 32 * MB
"""L3 of the machine."""
BUDGET = 0.3


def multi_table_points() -> Iterator[EmbeddingPoint]:
    """Yield the chosen points of the committed measurements."""
    number = 0
    for row in measured_rows():
        point = row.point
        small = point.tables.num_bytes < MOST_BYTES
        fused = point.tables.compute_kernel is ComputeKernel.FUSED
        if len(point.tables.num_embeddings) > 1 and small and fused:
            number += 1
            if number % EVERY == 0:
                yield point


def single(point: EmbeddingPoint, table: int) -> EmbeddingPoint:
    """Return one table of a point as a point of its own."""
    tables = point.tables
    return EmbeddingPoint(
        tables=TableSet(
            num_embeddings=(tables.num_embeddings[table],),
            embedding_dims=(tables.embedding_dims[table],),
            data_type=DataType(tables.data_type),
            optimizer=Optimizer(tables.optimizer),
            compute_kernel=ComputeKernel(tables.compute_kernel),
        ),
        num_samples=point.num_samples,
        pooling_factors=(point.pooling_factors[table],),
        zipf=(point.zipf[table],),
    )


def timed(point: EmbeddingPoint) -> tuple[float, float]:
    """Return median forward and backward seconds."""
    import torch

    from planner.calibration.device import open_device
    from planner.calibration.measure_embedding import TableKernel

    torch.set_num_threads(1)
    device = open_device("cpu", 0, CACHE_BYTES)
    timings = TableKernel(point.tables, device).timings(point, budget=BUDGET)
    return timings["forward"].seconds, timings["backward"].seconds


def main() -> None:
    """Measure and write."""
    with SUMS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((
            "tables",
            "optimizer",
            "num_samples",
            "lookups",
            "phase",
            "one_us",
            "sum_us",
        ))
        for point in multi_table_points():
            together = timed(point)
            count = len(point.tables.num_embeddings)
            alone = [timed(single(point, table)) for table in range(count)]
            lookups = round(point.num_samples * sum(point.pooling_factors))
            for phase, name in enumerate(("forward", "backward")):
                total = sum(times[phase] for times in alone)
                numbers = (f"{together[phase] / US:.5g}", f"{total / US:.5g}")
                about = (count, point.tables.optimizer.value, point.num_samples, lookups)
                writer.writerow((*about, name, *numbers))
            print(f"{count} tables, {lookups:,} ids: {together} {alone}")
            file.flush()


if __name__ == "__main__":
    main()
