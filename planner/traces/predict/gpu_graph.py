"""The execution graph of ranks that compute on GPUs.

The host calls operators one after another (autograd's thread while the main one waits), every
kernel is launched on the compute stream, every collective on a stream of its own. Work after the
end of backward waits for the collectives on the compute stream, not on the host. Host times of
profiles are times between launches, including operators that launch nothing. Profiles learned from
traces have a time for each outermost operator.

With a profile of a CPU (``device: cpu``), the calling thread runs the kernels.
"""

from collections.abc import Sequence

from costmodel.base.units import Seconds
from costmodel.domain.hardware import Basis, Device, HardwareProfile, Source
from costmodel.kernels.collectives import RankGroup, collective_estimate
from costmodel.step.graph import Node, NodeKind, Stage
from planner.traces.execution.walk import HostCounts, RankWork, TracedWork, TracedWorkKind
from planner.traces.predict.kernel_models import Timed, timed
from planner.traces.predict.lookups import TracedLookups
from planner.traces.predict.timed_graph import Item, Nodes, TargetMachine

HOST, COMPUTE, COLLECTIVES = "main", "compute", "collectives"


def gpu_machine(
    hardware: HardwareProfile, group: RankGroup, lookups: TracedLookups | None = None
) -> TargetMachine:
    """Return the machine that a hardware profile describes, with what times lookups of tables."""

    def timer(work: RankWork) -> list[Timed | None]:
        times: list[Timed | None] = [None] * len(work.items)
        if lookups is not None:
            times = lookups.times(work)
        for place, item in enumerate(work.items):
            if item.operator is not None and times[place] is None:
                times[place] = timed(item.operator, hardware.gpu)
        return times

    return TargetMachine(
        timer=timer,
        writer=lambda rank, nodes: GpuRank(hardware, group, rank, nodes),
        on_cpu=hardware.device is Device.CPU,
        lookups=lookups,
    )


class GpuRank:
    """Adds the nodes of a rank that computes on a GPU."""

    def __init__(
        self, hardware: HardwareProfile, group: RankGroup, rank: int, nodes: Nodes
    ) -> None:
        self._hardware = hardware
        self._group = group
        self._rank = rank
        self._nodes = nodes
        self._compute = HOST if hardware.device is Device.CPU else COMPUTE
        self._operators = HostOperators(hardware)
        self._host: int | None = None
        """Number of the latest host node."""
        self._latest: int | None = None
        """Number of the latest kernel on the compute stream."""
        self._started: list[int] = []
        """Numbers of collectives that nothing has waited for."""
        self._awaited: tuple[int, ...] = ()
        """Numbers of collectives that the next kernel waits for."""

    def write(self, items: Sequence[Item], after: HostCounts, step: int) -> None:
        """Add the nodes of one step."""
        for item in items:
            if item.work.kind is TracedWorkKind.WAIT:
                self._awaited, self._started = (*self._awaited, *self._started), []
                continue
            self._call(item.work.name, self._operators.launching(item.work), step)
            if item.kernel is not None:
                self._kernel(item.work, item.kernel, step)
            else:
                self._collective(item.work, item.collective, step)
        rest = self._operators.idle(after)
        if rest > 0:
            self._call("operators", rest, step)

    def _call(self, name: str, seconds: Seconds, step: int) -> None:
        """Add a host node of operators that take some seconds."""
        node = Node(
            name, NodeKind.HOST, Stage.HOST, self._rank, HOST, seconds, step=step,
            basis=Basis(source=Source.FITTED),
        )  # fmt: skip
        self._host = self._nodes.add(node)

    def _kernel(self, work: TracedWork, kernel: Timed, step: int) -> None:
        estimate = kernel.estimate
        self._latest = self._nodes.add(
            Node(
                work.name, NodeKind.KERNEL, work.stage, self._rank, self._compute, estimate.seconds,
                after=self._awaited, launched_by=self._host,
                launch_delay=self._hardware.host.launch_latency, step=step,
                num_bytes=kernel.num_bytes, basis=estimate.basis,
            )
        )  # fmt: skip
        self._awaited = ()

    def _collective(self, work: TracedWork, number: int, step: int) -> None:
        if work.collective is None:
            return
        hardware = self._hardware
        estimate = collective_estimate(work.collective, work.num_bytes, self._group, hardware)
        node = Node(
            work.name, NodeKind.COLLECTIVE, work.stage, self._rank, COLLECTIVES, estimate.seconds,
            after=() if self._latest is None else (self._latest,), launched_by=self._host,
            launch_delay=hardware.host.launch_latency, collective=number, step=step,
            num_bytes=work.num_bytes, basis=estimate.basis,
        )  # fmt: skip
        position = self._nodes.add(node)
        if work.blocking:
            self._awaited = (*self._awaited, position)
        else:
            self._started.append(position)


class HostOperators:
    """Host time of a rank's operators: by name if a profile knows them, else on average."""

    def __init__(self, hardware: HardwareProfile) -> None:
        self._host = hardware.host
        self._known = hardware.traced.operators
        self._outermost = ""
        """Name of the operator around the latest work."""

    def launching(self, work: TracedWork) -> Seconds:
        """Return the host's seconds from the previous launch to this one."""
        names = work.before.outermost
        average = self._host.listed_time(backward=work.backward)
        if not self._known:
            return average + self._host.launch_time
        self._outermost = names[-1] if names else self._outermost
        row = self._known.get(self._outermost)
        if row is None:
            own = average + self._host.launch_time
        else:
            own = row.own_time(1) if names else row.between + row.call
        return self._idle(names[:-1]) + own

    def idle(self, counts: HostCounts) -> Seconds:
        """Return the seconds of operators that launch nothing."""
        return self._idle(counts.outermost)

    def _idle(self, names: Sequence[str]) -> Seconds:
        return sum(self._known[name].own_time(0) for name in names if name in self._known)
