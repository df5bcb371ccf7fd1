"""One step of the 8 x V100 TorchRec DLRM trace beside the program synthesized for its model.

The trace names no tables, but its shapes leave one answer: the MLPerf DLRM-DCNv2 sizes and ids per
sample (26 flattened lists of ids in the loader), 16 columns, 16 samples per rank. Rows per rank
(the fused lookup's weights) and ids per rank (the values' all-to-all) fit one placement only, and
the two tables of no rank, 3 + 4 rows, are the 112 numbers of the small all-reduce.
"""

import json
import tarfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from costmodel.execution.graph import NodeKind
from costmodel.execution.loads import group_loads
from costmodel.execution.program import Op, Program, ProgramBuilder
from costmodel.execution.sparse import SparsePart
from costmodel.execution.synthesis import write_step
from costmodel.hardware import Topology
from costmodel.plan import ComputeKernel, ShardingPlan, ShardingType, TableSharding, make_shards
from costmodel.units import US
from costmodel.workload import DenseModel, EmbeddingTable, Interaction, Optimizer, Workload
from planner.io.profiles import load_profile

TRACE = Path(__file__).parents[4] / "shared/data/traces/dlrm8_v100/kineto.tar.gz"
pytestmark = pytest.mark.skipif(not TRACE.exists(), reason=f"no measured trace at {TRACE.name}")

ROWS = (
    40_000_000, 39_060, 17_295, 7_424, 20_265, 3, 7_122, 1_543, 63, 40_000_000, 3_067_956, 405_282,
    10, 2_209, 11_938, 155, 4, 976, 14, 40_000_000, 40_000_000, 40_000_000, 590_152, 12_973, 108,
    36,
)  # fmt: skip
IDS = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)
PLACEMENT = (
    (0, 1, 7), (4, 9, 17), (2, 15, 19), (20, 23, 24), (8, 14, 21), (3, 10, 25), (6, 18, 22),
    (11, 12, 13),
)  # fmt: skip
TYPE_BYTES = {"float": 4, "int": 4, "long int": 8}
COLLECTIVES = ("c10d::alltoall_base_", "nccl:all_reduce")
Event = dict[str, Any]


class CountingBuilder(ProgramBuilder):
    """Counts launches per host thread."""

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology.hardware, world_size=8, local_world_size=8)
        self.launches: Counter[str] = Counter()

    def _issue(self, name: str, num_ops: float, num_launches: float, seconds: Any) -> int:  # noqa: ANN401
        self.launches[self.thread] += round(num_launches)
        return super()._issue(name, num_ops, num_launches, seconds)


def sharding(index: int, home: dict[int, int]) -> TableSharding:
    kind = ShardingType.TABLE_WISE if index in home else ShardingType.DATA_PARALLEL
    return TableSharding(
        table=str(index),
        sharding_type=kind,
        compute_kernel=ComputeKernel.FUSED if index in home else ComputeKernel.DENSE,
        shards=make_shards(
            kind, ROWS[index], 16, ranks=(home.get(index, 0),), world_size=8, local_world_size=8
        ),
    )


@cache
def synthesized() -> tuple[Program, Counter[str]]:
    """Return our program of the traced step, and its launches per thread."""
    workload = Workload(
        tables=tuple(
            EmbeddingTable(
                name=str(i), num_embeddings=ROWS[i], embedding_dim=16, pooling_factor=IDS[i]
            )
            for i in range(26)
        ),
        dense=DenseModel(
            bottom_mlp=(256, 128, 16), top_mlp=(512, 512, 256, 1), interaction=Interaction.DOT
        ),
        local_batch_size=16,
        optimizer=Optimizer.ADAGRAD,
        index_bytes=4,
    )
    topology = Topology(hardware=load_profile("v100-nvlink"), world_size=8, local_world_size=8)
    home = {table: rank for rank, tables in enumerate(PLACEMENT) for table in tables}
    plan = ShardingPlan(
        tables=tuple(sharding(i, home) for i in range(26)), world_size=8, local_world_size=8
    )
    builder = CountingBuilder(topology)
    step = write_step(SparsePart(builder, workload, group_loads(workload, topology, plan)))
    return step, builder.launches


@cache
def traced(rank: int) -> tuple[Event, ...]:
    """Return the timed events of one rank, in the order of their start."""
    with tarfile.open(TRACE) as archive:
        (name,) = (n for n in archive.getnames() if f"/worker{rank}_" in n)
        file = archive.extractfile(name)
        assert file is not None
        events = json.load(file)["traceEvents"]
    return tuple(sorted((e for e in events if e.get("ph") == "X"), key=lambda e: e["ts"]))


def message(event: Event) -> tuple[int, int]:
    """Bytes a traced collective sends and receives (an all-to-all's arguments: output, input)."""
    dims, types = event["args"]["Input Dims"], event["args"]["Input type"]
    sizes = [dim[0] * TYPE_BYTES[kind] for dim, kind in zip(dims, types, strict=True) if dim]
    return sizes[-1], sizes[0]


def traced_messages(rank: int) -> list[tuple[int, int]]:
    return [message(event) for event in traced(rank) if event["name"] in COLLECTIVES]


def world_collectives() -> list[Op]:
    return [op for op in synthesized()[0].ops if op.kind is NodeKind.COLLECTIVE]


def test_all_collectives_are_in_the_world_group() -> None:
    assert {op.resource for op in world_collectives()} == {"world"}


def test_the_same_collectives_in_the_same_order() -> None:
    # TorchRec 1.9 starts the splits' exchange before forward, the version of the trace after it:
    # but for that one message, the order is the trace's
    names = [op.name for op in world_collectives()]
    assert names == [
        "splits", "table_wise outputs", "table_wise lengths", "table_wise ids", "dense all-reduce",
        "table_wise gradients", "data_parallel all-reduce", "dense all-reduce",
    ]  # fmt: skip
    traced_names = [e["name"] for e in traced(0) if e["name"] in COLLECTIVES]
    exchange, reduce = COLLECTIVES
    assert traced_names == [exchange] * 4 + [reduce, exchange, reduce, reduce]


@pytest.mark.parametrize("rank", range(8))
def test_every_message_has_the_trace_s_bytes(rank: int) -> None:
    splits, *others = world_collectives()
    ours = [int(op.num_bytes[rank]) for op in (others[0], splits, *others[1:])]
    received = [received for _, received in traced_messages(rank)]
    assert ours == received


def test_the_ids_message_counts_as_the_largest_rank_s() -> None:
    # every rank sends 16 samples of 212 ids; the rank of the table with 100 ids receives 13,312
    sent, received = zip(*(traced_messages(rank)[3] for rank in range(8)), strict=True)
    (ids,) = (op for op in world_collectives() if op.name == "table_wise ids")
    assert set(sent) == {16 * 212 * 4}
    assert max(received) == 13_312 * 4 == ids.num_bytes.max()


def launches(rank: int) -> Counter[str]:
    """Return traced launches per thread without the optimizer's, which was not multi-tensor."""
    events = traced(rank)
    main = min(e["tid"] for e in events if e.get("cat") == "cpu_op")
    (step,) = (e for e in events if e["name"].startswith("Optimizer.step"))
    return Counter(
        "main" if e["tid"] == main else "autograd"
        for e in events
        if e.get("cat") == "cuda_runtime"
        and ("LaunchKernel" in e["name"] or "Memcpy" in e["name"])
        and not step["ts"] <= e["ts"] <= step["ts"] + step["dur"]
    )


def test_launches_per_thread() -> None:
    # 90 and 107 in the trace; ours lack the pieces of the loss and of the index expressions
    ours, theirs = synthesized()[1], launches(0)
    assert (theirs["main"], theirs["autograd"]) == (90, 107)
    for thread in ("main", "autograd"):
        assert 0.7 * theirs[thread] <= ours[thread] <= 1.1 * theirs[thread]


def test_cpu_time_of_the_input_distribution() -> None:
    # `## sparse_data_dist ##` without its wait for peers: 1.4 ms on every rank
    events = traced(0)
    (whole,) = (e["dur"] for e in events if e["name"] == "## sparse_data_dist ##")
    (blocked,) = (e["dur"] for e in events if e["name"] == "## SplitsAllToAllAwaitable wait() ##")
    parts = ("permute ids", "stack splits", "splits", "wait for splits", "table_wise plan exchange",
             "table_wise lengths", "table_wise ids")  # fmt: skip
    names = {*parts, *(f"launch {name}" for name in parts)}
    ours = sum(
        float(op.seconds.max())
        for op in synthesized()[0].ops
        if op.name in names and op.resource == "main"
    )
    assert ours == pytest.approx((whole - blocked) * US, rel=0.1)
