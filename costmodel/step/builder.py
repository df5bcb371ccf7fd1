"""Writes a step operation by operation, with the host's cost of issuing each."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from costmodel.base.errors import PlanMismatchError
from costmodel.base.units import Seconds
from costmodel.domain.hardware import Basis, Bound, CollectiveOp, Device, Source, Topology
from costmodel.domain.workload import LaunchMode
from costmodel.kernels.collectives import RankGroup, collective_form
from costmodel.step.graph import HOST_THREADS, NodeKind, Resource, Role, Stage
from costmodel.step.groups import GroupKey
from costmodel.step.issue import COLLECTIVE, COMPILED_CALL_OPS, GRAPHED_CALL, ONE_OP, Issue
from costmodel.step.step_operations import LikeBatches, ProcessGroup, group_ranks
from costmodel.step.template import (
    Event,
    Exchange,
    Issued,
    Linear,
    Template,
    TemplateOp,
    Work,
    WorkKind,
)

STREAMED = Basis(Bound.HBM_BANDWIDTH, Source.ROOFLINE)
"""Basis of the time of a kernel that moves memory."""
SENT = Basis(Bound.LINK_BANDWIDTH, Source.FITTED)


class Mark(NamedTuple):
    """Points that a batch passes.

    To wait for one is to wait for the last one in the step before.
    """

    name: str
    group: GroupKey | None = None


Wait: TypeAlias = Event | Mark
"""An event of this step, or a point of the step before, that an operation waits for."""


_LAST_KERNEL = Mark("last kernel of a CPU")


class StepBuilder:
    """Writes a template: sizes are ``Linear``, durations are ``Work`` or constant seconds.

    ``thread`` is the host thread that issues what follows: ``main``, or ``autograd`` during
    backward. ``stream`` is the stream that kernels are issued to and that collectives wait for.

    On a CPU the step is synchronous. There is one stream, ``compute``, the rank's core: a kernel
    starts when it is issued, and the thread goes on when it is done. A collective runs on threads
    of its own from when it is issued on all ranks; as they use the same core, the thread's work
    that follows is held up for as long as the collective takes alone (``collective``).
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.hardware = topology.hardware
        self.world_size = topology.world_size
        self.local_world_size = topology.local_world_size
        self.thread: Resource = Resource.MAIN
        self.stream: Resource = Resource.COMPUTE
        self.synchronous = topology.hardware.device is Device.CPU
        self._ops: list[TemplateOp] = []
        self._resources: list[str] = []
        self._last_kernel: int | None = None
        """The last operation on the compute stream."""
        self._marks: dict[Mark, tuple[int, ...]] = {}
        self._waits_for_marks: dict[int, tuple[Mark, ...]] = {}
        self._launch = LaunchMode.EAGER
        self._called = False
        """Whether the function or graph that the next kernel belongs to has been called."""
        self._owners: tuple[GroupKey, ...] = ()
        self._joined: tuple[GroupKey, ...] = ()

    @property
    def num_ops(self) -> int:
        """Return the number of operations so far."""
        return len(self._ops)

    def template(self, like: LikeBatches | None = None) -> Template:
        """Return the template written so far; marks nobody set are not waited for."""
        if self._last_kernel is not None:
            self.mark(_LAST_KERNEL, self._last_kernel)
        ops = list(self._ops)
        for index, marks in self._waits_for_marks.items():
            marked = tuple(op for mark in marks for op in self._marks.get(mark, ()))
            ops[index] = ops[index]._replace(after_previous=marked)
        return Template(
            ops=tuple(ops),
            resources=tuple(self._resources),
            topology=self.topology,
            launch_delay=self.launch_delay,
            like=like,
        )

    @contextmanager
    def part_of(self, *groups: GroupKey, joined: tuple[GroupKey, ...] = ()) -> Iterator[None]:
        """Have what follows exist only in plans with one of ``groups``, and two of ``joined``."""
        before = self._owners, self._joined
        self._owners, self._joined = groups, joined
        yield
        self._owners, self._joined = before

    @contextmanager
    def on(self, stream: Resource) -> Iterator[None]:
        """Issue the following operations to a stream, as ``torch.cuda.stream`` does."""
        before, self.stream = self.stream, stream
        yield
        self.stream = before

    @contextmanager
    def called_as(self, launch: LaunchMode) -> Iterator[None]:
        """Issue the following kernels as one call, unless in eager mode.

        A call goes on until another kernel is issued, or another thread goes on.

        Raises
        ------
        PlanMismatchError
            It is to be a CUDA graph, on a CPU.

        """
        if self.synchronous and launch is LaunchMode.CUDA_GRAPHS:
            raise PlanMismatchError(
                "`launch: cuda_graphs` needs GPUs, and the ranks are CPUs",
                hint="set `launch` of the dense model to `eager` or `compiled`",
            )
        before, self._launch = self._launch, launch
        yield
        self._launch = before

    def mark(self, mark: Mark, *ops: int) -> None:
        """Set the operations that have passed a mark last."""
        self._marks[mark] = ops

    def latest(self, mark: Mark) -> tuple[Wait, ...]:
        """Return the operations that passed a mark last, in this step or the step before."""
        return self._marks.get(mark, (mark,))

    def place(self, resource: str) -> str:
        """Return the resource that runs another one's work: a CPU has no streams but its core."""
        if not self.synchronous or resource in (*HOST_THREADS, *ProcessGroup):
            return resource
        return Resource.COMPUTE

    @property
    def launch_delay(self) -> Seconds:
        """From the end of a launching host operation to the start of its kernel."""
        return 0.0 if self.synchronous else self.hardware.host.launch_latency

    def last(self, resource: str) -> tuple[Event, ...]:
        """Return the event of all work on a resource so far; empty where there cannot be any."""
        resource = self.place(resource)
        return (Issued(resource),) if resource in self._resources else ()

    # -- operations -------------------------------------------------------------------------

    def host(
        self,
        name: str,
        *,
        num_ops: float = 1.0,
        num_launches: float = 0.0,
        times: Linear | None = None,
        after: tuple[Wait, ...] = (),
    ) -> int:
        """Add CPU time of operators and launches on the current thread, and return its number."""
        once = num_ops * self._op_time + num_launches * self._launch_time
        seconds = once if times is None else self.linear_time(once * times)
        return self._add_host(name, NodeKind.HOST, seconds, after=after)

    def wait(self, name: str, after: tuple[Wait, ...], *, times: int = 1) -> int:
        """Block the current thread ``times`` times until device work is done; return the number."""
        seconds = times * self.hardware.host.sync_time
        return self._add_host(name, NodeKind.WAIT, seconds, after=after)

    def wait_if_any(self, name: str, after: tuple[Wait, ...]) -> int:
        """Block until device work is done, in no time if the next operation takes none.

        The next operation must be the one that need not be waited for then.
        """
        work = Work(kind=WorkKind.ISSUE, seconds=self.hardware.host.sync_time)
        return self._add_host(name, NodeKind.WAIT, work, after=after)

    def join(self, thread: Resource) -> None:
        """Continue on another thread, which starts when the current one is done."""
        ends = self.last(self.thread)
        self.thread, self._called = thread, False
        self._add_host(f"{thread} resumes", NodeKind.HOST, 0.0, after=ends)

    def kernel(  # noqa: PLR0913 -- one argument per fact about a kernel; all but three have defaults
        self,
        name: str,
        stage: Stage,
        seconds: Work | Seconds,
        *,
        after: tuple[Wait, ...] = (),
        issue: Issue = ONE_OP,
        num_bytes: Linear | float = 0.0,
        role: Role = Role.OTHER,
        basis: Basis | None = STREAMED,
    ) -> int:
        """Add a kernel (or several in a row) and the host time that issues it.

        Return its number.
        """
        work = _work(seconds)
        launch = self._issue(name, self._as_called(issue), work)
        return self._add_kernel(name, stage, work, launch, after, num_bytes, role, basis)

    def kernels(
        self,
        name: str,
        stage: Stage,
        run: Sequence[tuple[Seconds, Issue]],
        *,
        num_bytes: float = 0.0,
        role: Role = Role.OTHER,
        basis: Basis | None = STREAMED,
    ) -> int:
        """Add kernels that follow one another as one, and return its number.

        Whatever comes before, it ends when the last of them would, and the host goes on when it
        would: with h the seconds to issue each and k those that it runs, the last one ends at the
        earliest

            d = max over i of (h_1 + ... + h_i + k_i + ... + k_n)

        after the host is there: all of k is launched at d - sum(k), before the rest of h.
        """
        running, issued, latest = 0.0, 0.0, 0.0
        for seconds, issue in run:
            called = self._as_called(issue)
            issued += self._issue_time(called) if seconds else 0.0
            latest = issued if self.synchronous else max(latest, issued - running)
            running += seconds
        launch = self._add_host(f"launch {name}", NodeKind.HOST, latest)
        number = self._add_kernel(name, stage, _work(running), launch, (), num_bytes, role, basis)
        if issued > latest:
            self._add_host(f"launch the rest of {name}", NodeKind.HOST, issued - latest)
        return number

    def collective(  # noqa: PLR0913 -- as kernel
        self,
        name: str,
        stage: Stage,
        seconds: Work | Seconds,
        *,
        group: ProcessGroup = ProcessGroup.WORLD,
        after: tuple[Wait, ...] = (),
        issue: Issue = COLLECTIVE,
        num_bytes: Linear | float = 0.0,
        exchange: Exchange | None = None,
        basis: Basis | None = SENT,
    ) -> int:
        """Add a collective on its group's stream, after all work of ``stream``.

        Return its number.

        On a CPU the core, too, is busy with it: sending and receiving are copies that gloo's
        threads make. So a rank that has other work pays for the collective there, one that has none
        waits for it, and one that has to wait for its peers works meanwhile. The copies take what
        the collective does on the ranks where it takes longest.
        """
        work = _work(seconds)
        optional = work.form is not None and work.form.optional
        launch = self._issue(name, issue, work if optional else _work(1.0))
        op = TemplateOp(
            name=name,
            kind=NodeKind.COLLECTIVE,
            stage=stage,
            resource=group.value,
            work=work,
            after=self._events((*self.last(self.stream), *after)),
            launched_by=launch,
            group=group,
            role=Role.EXCHANGE,
            num_bytes=Linear.of(num_bytes),
            basis=basis,
            exchange=exchange,
        )
        sent = self._add(op)
        if self.synchronous:
            self._add(
                op._replace(
                    name=f"copies of {name}", kind=NodeKind.KERNEL, resource=Resource.COMPUTE,
                    after=(launch,), launched_by=None, group=None, num_bytes=Linear(),
                )
            )  # fmt: skip
        return sent

    # -- durations and sizes ----------------------------------------------------------------

    @staticmethod
    def stream_time(num_bytes: Linear | float) -> Work:
        """Return the duration of a memory-bound kernel; 0 if there are no bytes."""
        return Work(kind=WorkKind.STREAM, amount=Linear.of(num_bytes))

    @staticmethod
    def linear_time(seconds: Linear) -> Work:
        """Return a duration that is a weighted sum of features."""
        if not seconds.weights:
            return Work(kind=WorkKind.CONSTANT, seconds=seconds.constant)
        return Work(kind=WorkKind.LINEAR, amount=seconds)

    def exchange_time(
        self, op: CollectiveOp, num_bytes: Linear, group: ProcessGroup, *, optional: bool = False
    ) -> Work:
        """Return a collective's duration: uneven messages count as the largest of its group.

        If it is optional, plans without bytes do without it.

        Groups inside nodes have their own largest message each; the groups across nodes run side by
        side on shared links, and all count as the largest.
        """
        form = collective_form(op, self.ranks(group), self.hardware)
        form = replace(form, optional=optional)
        return Work(kind=WorkKind.EXCHANGE, amount=num_bytes, form=form)

    def all_to_all_size(self, own: Linear, total: Linear, excess: float = 0.0) -> Linear:
        """Return the size of the even all-to-all that an uneven one costs as much as.

        Parameters
        ----------
        own
            Bytes a rank holds for, or gets from, all ranks together; 1/W of them are its own.
        total
            The same of all ranks.
        excess
            By what share of the mean the fullest rank has more to send or to get, the other way.

        Notes
        -----
        A GPU's link carries both directions at once, and the busier one counts: ``own``. A core
        copies what it sends and what it receives, (W - 1)/W of ``own`` one way and 1/W of the rest
        the other; of an even exchange of S both are (W - 1)/W S. So it counts as their mean,

            S = ((W - 2) own + total) / (2 (W - 1))

        On two ranks that is the same however the tables are spread: an exchange of 8 MB one way
        takes half as long as 8 MB both ways (gloo, two cores of an x86-64: 1.7 and 3.4 ms).

        """
        ranks = self.world_size
        size = own
        if self.synchronous:
            size, excess = (own * (ranks - 2.0) + total) / (2.0 * (ranks - 1)), excess / 2.0
        return size + total * (excess / ranks) if excess else size

    def ranks(self, group: ProcessGroup) -> RankGroup:
        """Return the shape of a process group."""
        return group_ranks(self.topology, group)

    @property
    def everyone(self) -> ProcessGroup:
        """Return the group of all ranks of the job, among which dense gradients are reduced."""
        return ProcessGroup.WORLD if self.topology.replicas is None else ProcessGroup.JOB

    def around(self, num_ranks: int) -> ProcessGroup:
        """Return the smallest process group that ranks are in which follow one another.

        All of it waits where they wait for each other.

        Raises
        ------
        PlanMismatchError
            Groups of so many do not fill nodes, or the job, evenly.

        """
        inside = num_ranks <= self.local_world_size
        group = ProcessGroup.INTRA_NODE if inside else ProcessGroup.WORLD
        uneven = num_ranks % self.local_world_size and not inside
        if uneven or self.ranks(group).num_ranks % num_ranks:
            raise PlanMismatchError(
                f"the dense part has a collective of {num_ranks} ranks, and the job has "
                f"{self.world_size}, {self.local_world_size} a node",
                hint="plan for nodes and GPUs that such groups fill, or read the model again with "
                "process groups of the job's size",
            )
        return group

    @property
    def _op_time(self) -> Seconds:
        """Return the host time of one operator on the present thread."""
        host = self.hardware.host
        on_autograd = self.thread is Resource.AUTOGRAD
        return host.backward_op_time if on_autograd else host.op_time

    @property
    def _launch_time(self) -> Seconds:
        return 0.0 if self.synchronous else self.hardware.host.launch_time

    # -- writing ----------------------------------------------------------------------------

    def _as_called(self, issue: Issue) -> Issue:
        """Return a kernel's host work; that of the first kernel of a call includes the call."""
        if self._launch is LaunchMode.EAGER:
            self._called = False
            return issue
        first, self._called = not self._called, True
        if self._launch is LaunchMode.CUDA_GRAPHS:
            return GRAPHED_CALL if first else Issue(0.0, 0.0)
        return Issue(COMPILED_CALL_OPS if first else 0.0, issue.num_launches)

    def _issue_time(self, issue: Issue) -> Seconds:
        listed = self.hardware.host.listed_time(backward=self.thread is Resource.AUTOGRAD)
        ops = issue.num_ops * self._op_time + issue.num_listed * listed
        return ops + issue.num_launches * self._launch_time

    def _issue(self, name: str, issue: Issue, work: Work) -> int:
        """Add the host time of the launches; a rank whose kernel is empty launches nothing."""
        cost = self._issue_time(issue)
        if work.kind is not WorkKind.CONSTANT:
            launches = Work(kind=WorkKind.ISSUE, seconds=cost)
        else:
            launches = _work(cost if work.seconds > 0 else 0.0)
        return self._add_host(f"launch {name}", NodeKind.HOST, launches)

    def _add_kernel(  # noqa: PLR0913, PLR0917 -- as kernel
        self,
        name: str,
        stage: Stage,
        work: Work,
        launch: int,
        after: tuple[Wait, ...],
        num_bytes: Linear | float,
        role: Role,
        basis: Basis | None,
    ) -> int:
        return self._add(
            TemplateOp(
                name=name,
                kind=NodeKind.COPY if stage is Stage.MEMORY_COPY else NodeKind.KERNEL,
                stage=stage,
                resource=self.place(self.stream),
                work=work,
                after=self._events(after),
                launched_by=launch,
                role=role,
                num_bytes=Linear.of(num_bytes),
                basis=basis,
            )
        )

    def _add_host(
        self,
        name: str,
        kind: NodeKind,
        seconds: Work | Seconds,
        *,
        after: tuple[Wait, ...] = (),
    ) -> int:
        op = TemplateOp(
            name=name,
            kind=kind,
            resource=self.thread,
            work=_work(seconds),
            after=self._events((*after, *self._kernel_before())),
        )
        return self._add(op)

    def _events(self, after: tuple[Wait, ...]) -> tuple[Event, ...]:
        """Return the events that the next operation waits for, and note the marks among them."""
        if not after:
            return ()
        marks = tuple(each for each in after if isinstance(each, Mark))
        if marks:
            self._waits_for_marks[len(self._ops)] = marks
        return tuple(each for each in after if not isinstance(each, Mark))

    def _add(self, op: TemplateOp) -> int:
        """Write an operation of the present part of the step."""
        index = len(self._ops)
        if op.resource not in self._resources:
            self._resources.append(op.resource)
        if op.resource == Resource.COMPUTE:
            self._last_kernel = index
        self._ops.append(op._replace(part_of=self._owners, joined=self._joined))
        return index

    def _kernel_before(self) -> tuple[Wait, ...]:
        """Return the kernel that was called last, for which a CPU's thread waits."""
        if not self.synchronous:
            return ()
        return (_LAST_KERNEL,) if self._last_kernel is None else self.last(Resource.COMPUTE)


def _work(seconds: Work | Seconds) -> Work:
    """Return seconds as a constant work; a work as it is."""
    if isinstance(seconds, Work):
        return seconds
    return Work(kind=WorkKind.CONSTANT, seconds=float(seconds))
