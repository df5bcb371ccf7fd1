"""The model and plan of the 8 x V100 trace, and the step that is synthesized for them.

The trace names no tables, but its shapes leave one answer: the MLPerf DLRM-DCNv2 sizes and ids per
sample (26 flattened lists of ids in the loader), 16 columns, 16 samples per rank. Rows per rank
(the fused lookup's weights) and ids per rank (the values' all-to-all) fit one placement only, and
the two tables of no rank, 3 + 4 rows, are the 112 numbers of the small all-reduce.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import fmean

from costmodel.base.units import Bytes
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import (
    ComputeKernel,
    ShardingPlan,
    ShardingType,
    TableSharding,
    make_shards,
)
from costmodel.domain.workload import DenseModel, EmbeddingTable, Interaction, Optimizer, Workload
from costmodel.step.builder import StepBuilder
from costmodel.step.evaluation import evaluated
from costmodel.step.expansion import expand
from costmodel.step.graph import ExecutionGraph, Node, NodeKind, Stage
from costmodel.step.loads import group_loads
from costmodel.step.program import Program
from costmodel.step.sparse import SparsePart
from costmodel.step.synthesis import write_step
from costmodel.step.template import GroupFormulas, Template
from planner.files.profiles import load_profile

WORLD_SIZE = 8
_DIM = 16
_ROWS = (
    40_000_000, 39_060, 17_295, 7_424, 20_265, 3, 7_122, 1_543, 63, 40_000_000, 3_067_956, 405_282,
    10, 2_209, 11_938, 155, 4, 976, 14, 40_000_000, 40_000_000, 40_000_000, 590_152, 12_973, 108,
    36,
)  # fmt: skip
_IDS = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)
_PLACEMENT = (
    (0, 1, 7), (4, 9, 17), (2, 15, 19), (20, 23, 24), (8, 14, 21), (3, 10, 25), (6, 18, 22),
    (11, 12, 13),
)  # fmt: skip


def workload() -> Workload:
    """Return the model that was traced."""
    return Workload(
        tables=tuple(
            EmbeddingTable(
                name=str(i), num_embeddings=rows, embedding_dim=_DIM, pooling_factor=_IDS[i]
            )
            for i, rows in enumerate(_ROWS)
        ),
        dense=DenseModel(
            bottom_mlp=(256, 128, 16),
            top_mlp=(512, 512, 256, 1),
            interaction=Interaction.DOT,
            optimizer=Optimizer.ADAGRAD,
        ),
        local_batch_size=16,
        optimizer=Optimizer.ADAGRAD,
        index_bytes=4,
    )


def topology() -> Topology:
    """Return the machine that was traced."""
    return Topology(
        hardware=load_profile("v100-nvlink"), world_size=WORLD_SIZE, local_world_size=WORLD_SIZE
    )


def sharding_plan() -> ShardingPlan:
    """Return the plan that was traced."""
    home = {table: rank for rank, tables in enumerate(_PLACEMENT) for table in tables}
    return ShardingPlan(
        tables=tuple(_sharding(i, home) for i in range(len(_ROWS))),
        world_size=WORLD_SIZE,
        local_world_size=WORLD_SIZE,
    )


def _sharding(index: int, home: dict[int, int]) -> TableSharding:
    kind = ShardingType.TABLE_WISE if index in home else ShardingType.DATA_PARALLEL
    return TableSharding(
        table=str(index),
        sharding_type=kind,
        compute_kernel=ComputeKernel.FUSED if index in home else ComputeKernel.DENSE,
        shards=make_shards(
            kind, _ROWS[index], _DIM, ranks=(home.get(index, 0),), world_size=WORLD_SIZE,
            local_world_size=WORLD_SIZE,
        ),
    )  # fmt: skip


def sparse_part(builder: StepBuilder) -> SparsePart:
    """Return the embedding work of the traced step, to be written by a builder."""
    loads = group_loads(workload(), topology(), sharding_plan())
    formulas = tuple(GroupFormulas.of(load.key, tuple(load.traffic)) for load in loads)
    return SparsePart(builder, workload(), formulas)


def traced_program(step: Template) -> Program:
    """Return the program of the traced plan, from a template of its step."""
    return evaluated(step, group_loads(workload(), topology(), sharding_plan()))


def synthesized() -> ExecutionGraph:
    """Return the graph of one step, as the TorchRec of the trace issues it."""
    step = write_step(sparse_part(StepBuilder(topology())), distributes_after_forward=True)
    return expand(traced_program(step), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectivePair:
    """The nth collective of every rank in two graphs."""

    name: str
    """Name of the synthesized one."""
    imported: str
    synthesized: str
    """What kind it is."""
    imported_bytes: tuple[Bytes, ...]
    synthesized_bytes: tuple[Bytes, ...]
    """The larger of what a rank sends and receives, by rank."""

    @property
    def same(self) -> bool:
        """Whether kind and sizes agree on every rank."""
        alike = self.imported == self.synthesized
        return alike and self.imported_bytes == self.synthesized_bytes


def side_by_side(imported: ExecutionGraph, made: ExecutionGraph) -> list[CollectivePair]:
    """Return the collectives of two graphs in the order of their streams."""
    theirs, ours = _columns(imported), _columns(made)
    return [_pair(left, right) for left, right in zip_longest(theirs, ours, fillvalue=())]


def _pair(imported: Sequence[Node], made: Sequence[Node]) -> CollectivePair:
    return CollectivePair(
        name=made[0].name if made else "",
        imported=_kinds(imported),
        synthesized=_kinds(made),
        imported_bytes=tuple(node.num_bytes for node in imported),
        synthesized_bytes=_larger(made),
    )


def _columns(graph: ExecutionGraph) -> list[tuple[Node, ...]]:
    """Return the nth collective of every rank, for every n; a rank that has fewer is left out."""
    ranks: list[list[Node]] = [[] for _ in range(graph.world_size)]
    for node in graph.nodes:
        if node.kind is NodeKind.COLLECTIVE:
            ranks[node.rank].append(node)
    columns = zip_longest(*ranks)
    return [tuple(node for node in column if node is not None) for column in columns]


def _kinds(nodes: Sequence[Node]) -> str:
    """Return what the ranks run; input distribution is made of all-to-alls."""
    exchanged = {Stage.INPUT_DIST: Stage.ALL_TO_ALL}
    return ", ".join(sorted({exchanged.get(node.stage, node.stage).value for node in nodes}))


def _larger(nodes: Sequence[Node]) -> tuple[Bytes, ...]:
    """Return message sizes by rank: synthesized nodes have what a rank receives.

    Every rank sends the ids of as many samples, so each sends the mean of what ranks receive.
    """
    sent = fmean(node.num_bytes for node in nodes) if nodes else 0.0
    return tuple(max(node.num_bytes, sent) for node in nodes)
