"""The step that is synthesized for the model and plan of the 8 x V100 trace, beside the traced."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import fmean

from bench.fitting.traced_model import sharding_plan, topology, workload
from costmodel.base.units import Bytes
from costmodel.step.builder import StepBuilder
from costmodel.step.evaluation import evaluated
from costmodel.step.expansion import OperationGraph
from costmodel.step.graph import ExecutionGraph, Node, NodeKind, Stage
from costmodel.step.loads import PlanLoads
from costmodel.step.sparse import SparsePart
from costmodel.step.step_operations import StepOperations
from costmodel.step.synthesis import write_step
from costmodel.step.template import GroupFormulas, Template


def sparse_part(builder: StepBuilder) -> SparsePart:
    """Return the embedding work of the traced step, to be written by a builder."""
    loads = PlanLoads(workload(), topology()).groups(sharding_plan())
    formulas = tuple(GroupFormulas.of(load.key, tuple(load.traffic)) for load in loads)
    return SparsePart(builder, workload(), formulas)


def traced_program(step: Template) -> StepOperations:
    """Return the program of the traced plan, from a template of its step."""
    return evaluated(step, PlanLoads(workload(), topology()).groups(sharding_plan()))


def synthesized() -> ExecutionGraph:
    """Return the graph of one step, as the TorchRec of the trace issues it."""
    step = write_step(sparse_part(StepBuilder(topology())), distributes_after_forward=True)
    return OperationGraph.of(traced_program(step), 1)


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
