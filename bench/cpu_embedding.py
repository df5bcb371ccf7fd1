"""Measured embedding kernels as one table: `python -m bench.cpu_embedding MEASUREMENTS NAME`.

Takes the embedding points of a measurements file that `planner calibrate` wrote, and writes
``bench/results/NAME.csv.gz`` (a row per point) and ``bench/results/NAME.json`` (machine, date,
versions, the columns). Columns of several tables are lists with blanks between, histograms with
semicolons between tables.
"""

import csv
import gzip
import io
import sys
from collections.abc import Iterable
from pathlib import Path

from bench.kept import write
from costmodel.base.units import US
from planner.calibration.points import EmbeddingPoint
from planner.calibration.records import Record, read_measurements

RESULTS = Path(__file__).parent / "results"
COLUMNS = {
    "set": "number of the tables in memory; points of one set share tables: hold out whole sets",
    "compute_kernel": "fused, or dense (data_parallel)",
    "optimizer": "fused into backward",
    "data_type": "of the weights; outputs are fp32",
    "num_samples": "samples per batch (B)",
    "num_embeddings": "rows of every table (E)",
    "embedding_dim": "columns of every table (D)",
    "pooling_factor": "mean ids per sample of every table (L)",
    "zipf": "exponent of every table's ids, 0 uniform",
    "num_lookups": "ids of one batch, by table",
    "unique_rows": "distinct ids of that batch, by table",
    "reuse_histogram": "share of the distinct rows hit 1, 2, 3-4, 5-8, ... times (17 bins)",
    "forward_us": "median forward, processor time, the cache emptied before",
    "backward_us": "median backward with optimizer, the same",
    "forward_wall_us": "the same by the wall clock",
    "backward_wall_us": "the same by the wall clock",
    "forward_spread": "interquartile range of forward_us over the repeats, relative",
    "backward_spread": "the same of backward_us",
    "repeats": "",
}


def main() -> None:
    """Write the table."""
    source, name = sys.argv[1:]
    measured = read_measurements(Path(source))
    if measured is None:
        sys.exit(f"{source} has no measurements")
    rows = list(table(measured.records))
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    data = gzip.compress(text.getvalue().encode(), mtime=0)
    (RESULTS / f"{name}.csv.gz").write_bytes(data)
    about = {"points": len(rows), "machine": measured.machine, "columns": COLUMNS}
    write(RESULTS / f"{name}.json", about)
    print(f"{len(rows)} points")


def table(records: Iterable[Record]) -> Iterable[dict[str, object]]:
    """Yield a row per embedding point."""
    sets: dict[object, int] = {}
    for record in records:
        point = record.point
        if not isinstance(point, EmbeddingPoint):
            continue
        tables, facts = point.tables, record.facts
        yield {
            "set": sets.setdefault(tables, len(sets)),
            "compute_kernel": tables.compute_kernel.value,
            "optimizer": tables.optimizer.value,
            "data_type": tables.data_type.value,
            "num_samples": point.num_samples,
            "num_embeddings": _list(tables.num_embeddings),
            "embedding_dim": _list(tables.embedding_dims),
            "pooling_factor": _list(point.pooling_factors),
            "zipf": _list(point.zipf),
            "num_lookups": _list(facts["num_lookups"]),
            "unique_rows": _list(facts["unique_rows"]),
            "reuse_histogram": ";".join(map(_list, facts["reuse_histograms"])),
            **{f"{phase}_us": _us(seconds) for phase, seconds in record.seconds.items()},
            **{f"{phase}_wall_us": _us(seconds) for phase, seconds in record.wall.items()},
            **{f"{phase}_spread": spread for phase, spread in record.spread.items()},
            "repeats": record.repeats,
        }


def _list(values: Iterable[float]) -> str:
    return " ".join(f"{value:.12g}" for value in values)


def _us(seconds: float) -> str:
    return f"{seconds / US:.5g}"


if __name__ == "__main__":
    main()
