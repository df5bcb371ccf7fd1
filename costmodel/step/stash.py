"""Stashed weights: in host memory while the dense model runs, copied there and back each batch.

TorchRec's embedding memory stashing. After a group's lookup its stashed weights are copied to
pinned host memory on a stream of their own, and their HBM is free. They come back on the stream of
the batches' copies, which have the same direction, the group looked up last first: from the hook on
the gradient of the layer that ``restore_site`` names, or from where the embeddings' gradients begin
to be exchanged. The host waits there for the copy to the host, and the group's backward for the one
back.

References
----------
torchrec 1.9.2, distributed/memory_stashing.py, ``_stash_tensors``; embeddingbag.py 2002-2008;
train_pipeline/experimental_pipelines.py, ``TrainPipelineSparseDistEmbStash``.

"""

from dataclasses import dataclass

from costmodel.domain.hardware import Basis, Bound, Source
from costmodel.domain.workload import LaunchMode, Workload
from costmodel.step.builder import Mark, StepBuilder, Wait
from costmodel.step.exchange_operations import label
from costmodel.step.graph import Resource, Stage
from costmodel.step.issue import STASH, STASH_CHUNK, STASH_PIECE
from costmodel.step.template import GroupFormulas

_COPIED = Basis(Bound.PCIE_BANDWIDTH, Source.ROOFLINE)


@dataclass(frozen=True, slots=True)
class Stash:
    """Adds the copies of stashed weights to a step; a CPU stashes none."""

    builder: StepBuilder
    workload: Workload
    groups: tuple[GroupFormulas, ...]

    def save(self, group: GroupFormulas) -> None:
        """Add the copy of a group's weights to the host, once it is looked up."""
        if self._has(group):
            saved = self._copy(group, "stash", Resource.STASH)
            self.builder.mark(_saved(group), saved)

    def restore(self) -> None:
        """Add the copies of all weights back, once everything issued so far is done."""
        for group in filter(self._has, reversed(self.groups)):
            with self.builder.part_of(group.key), self.builder.called_as(LaunchMode.EAGER):
                self.builder.wait_if_any(
                    f"{label(group)} wait for stash", self.builder.latest(_saved(group))
                )
                restored = self._copy(group, "restore", Resource.MEMCPY)
                self.builder.mark(_restored(group), restored)

    def restored(self, group: GroupFormulas) -> tuple[Wait, ...]:
        """Return the operations that a group's backward waits for."""
        return self.builder.latest(_restored(group)) if self._has(group) else ()

    def _has(self, group: GroupFormulas) -> bool:
        """Return whether a group may have stashed tables; without any, the copies take no time.

        Its kernels do not tell: a step written for several plans has those of all.
        """
        fused = any(not kernel.dense for kernel in group.kernels)
        return fused and self.workload.stashes_weights and not self.builder.synchronous

    def _copy(self, group: GroupFormulas, name: str, stream: Resource) -> int:
        """Add the copy of a group's weights over the host's link; return its number."""
        builder, size, name = self.builder, group.stashed_bytes, f"{label(group)} {name}"
        after = builder.last(builder.stream)
        builder.host(
            f"pieces of {name}", num_ops=STASH_PIECE.num_ops,
            num_launches=STASH_PIECE.num_launches, times=size / STASH_CHUNK,
        )  # fmt: skip
        seconds = builder.linear_time(size / builder.hardware.host.pcie_bandwidth)
        with builder.on(stream):
            return builder.kernel(
                name, Stage.MEMORY_COPY, seconds, after=after, issue=STASH,
                num_bytes=size, basis=_COPIED,
            )  # fmt: skip


def _saved(group: GroupFormulas) -> Mark:
    """Return the mark of the end of a group's copy to the host."""
    return Mark("weights stashed", group.key)


def _restored(group: GroupFormulas) -> Mark:
    """Return the mark of the end of a group's copy back."""
    return Mark("weights restored", group.key)
