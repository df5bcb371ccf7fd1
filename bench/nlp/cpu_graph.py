"""The execution graph of ranks that compute on the CPU, each on one core.

Kernels run on the thread that calls them, and autograd's functions while the main thread waits
for them: one resource holds both. A collective runs in threads of its own, on the same core.
What of it is work, copying and adding, keeps the core from computing; it is a node of the core
behind the call that starts the collective. The rest is waiting for the other ranks' data, in
which the core computes on. Where in between the core does that work does not matter to the end
of the step, as long as no core waits: the work is the same.
"""

from collections.abc import Sequence

from bench.nlp.cpu_model import CpuHost, CpuModel, CpuProfile
from bench.nlp.kernel_calls import KernelCall, kernel_calls
from costmodel.base.errors import InputError, Problem
from costmodel.base.units import US, Bytes, Seconds
from costmodel.domain.hardware import Basis, Bound, CollectiveOp, Estimate, Source
from costmodel.operators.operator_families import OperatorFamily, family_of
from costmodel.step.graph import Node, NodeKind, Stage
from planner.traces.execution.walk import HostCounts, RankWork, TracedWork, TracedWorkKind
from planner.traces.predict.kernel_models import Timed
from planner.traces.predict.timed_graph import Item, Nodes, TargetMachine

CORE = "main"
COLLECTIVES = "collectives"
_UNKNOWN_FLOOR: Seconds = 2 * US
"""A call of an operator that was not measured: as measured ones at their smallest."""
_UNKNOWN_BANDWIDTH = 1e10
"""Bytes per second of such an operator: most streaming operators measured on one core of an EPYC
(bench/results/nlp_cpu.yaml) move more, transposing copies about as much."""


def cpu_machine(profile: CpuProfile) -> TargetMachine:
    """Return the machine that a CPU profile describes."""
    model = CpuModel(profile)

    def timer(work: RankWork) -> list[Timed | None]:
        calls = kernel_calls(work.items)
        return [None if each is None else timed(each, model) for each in calls]

    return TargetMachine(
        timer=timer,
        writer=lambda rank, nodes: CpuRank(profile, rank, nodes),
        on_cpu=True,
    )


def timed(call: KernelCall, model: CpuModel) -> Timed:
    """Return a kernel with its time; one that was not measured by its bytes."""
    estimate, family = model.kernel(call), family_of(call.operator.partition("/")[0])
    if estimate is None:
        seconds = _UNKNOWN_FLOOR + call.num_bytes / _UNKNOWN_BANDWIDTH
        bound, family = Bound.BYTES_OF_TENSORS, OperatorFamily.OTHER
        estimate = Estimate(
            seconds=seconds, bound_by=bound, source=Source.ROOFLINE, extrapolated=True
        )
    return Timed(name=call.operator, family=family, num_bytes=call.num_bytes, estimate=estimate)


def machine_of(profile: CpuProfile, num_ranks: int, source: str) -> TargetMachine:
    """Return the machine that so many ranks run on.

    Raises
    ------
    InputError
        The profile has all-reduces of another number of ranks.

    """
    reduced = profile.all_reduce
    if num_ranks > 1 and (reduced is None or reduced.num_ranks != num_ranks):
        known = "no ranks" if reduced is None else f"{reduced.num_ranks} ranks"
        message = f"traces of {num_ranks} ranks, but `{profile.name}` has all-reduces of {known}"
        raise InputError(source, (Problem(message=message, hint="measure them on as many ranks"),))
    return cpu_machine(profile)


class CpuRank:
    """Writes the nodes of a rank that computes on one core."""

    def __init__(self, profile: CpuProfile, rank: int, nodes: Nodes) -> None:
        self._profile = profile
        self._rank = rank
        self._nodes = nodes
        self._latest: int | None = None
        """Node of the core."""
        self._started: list[int] = []
        """Collectives that nothing has waited for."""

    def write(self, items: Sequence[Item], after: HostCounts, step: int) -> None:
        """Write one step."""
        self._host("step", self._profile.host.step_time, Stage.HOST, step)
        for item in items:
            overhead = host_time(item.work.before, self._profile.host)
            if overhead > 0:
                self._host("operators", overhead, Stage.HOST, step)
            if item.kernel is not None:
                self._kernel(item.work, item.kernel, step)
            elif item.work.kind is TracedWorkKind.COLLECTIVE:
                self._collective(item.work, item.collective, step)
            else:
                self._wait(item.work.name, step)
        self._host("operators", host_time(after, self._profile.host), Stage.HOST, step)

    def _collective(self, work: TracedWork, number: int, step: int) -> None:
        total, busy = collective_times(self._profile, work.collective, work.num_bytes)
        self._host(f"{work.name} on the core", busy, work.stage, step)
        node = Node(
            work.name, NodeKind.COLLECTIVE, work.stage, self._rank, COLLECTIVES,
            max(0.0, total - busy),
            after=() if self._latest is None else (self._latest,),
            collective=number, step=step, num_bytes=work.num_bytes,
            basis=Basis(Bound.LINK, Source.MEASURED),
        )  # fmt: skip
        self._started.append(self._nodes.add(node))
        if work.blocking:
            self._wait(work.name, step)

    def _kernel(self, work: TracedWork, kernel: Timed, step: int) -> None:
        estimate = kernel.estimate
        self._latest = self._nodes.add(
            Node(
                work.name, NodeKind.KERNEL, work.stage, self._rank, CORE, estimate.seconds,
                step=step, num_bytes=kernel.num_bytes, basis=estimate.basis,
            )
        )  # fmt: skip

    def _wait(self, name: str, step: int) -> None:
        waits_for, self._started = tuple(self._started), []
        self._latest = self._nodes.add(
            Node(name, NodeKind.WAIT, Stage.HOST, self._rank, CORE, 0.0, after=waits_for, step=step)
        )

    def _host(self, name: str, seconds: Seconds, stage: Stage, step: int) -> None:
        self._latest = self._nodes.add(
            Node(
                name,
                NodeKind.HOST,
                stage,
                self._rank,
                CORE,
                seconds,
                step=step,
                basis=Basis(source=Source.FITTED),
            )
        )


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
    work = profile.all_reduce.work_time(size)
    waiting = max(0.0, profile.all_reduce.time(size) - work)
    return work + profile.in_step.waiting * waiting, work
