"""Gradients of dense parameters: added up over batches, filled into buckets, all-reduced."""

from dataclasses import dataclass, field
from typing import NamedTuple

from costmodel.base.units import MIB, Bytes
from costmodel.domain.hardware import CollectiveOp
from costmodel.kernels.collectives import collective_estimate
from costmodel.kernels.pointwise import pointwise_time
from costmodel.step.builder import StepBuilder
from costmodel.step.graph import Stage

FIRST_BUCKET: Bytes = 1 * MIB
BUCKET: Bytes = 25 * MIB
"""Sizes at which DistributedDataParallel sends gradients (torch.nn.parallel, ``bucket_cap_mb``)."""
ADD_PASSES = 3.0
"""Times that ``AccumulateGrad`` reads or writes a gradient's size where another is there."""

_REDUCED_ALONE_OPS = 1.5
"""Operators of ``allreduce_`` in a group of one, 90 us where an operator of backward takes some 60
(traces of an H200, gpu_study_h200_2026-11-26, profiler attached)."""


class Accumulation(NamedTuple):
    """Whether a batch's dense gradients are added to earlier ones, and all-reduced."""

    adds: bool = False
    """Whether they are added to those of batches before it."""
    reduces: bool = True
    """Whether they are all-reduced, and the parameters updated: in all but the last batch of a step
    DistributedDataParallel is under ``no_sync``, and gradients stay where autograd puts them."""


ALONE = Accumulation()
"""Every batch is a step."""


@dataclass(slots=True)
class GradientBuckets:
    """DistributedDataParallel's reducer: gradients fill buckets, full buckets are all-reduced.

    One reducer per wrapped module.
    """

    builder: StepBuilder
    name: str
    capacity: Bytes = FIRST_BUCKET
    accumulation: Accumulation = ALONE
    wraps_one_rank: bool = False
    """Whether a rank alone has a reducer, as under DistributedModelParallel: gradients are copied,
    and all-reduces called that send nothing (traces of gpu_study_h200_2026-11-26)."""
    held: Bytes = 0.0
    sent: list[int] = field(default_factory=list)
    """Operations of the all-reduces so far."""

    def add(self, num_bytes: Bytes) -> None:
        """Copy a gradient into the bucket; send the bucket when it is full."""
        gpu = self.builder.hardware.gpu
        if self.accumulation.adds:
            moved = ADD_PASSES * num_bytes
            self.builder.kernel(
                f"{self.name} add gradient", Stage.DENSE_BACKWARD,
                pointwise_time(moved, gpu), num_bytes=moved,
            )  # fmt: skip
        alone = self.builder.world_size == 1
        if (alone and not self.wraps_one_rank) or not self.accumulation.reduces:
            return
        self.builder.kernel(
            f"{self.name} bucket copy", Stage.DENSE_BACKWARD,
            pointwise_time(2 * num_bytes, gpu), num_bytes=2 * num_bytes,
        )  # fmt: skip
        self.held += num_bytes
        if self.held >= self.capacity:
            self.flush()

    def flush(self) -> None:
        """Send what the bucket holds."""
        if not self.held:
            return
        builder, held = self.builder, self.held
        self.held, self.capacity = 0.0, BUCKET
        if builder.world_size == 1:
            builder.host(f"{self.name} all-reduce of one rank", num_ops=_REDUCED_ALONE_OPS)
            return
        group = builder.ranks(builder.everyone)
        estimate = collective_estimate(CollectiveOp.ALL_REDUCE, held, group, builder.hardware)
        self.sent.append(
            builder.collective(
                f"{self.name} all-reduce", Stage.ALL_REDUCE, estimate.seconds,
                group=builder.everyone, num_bytes=held, basis=estimate.basis,
            )
        )  # fmt: skip
