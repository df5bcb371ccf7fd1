"""From a plan to the program of one training step: the three pipelines.

The order of operations is the order in which the host issues them; see section 2 (TorchRec's
``TrainPipelineSparseDist`` and ``TrainPipelineBase``) and section 4 (plain DLRM) of the
execution-graph notes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan
from costmodel.domain.workload import Pipeline, Workload
from costmodel.step.builder import Mark, StepBuilder
from costmodel.step.dense import DenseCosts, DensePart, GradientBuckets
from costmodel.step.evaluation import evaluated
from costmodel.step.expansion import expand
from costmodel.step.graph import ExecutionGraph, Resource, Role, Stage
from costmodel.step.groups import GroupKey, KernelKey
from costmodel.step.issue import ZERO_GRADIENTS_OPS
from costmodel.step.loads import group_loads
from costmodel.step.optimizer import DenseOptimizer
from costmodel.step.program import Program
from costmodel.step.sparse import SparsePart
from costmodel.step.template import Event, GroupFormulas, Template

NUM_STEPS = 3
"""Steps to unroll: the last one is in the steady state (tests check that one more step changes
nothing)."""

_BATCH_COPIED = Mark("batch copied")


def synthesize(
    workload: Workload, topology: Topology, plan: ShardingPlan, num_steps: int = NUM_STEPS
) -> ExecutionGraph:
    """Return the execution graph of all ranks under a plan, over a few consecutive steps."""
    return expand(program(workload, topology, plan), num_steps)


def program(workload: Workload, topology: Topology, plan: ShardingPlan) -> Program:
    """Return one step of the workload's pipeline under a plan."""
    loads = group_loads(workload, topology, plan)
    template = Templates(workload, topology).of((load.key, tuple(load.traffic)) for load in loads)
    return evaluated(template, loads)


def write_step(sparse: SparsePart, *, distributes_after_forward: bool = False) -> Template:
    """Write one step around its embedding work, and return it.

    ``distributes_after_forward``: as the ``TrainPipelineSparseDist`` of 2023 did it, whose traces
    show that; TorchRec 1.9 starts to distribute the next batch before forward.
    """
    dense = DensePart(sparse.builder, DenseCosts(sparse.workload, sparse.builder.hardware.gpu))
    if distributes_after_forward and sparse.workload.pipeline.distributes_ahead:
        _sparse_dist(sparse.builder, sparse, dense, after_forward=True)
    else:
        _write(sparse, dense)
    return sparse.builder.template()


@dataclass(frozen=True)
class Templates:
    """Steps of a workload on a topology; what they have in common is worked out once."""

    workload: Workload
    topology: Topology

    def of(self, groups: Iterable[tuple[GroupKey, Sequence[KernelKey]]]) -> Template:
        """Return one step of all plans whose sharding groups and kernels are among some."""
        builder = StepBuilder(self.topology)
        formulas = tuple(GroupFormulas.of(key, kernels) for key, kernels in groups)
        _write(SparsePart(builder, self.workload, formulas), DensePart(builder, self._dense))
        return builder.template()

    @cached_property
    def _dense(self) -> DenseCosts:
        return DenseCosts(self.workload, self.topology.hardware.gpu)


def _write(sparse: SparsePart, dense: DensePart) -> None:
    write = {
        Pipeline.SPARSE_DIST: _sparse_dist,
        Pipeline.PREFETCH: _sparse_dist,
        Pipeline.NONE: _unpipelined,
        Pipeline.DLRM: _plain_dlrm,
    }[sparse.workload.pipeline]
    write(sparse.builder, sparse, dense)


def _sparse_dist(
    builder: StepBuilder, sparse: SparsePart, dense: DensePart, *, after_forward: bool = False
) -> None:
    """Compute batch k while k + 1 is distributed and k + 2 copied.

    What the step before copied and exchanged is what this one distributes and looks up.
    """

    def start() -> int | None:
        return sparse.inputs.start(Resource.DATA_DIST, after_previous=(_BATCH_COPIED,))

    builder.host("zero gradients", num_ops=ZERO_GRADIENTS_OPS)
    splits = None if after_forward else start()
    builder.mark(_BATCH_COPIED, sparse.inputs.copy(Resource.MEMCPY))
    dense.bottom_forward()
    sparse.inputs.receive(Resource.DATA_DIST)
    _lookups(builder, sparse, after=builder.last(Resource.DATA_DIST))
    dense.interaction_forward()
    dense.top_forward()
    sparse.inputs.finish(Resource.DATA_DIST, start() if after_forward else splits)
    _torchrec_backward(builder, sparse, dense)


def _unpipelined(builder: StepBuilder, sparse: SparsePart, dense: DensePart) -> None:
    """Copy, distribute and compute one batch after the other, on the compute stream."""
    builder.host("zero gradients", num_ops=ZERO_GRADIENTS_OPS)
    sparse.inputs.copy(Resource.COMPUTE)
    dense.bottom_forward()
    splits = sparse.inputs.start(Resource.COMPUTE)
    sparse.inputs.finish(Resource.COMPUTE, splits)
    sparse.inputs.receive(Resource.COMPUTE, of_this_step=True)
    _lookups(builder, sparse, after=())
    dense.interaction_forward()
    dense.top_forward()
    _torchrec_backward(builder, sparse, dense)


def _plain_dlrm(builder: StepBuilder, sparse: SparsePart, dense: DensePart) -> None:
    """Look up, exchange behind the bottom MLP, and the same backwards; ids are already there.

    Bottom and top MLP are separate DistributedDataParallel modules.
    """
    builder.host("zero gradients", num_ops=ZERO_GRADIENTS_OPS)
    outputs = sparse.forward()
    dense.bottom_forward()
    sparse.gather_outputs(after=outputs)
    dense.interaction_forward()
    dense.top_forward()
    builder.join(Resource.AUTOGRAD)
    top, bottom = GradientBuckets(builder, "top"), GradientBuckets(builder, "bottom")
    dense.top_backward(top)
    dense.interaction_backward(top)
    top.flush()
    gradients = sparse.gradients.split()
    dense.bottom_backward(bottom)
    bottom.flush()
    sparse.gradients.backward(after=gradients)
    builder.join(Resource.MAIN)
    _update(builder, sparse, after=(*top.sent, *bottom.sent))


def _lookups(builder: StepBuilder, sparse: SparsePart, after: tuple[Event, ...]) -> None:
    """Look up, exchange, gather; compute first waits for the stream that received the ids."""
    if after:
        with builder.part_of(*(group.key for group in sparse.inputs.distributed)):
            builder.kernel("wait for inputs", Stage.INPUT_DIST, 0.0, after=after)
    sparse.gather_outputs(after=sparse.forward())


def _torchrec_backward(builder: StepBuilder, sparse: SparsePart, dense: DensePart) -> None:
    """Backward of a DistributedModelParallel DLRM.

    One reducer for all dense parameters, one for the data_parallel tables. The bottom MLP's
    backward is queued on the compute stream behind the wait for the embeddings' gradients.
    """
    builder.join(Resource.AUTOGRAD)
    reducer = GradientBuckets(builder, "dense")
    dense.top_backward(reducer)
    dense.interaction_backward(reducer)
    replicas = sparse.gradients.backward(after=sparse.gradients.split())
    dense.bottom_backward(reducer)
    reducer.flush()
    builder.join(Resource.MAIN)
    _update(builder, sparse, after=(*reducer.sent, *replicas))


def _update(builder: StepBuilder, sparse: SparsePart, after: tuple[Event, ...]) -> None:
    """Update the dense parameters once every all-reduce is done."""
    if after:
        builder.kernel(
            "wait for all-reduces", Stage.OPTIMIZER, 0.0, after=after, role=Role.GRADIENTS_REDUCED
        )
    DenseOptimizer(builder, sparse.workload).write(sparse.replicated)
