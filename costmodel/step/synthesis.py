"""From a plan to the program of one training step, as its pipeline runs it.

A pipeline is an order in which the host issues the parts of a step, each for the batch that it is
due for and to a stream of its own (``StepBuilder.on``). A part waits for what its batch passed
last, in this step or in the one before (``StepBuilder.latest``), so that the same parts serve all
pipelines: what is issued before the part that it needs takes the batch of the step before.

References
----------
torchrec 1.9.2, distributed/train_pipeline/train_pipelines.py: ``progress`` of each class.
facebookresearch/dlrm for plain DLRM.

"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan
from costmodel.domain.workload import Pipeline, Workload
from costmodel.step.builder import StepBuilder, Wait
from costmodel.step.dense import DenseCosts, DensePart, GradientBuckets
from costmodel.step.evaluation import evaluated
from costmodel.step.expansion import expand
from costmodel.step.graph import ExecutionGraph, Resource, Role, Stage
from costmodel.step.groups import GroupKey, KernelKey
from costmodel.step.input_dist import BATCH_COPIED
from costmodel.step.issue import ZERO_GRADIENTS_OPS
from costmodel.step.loads import group_loads
from costmodel.step.optimizer import DenseOptimizer
from costmodel.step.program import Program
from costmodel.step.sparse import SparsePart
from costmodel.step.template import GroupFormulas, Template

NUM_STEPS = 3
"""Steps to unroll: the last one is in the steady state (tests check that one more step changes
nothing)."""


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
    if distributes_after_forward and sparse.workload.pipeline is Pipeline.SPARSE_DIST:
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
        Pipeline.FUSED_SPARSE_DIST: _fused_sparse_dist,
        Pipeline.SEMI_SYNC: _semi_sync,
        Pipeline.NONE: _unpipelined,
        Pipeline.DLRM: _plain_dlrm,
    }[sparse.workload.pipeline]
    write(sparse.builder, sparse, dense)


def _sparse_dist(
    builder: StepBuilder, sparse: SparsePart, dense: DensePart, *, after_forward: bool = False
) -> None:
    """Compute batch k while k + 1 is distributed and k + 2 copied."""
    copied = builder.latest(BATCH_COPIED)
    builder.host("zero gradients", num_ops=ZERO_GRADIENTS_OPS)
    if not after_forward:
        _start_input_dist(sparse, copied)
    _copy_batch(sparse)
    dense.bottom_forward()
    with builder.on(Resource.DATA_DIST):
        sparse.inputs.receive()
    _wait_for_data_dist(builder, sparse.inputs.distributed)
    sparse.forward()
    sparse.gather_outputs()
    dense.interaction_forward()
    dense.top_forward()
    if after_forward:
        _start_input_dist(sparse, copied)
    _finish_input_dist(sparse)
    _torchrec_backward(builder, sparse, dense)


def _fused_sparse_dist(builder: StepBuilder, sparse: SparsePart, dense: DensePart) -> None:
    """Look batch k up where k - 1 was updated: after that, beside the dense optimizer.

    Both are on ``data_dist``, as autograd runs an operator's backward on the stream of its forward.
    There the lookup holds up the input distribution of k + 1; its outputs travel while the
    bottom MLP runs, and its update runs beside that MLP's backward. The optimizer waits for the
    update: backward ends when all streams that it used are done.
    """
    with builder.on(Resource.DATA_DIST):
        sparse.inputs.receive()
        sparse.forward()
    builder.host("zero gradients", num_ops=ZERO_GRADIENTS_OPS)
    _start_input_dist(sparse, builder.latest(BATCH_COPIED))
    _copy_batch(sparse)
    dense.bottom_forward()
    _wait_for_data_dist(builder, sparse.groups)
    sparse.gather_outputs()
    dense.interaction_forward()
    dense.top_forward()
    _finish_input_dist(sparse)
    _torchrec_backward(builder, sparse, dense, updates_on=Resource.DATA_DIST)


def _semi_sync(builder: StepBuilder, sparse: SparsePart, dense: DensePart) -> None:
    """Look k + 1 up between forward and backward of k, with rows that k has yet to update.

    Its outputs travel during that backward. The embeddings' backward is one of its own, after the
    dense one, which ends with a wait for its all-reduces.
    """
    _start_input_dist(sparse, builder.latest(BATCH_COPIED))
    dense.bottom_forward()
    _wait_for_data_dist(builder, sparse.inputs.distributed)
    sparse.gather_outputs()
    dense.interaction_forward()
    dense.top_forward()
    _copy_batch(sparse)
    with builder.on(Resource.DATA_DIST):
        sparse.inputs.receive()
    _wait_for_data_dist(builder, sparse.inputs.distributed)
    sparse.forward()
    _finish_input_dist(sparse)
    builder.join(Resource.AUTOGRAD)
    reducer = GradientBuckets(builder, "dense")
    dense.top_backward(reducer)
    dense.interaction_backward(reducer)
    dense.bottom_backward(reducer)
    reducer.flush()
    _wait_for_gradients(builder, after=tuple(reducer.sent))
    replicas = sparse.gradients.backward(after=sparse.gradients.split())
    builder.join(Resource.MAIN)
    _update(builder, sparse, after=replicas)
    builder.host("zero gradients", num_ops=ZERO_GRADIENTS_OPS)


def _unpipelined(builder: StepBuilder, sparse: SparsePart, dense: DensePart) -> None:
    """Copy, distribute and compute one batch after the other, on the compute stream."""
    builder.host("zero gradients", num_ops=ZERO_GRADIENTS_OPS)
    sparse.inputs.copy()
    dense.bottom_forward()
    sparse.inputs.start(copied=())
    sparse.inputs.finish()
    sparse.inputs.receive()
    sparse.forward()
    sparse.gather_outputs()
    dense.interaction_forward()
    dense.top_forward()
    _torchrec_backward(builder, sparse, dense)


def _plain_dlrm(builder: StepBuilder, sparse: SparsePart, dense: DensePart) -> None:
    """Look up, exchange behind the bottom MLP, and the same backwards; ids are already there.

    Bottom and top MLP are separate DistributedDataParallel modules.
    """
    builder.host("zero gradients", num_ops=ZERO_GRADIENTS_OPS)
    sparse.forward()
    dense.bottom_forward()
    sparse.gather_outputs()
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


def _start_input_dist(sparse: SparsePart, copied: tuple[Wait, ...]) -> None:
    """Start to distribute a batch that is copied."""
    with sparse.builder.on(Resource.DATA_DIST):
        sparse.inputs.start(copied)


def _finish_input_dist(sparse: SparsePart) -> None:
    """Distribute the batch whose splits were exchanged last."""
    with sparse.builder.on(Resource.DATA_DIST):
        sparse.inputs.finish()


def _copy_batch(sparse: SparsePart) -> None:
    """Copy the batch that comes after all others."""
    with sparse.builder.on(Resource.MEMCPY):
        sparse.inputs.copy()


def _wait_for_data_dist(builder: StepBuilder, groups: Sequence[GroupFormulas]) -> None:
    """Have compute wait for all that ``data_dist`` was given for groups, if a plan has any."""
    after = builder.last(Resource.DATA_DIST)
    if after:
        with builder.part_of(*(group.key for group in groups)):
            builder.kernel("wait for inputs", Stage.INPUT_DIST, 0.0, after=after)


def _torchrec_backward(
    builder: StepBuilder,
    sparse: SparsePart,
    dense: DensePart,
    *,
    updates_on: Resource = Resource.COMPUTE,
) -> None:
    """Backward of a DistributedModelParallel DLRM.

    One reducer for all dense parameters, one for the data_parallel tables. Where the tables'
    updates are on the compute stream, too, the bottom MLP's backward is queued behind their wait
    for the embeddings' gradients.
    """
    builder.join(Resource.AUTOGRAD)
    reducer = GradientBuckets(builder, "dense")
    dense.top_backward(reducer)
    dense.interaction_backward(reducer)
    sent = sparse.gradients.split()
    with builder.on(updates_on):
        replicas = sparse.gradients.backward(after=sent)
    dense.bottom_backward(reducer)
    reducer.flush()
    builder.join(Resource.MAIN)
    updated = () if updates_on is Resource.COMPUTE else builder.last(updates_on)
    _update(builder, sparse, after=(*reducer.sent, *replicas, *updated))


def _update(builder: StepBuilder, sparse: SparsePart, after: tuple[Wait, ...]) -> None:
    """Update the dense parameters once every all-reduce is done."""
    _wait_for_gradients(builder, after)
    DenseOptimizer(builder, sparse.workload).write(sparse.replicated)


def _wait_for_gradients(builder: StepBuilder, after: tuple[Wait, ...]) -> None:
    if after:
        builder.kernel(
            "wait for all-reduces", Stage.OPTIMIZER, 0.0, after=after, role=Role.GRADIENTS_REDUCED
        )
