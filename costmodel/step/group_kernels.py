"""Kernels that forward and backward of a sharding group share: copies, codecs, collectives."""

from dataclasses import dataclass

from costmodel.domain.codecs import is_clamped
from costmodel.domain.dense_layers import pooled_width, shares_bags
from costmodel.domain.hardware import CollectiveOp, Gpu
from costmodel.domain.workload import DataType, Pipeline, Pooling, Workload
from costmodel.step.builder import StepBuilder, Wait
from costmodel.step.exchange_operations import add_collective, add_stream, label
from costmodel.step.graph import Stage
from costmodel.step.groups import GroupKey, joined_groups
from costmodel.step.issue import ONE_OP, Issue
from costmodel.step.outputs import OutputExchange
from costmodel.step.step_operations import ProcessGroup
from costmodel.step.template import GroupFormulas, Linear


@dataclass(frozen=True, slots=True)
class GroupKernels:
    """Adds kernels of sharding groups to a step."""

    builder: StepBuilder
    workload: Workload
    groups: tuple[GroupFormulas, ...]

    @property
    def gpu(self) -> Gpu:
        """The GPU that runs the kernels."""
        return self.builder.hardware.gpu

    @property
    def outputs(self) -> OutputExchange:
        """Sizes of the outputs exchanged."""
        return OutputExchange(self.builder, self.workload)

    def joined(self, group: GroupFormulas) -> tuple[GroupKey, ...]:
        """Return the groups of a module whose outputs are joined (``construct_output_kt``)."""
        if self.workload.pipeline is Pipeline.DLRM:
            return ()
        return joined_groups(group.key, (each.key for each in self.groups))

    def divide(self, name: str, stage: Stage) -> None:
        """Add the division of outputs, or gradients, for mean pooling over row shards.

        The lookup of a row shard adds up; TorchRec then divides the module's whole KeyedTensor
        (torchrec 1.9.2, embeddingbag.py 663-676): outputs, a divisor for each column, outputs. On
        ranks that have rows of such a table.
        """
        for weighted in (False, True):
            members = [each for each in self.groups if each.key[:2] == (True, weighted)]
            summed = [
                (group.key, kernel)
                for group in members
                for kernel in group.kernels
                if kernel.pooling is Pooling.MEAN and group.key.sharding_type.divides_after_exchange
            ]
            if not summed:
                continue
            local = sum(map(self.outputs.local_size, members), start=Linear())
            with self.builder.part_of(*dict.fromkeys(key for key, _ in summed)):
                add_stream(
                    self.builder, f"{'weighted ' if weighted else ''}{name}", 3.0 * local,
                    stage=stage, where=tuple(summed),
                )  # fmt: skip

    def spread(self, name: str, stage: Stage, *, zeroed: bool = False) -> None:
        """Add a copy of pooled outputs to samples that share them, or their gradients' sum.

        With a variable batch per feature: ``batch_index_select_dim0`` of a module's whole output,
        and its backward, whose sums begin as zeros (torchrec 1.9.2, embeddingbag.py 398-430).
        """
        members = [each for each in self.groups if each.key.pooled]
        if not members or not shares_bags(self.workload):
            return
        shared = sum(map(self.outputs.local_size, members), start=Linear())
        width = self.outputs.element_bytes * pooled_width(self.workload)
        whole = float(self.workload.local_batch_size * width)
        with self.builder.part_of(*(each.key for each in members)):
            add_stream(self.builder, name, (2.0 if zeroed else 1.0) * shared + whole, stage=stage)

    def encode(
        self,
        group: GroupFormulas,
        codec: DataType | None,
        name: str,
        size: Linear,
        *,
        stage: Stage = Stage.LOOKUP_FORWARD,
        after: tuple[Wait, ...] = (),
    ) -> Linear:
        """Add the conversion to the wire format, and return the bytes on the wire."""
        wire = size * self.outputs.wire_ratio(codec)
        if is_clamped(codec):
            self.stream(group, f"clamp to {name}", 2.0 * size, stage=stage, after=after)
        if codec is not None:
            self.stream(group, name, size + wire, stage=stage, after=after)
        return wire

    def decode(
        self,
        group: GroupFormulas,
        codec: DataType | None,
        name: str,
        size: Linear,
        *,
        stage: Stage = Stage.LOOKUP_FORWARD,
        after: tuple[Wait, ...] = (),
    ) -> None:
        """Add the conversion from the wire format."""
        if codec is not None:
            moved = size * (1.0 + self.outputs.wire_ratio(codec))
            self.stream(group, name, moved, stage=stage, after=after)

    def collective(
        self,
        group: GroupFormulas,
        name: str,
        op: CollectiveOp,
        size: Linear,
        *,
        members: ProcessGroup = ProcessGroup.WORLD,
        after: tuple[Wait, ...] = (),
        optional: bool = False,
    ) -> int:
        """Add a collective of a group, and return its number."""
        return add_collective(
            self.builder, f"{label(group)} {name}", op, size,
            group=members, after=after, optional=optional,
        )  # fmt: skip

    def host(self, group: GroupFormulas, name: str, num_ops: float) -> None:
        """Add host work of a group that launches nothing."""
        self.builder.host(f"{label(group)} {name}", num_ops=num_ops)

    def copy(
        self,
        group: GroupFormulas | None,
        name: str,
        num_bytes: Linear,
        *,
        stage: Stage = Stage.LOOKUP_FORWARD,
        issue: Issue = ONE_OP,
        after: tuple[Wait, ...] = (),
    ) -> None:
        """Add a kernel that concatenates whole tensors, or splits them."""
        share = self.gpu.concat_efficiency
        self.stream(group, name, num_bytes, stage=stage, issue=issue, after=after, efficiency=share)

    def stream(
        self,
        group: GroupFormulas | None,
        name: str,
        num_bytes: Linear,
        *,
        stage: Stage = Stage.LOOKUP_FORWARD,
        issue: Issue = ONE_OP,
        after: tuple[Wait, ...] = (),
        efficiency: float = 1.0,
    ) -> int:
        """Add a memory-bound kernel on the current stream; none if there are no bytes."""
        return add_stream(
            self.builder, f"{label(group)} {name}" if group else name, num_bytes,
            stage=stage, issue=issue, after=after, efficiency=efficiency,
        )  # fmt: skip
