"""Writing the operations of one training step for a plan, as the plan's pipeline runs it.

A pipeline is an order in which the host issues the parts of a step, each for the batch that it is
due for and to a stream of its own (``StepBuilder.on``). A part waits for the point that its batch
passed last, in this step or in the one before (``StepBuilder.latest``), so that the same parts
serve all pipelines: a part issued before the part that it needs takes the batch of the step before.

References
----------
torchrec 1.9.2, distributed/train_pipeline/train_pipelines.py: ``progress`` of each class.
facebookresearch/dlrm for plain DLRM.

"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TypeAlias

from costmodel.domain.hardware import Device, Topology
from costmodel.domain.plan import ShardingPlan, ShardingType
from costmodel.domain.workload import Pipeline, Workload
from costmodel.step.buckets import Accumulation, GradientBuckets
from costmodel.step.builder import StepBuilder, Wait
from costmodel.step.dense import DensePart, dense_kernels
from costmodel.step.dense_kernels import DenseStretches
from costmodel.step.evaluation import evaluated
from costmodel.step.graph import Resource, Role, Stage
from costmodel.step.groups import GroupKey, KernelKey
from costmodel.step.input_dist import BATCH_COPIED
from costmodel.step.issue import END_BACKWARD_OPS, START_BACKWARD_OPS, ZERO_GRADIENTS_OPS
from costmodel.step.loads import PlanLoads
from costmodel.step.optimizer import DenseOptimizer
from costmodel.step.sparse import SparsePart
from costmodel.step.step_operations import LikeBatches, StepOperations
from costmodel.step.template import GroupFormulas, Template

NUM_STEPS = 3
"""Number of steps to unroll: the last one is in the steady state (tests check that one more step
changes nothing)."""


MOST_WRITTEN = 8
"""Largest number of batches of a step that are written (``LikeBatches``). Six of them are between
the first and the last, and alike: steps whose batches follow one another in the same way before the
sixth are exact."""


def step_operations(
    workload: Workload,
    topology: Topology,
    plan: ShardingPlan,
    loads: PlanLoads | None = None,
    *,
    every_batch: bool = True,
) -> StepOperations:
    """Return one step of the workload's pipeline under a plan; ``loads`` may know its shards.

    Without ``every_batch``, only some of many batches are in it; its time is that of all.
    """
    groups = (loads or PlanLoads(workload, topology)).groups(plan)
    template = Templates(workload, topology, every_batch=every_batch).of(
        (group.key, tuple(group.traffic)) for group in groups
    )
    return evaluated(template, groups)


def write_step(sparse: SparsePart, *, distributes_after_forward: bool = False) -> Template:
    """Write one step around its embedding work, and return it.

    ``distributes_after_forward``: as the ``TrainPipelineSparseDist`` of 2023 did it, whose traces
    show that; TorchRec 1.9 starts to distribute the next batch before forward.
    """
    workload, gpu = sparse.workload, sparse.builder.hardware.gpu
    dense = DensePart(sparse.builder, dense_kernels(workload, gpu), workload.dense.launch)
    return _write(sparse, dense, distributes_after_forward=distributes_after_forward)


Kernels: TypeAlias = dict[GroupKey, tuple[KernelKey, ...]]
"""Lookup kernels by sharding group."""


@dataclass(frozen=True)
class Templates:
    """Templates of a workload's steps on a topology; common parts are computed once."""

    workload: Workload
    topology: Topology
    every_batch: bool = False
    """Whether all batches of a step are written, if it has more than ``MOST_WRITTEN``."""

    _widest: dict[bool, tuple[Kernels, Template]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    """The template of the most groups written so far, with these, by whether there are replicas."""

    def of(self, groups: Iterable[tuple[GroupKey, Sequence[KernelKey]]]) -> Template:
        """Return the template of plans whose sharding groups and kernels are among ``groups``.

        It is cut from the step of more groups where that was written before, in a third of the
        time. Without replicas the optimizer of dense parameters is another one, without groups
        streams may have no work, and on CPUs a thread waits for the kernel that was called last,
        whichever that is.
        """
        kernels: Kernels = {key: tuple(own) for key, own in groups}
        if not kernels or self.topology.hardware.device is Device.CPU:
            return self._written(kernels)
        replicates = any(map(_is_replicated, kernels))
        every, _ = self._widest.get(True, (kernels, None))
        sharded = {key: own for key, own in every.items() if not _is_replicated(key)}
        known, template = self._widest.get(replicates, ({}, None))
        if template is None or not kernels.items() <= known.items():
            # others without replicas are cut from the step of all these
            wanted = sharded if not replicates and kernels.items() <= sharded.items() else kernels
            template = self._written(wanted)
            if len(wanted) > len(known):
                self._widest[replicates] = wanted, template
            known = wanted
        return template if len(kernels) == len(known) else template.some(kernels)

    def _written(self, kernels: Kernels) -> Template:
        """Return the template of some groups and kernels, written anew."""
        builder = StepBuilder(self.topology)
        formulas = tuple(GroupFormulas.of(*item) for item in kernels.items())
        sparse = SparsePart(builder, self.workload, formulas)
        most = None if self.every_batch else MOST_WRITTEN
        dense = DensePart(builder, self._dense_kernels, self.workload.dense.launch)
        return _write(sparse, dense, most=most)

    @cached_property
    def _dense_kernels(self) -> DenseStretches:
        return dense_kernels(self.workload, self.topology.hardware.gpu)


def _is_replicated(key: GroupKey) -> bool:
    return key.sharding_type is ShardingType.DATA_PARALLEL


@dataclass(frozen=True, slots=True)
class _BatchParts:
    """The parts of one batch of a step."""

    sparse: SparsePart
    dense: DensePart
    accumulation: Accumulation

    @property
    def builder(self) -> StepBuilder:
        """The step's builder."""
        return self.sparse.builder

    def reducer(self, name: str) -> GradientBuckets:
        """Return the reducer of a module of dense parameters."""
        wrapped = self.sparse.workload.pipeline is not Pipeline.DLRM
        return GradientBuckets(
            self.builder, name, accumulation=self.accumulation, wraps_one_rank=wrapped
        )

    def zero_gradients(self, *, wanted: bool) -> None:
        """Add zeroing the dense gradients, if this batch does not add to earlier ones."""
        if wanted:
            self.builder.host("zero gradients", num_ops=ZERO_GRADIENTS_OPS)


def _write(
    sparse: SparsePart,
    dense: DensePart,
    *,
    distributes_after_forward: bool = False,
    most: int | None = None,
) -> Template:
    """Return a step: a pipeline's batches up to the one after which the dense model is updated.

    Within it a batch waits for the one before in the same step, but for the first batch. Of more
    than ``most`` batches, those that do the same as the one before are left out.
    """
    write: Callable[[_BatchParts], None] = {
        Pipeline.SPARSE_DIST: _sparse_dist,
        Pipeline.PREFETCH: _prefetch_sparse_dist,
        Pipeline.FUSED_SPARSE_DIST: _fused_sparse_dist,
        Pipeline.SEMI_SYNC: _semi_sync,
        Pipeline.NONE: _unpipelined,
        Pipeline.DLRM: _plain_dlrm,
    }[sparse.workload.pipeline]
    if distributes_after_forward and write is _sparse_dist:
        write = partial(_sparse_dist, after_forward=True)
    batches = sparse.workload.gradient_accumulation_steps
    written = min(batches, most or batches)
    begins: list[int] = []
    for number in range(written):
        accumulation = Accumulation(adds=number > 0, reduces=number == written - 1)
        begins.append(sparse.builder.num_ops)
        write(_BatchParts(sparse, dense, accumulation))
    if written == batches:
        return sparse.builder.template()
    first, second, last = begins[-3:]
    return sparse.builder.template(LikeBatches(first, second, last, batches - written))


def _sparse_dist(batch: _BatchParts, *, after_forward: bool = False) -> None:
    """Compute batch k while k + 1 is distributed and k + 2 copied."""
    builder, sparse, dense = batch.builder, batch.sparse, batch.dense
    copied = builder.latest(BATCH_COPIED)
    batch.zero_gradients(wanted=not batch.accumulation.adds)
    if not after_forward:
        _start_input_dist(sparse, copied)
    _copy_batch(sparse)
    dense.before_lookups()
    with builder.on(Resource.DATA_DIST):
        sparse.inputs.receive()
    _wait_for_data_dist(builder, sparse.inputs.distributed)
    sparse.forward()
    sparse.gather_outputs()
    dense.after_lookups()
    if after_forward:
        _start_input_dist(sparse, copied)
    _finish_input_dist(sparse)
    _torchrec_backward(batch)


def _prefetch_sparse_dist(batch: _BatchParts) -> None:
    """Compute batch k; between its forward and backward, fetch the rows of k + 1.

    k + 1 is distributed before forward, and k + 2 starts to be when all else is issued.

    TorchRec has a stream for the rows, which the next forward waits for. But no published step
    hides their kernels: beside all rows in HBM 27 ms more where these take 29, 51 and 182 more
    where they and the lookup take 45 (torchrec_steps.csv, prefetch_emo). So they are on compute's.
    """
    builder, sparse, dense = batch.builder, batch.sparse, batch.dense
    batch.zero_gradients(wanted=not batch.accumulation.adds)
    _copy_batch(sparse)
    _finish_input_dist(sparse)
    dense.before_lookups()
    sparse.forward()
    sparse.gather_outputs()
    dense.after_lookups()
    with builder.on(Resource.DATA_DIST):
        sparse.inputs.receive()
    _wait_for_data_dist(builder, sparse.inputs.distributed)
    sparse.fetch()
    _torchrec_backward(batch)
    _start_input_dist(sparse, builder.latest(BATCH_COPIED))


def _fused_sparse_dist(batch: _BatchParts) -> None:
    """Look batch k up where k - 1 was updated: after that, beside the dense optimizer.

    Both are on ``data_dist``, as autograd runs an operator's backward on the stream of its forward.
    There the lookup holds up the input distribution of k + 1; its outputs travel while the
    bottom MLP runs, and its update runs beside that MLP's backward. The optimizer waits for the
    update: backward ends when all streams that it used are done.
    """
    builder, sparse, dense = batch.builder, batch.sparse, batch.dense
    with builder.on(Resource.DATA_DIST):
        sparse.inputs.receive()
        sparse.forward()
    batch.zero_gradients(wanted=not batch.accumulation.adds)
    _start_input_dist(sparse, builder.latest(BATCH_COPIED))
    _copy_batch(sparse)
    dense.before_lookups()
    _wait_for_data_dist(builder, sparse.groups)
    sparse.gather_outputs()
    dense.after_lookups()
    _finish_input_dist(sparse)
    _torchrec_backward(batch, updates_on=Resource.DATA_DIST)


def _semi_sync(batch: _BatchParts) -> None:
    """Look k + 1 up between forward and backward of k, with rows that k has yet to update.

    Its outputs travel during that backward. The embeddings' backward is one of its own, after the
    dense one, which ends with a wait for its all-reduces.
    """
    builder, sparse, dense = batch.builder, batch.sparse, batch.dense
    _start_input_dist(sparse, builder.latest(BATCH_COPIED))
    dense.before_lookups()
    _wait_for_data_dist(builder, sparse.inputs.distributed)
    sparse.gather_outputs()
    dense.after_lookups()
    _copy_batch(sparse)
    with builder.on(Resource.DATA_DIST):
        sparse.inputs.receive()
    _wait_for_data_dist(builder, sparse.inputs.distributed)
    sparse.forward()
    _finish_input_dist(sparse)
    _start_backward(builder)
    reducer = batch.reducer("dense")
    dense.before_exchange(reducer)
    dense.after_exchange(reducer)
    reducer.flush()
    _end_backward(builder)
    _wait_for_gradients(builder, after=tuple(reducer.sent))
    replicas = sparse.gradients.backward(sparse.gradients.split(), batch.accumulation)
    builder.join(Resource.MAIN)
    _update(batch, after=replicas)
    batch.zero_gradients(wanted=batch.accumulation.reduces)


def _unpipelined(batch: _BatchParts) -> None:
    """Copy, distribute and compute one batch after the other, on the compute stream."""
    sparse, dense = batch.sparse, batch.dense
    batch.zero_gradients(wanted=not batch.accumulation.adds)
    sparse.inputs.copy()
    dense.before_lookups()
    sparse.inputs.start(copied=())
    sparse.inputs.finish()
    sparse.inputs.receive()
    sparse.forward()
    sparse.gather_outputs()
    dense.after_lookups()
    _torchrec_backward(batch)


def _plain_dlrm(batch: _BatchParts) -> None:
    """Look up, exchange behind the bottom MLP, and the same backwards; ids are already there.

    Bottom and top MLP are separate DistributedDataParallel modules.
    """
    builder, sparse, dense = batch.builder, batch.sparse, batch.dense
    batch.zero_gradients(wanted=not batch.accumulation.adds)
    sparse.forward()
    dense.before_lookups()
    sparse.gather_outputs()
    dense.after_lookups()
    builder.join(Resource.AUTOGRAD)
    top, bottom = batch.reducer("top"), batch.reducer("bottom")
    dense.before_exchange(top)
    top.flush()
    gradients = sparse.gradients.split()
    dense.after_exchange(bottom)
    bottom.flush()
    sparse.gradients.backward(gradients, batch.accumulation)
    builder.join(Resource.MAIN)
    _update(batch, after=(*top.sent, *bottom.sent))


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
    """Add a wait of compute for groups' work on ``data_dist``, if a plan has any of them."""
    after = builder.last(Resource.DATA_DIST)
    if after and groups:
        with builder.part_of(*(group.key for group in groups)):
            builder.kernel("wait for inputs", Stage.INPUT_DIST, 0.0, after=after)


def _start_backward(builder: StepBuilder) -> None:
    """Go on on autograd's thread, which a GPU's host wakes up; a core's own thread goes on."""
    builder.join(Resource.AUTOGRAD)
    if not builder.synchronous:
        builder.host("start backward", num_ops=START_BACKWARD_OPS)


def _end_backward(builder: StepBuilder) -> None:
    if not builder.synchronous:
        builder.host("end backward", num_ops=END_BACKWARD_OPS)


def _torchrec_backward(batch: _BatchParts, *, updates_on: Resource = Resource.COMPUTE) -> None:
    """Backward of a DistributedModelParallel DLRM.

    One reducer for all dense parameters, one for the data_parallel tables. Where the tables'
    updates are on the compute stream, too, the bottom MLP's backward is queued behind their wait
    for the embeddings' gradients.
    """
    builder, sparse, dense = batch.builder, batch.sparse, batch.dense
    _start_backward(builder)
    reducer = batch.reducer("dense")
    site = sparse.workload.restore_site
    dense.before_exchange(reducer, {} if site is None else {site: sparse.stash.restore})
    if site is None:
        sparse.stash.restore()
    sent = sparse.gradients.split()
    with builder.on(updates_on):
        replicas = sparse.gradients.backward(sent, batch.accumulation)
    dense.after_exchange(reducer)
    reducer.flush()
    _end_backward(builder)
    builder.join(Resource.MAIN)
    updated = () if updates_on is Resource.COMPUTE else builder.last(updates_on)
    _update(batch, after=(*reducer.sent, *replicas, *updated))


def _update(batch: _BatchParts, after: tuple[Wait, ...]) -> None:
    """Add the update of dense parameters after every all-reduce, in the last batch of a step.

    In earlier batches the compute stream only waits for updates of tables on another stream.
    """
    _wait_for_gradients(batch.builder, after)
    if batch.accumulation.reduces:
        DenseOptimizer(batch.builder, batch.sparse.workload).write(batch.sparse.replicated)
        batch.sparse.replica_sync.write()


def _wait_for_gradients(builder: StepBuilder, after: tuple[Wait, ...]) -> None:
    if after:
        builder.kernel(
            "wait for all-reduces", Stage.OPTIMIZER, 0.0, after=after, role=Role.GRADIENTS_REDUCED
        )
