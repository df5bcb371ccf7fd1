"""Public measurements of table-batched embedding (TBE) launches, as tables the model can read.

One ``LookupLaunch`` is one shape on one GPU: its tables, the samples it looks up, and the median
seconds of every phase that was measured. Launches of one shape (same GPU, tables, batch and
optimizer) are one launch, so that leaving one out leaves a whole shape out.

What a source does not record is assumed, and said so in ``LookupLaunch.assumed``:

* ``tbe_kernels.csv`` has the mean width, rows and ids of all tables together: all tables are taken
  to be alike, of the two multiples of four around the mean width, and their ids to follow the
  default power law (they are production traces; the source has no ids).
* ``LAUNCHES_2365`` names no GPU. Its widest rows stream 1.53 TB/s through HBM, which an A100 with
  40 GB cannot (1.39 measured) and an 80 GB one can (1.75 measured): it is taken to be that.
"""

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from bench.fitting.embedding_rows import Row, compute_kernel
from bench.fitting.embedding_rows import measured_rows as anchor_rows
from bench.fitting.embedding_rows import tables as anchor_tables
from bench.fitting.sources import DATA, REPOSITORY
from bench.fitting.traced_model import sharding_plan
from bench.fitting.traced_model import workload as traced_workload
from costmodel.base.units import US, Seconds
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType, EmbeddingTable, Optimizer, Pooling
from costmodel.inputs.distribution import Zipf

WEIGHT_GRADIENT = "grad_indice_weights"
FORWARD, BACKWARD, MAIN, SORT = "forward", "backward", "main", "sort"
"""``backward`` is everything from linearizing ids to the update; ``main`` the kernels of it that
add gradients up and update rows, ``sort`` those that linearize and sort ids. The weights' gradient
is an operator of its own, and not in ``backward``."""
OWN_ROWS = REPOSITORY / "bench" / "fitting" / "lookup_launches.csv"
PROFILE_OF = {
    "A100-PG509-200": "a100-sxm-40gb",
    "A100 (sm80, name absent)": "a100-sxm-40gb",
    "V100-SXM2-16GB": "v100-nvlink",
    "V100-SXM2-32GB": "v100-nvlink",
    "V100": "v100-nvlink",
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "unspecified (A100/H100 class)": "a100-sxm-80gb",
}
"""Profile by GPU as the sources name it."""
UNIFORM, SKEWED = Zipf(exponent=0.0), Zipf()
LAUNCHES_2365 = "pre-loaded GPU"
"""Marks the rows of TorchRec's pull request 2365 whose kernels were timed without launch gaps."""
OTHER_BACKWARD = "500000"
"""Rows per table of the V100 rows whose backward adds every id's gradient by itself, unsorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupLaunch:
    """One shape of one GPU, and what its kernels took."""

    source: str
    gpu: str
    """Profile."""
    tables: tuple[EmbeddingTable, ...]
    num_samples: int
    optimizer: Optimizer
    seconds: Mapping[str, Seconds]
    """By phase; the median of all launches of the shape."""
    repeats: int
    assumed: str = ""

    @property
    def name(self) -> str:
        """A short description, unique among launches."""
        first, count = self.tables[0], len(self.tables)
        dims = sorted({table.embedding_dim for table in self.tables})
        ids = sum(table.pooling_factor for table in self.tables) * self.num_samples
        width = f"{dims[0]}" if len(dims) == 1 else f"{dims[0]}-{dims[-1]}"
        weighted = ", weighted" if first.weighted else ""
        place = "" if self.place is ComputeKernel.FUSED else f", {self.place.value}"
        return (
            f"{self.source}: {self.gpu}, {count} x {width} {first.data_type.value}, "
            f"{ids / 1e6:.3g} M ids{weighted}{place}, {self.optimizer.value}"
        )

    @property
    def place(self) -> ComputeKernel:
        """Where the weights are."""
        return (self.tables[0].compute_kernels or (ComputeKernel.FUSED,))[0]


def launches() -> tuple[LookupLaunch, ...]:
    """Return every public launch whose shape is known."""
    return (*_anchors(), *_profiled(), *_own(), *_traced(), *_unnamed())


def _grouped(rows: Iterable[Row], *names: str) -> Iterator[list[Row]]:
    groups: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[name] for name in names)].append(row)
    yield from groups.values()


def _anchors() -> Iterator[LookupLaunch]:
    """Yield the shapes of ``embedding.csv`` with a named GPU; forward alone where it is not TBE."""
    same = ("gpu", "kernel", "dtype", "E", "D", "T", "B", "L", "optimizer")
    for group in _grouped(anchor_rows(), *same):
        row = group[0]
        seconds: dict[str, list[float]] = defaultdict(list)
        for each in group:
            phase = each["phase"].split("+", 1)[0]
            if phase in (FORWARD, BACKWARD) and each["E"] != OTHER_BACKWARD:
                seconds[phase].append(float(each["us"]) * US)
        if "sparse-ads" in row["kernel"]:
            seconds.pop(BACKWARD, None)
        if seconds:
            yield LookupLaunch(
                source="embedding.csv",
                gpu=PROFILE_OF[row["gpu"]],
                tables=anchor_tables(row),
                num_samples=int(float(row["B"])),
                optimizer=Optimizer(row["optimizer"]),
                seconds={phase: median(times) for phase, times in seconds.items()},
                repeats=max(len(times) for times in seconds.values()),
                assumed="" if compute_kernel(row) is ComputeKernel.FUSED else "cache share 0.1",
            )


def _profiled() -> Iterator[LookupLaunch]:
    """Yield the shapes of ``tbe_kernels.csv``."""
    yield from _production(DATA / "tbe_kernels.csv", "tbe_kernels.csv")


def _own() -> Iterator[LookupLaunch]:
    """Yield the shapes that were read off public traces for this bench."""
    yield from _production(OWN_ROWS, "lookup_launches.csv")


def _production(path: object, source: str) -> Iterator[LookupLaunch]:
    with open(str(path), newline="", encoding="utf-8") as file:  # noqa: PTH123 - a Path or a name
        rows = list(csv.DictReader(file))
    for group in _grouped(rows, "gpu", "features_T", "batch_B", "weighted", "dtype", "rows"):
        row = group[0]
        seconds = {
            phase: median(values)
            for phase, values in {
                FORWARD: _of(group, FORWARD, "main_kernel_us"),
                BACKWARD: _of(group, BACKWARD, "kernel_us_total"),
                MAIN: _of(group, BACKWARD, "main_kernel_us"),
                SORT: _of(group, BACKWARD, "sort_us"),
                WEIGHT_GRADIENT: _of(group, BACKWARD, "grad_indice_weights_us"),
            }.items()
            if values and median(values) > 0
        }
        seconds[BACKWARD] -= seconds.get(WEIGHT_GRADIENT, 0.0)
        yield LookupLaunch(
            source=source,
            gpu=PROFILE_OF[row["gpu"]],
            tables=_alike(row, ids=median(float(each["indices"]) for each in group)),
            num_samples=int(row["batch_B"]),
            optimizer=Optimizer.ROWWISE_ADAGRAD,
            seconds=seconds,
            repeats=len(group) // 2,
            assumed="tables alike, ids by the default power law",
        )


def _of(group: Iterable[Row], phase: str, column: str) -> list[float]:
    return [float(row[column]) * US for row in group if row["phase"] == phase and row[column]]


def _alike(row: Row, *, ids: float) -> tuple[EmbeddingTable, ...]:
    """Return as many tables as the row has features, with its rows and elements in all."""
    count, rows, elements = (float(row[name]) for name in ("features_T", "rows", "weight_elements"))
    mean = elements / rows
    narrow = int(mean // 4) * 4
    wide = round(count * (mean - narrow) / 4)
    return tuple(
        EmbeddingTable(
            name=f"t{i}",
            num_embeddings=round(rows / count),
            embedding_dim=narrow + 4 * (i < wide),
            pooling_factor=ids / (count * float(row["batch_B"])),
            data_type=DataType(row["dtype"]),
            inputs=SKEWED,
            weighted=row["weighted"] == "True",
        )
        for i in range(int(count))
    )


TRACED_US: Mapping[int, tuple[float, float]] = {
    0: (7, 88), 1: (9, 107), 2: (12, 116), 3: (66, 179), 4: (22, 154), 5: (7, 101), 6: (11, 114),
    7: (9, 112),
}  # fmt: skip
"""Forward and backward, all its kernels, by rank of the 8 x V100 trace."""


def _traced() -> Iterator[LookupLaunch]:
    """Yield the small lookups of the 8 x V100 trace: its ranks' tables, 16 samples per rank."""
    work, placed = traced_workload(), sharding_plan()
    for rank, (forward, backward) in TRACED_US.items():
        names = {
            sharding.table
            for sharding in placed.tables
            if {shard.rank for shard in sharding.shards} == {rank}
        }
        yield LookupLaunch(
            source=f"dlrm8_v100 rank {rank}",
            gpu="v100-nvlink",
            tables=tuple(table for table in work.tables if table.name in names),
            num_samples=work.local_batch_size * 8,
            optimizer=work.optimizer,
            seconds={FORWARD: forward * US, BACKWARD: backward * US},
            repeats=1,
            assumed="ids by the default power law",
        )


def _unnamed() -> Iterator[LookupLaunch]:
    """Yield the forward kernels of TorchRec's pull request 2365, by width."""
    with (DATA / "embedding.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if LAUNCHES_2365 in row["kernel"]]
    for row in rows:
        count = int(float(row["T"]))
        yield LookupLaunch(
            source="torchrec#2365",
            gpu=PROFILE_OF[row["gpu"]],
            tables=_uniform(row, count),
            num_samples=int(float(row["B"])) // count,
            optimizer=Optimizer.SGD,
            seconds={FORWARD: float(row["us"]) * US},
            repeats=1,
            assumed="GPU; a batch of all features together",
        )


def _uniform(row: Row, count: int) -> tuple[EmbeddingTable, ...]:
    return tuple(
        EmbeddingTable(
            name=f"t{i}",
            num_embeddings=int(row["E"]),
            embedding_dim=int(float(row["D"])),
            pooling_factor=float(row["L"]),
            data_type=DataType.FP32,
            pooling=Pooling.SUM,
            inputs=UNIFORM,
        )
        for i in range(count)
    )
