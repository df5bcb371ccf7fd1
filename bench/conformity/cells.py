"""The matrix: small workloads and plans, one for every way of sharding and what may go with it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from bench.plans import sharded
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ComputeKernel, ShardingPlan, ShardingType, TableSharding
from costmodel.domain.workload import (
    DataType,
    DenseModel,
    EmbeddingTable,
    Optimizer,
    Pooling,
    Workload,
)
from planner.files.profiles import load_profile

ROWS, COLUMNS, IDS, SAMPLES = 800, 16, 4, 8
UNPOOLED = (
    ShardingType.COLUMN_WISE,
    ShardingType.DATA_PARALLEL,
    ShardingType.ROW_WISE,
    ShardingType.TABLE_WISE,
)
_FUSED = ComputeKernel.FUSED
_ON_CPU = {Optimizer.ADAM: Optimizer.ADAGRAD}
"""What stands for a fused optimizer that FBGEMM does not have on a CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A table and how it is sharded."""

    kind: ShardingType
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the table in which it is not like the others."""
    rank: int = 0
    """Where its blocks begin."""
    kernel: ComputeKernel = _FUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One training run."""

    name: str
    tables: tuple[Placed, ...]
    """In the order of the sharding types' names: TorchRec takes groups as tables name them."""
    world_size: int = 2
    local_world_size: int = 2
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the workload."""
    dense: Mapping[str, Any] = field(default_factory=dict)
    """Fields of its dense model."""

    @property
    def topology(self) -> Topology:
        """Its ranks."""
        return Topology(
            hardware=load_profile("cpu-gloo"),
            world_size=self.world_size,
            local_world_size=self.local_world_size,
        )

    @property
    def workload(self) -> Workload:
        """Its tables, and a dense model that is as small as one can be."""
        layers: dict[str, Any] = {"num_dense_features": 4, "bottom_mlp": (8,), "top_mlp": (8, 1)}
        return Workload(
            tables=tuple(self._table(index, each) for index, each in enumerate(self.tables)),
            dense=DenseModel(**layers | dict(self.dense)),
            name=self.name,
            **{"local_batch_size": SAMPLES} | dict(self.fields),
        )

    @property
    def plan(self) -> ShardingPlan:
        """Where its tables are."""
        return ShardingPlan(
            tables=tuple(
                self._sharding(table, each)
                for table, each in zip(self.workload.tables, self.tables, strict=True)
            ),
            world_size=self.world_size,
            local_world_size=self.local_world_size,
        )

    @staticmethod
    def _table(index: int, placed: Placed) -> EmbeddingTable:
        fields: dict[str, Any] = {
            "num_embeddings": ROWS, "embedding_dim": COLUMNS, "pooling_factor": float(IDS),
        }  # fmt: skip
        return EmbeddingTable(name=f"t{index}", **fields | dict(placed.fields))

    def _sharding(self, table: EmbeddingTable, placed: Placed) -> TableSharding:
        kind, local = placed.kind, self.local_world_size
        ranks: tuple[int, ...] = (placed.rank % self.world_size,)
        if kind is ShardingType.COLUMN_WISE:
            ranks = (placed.rank % self.world_size, (placed.rank + 1) % self.world_size)
        elif kind is ShardingType.TABLE_COLUMN_WISE:
            ranks = tuple(range(local))
        elif kind is ShardingType.TABLE_ROW_WISE:
            ranks = (placed.rank * local % self.world_size,)
        elif kind is ShardingType.GRID_SHARD:
            ranks = tuple(range(0, self.world_size, local))
        return sharded(
            table,
            kind,
            ranks,
            world_size=self.world_size,
            local_world_size=local,
            kernel=placed.kernel,
        )


def pair(kind: ShardingType, **fields: object) -> tuple[Placed, ...]:
    """Return two tables of one sharding type, which begin on different ranks."""
    return tuple(Placed(kind=kind, fields=fields, rank=rank) for rank in (1, 0))


def cells() -> tuple[Cell, ...]:
    """Return the whole matrix."""
    some = (*_alone(), *_mixed(), *_tables(), *_codecs(), *_modules(), *_optimizers())
    return tuple(each for cell in some for each in _on_ranks(cell))


def _on_ranks(cell: Cell) -> Iterator[Cell]:
    """Yield a cell on two ranks, and on four where that is something else.

    On one node, columns of ``grid_shard`` are not split.
    """
    kinds = {each.kind for each in cell.tables}
    if ShardingType.GRID_SHARD not in kinds:
        yield cell
    if kinds & {ShardingType.TABLE_ROW_WISE, ShardingType.GRID_SHARD}:
        yield replace(cell, name=f"{cell.name}, 2 x 2", world_size=4)
    elif len(kinds) == 1 and not cell.fields and not cell.dense and "," not in cell.name:
        yield replace(cell, name=f"{cell.name}, 4", world_size=4, local_world_size=4)


def _alone() -> Iterator[Cell]:
    for kind in sorted(ShardingType):
        yield Cell(name=kind, tables=pair(kind))


def _mixed() -> Iterator[Cell]:
    for one, other in combinations(sorted(ShardingType), 2):
        yield Cell(name=f"{one} + {other}", tables=(*pair(one), *pair(other)))
    yield Cell(name="table_wise, in order", tables=pair(ShardingType.TABLE_WISE)[::-1])
    replicated, split = pair(ShardingType.DATA_PARALLEL), pair(ShardingType.ROW_WISE)
    yield Cell(
        name="data_parallel + row_wise, interleaved",
        tables=(replicated[0], split[0], replicated[1], split[1]),
    )
    yield Cell(
        name="all types", tables=tuple(each for kind in sorted(ShardingType) for each in pair(kind))
    )


def _tables() -> Iterator[Cell]:
    """Yield tables that differ from the usual ones."""
    half, mean = {"data_type": DataType.FP16}, {"pooling": Pooling.MEAN}
    for kind in sorted(ShardingType):
        yield Cell(name=f"{kind}, weighted", tables=pair(kind, weighted=True))
        yield Cell(name=f"{kind}, mean", tables=pair(kind, **mean))
        yield Cell(name=f"{kind}, fp16", tables=pair(kind, **half))
        yield Cell(name=f"{kind}, fp16 and fp32", tables=(*pair(kind, **half), *pair(kind)))
        yield Cell(name=f"{kind}, sum and mean", tables=(*pair(kind), *pair(kind, **mean)))
        yield Cell(name=f"{kind}, 2 features", tables=_two_features(kind))
    large = {"num_embeddings": 20_000}  # gradients fill DDP's first bucket, 1 MiB
    kind = ShardingType.DATA_PARALLEL
    yield Cell(
        name=f"{kind}, sum and mean, 2 MiB",
        tables=(*pair(kind, **large), *pair(kind, **mean, **large)),
    )
    for kind in UNPOOLED:
        yield Cell(name=f"{kind}, unpooled", tables=pair(kind, pooling=Pooling.NONE))
    for kind in (ShardingType.TABLE_WISE, ShardingType.ROW_WISE):
        kernels = (_FUSED, ComputeKernel.FUSED_UVM, ComputeKernel.FUSED_UVM_CACHING)
        yield Cell(
            name=f"{kind}, all kernels",
            tables=tuple(
                Placed(kind=kind, kernel=kernel, rank=rank) for kernel in kernels for rank in (0, 1)
            ),
        )


def _two_features(kind: ShardingType) -> tuple[Placed, ...]:
    fields = (
        {"feature_names": names, "pooling_factor": 2.0 * IDS} for names in (("f", "g"), ("h", "i"))
    )
    return tuple(
        Placed(kind=kind, fields=each, rank=rank) for rank, each in zip((1, 0), fields, strict=True)
    )


def _codecs() -> Iterator[Cell]:
    for kind in sorted(set(ShardingType) - {ShardingType.DATA_PARALLEL}):
        for codec in (DataType.FP16, DataType.BF16, DataType.FP8, DataType.INT8):
            summed = kind.splits_rows
            if summed and codec is DataType.INT8:
                continue  # refused
            fields = {"comms_forward": codec, "comms_backward": codec}
            yield Cell(name=f"{kind}, {codec} codecs", tables=pair(kind), fields=fields)


def _modules() -> Iterator[Cell]:
    for kind in UNPOOLED:
        yield Cell(
            name=f"{kind}, three modules",
            tables=(
                *pair(kind, pooling=Pooling.NONE), *pair(kind), *pair(kind, weighted=True),
            ),
        )  # fmt: skip


def _optimizers() -> Iterator[Cell]:
    kinds = (ShardingType.DATA_PARALLEL, ShardingType.TABLE_WISE)
    tables = tuple(each for kind in kinds for each in pair(kind))
    for optimizer in (Optimizer.SGD, Optimizer.ADAGRAD, Optimizer.ADAM):
        yield Cell(
            name=f"optimizer {optimizer}",
            tables=tables,
            fields={"optimizer": _ON_CPU.get(optimizer, optimizer)},
            dense={"optimizer": optimizer},
        )
