"""One training step as a program that all ranks run, each with its own durations.

Training is SPMD: every rank issues the same operations in the same order, and only sizes
differ. So a step is written once, as a list of ``Op`` with one duration per rank. ``expand``
makes the ``ExecutionGraph`` of all ranks and several steps out of it, for the simulator;
``costmodel.objective`` times the same list directly.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from costmodel.execution.graph import NodeKind, Stage
from costmodel.execution.groups import GroupKey
from costmodel.execution.issue import COLLECTIVE
from costmodel.families import is_lookup_covered
from costmodel.hardware import CollectiveOp, Device, HardwareProfile, Source, origin_text
from costmodel.kernels.collectives import RankGroup, collective_estimate, collective_time
from costmodel.kernels.embedding import backward_bound, backward_time, forward_bound, forward_time
from costmodel.kernels.traffic import Traffic
from costmodel.units import Seconds

Amount: TypeAlias = Any
"""Seconds or bytes of every rank, shape (world_size,), or one number for all. Builders decide
what stands for them: ``ProgramBuilder`` arrays, ``costmodel.execution.template`` formulas."""


HOST_THREADS = ("main", "autograd")
_LAST_KERNEL = "last kernel of a CPU"


class ProcessGroup(StrEnum):
    """Which ranks a collective joins; each group has one stream per rank."""

    WORLD = "world"
    INTRA_NODE = "intra_node"
    CROSS_NODE = "cross_node"
    """Ranks of equal local rank, one per node."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Op:
    """One operation of the program; ``seconds`` and ``num_bytes`` have shape (world_size,)."""

    name: str
    kind: NodeKind
    stage: Stage
    resource: str
    seconds: NDArray[np.float64]
    num_bytes: NDArray[np.float64]
    after: tuple[int, ...] = ()
    """Earlier operations of the same step."""
    after_previous: tuple[int, ...] = ()
    """Operations of the step before."""
    launched_by: int | None = None
    group: ProcessGroup | None = None
    bound_by: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Program:
    """The operations of one step, in the order they are issued."""

    ops: tuple[Op, ...]
    world_size: int
    local_world_size: int
    launch_delay: Seconds
    """From the end of a launching host operation to the start of its kernel."""

    def members(self, group: ProcessGroup, rank: int) -> int:
        """Return the number of the instance of a group that a rank belongs to."""
        if group is ProcessGroup.WORLD:
            return 0
        per_node = self.local_world_size
        return rank // per_node if group is ProcessGroup.INTRA_NODE else rank % per_node


class ProgramBuilder:
    """Writes a program operation by operation, with the host's cost of issuing each.

    ``thread`` is the host thread that issues what follows: ``main``, or ``autograd`` during
    backward.

    On a CPU the step is synchronous. There is one stream, ``compute``, the rank's core: a kernel
    starts when it is issued, and the thread goes on when it is done. A collective runs on threads
    of its own from when it is issued on all ranks; as they use the same core, the thread's work
    that follows is held up for as long as the collective takes alone (``collective``).
    """

    def __init__(
        self, hardware: HardwareProfile, *, world_size: int, local_world_size: int
    ) -> None:
        self.hardware = hardware
        self.world_size = world_size
        self.local_world_size = local_world_size
        self.thread = "main"
        self.synchronous = hardware.device is Device.CPU
        self._ops: list[Op] = []
        self._last: dict[str, int] = {}
        self._marks: dict[str, tuple[int, ...]] = {}
        self._waits_for_marks: dict[int, tuple[str, ...]] = {}

    def mark(self, name: str, *ops: int) -> None:
        """Name some operations, for operations of the next step to wait for."""
        self._marks[name] = ops

    def marked(self, name: str) -> tuple[int, ...]:
        """Return the operations that have the name so far; none if nobody set it."""
        return self._marks.get(name, ())

    @contextmanager
    def part_of(self, *groups: GroupKey, joined: tuple[GroupKey, ...] = ()) -> Iterator[None]:
        """Say that what follows exists because of any of these groups, beside another of some."""
        del groups, joined
        yield

    def build(self) -> Program:
        """Return the program written so far; marks nobody set are not waited for."""
        ops = list(self._ops)
        self._end()
        for index, names in self._waits_for_marks.items():
            marked = tuple(op for name in names for op in self.marked(name))
            ops[index] = replace(ops[index], after_previous=marked)
        return Program(
            ops=tuple(ops),
            world_size=self.world_size,
            local_world_size=self.local_world_size,
            launch_delay=self.launch_delay,
        )

    def _end(self) -> None:
        """Mark what the next step's first host operation waits for on a CPU."""
        if "compute" in self._last:
            self.mark(_LAST_KERNEL, self._last["compute"])

    def place(self, resource: str) -> str:
        """Return where work given to a resource runs: a CPU has no streams but its core."""
        if not self.synchronous or resource in (*HOST_THREADS, *ProcessGroup):
            return resource
        return "compute"

    @property
    def launch_delay(self) -> Seconds:
        """From the end of a launching host operation to the start of its kernel."""
        return 0.0 if self.synchronous else self.hardware.host.launch_latency

    def last(self, resource: str) -> tuple[int, ...]:
        """Return the last operation on a resource, as an event to wait for."""
        resource = self.place(resource)
        return (self._last[resource],) if resource in self._last else ()

    def host(self, name: str, *, num_ops: float = 1.0, after: tuple[int, ...] = ()) -> int:
        """Add CPU time on the current thread: that many operators without launches."""
        return self._add(
            name, NodeKind.HOST, Stage.HOST, self.thread, num_ops * self._op_time, after=after
        )

    def wait(self, name: str, after: tuple[int, ...], after_previous: tuple[str, ...] = ()) -> int:
        """Block the current thread until device work is done."""
        seconds = self.hardware.host.sync_time
        return self._add(
            name,
            NodeKind.WAIT,
            Stage.HOST,
            self.thread,
            seconds,
            after=after,
            after_previous=after_previous,
        )

    def join(self, thread: str) -> None:
        """Continue on another thread, which starts when the current one is done."""
        ends = self.last(self.thread)
        self.thread = thread
        self._add(f"{thread} resumes", NodeKind.HOST, Stage.HOST, thread, 0.0, after=ends)

    def kernel(  # noqa: PLR0913 -- one argument per fact about a kernel; all but three have defaults
        self,
        name: str,
        stage: Stage,
        seconds: float | NDArray[np.float64],
        *,
        stream: str = "compute",
        after: tuple[int, ...] = (),
        after_previous: tuple[str, ...] = (),
        num_ops: float = 1.0,
        num_launches: float = 1.0,
        num_bytes: float | NDArray[np.float64] = 0.0,
        bound_by: str = "HBM bandwidth",
        source: str = "roofline",
    ) -> int:
        """Add a kernel (or a run of kernels) and the host time that issues it."""
        issue = self._issue(name, num_ops, num_launches, seconds)
        kind = NodeKind.COPY if stage is Stage.MEMORY_COPY else NodeKind.KERNEL
        return self._add(
            name, kind, stage, stream, seconds,
            after=after, after_previous=after_previous, launched_by=issue,
            num_bytes=num_bytes, bound_by=bound_by, source=source,
        )  # fmt: skip

    def collective(  # noqa: PLR0913 -- as kernel
        self,
        name: str,
        stage: Stage,
        seconds: float | NDArray[np.float64],
        *,
        group: ProcessGroup = ProcessGroup.WORLD,
        after: tuple[int, ...] = (),
        num_bytes: float | NDArray[np.float64] = 0.0,
        bound_by: str = "link bandwidth",
        source: str = "fitted",
    ) -> int:
        """Add a collective on its group's stream; callers pass the events it waits for.

        On a CPU the core, too, is busy with it: sending and receiving are copies that gloo's
        threads make. So a rank that has other work pays for the collective there, one that has
        none waits for it, and one that has to wait for its peers works meanwhile.
        """
        issue = self._issue(name, COLLECTIVE.num_ops, COLLECTIVE.num_launches, 1.0)
        sent = self._add(
            name, NodeKind.COLLECTIVE, stage, group.value, seconds,
            after=after, launched_by=issue, group=group,
            num_bytes=num_bytes, bound_by=bound_by, source=source,
        )  # fmt: skip
        if self.synchronous:
            self._add(
                f"copies of {name}", NodeKind.KERNEL, stage, "compute", self._longest(seconds),
                after=(issue,), bound_by=bound_by, source=source,
            )  # fmt: skip
        return sent

    def stream_time(self, num_bytes: Amount) -> Amount:
        """Return seconds of a memory-bound kernel; none where there are no bytes."""
        gpu = self.hardware.gpu
        moved = np.asarray(num_bytes, dtype=np.float64)
        return np.where(moved > 0, gpu.kernel_latency + moved / gpu.memory_bandwidth, 0.0)

    def lookup_time(self, traffic: Amount, *, backward: bool = False) -> Amount:
        """Return seconds of a lookup kernel, or of its fused backward."""
        return (backward_time if backward else forward_time)(traffic, self.hardware)

    def lookup_bound(self, traffic: Amount, *, backward: bool = False) -> str:
        """Name what bounds a lookup on the rank where it takes longest."""
        slowest = traffic[self.lookup_time(traffic, backward=backward).argmax()]
        return (backward_bound if backward else forward_bound)(slowest, self.hardware)

    def lookup_source(self, traffic: Amount, *, backward: bool = False) -> str:
        """Say where a lookup's time comes from, on the rank that looks up most."""
        lookups = float(traffic[:, Traffic.LOOKUPS].max())
        covered = is_lookup_covered(self.hardware, backward=backward, lookups=lookups)
        return origin_text(Source.ROOFLINE, extrapolated=not covered)

    def exchange_time(self, op: CollectiveOp, num_bytes: Amount, group: ProcessGroup) -> Amount:
        """Return seconds of a collective: uneven messages count as the largest of its group.

        Groups inside nodes have their own largest message each; the groups across nodes run side
        by side on shared links, and all count as the largest.
        """
        size = np.broadcast_to(np.asarray(num_bytes, dtype=np.float64), (self.world_size,))
        if group is ProcessGroup.INTRA_NODE:
            local = self.local_world_size
            largest = np.repeat(size.reshape(-1, local).max(axis=1), local)
        else:
            largest = np.full(self.world_size, size.max())
        return collective_time(op, largest, self.ranks(group), self.hardware)

    def all_to_all_size(self, own: Amount, total: Amount) -> Amount:
        """Return the size of the even all-to-all that an uneven one costs as much as.

        Parameters
        ----------
        own
            Bytes a rank holds for, or gets from, all ranks together; 1/W of them are its own.
        total
            The same of all ranks.

        Notes
        -----
        A GPU's link carries both directions at once, and the busier one counts: ``own``. A core
        copies what it sends and what it receives, (W - 1)/W of ``own`` one way and 1/W of the rest
        the other; of an even exchange of S both are (W - 1)/W S. So it counts as their mean,

            S = ((W - 2) own + total) / (2 (W - 1))

        On two ranks that is the same however the tables are spread: an exchange of 8 MB one way
        takes half as long as 8 MB both ways (gloo, two cores of an x86-64: 1.7 and 3.4 ms).

        """
        if not self.synchronous:
            return own
        ranks = self.world_size
        return (own * (ranks - 2.0) + total) / (2.0 * (ranks - 1))

    def exchange_bound(
        self, op: CollectiveOp, num_bytes: Amount, group: ProcessGroup
    ) -> tuple[str, str]:
        """Name what bounds a collective, and where its time comes from."""
        size = float(np.max(num_bytes))
        estimate = collective_estimate(op, size, self.ranks(group), self.hardware)
        return estimate.bound_by, estimate.origin

    def ranks(self, group: ProcessGroup) -> RankGroup:
        """Return the shape of a process group."""
        local = self.local_world_size
        return {
            ProcessGroup.WORLD: RankGroup(num_ranks=self.world_size, ranks_per_node=local),
            ProcessGroup.INTRA_NODE: RankGroup(num_ranks=local, ranks_per_node=local),
            ProcessGroup.CROSS_NODE: RankGroup(
                num_ranks=self.world_size // local, ranks_per_node=1
            ),
        }[group]

    @property
    def _op_time(self) -> Seconds:
        host = self.hardware.host
        return host.backward_op_time if self.thread == "autograd" else host.op_time

    @property
    def _launch_time(self) -> Seconds:
        return 0.0 if self.synchronous else self.hardware.host.launch_time

    def _longest(self, seconds: Amount) -> Amount:
        """Return what a collective takes on the ranks where it takes longest."""
        return np.max(seconds)

    def _in_turn(
        self, resource: str, after: tuple[int, ...], after_previous: tuple[str, ...]
    ) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Let a thread of a CPU wait for the kernel called last, in this step or before."""
        if not (self.synchronous and resource in HOST_THREADS):
            return after, after_previous
        if "compute" not in self._last:
            return after, (*after_previous, _LAST_KERNEL)
        return (*after, *self.last("compute")), after_previous

    def _issue(
        self, name: str, num_ops: float, num_launches: float, seconds: float | NDArray[np.float64]
    ) -> int:
        """Host time of the launches; a rank whose kernel is empty launches nothing."""
        cost = num_ops * self._op_time + num_launches * self._launch_time
        busy = np.where(np.asarray(seconds) > 0, cost, 0.0)
        return self._add(f"launch {name}", NodeKind.HOST, Stage.HOST, self.thread, busy)

    def _add(  # noqa: PLR0913 -- the fields of an Op
        self,
        name: str,
        kind: NodeKind,
        stage: Stage,
        resource: str,
        seconds: float | NDArray[np.float64],
        *,
        after: tuple[int, ...] = (),
        after_previous: tuple[str, ...] = (),
        launched_by: int | None = None,
        group: ProcessGroup | None = None,
        num_bytes: float | NDArray[np.float64] = 0.0,
        bound_by: str = "",
        source: str = "",
    ) -> int:
        shape = (self.world_size,)
        resource = self.place(resource)
        after, after_previous = self._in_turn(resource, after, after_previous)
        op = Op(
            name=name, kind=kind, stage=stage, resource=resource,
            seconds=np.broadcast_to(np.asarray(seconds, dtype=np.float64), shape),
            num_bytes=np.broadcast_to(np.asarray(num_bytes, dtype=np.float64), shape),
            after=after, launched_by=launched_by,
            group=group, bound_by=bound_by, source=source,
        )  # fmt: skip
        if after_previous:
            self._waits_for_marks[len(self._ops)] = after_previous
        self._ops.append(op)
        self._last[resource] = len(self._ops) - 1
        return len(self._ops) - 1
