"""A small timeline made by hand, two ranks and one step of 1 ms; timelines event by event."""

from costmodel.base.units import MS, US
from costmodel.domain.hardware import Basis, Bound, Source
from costmodel.step.expansion import OperationGraph
from costmodel.step.graph import ExecutionGraph, Node, NodeKind, Stage
from costmodel.step.simulator import simulate
from costmodel.step.step_operations import StepOperations
from costmodel.step.synthesis import NUM_STEPS
from costmodel.step.timeline import Timeline


def two_ranks() -> Timeline:
    """Rank 0 looks up for 0.4 ms and rank 1 for 0.2; 0.1 ms all-to-all, then 0.5 ms dense."""
    nodes = []
    for rank, lookup in ((0, 400 * US), (1, 200 * US)):
        base = 4 * rank
        nodes += [
            Node("launch", NodeKind.HOST, Stage.HOST, rank, "main", 0.0),
            Node(
                "lookup",
                NodeKind.KERNEL,
                Stage.LOOKUP_FORWARD,
                rank,
                "compute",
                lookup,
                launched_by=base,
                num_bytes=1e6,
                basis=Basis(Bound.HBM_BANDWIDTH, Source.ROOFLINE),
            ),
            Node(
                "output",
                NodeKind.COLLECTIVE,
                Stage.ALL_TO_ALL,
                rank,
                "world",
                100 * US,
                after=(base + 1,),
                collective=7,
                basis=Basis(Bound.LINK_BANDWIDTH, Source.FITTED),
            ),
            Node(
                "mlp",
                NodeKind.KERNEL,
                Stage.DENSE_FORWARD,
                rank,
                "compute",
                500 * US,
                after=(base + 2,),
                basis=Basis(Bound.ARITHMETIC, Source.FITTED),
            ),
        ]
    return Timeline(
        graph=ExecutionGraph(nodes=nodes, world_size=2),
        starts=(0.0, 0.0, 400 * US, 500 * US, 0.0, 0.0, 400 * US, 500 * US),
        ready=(0.0, 0.0, 400 * US, 500 * US, 0.0, 0.0, 200 * US, 500 * US),
        ends=(0.0, 400 * US, 500 * US, 1 * MS, 0.0, 200 * US, 500 * US, 1 * MS),
        binding=(None, 0, 1, 2, None, 4, 1, 6),
        step_ends=(1 * MS,),
    )


def simulated(program: StepOperations, num_steps: int = NUM_STEPS) -> Timeline:
    """Time a program's nodes one by one, as the simulator does with any graph."""
    nodes = list(OperationGraph.of(program, num_steps).nodes)
    size = program.world_size
    return simulate(ExecutionGraph(nodes=nodes, world_size=size, num_steps=num_steps))
