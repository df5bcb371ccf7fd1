"""Predicted memory beside what torch's CPU allocator held: ``python -m bench.conformity.memory``.

Trains larger tables under every sharding type, alone and with what goes with it, two gloo ranks,
and reads what the process held at most within a step, of all since the model was built
(``bench.conformity.allocations``), without batches that still wait to be trained.

A CPU's step has no pinned copies and no UVM cache. Predicted is the sum of what the step holds at
different times, as a plan's memory is counted; the dense model is small beside the tables here.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bench.conformity.cells import Cell, Placed, pair
from costmodel.base.units import MIB, Bytes
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import DataType, Pooling
from costmodel.memory.rank_memory import memory_per_rank

RESULTS = Path(__file__).parents[1] / "results" / "conformity_memory.md"
ROWS, COLUMNS, IDS, SAMPLES = 20_000, 64, 20, 4096


def memory_cells() -> tuple[Cell, ...]:
    """Return the runs."""
    return tuple(map(_enlarged, _small()))


def _small() -> Iterator[Cell]:
    kinds = [kind for kind in sorted(ShardingType) if kind is not ShardingType.GRID_SHARD]
    for kind in kinds:
        yield Cell(name=kind, tables=pair(kind))
    for kind in (ShardingType.TABLE_WISE, ShardingType.ROW_WISE):
        codecs = {"comms_forward": DataType.FP16, "comms_backward": DataType.FP16}
        yield Cell(name=f"{kind}, fp16 codecs", tables=pair(kind), fields=codecs)
        yield Cell(name=f"{kind}, mean", tables=pair(kind, pooling=Pooling.MEAN))
        yield Cell(name=f"{kind}, weighted", tables=pair(kind, weighted=True))
        yield Cell(name=f"{kind}, fp16", tables=pair(kind, data_type=DataType.FP16))
    kind = ShardingType.DATA_PARALLEL
    yield Cell(name=f"{kind}, weighted", tables=pair(kind, weighted=True))
    yield Cell(
        name="table_wise, unpooled", tables=pair(ShardingType.TABLE_WISE, pooling=Pooling.NONE)
    )
    yield Cell(
        name="all of one node",
        tables=tuple(each for kind in kinds for each in pair(kind)),
    )


def _enlarged(cell: Cell) -> Cell:
    sizes = {"num_embeddings": ROWS, "embedding_dim": COLUMNS, "pooling_factor": float(IDS)}
    tables = tuple(
        Placed(kind=each.kind, rank=each.rank, kernel=each.kernel, fields=sizes | dict(each.fields))
        for each in cell.tables
    )
    fields = {"local_batch_size": SAMPLES, **cell.fields}
    return replace(cell, tables=tables, fields=fields)


_COLUMNS = (
    "weights, state", "inputs", "outputs", "gradients", "dense, activations", "predicted",
    "measured", "off",
)  # fmt: skip


def table(cells: Sequence[Cell], measured: Mapping[str, Sequence[Mapping[str, Bytes]]]) -> str:
    """Return the committed table, MiB on the rank whose peak is highest."""
    lines = [
        "# Predicted memory beside the allocator's",
        "",
        f"`python -m bench.conformity.memory`: two ranks, {ROWS:,} x {COLUMNS} tables,",
        f"{IDS} ids a sample, {SAMPLES:,} samples; MiB of the rank that peaks highest.",
        "",
        f"| run | {' | '.join(_COLUMNS)} |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for cell in cells:
        ranks = measured[cell.name]
        rank = max(range(len(ranks)), key=lambda each: ranks[each]["peak"])
        one = memory_per_rank(cell.workload, cell.topology, cell.plan)[rank]
        parts = (
            one.weights + one.optimizer_state,
            one.inputs,
            one.outputs,
            one.gradients,
            one.dense_model + one.activations,
            one.total,
            ranks[rank]["peak"],
        )
        shown = " | ".join(f"{part / MIB:.1f}" for part in parts)
        lines.append(f"| {cell.name} | {shown} | {one.total / ranks[rank]['peak'] - 1:+.0%} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Train all cells and write the table."""
    from bench.conformity.runs import measured_memory

    cells = memory_cells()
    found = measured_memory(cells)
    text = table(cells, found)
    print(text)
    RESULTS.write_text(text, encoding="utf-8")
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
