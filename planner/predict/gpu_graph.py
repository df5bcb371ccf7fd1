"""The execution graph of ranks that compute on GPUs.

The host calls operators one after another (autograd's thread while the main one waits), every
kernel is launched on the compute stream, every collective on a stream of its own. What follows
the end of backward waits for the collectives on the compute stream, not on the host. Host times
of profiles are times between launches: operators that launch nothing are in them.

Profiles of a CPU (``device: cpu``) have kernels run by the thread that calls them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from costmodel.execution.graph import ExecutionGraph, Node, NodeKind, Stage
from costmodel.hardware import Device, HardwareProfile
from costmodel.kernels.collectives import RankGroup, collective_estimate
from planner.predict.models import GpuModel
from planner.predict.steps import NUM_REPEATS, Timed, Timer
from planner.predict.walk import RankWork, Work, WorkKind

HOST, COMPUTE, COLLECTIVES = "main", "compute", "collectives"


@dataclass(slots=True)
class _Rank:
    """The nodes of one rank while they are made."""

    rank: int
    host: int | None = None
    kernel: int | None = None
    """The latest of the compute stream."""
    started: list[int] = field(default_factory=list)
    """Collectives that nothing has waited for."""
    awaited: tuple[int, ...] = ()
    """Collectives that the next kernel waits for."""


class GpuGraph:
    """Builds the graph, and keeps the kernels it timed."""

    def __init__(self, hardware: HardwareProfile, group: RankGroup) -> None:
        self.hardware = hardware
        self.group = group
        self.kernels: list[Timed] = []
        """Of one step of all ranks."""
        gpu = hardware.gpu
        self._timer = Timer(GpuModel(hardware), gpu.kernel_latency, gpu.memory_bandwidth)
        self.on_cpu = hardware.device is Device.CPU
        self._compute = HOST if self.on_cpu else COMPUTE
        self._nodes: list[Node] = []

    def build(self, works: Sequence[RankWork]) -> ExecutionGraph:
        """Return the graph of some repeats of a step."""
        timed = [[self._timed(item) for item in work.items] for work in works]
        self.kernels = [kernel for mine in timed for kernel in mine if kernel is not None]
        ranks = [_Rank(rank) for rank in range(len(works))]
        for step in range(NUM_REPEATS):
            for rank, work, kernels in zip(ranks, works, timed, strict=True):
                self._step(rank, work, kernels, step)
        return ExecutionGraph(nodes=self._nodes, world_size=len(works), num_steps=NUM_REPEATS)

    def _timed(self, item: Work) -> Timed | None:
        return None if item.call is None else self._timer.time(item.call)

    def _step(
        self, rank: _Rank, work: RankWork, kernels: Sequence[Timed | None], step: int
    ) -> None:
        number = step * sum(item.kind is WorkKind.COLLECTIVE for item in work.items)
        for item, kernel in zip(work.items, kernels, strict=True):
            if item.kind is WorkKind.WAIT:
                rank.awaited, rank.started = (*rank.awaited, *rank.started), []
                continue
            self._operator(rank, item, step)
            if kernel is not None:
                self._kernel(rank, item, kernel, step)
            else:
                self._collective(rank, item, number, step)
                number += 1

    def _operator(self, rank: _Rank, item: Work, step: int) -> None:
        """Let the host call an operator and launch its kernel."""
        host = self.hardware.host
        own = host.backward_op_time if item.backward else host.op_time
        rank.host = self._add(
            Node(
                item.name, NodeKind.HOST, Stage.HOST, rank.rank, HOST, own + host.launch_time,
                step=step, source="fitted",
            )
        )  # fmt: skip

    def _kernel(self, rank: _Rank, item: Work, kernel: Timed, step: int) -> None:
        estimate = kernel.estimate
        rank.kernel = self._add(
            Node(
                item.name, NodeKind.KERNEL, item.stage, rank.rank, self._compute, estimate.seconds,
                after=rank.awaited, launched_by=rank.host,
                launch_delay=self.hardware.host.launch_latency, step=step,
                num_bytes=kernel.call.num_bytes, bound_by=estimate.bound_by,
                source=estimate.source.value,
            )
        )  # fmt: skip
        rank.awaited = ()

    def _collective(self, rank: _Rank, item: Work, number: int, step: int) -> None:
        if item.collective is None:
            return
        estimate = collective_estimate(item.collective, item.num_bytes, self.group, self.hardware)
        node = Node(
            item.name, NodeKind.COLLECTIVE, item.stage, rank.rank, COLLECTIVES, estimate.seconds,
            after=() if rank.kernel is None else (rank.kernel,), launched_by=rank.host,
            launch_delay=self.hardware.host.launch_latency, collective=number, step=step,
            num_bytes=item.num_bytes, bound_by=estimate.bound_by, source=estimate.source.value,
        )  # fmt: skip
        position = self._add(node)
        if item.blocking:
            rank.awaited = (*rank.awaited, position)
        else:
            rank.started.append(position)

    def _add(self, node: Node) -> int:
        self._nodes.append(node)
        return len(self._nodes) - 1
