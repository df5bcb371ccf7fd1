"""The nodes of one rank, from its profiler trace.

Host time between two calls of the CUDA runtime becomes a host node; a launch, the device node that
it launches; a call that blocks, a wait. Host threads take turns: the next call of any thread
follows the last one of all (in PyTorch the main thread sleeps while autograd's works). Every
duration is the trace's own.
"""

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from costmodel.base.units import US, Seconds
from costmodel.domain.hardware import Basis, Source
from costmodel.step.graph import Node, NodeKind, Role, Stage
from planner.traces.kineto import RankTrace
from planner.traces.kineto_events import (
    Activity,
    Call,
    RecordedWait,
    is_collective,
    is_graph_launch,
    starts_collective,
)
from planner.traces.replay.classify import node_kind, says_steps, stage, stream_names
from planner.traces.replay.crowding import fills_gpu, urgent_streams
from planner.traces.replay.links import Links
from planner.traces.replay.matching import Member
from planner.traces.replay.rank_calls import (
    RangeMark,
    in_order,
    launch_latency,
    next_on_stream,
    thread_names,
)

_QUEUED: Seconds = 2 * US
"""Largest gap of kernels queued back to back, in seconds: two ticks of the profiler's clock."""
_WOKEN: Seconds = 20 * US
"""Seconds within which a kernel starts after what it waited for; on the V100 runs it takes 1 to 10
us."""
_DEVICE_BLOCKS = ("DeviceSynchronize", "CtxSynchronize", "cudaFree")
_STREAM_BLOCKS = ("StreamSynchronize", "EventSynchronize")
_BLOCKING_COPY = "DtoH (Device -> Pageable)"
"""Copies to pageable memory, from which CUDA returns only when they are done (CUDA Runtime API,
"API synchronization behavior")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMark:
    """Where one step of one rank begins and ends."""

    rank: int
    step: int
    """Number of the step in the profiler."""
    begin: int
    """Number of the node at whose end the step begins."""
    end: int
    measured: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitEdge:
    """A node on one stream that waits for a node on another."""

    waits: int
    waited_for: int
    recorded: bool
    """Whether the profiler or an execution trace recorded it; else it is inferred."""


class RankGraph:
    """The nodes of one rank, in the order of its calls."""

    def __init__(
        self, trace: RankTrace, members: Mapping[tuple[int, int], Member], links: Links, first: int
    ) -> None:
        self.trace = trace
        self.nodes: list[Node] = []
        self.measured: list[tuple[Seconds, Seconds]] = []
        self.marks: list[StepMark] = []
        self.blocked: list[tuple[Seconds, Seconds]] = []
        """Spans in which the device blocked the host."""
        self.recorded = self.inferred = self.pinned = 0
        self.wait_edges: list[WaitEdge] = []
        self._members = members
        self._links = links
        self._first = first
        """Index in the whole graph of this rank's first node."""
        self._streams = stream_names(trace)
        self._urgent = urgent_streams(trace)
        self._threads = thread_names(trace)
        self._calls = {call.correlation: call for call in trace.calls}
        self._latency = launch_latency(trace, self._calls)
        self._recorded_waits = {wait.correlation: wait for wait in trace.recorded_waits}
        self._next = next_on_stream(trace.activities)
        self._now: Seconds = 0.0
        """Host time up to which nodes were added."""
        self._host = 0
        """Number of the latest host node."""
        self._step = trace.steps[0][0]
        self._says_steps = says_steps(trace)
        self._launched: dict[int, list[int]] = defaultdict(list)
        """Device nodes by stream, in launch order."""
        self._node_of: dict[int, int] = {}
        """Nodes by activity."""
        self._activity_of: dict[int, Activity] = {}
        """Activities by node."""
        self._waiting: list[Call] = []
        """Stream waits since the last launch of a kernel."""
        self._current: int | None = None
        """The stream of the latest kernel that is not a collective."""
        self._graph_end: int | None = None
        """The node of the latest CUDA graph that ended last."""
        self._past_graph: set[int] = set()
        """Streams with a kernel since that graph."""
        self._build()

    def _build(self) -> None:
        trace = self.trace
        launched: dict[int, list[int]] = defaultdict(list)
        for index, activity in enumerate(trace.activities):
            launched[activity.correlation].append(index)
        self._host_until("trace begins", trace.main_thread, 0.0, Role.BEFORE_TRACE)
        for index, activity in enumerate(trace.activities):
            if activity.correlation not in self._calls:
                self._launched_before(index)
        self._host_until("start skew", trace.main_thread, trace.start, Role.START_SKEW)
        begins: dict[int, int] = {}
        for event in in_order(trace):
            if isinstance(event, Call):
                self._call(event, launched.pop(event.correlation, ()))
            else:
                self._mark(event, begins)

    # The host

    def _host_until(self, name: str, thread: int, until: Seconds, role: Role = Role.OTHER) -> None:
        """Add a host node for the time up to ``until``."""
        self._add_host(name, NodeKind.HOST, thread, until - self._now, until, role=role)

    def _block(self, call: Call, waits_for: Sequence[int], until: Seconds) -> None:
        """Add a host's wait; the time to return after its end is the host's own."""
        self._wait(call.name, call.thread, waits_for, until)

    def _wait(self, name: str, thread: int, waits_for: Sequence[int], until: Seconds) -> None:
        """Let the host wait; the time to return after what it waited for is its own."""
        begin = min(until, max([self._now, *(self._end(index) for index in waits_for)]))
        if begin > self._now:
            self.blocked.append((self._now, begin))
        self._add_host(name, NodeKind.WAIT, thread, until - begin, until, waits_for)

    def _add_host(
        self, name: str, kind: NodeKind, thread: int, seconds: Seconds, until: Seconds,
        waits_for: Sequence[int] = (), role: Role = Role.OTHER,
    ) -> None:  # fmt: skip
        """Add a node of the host that lasts so long and was measured to end at ``until``."""
        until = max(until, self._now)
        node = Node(
            name,
            kind,
            Stage.HOST,
            self.trace.rank,
            self._threads[thread],
            max(0.0, seconds),
            after=(self._host, *waits_for) if self.nodes else (),
            step=self._step,
            basis=Basis(source=Source.MEASURED),
            role=role,
        )
        self._host = self._add(node, (self._now, until))
        self._now = until

    def _mark(self, mark: RangeMark, began: dict[int, int]) -> None:
        """Note that a step begins or ends at the present host node."""
        if mark.begins:
            self._step = mark.number
        what = "begins" if mark.begins else "ends"
        if self._says_steps and not mark.begins and mark.number == self.trace.steps[-1][0]:
            # Such a step ends when the last kernel does.
            self._wait("last kernel", self.trace.main_thread, self._all_before(mark.at), mark.at)
        self._host_until(f"step {mark.number} {what}", self.trace.main_thread, mark.at)
        if mark.begins:
            began[mark.number] = self._host
        elif mark.number in began:
            begin = began[mark.number]
            measured = mark.at - self._end(begin)
            self.marks.append(
                StepMark(
                    rank=self.trace.rank,
                    step=mark.number,
                    begin=begin,
                    end=self._host,
                    measured=measured,
                )
            )

    def _call(self, call: Call, activities: Sequence[int]) -> None:
        if activities:
            self._launch(call, activities[0])
            self._graph(call, activities)
        elif "StreamWaitEvent" in call.name:
            if call.correlation in self._recorded_waits or not starts_collective(call):
                self._waiting.append(call)
        elif call.name.endswith(_STREAM_BLOCKS):
            self._host_until(call.name, call.thread, call.start)
            self._block(call, self._before(self._current, call.end), call.end)
        elif any(name in call.name for name in _DEVICE_BLOCKS):
            self._host_until(call.name, call.thread, call.start)
            self._block(call, self._all_before(call.end), call.end)
        elif call.name.endswith("EventElapsedTime") and call.start > self._now:
            # Reading a timer waits for its event, and profilers do not record that wait.
            hidden = [i for i in self._all_before(call.start) if self._end(i) > self._now]
            if hidden:
                self._block(call, hidden, call.start)

    def _launch(self, call: Call, index: int) -> None:
        activity = self.trace.activities[index]
        self._host_until(call.name, call.thread, call.start)
        delay = min(max(0.0, activity.start - call.start), self._latency)
        after = self._after_graph(activity) | self._sources(activity)
        self._device(index, call, delay=delay, after=after)
        if not is_collective(activity):
            self._current = activity.stream
        if activity.kind == "memcpy" and _BLOCKING_COPY in activity.name:
            self._block(call, (self._node_of[index],), call.end)

    def _graph(self, call: Call, activities: Sequence[int]) -> None:
        """Add what a CUDA graph runs beyond its first kernel, as far apart as recorded.

        Each kernel follows the one of the graph that had ended last when it started, or the launch.
        """
        if len(activities) == 1 and not is_graph_launch(call.name):
            return
        ended: list[tuple[Seconds, int]] = []
        for index in activities:
            start = self.trace.activities[index].start
            if index != activities[0]:
                last = bisect_right(ended, start, key=itemgetter(0))
                since, source = ended[last - 1] if last else (call.start, self._host)
                delay = max(0.0, start - since)
                self._device(index, call, delay=delay, after={}, launched_by=source)
            node = self._node_of[index]
            insort(ended, (max(self._end(node), start + self._node(node).seconds), node))
        self._graph_end, self._past_graph = ended[-1][1], set()

    # The device

    def _device(
        self,
        index: int,
        call: Call | None,
        *,
        delay: Seconds,
        after: Mapping[int, bool],
        launched_by: int | None = None,
    ) -> None:
        """Add a device node.

        ``after`` maps the nodes that it waits for to whether that was recorded.
        """
        activity = self.trace.activities[index]
        member = self._members.get((self.trace.rank, index))
        alone = is_collective(activity) and member is None
        backward = call is None or call.thread != self.trace.main_thread
        in_graph = call is not None and is_graph_launch(call.name)
        node = Node(
            activity.name,
            NodeKind.KERNEL if alone else node_kind(activity),
            stage(activity, call.scopes if call else (), backward=backward),
            self.trace.rank,
            self._streams[activity.stream],
            member.seconds if member else self._occupied(index),
            after=tuple(after),
            launched_by=self._host if launched_by is None else launched_by,
            launch_delay=delay,
            collective=member.collective if member else None,
            step=activity.args["step"] if self._says_steps else self._step,
            num_bytes=self._links.num_bytes.get((self.trace.rank, index), activity.num_bytes),
            basis=Basis(source=Source.MEASURED),
            fills_gpu=0.0 if in_graph else fills_gpu(activity),
            priority=int(activity.stream in self._urgent),
        )
        position = self._add(node, (activity.start, activity.end))
        self.wait_edges += [
            WaitEdge(waits=position, waited_for=source, recorded=recorded)
            for source, recorded in after.items()
        ]
        self._launched[activity.stream].append(position)
        self._node_of[index] = position
        self._activity_of[position] = activity

    def _occupied(self, index: int) -> Seconds:
        """Return the seconds that a kernel holds its stream: until the next, if that is queued."""
        activity = self.trace.activities[index]
        later = self._next[index]
        if later is not None and 0 <= later.start - activity.end <= _QUEUED:
            return later.start - activity.start
        return activity.end - activity.start

    def _launched_before(self, index: int) -> None:
        """Add a device node whose launch is not in the trace.

        It follows its stream, or what ended just before it started; else it starts when it did.
        """
        activity = self.trace.activities[index]
        before = self._launched[activity.stream]
        after: list[int] = []
        delay = 0.0
        if not before or activity.start - self._end(before[-1]) > _WOKEN:
            after = self._just_ended(activity)
            delay = 0.0 if after else activity.start
            self.inferred += len(after)
            self.pinned += not after
        self._device(index, None, delay=delay, after=dict.fromkeys(after, False))

    def _just_ended(self, activity: Activity) -> list[int]:
        """Return nodes that ended just before an activity started."""
        return [
            node
            for stream, nodes in self._launched.items()
            if stream != activity.stream
            for node in nodes
            if 0 <= activity.start - self._end(node) <= _WOKEN
        ][-1:]

    # What streams wait for

    def _sources(self, activity: Activity) -> dict[int, bool]:
        """Return the nodes of other streams that a kernel waits for: whether each was recorded."""
        open_waits, later = [], []
        found: dict[int | None, bool] = {}
        for call in self._waiting:
            wait = self._recorded_waits.get(call.correlation)
            if wait is not None and wait.waiting_stream != activity.stream:
                later.append(call)
            elif wait is not None:
                found[self._recorded_source(wait)] = True
            else:
                open_waits.append(call)
        if is_collective(activity):
            self._waiting = later + open_waits
            if not self._recorded_waits:
                producer = self._before(self._current, activity.start)
                self.inferred += len(producer)
                return dict.fromkeys(producer, False)
        else:
            self._waiting = later
            for call in open_waits:
                source, known = self._source(call, activity)
                found[source] = found.get(source, False) or known
        return {node: known for node, known in found.items() if node is not None}

    def _after_graph(self, activity: Activity) -> dict[int, bool]:
        """Return the end of the latest CUDA graph, if a stream's first kernel since follows it."""
        end = self._graph_end
        if end is None or activity.stream in self._past_graph:
            return {}
        self._past_graph.add(activity.stream)
        same_stream = self._streams[activity.stream] == self._node(end).resource
        if same_stream or self._end(end) > activity.start:
            return {}
        self.inferred += 1
        return {end: False}

    def _recorded_source(self, wait: RecordedWait) -> int | None:
        """Return the last node of a stream that was launched before its event was recorded."""
        self.recorded += 1
        for node in reversed(self._launched.get(wait.recorded_on, [])):
            if self._activity_of[node].correlation < wait.recorded_at:
                return node
        return None

    def _source(self, call: Call, activity: Activity) -> tuple[int | None, bool]:
        """Return the node that a stream waits for, or None, and whether it is recorded.

        If it is not: the last node of other streams that had ended.
        """
        key = (self.trace.rank, call.correlation)
        if key in self._links.waits:
            self.recorded += 1
            collective = self._links.waits[key]
            return None if collective is None else self._node_of.get(collective), True
        others = [stream for stream in self._launched if stream != activity.stream]
        candidates = [node for s in others for node in self._before(s, activity.start)]
        self.inferred += bool(candidates)
        return max(candidates, key=self._end, default=None), False

    def _before(self, stream: int | None, at: Seconds) -> tuple[int, ...]:
        """Return a stream's last node that had ended at a time; empty: there is none."""
        for node in reversed(self._launched.get(stream, []) if stream is not None else []):
            if self._end(node) <= at + _QUEUED:
                return (node,)
        return ()

    def _all_before(self, at: Seconds) -> tuple[int, ...]:
        return tuple(node for stream in self._launched for node in self._before(stream, at))

    def _add(self, node: Node, measured: tuple[Seconds, Seconds]) -> int:
        self.nodes.append(node)
        self.measured.append(measured)
        return self._first + len(self.nodes) - 1

    def _node(self, node: int) -> Node:
        return self.nodes[node - self._first]

    def _end(self, node: int) -> Seconds:
        return self.measured[node - self._first][1]
