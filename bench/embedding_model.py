"""Learned embedding kernels against the roofline: `python -m bench.embedding_model [--write]`.

Trains the networks of ``bench.learned.network`` on the committed measurements of
FBGEMM's kernels on a CPU core (``results/cpu_embedding.csv.gz``), holding out whole sets of tables
in five folds: every error below is of a kernel whose tables the network has not seen. Needs torch
for training.
"""

import csv
import gzip
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bench.accuracy_tables import learned, one_kernel
from bench.kept import write
from bench.learned.network import DIRECTIONS, KINDS, REUSE, SIZES, table_features
from costmodel.base.units import MB, US
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType, Optimizer
from costmodel.kernels.shard_traffic import Caches
from planner.calibration.fit_embedding import fit_lookups
from planner.calibration.lookup_data import LookupSetting
from planner.calibration.points import EmbeddingPoint, TableSet
from planner.calibration.records import Record

if TYPE_CHECKING:
    from bench.learned.training import MeasuredKernels

RESULTS = Path(__file__).parent / "results"
MEASURED = RESULTS / "cpu_embedding.csv.gz"
SUMS = RESULTS / "cpu_embedding_sums.csv"
"""Several tables at once and one by one (``bench.embedding_sums``)."""
RESULT = RESULTS / "embedding_model.json"
NUM_FOLDS = 5
CACHE_BYTES = 32 * MB
"""L3 of the machine that was measured (AMD EPYC)."""
VARIANTS: Mapping[str, tuple[tuple[str, ...], bool]] = {
    "paper's form, without reuse": ((*SIZES, *KINDS), True),
    "paper's form, 17 bins": ((*SIZES, *REUSE[1:], *KINDS), True),
    "sum of tables, without reuse": ((*SIZES, *KINDS), False),
    "sum of tables, 17 bins": ((*SIZES, *REUSE[1:], *KINDS), False),
    "sum of tables, mean reuse": ((*SIZES, REUSE[0], *KINDS), False),
}
"""Features and whether the form is the paper's."""
BEST = "sum of tables, mean reuse"
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRow:
    """One kernel of the committed measurements."""

    table_set: int
    point: EmbeddingPoint
    seconds: tuple[float, float]
    spread: tuple[float, float]
    features: tuple[tuple[float, ...], ...]


def measured_rows() -> Iterator[MeasuredRow]:
    """Yield the committed measurements."""
    with gzip.open(MEASURED, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            point = _point(row)
            yield MeasuredRow(
                table_set=int(row["set"]),
                point=point,
                seconds=(float(row["forward_us"]) * US, float(row["backward_us"]) * US),
                spread=(float(row["forward_spread"]), float(row["backward_spread"])),
                features=tuple(_features(row, point)),
            )


def _point(row: Mapping[str, str]) -> EmbeddingPoint:
    return EmbeddingPoint(
        tables=TableSet(
            num_embeddings=tuple(map(int, row["num_embeddings"].split())),
            embedding_dims=tuple(map(int, row["embedding_dim"].split())),
            data_type=DataType(row["data_type"]),
            optimizer=Optimizer(row["optimizer"]),
            compute_kernel=ComputeKernel(row["compute_kernel"]),
        ),
        num_samples=int(row["num_samples"]),
        pooling_factors=tuple(map(float, row["pooling_factor"].split())),
        zipf=tuple(map(float, row["zipf"].split())),
    )


def _features(row: Mapping[str, str], point: EmbeddingPoint) -> Iterator[tuple[float, ...]]:
    tables = point.tables
    dense = tables.compute_kernel is ComputeKernel.DENSE
    columns = zip(
        tables.num_embeddings,
        tables.embedding_dims,
        map(float, row["num_lookups"].split()),
        map(float, row["unique_rows"].split()),
        row["reuse_histogram"].split(";"),
        strict=True,
    )
    for rows, dim, lookups, unique, shares in columns:
        yield table_features(
            num_rows=rows,
            num_columns=dim,
            num_lookups=lookups,
            num_samples=point.num_samples,
            rows_by_hits=[unique * float(share) for share in shares.split()],
            kind=KINDS[-1] if dense else tables.optimizer.value,
        )


def held_out(rows: Sequence[MeasuredRow], predict: Callable[[Any, Any], Array]) -> Array:
    """Return log errors of every kernel, predicted by what did not see its set of tables."""
    fold = np.array([row.table_set for row in rows]) % NUM_FOLDS
    measured = np.log([row.seconds for row in rows])
    errors = np.zeros_like(measured)
    for number in range(NUM_FOLDS):
        out = fold == number
        errors[out] = predict(~out, out) - measured[out]
    return errors


def measured_kernels(rows: Sequence[MeasuredRow]) -> "MeasuredKernels":
    """Return kernels in the form that networks are trained on."""
    from bench.learned.training import MeasuredKernels

    return MeasuredKernels(
        features=np.array([table for row in rows for table in row.features]),
        kernel=np.repeat(np.arange(len(rows)), [len(row.features) for row in rows]),
        seconds=np.array([row.seconds for row in rows]),
    )


def network_errors(rows: Sequence[MeasuredRow], columns: tuple[str, ...], *, head: bool) -> Array:
    """Return held-out log errors of one kind of network."""
    from bench.learned.training import Training, train

    kernels = measured_kernels(rows)

    def predict(known: NDArray[np.bool_], asked: NDArray[np.bool_]) -> Array:
        network = train(kernels.part(known), Training(columns=columns, with_head=head))
        part = kernels.part(asked)
        return network.log_seconds(part.features, part.kernel, int(asked.sum()))

    return held_out(rows, predict)


def singles_errors(rows: Sequence[MeasuredRow]) -> Array:
    """Return log errors, held out, of sums of what a network says that saw single tables only."""
    from bench.learned.training import Training, train

    columns, head = VARIANTS[BEST]
    alone = np.array([len(row.features) == 1 for row in rows])

    def predict(known: NDArray[np.bool_], asked: NDArray[np.bool_]) -> Array:
        taught = [row for row, use in zip(rows, known & alone, strict=True) if use]
        network = train(measured_kernels(taught), Training(columns=columns, with_head=head))
        wanted = [row.features for row, use in zip(rows, asked, strict=True) if use]
        counts = [len(tables) for tables in wanted]
        tables = np.array([table for tables in wanted for table in tables])
        logs = network.log_seconds(tables, np.arange(len(tables)), len(tables))
        sums = np.zeros((len(wanted), len(DIRECTIONS)))
        np.add.at(sums, np.repeat(np.arange(len(wanted)), counts), np.exp(logs))
        return np.asarray(np.log(sums))

    errors: Array = held_out(rows, predict)[~alone]
    return errors


def accuracy(errors: Array) -> dict[str, dict[str, float]]:
    """Return the usual means of relative errors, forward and backward."""
    relative = np.abs(np.expm1(errors))
    return {
        phase: {
            "gmae": float(np.exp(np.log(np.maximum(one, 1e-4)).mean())),
            "mape": float(one.mean()),
            "median": float(np.median(one)),
            "p90": float(np.quantile(one, 0.9)),
        }
        for phase, one in zip(DIRECTIONS, relative.T, strict=True)
    }


def roofline(rows: Sequence[MeasuredRow]) -> dict[str, Any]:
    """Return the held-out accuracy of the roofline as calibration fits it, fused kernels only.

    What a core takes besides is the fastest kernel that was measured.
    """
    records = [
        Record(point=row.point, seconds=dict(zip(DIRECTIONS, row.seconds, strict=True)))
        for row in rows
    ]
    least = np.min([row.seconds for row in rows], axis=0)
    setting = LookupSetting(
        caches=Caches(l2_bytes=CACHE_BYTES),
        latency=0.0,
        forward_host=least[0],
        backward_host=least[1],
    )
    fit = fit_lookups(records, setting)
    return {
        phase: {name: getattr(found, name) for name in ("gmae", "mape", "median", "p90")}
        for phase, found in (("forward", fit.forward), ("backward", fit.backward))
    }


def measured_sums() -> dict[str, Any]:
    """Return what a kernel of several tables takes over the sum of kernels of one."""
    with SUMS.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    ratios = {
        phase: np.array([
            float(r["one_us"]) / float(r["sum_us"]) for r in rows if r["phase"] == phase
        ])
        for phase in DIRECTIONS
    }
    return {
        phase: {
            "kernels": len(ratio),
            "median": float(np.median(ratio)),
            "least": float(ratio.min()),
            "most": float(ratio.max()),
        }
        for phase, ratio in ratios.items()
    }


def results() -> dict[str, Any]:
    """Train, hold out, and return everything the table shows."""
    begin = time.process_time()
    rows = list(measured_rows())
    fused = np.array([row.point.tables.compute_kernel is ComputeKernel.FUSED for row in rows])
    several = np.array([len(row.features) > 1 for row in rows])
    models: dict[str, Any] = {"roofline": roofline(rows)}
    errors = {
        name: network_errors(rows, columns, head=head) for name, (columns, head) in VARIANTS.items()
    }
    models |= {name: accuracy(found[fused]) for name, found in errors.items()}
    return {
        "points": len(rows),
        "fused_points": int(fused.sum()),
        "table_sets": len({row.table_set for row in rows}),
        "folds": NUM_FOLDS,
        "spread": dict(
            zip(DIRECTIONS, np.median([row.spread for row in rows], axis=0).tolist(), strict=True)
        ),
        "machine": json.loads((RESULTS / "cpu_embedding.json").read_text(encoding="utf-8"))[
            "machine"
        ],
        "models": models,
        "dense": accuracy(errors[BEST][~fused]),
        "several_tables": {
            "learned from all": accuracy(errors[BEST][several]),
            "sums of single tables": accuracy(singles_errors(rows)),
            "measured, one kernel over sum": measured_sums(),
        },
        "cpu_seconds": round(time.process_time() - begin, 1),
    }


def show(found: Mapping[str, Any]) -> None:
    """Print the table, as the accuracy page has it."""
    print(f"{found['fused_points']} fused kernels; {found['table_sets']} sets of tables, held out")
    print(f"{learned(found)}\n\n{one_kernel(found)}")
    dense = (f"{phase} {found['dense'][phase]['gmae']:.1%}" for phase in DIRECTIONS)
    print(f"GMAE of the best form on dense kernels: {', '.join(dense)}")


def main() -> None:
    """Print the table; with --write keep it."""
    found = results()
    show(found)
    if "--write" in sys.argv:
        write(RESULT, found)


if __name__ == "__main__":
    main()
