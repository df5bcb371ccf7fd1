"""The execution graph of ranks that compute on the CPU, each on one core.

Kernels run on the thread that calls them, and autograd's functions while the main thread waits
for them: one resource holds both. A collective runs in threads of its own, on the same core.
What of it is work, copying and adding, keeps the core from computing; it is a node of the core
behind the call that starts the collective. The rest is waiting for the other ranks' data, in
which the core computes on. Where in between the core does that work does not matter to the end
of the step, as long as no core waits: the work is the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from costmodel.execution.graph import ExecutionGraph, Node, NodeKind, Stage
from costmodel.hardware import CollectiveOp
from costmodel.units import US, Bytes, Seconds
from planner.predict.cpu_model import CpuHost, CpuModel, CpuProfile
from planner.predict.steps import NUM_REPEATS, Timed, Timer
from planner.predict.walk import HostCounts, RankWork, Work, WorkKind

CORE = "main"
COLLECTIVES = "collectives"
_UNKNOWN_FLOOR: Seconds = 2 * US
"""A call of an operator that was not measured: as measured ones at their smallest."""
_UNKNOWN_BANDWIDTH = 1e10
"""Bytes per second of such an operator: most streaming operators measured on one core of an EPYC
(bench/results/nlp_cpu.yaml) move more, transposing copies about as much."""


@dataclass(slots=True)
class _Rank:
    """The nodes of one rank while they are made."""

    rank: int
    host: int | None = None
    """The latest node of the core."""
    started: list[int] = field(default_factory=list)
    """Collectives that nothing has waited for."""


class CpuGraph:
    """Builds the graph, and keeps the kernels it timed."""

    on_cpu = True

    def __init__(self, profile: CpuProfile) -> None:
        self.profile = profile
        self.kernels: list[Timed] = []
        """Of one step of all ranks."""
        self._timer = Timer(CpuModel(profile), _UNKNOWN_FLOOR, _UNKNOWN_BANDWIDTH)
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
        self._host(rank, "step", self.profile.host.step_time, Stage.HOST, step)
        number = step * sum(item.kind is WorkKind.COLLECTIVE for item in work.items)
        for item, kernel in zip(work.items, kernels, strict=True):
            overhead = host_time(item.before, self.profile.host)
            if overhead > 0:
                self._host(rank, "operators", overhead, Stage.HOST, step)
            if kernel is not None:
                self._kernel(rank, item, kernel, step)
            elif item.kind is WorkKind.COLLECTIVE:
                self._collective(rank, item, number, step)
                number += 1
            else:
                self._wait(rank, item.name, step)
        self._host(rank, "operators", host_time(work.after, self.profile.host), Stage.HOST, step)

    def _collective(self, rank: _Rank, item: Work, number: int, step: int) -> None:
        total, busy = collective_times(self.profile, item.collective, item.num_bytes)
        self._host(rank, f"{item.name} on the core", busy, item.stage, step)
        node = Node(
            item.name, NodeKind.COLLECTIVE, item.stage, rank.rank, COLLECTIVES,
            max(0.0, total - busy),
            after=() if rank.host is None else (rank.host,),
            collective=number, step=step, num_bytes=item.num_bytes,
            bound_by="link", source="measured",
        )  # fmt: skip
        rank.started.append(self._add(node))
        if item.blocking:
            self._wait(rank, item.name, step)

    def _kernel(self, rank: _Rank, item: Work, kernel: Timed, step: int) -> None:
        estimate = kernel.estimate
        rank.host = self._add(
            Node(
                item.name, NodeKind.KERNEL, item.stage, rank.rank, CORE, estimate.seconds,
                step=step, num_bytes=kernel.call.num_bytes, bound_by=estimate.bound_by,
                source=estimate.source.value,
            )
        )  # fmt: skip

    def _wait(self, rank: _Rank, name: str, step: int) -> None:
        waits_for, rank.started = tuple(rank.started), []
        rank.host = self._add(
            Node(name, NodeKind.WAIT, Stage.HOST, rank.rank, CORE, 0.0, after=waits_for, step=step)
        )

    def _host(self, rank: _Rank, name: str, seconds: Seconds, stage: Stage, step: int) -> None:
        rank.host = self._add(
            Node(name, NodeKind.HOST, stage, rank.rank, CORE, seconds, step=step, source="fitted")
        )

    def _add(self, node: Node) -> int:
        self._nodes.append(node)
        return len(self._nodes) - 1


def host_time(counts: HostCounts, host: CpuHost) -> Seconds:
    """Return the time of what the host does around kernels."""
    return (
        counts.python_calls * host.python_call_time
        + counts.dispatches * host.dispatch_time
        + counts.functions * host.function_time
        + counts.accumulations * host.accumulation_time
    )


def collective_times(
    profile: CpuProfile, op: CollectiveOp | None, num_bytes: Bytes
) -> tuple[Seconds, Seconds]:
    """Return the time of a collective and how much of it is work of the core.

    Only all-reduces are measured. Others are taken to move half of what an all-reduce of their
    size does, which is a reduce-scatter and an all-gather.
    """
    if profile.all_reduce is None:
        return 0.0, 0.0
    size = num_bytes if op is CollectiveOp.ALL_REDUCE else num_bytes / 2
    return profile.all_reduce.time(size), profile.all_reduce.work_time(size)
