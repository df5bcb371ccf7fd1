"""Host overheads, kernel times and collectives of a machine, from a profiled run.

Host overheads are the host's own time, without waits for the device. Values beyond the upper
quartile by more than 1.5 times the interquartile range (Tukey, *Exploratory Data Analysis*, 1977)
are left out of means: garbage collection and page faults are not the cost of an operator. A
collective takes from its latest start on any rank to its end, not what one rank's profile says.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median, quantiles

from costmodel.base.units import US, Bytes, Seconds
from costmodel.domain.hardware import CollectiveCurve, CollectiveOp, HardwareProfile, Source
from costmodel.domain.traced import KernelTime, OperatorOverheads, TracedTimes
from costmodel.step.graph import NodeKind
from planner.calibration.host_times import with_host_times
from planner.traces.replay.algorithm1 import Operator
from planner.traces.replay.importing import ImportedRun

_BACKWARD = "autograd::engine::evaluate_function"
_FEWEST_SIZES = 3
"""Number of message sizes with which a curve replaces a fitted one."""
_BLOCKED: Seconds = 1 * US
"""Longest wait that does not count as blocked: a tick of the profiler's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedCollective:
    """One collective of the run."""

    op: CollectiveOp
    num_ranks: int
    num_bytes: Bytes
    """Bytes of its largest message; 0: not in the traces."""
    seconds: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """Numbers learned from one run."""

    source: str
    operators: Sequence[OperatorOverheads]
    kernels: Sequence[KernelTime]
    collectives: Sequence[TracedCollective]
    host: Mapping[str, Seconds]
    """Seconds by field of ``costmodel.domain.hardware.Host``."""


def learn(run: ImportedRun, source: str) -> Learned:
    """Return the overheads, kernel times and collectives of an imported run."""
    operators = [operator for rank in run.operators for operator in rank.operators[1:]]
    return Learned(
        source=source,
        operators=_overheads(operators),
        kernels=_kernels(run),
        collectives=_collectives(run),
        host=_host(run, operators),
    )


def learned_profile(learned: Learned, base: HardwareProfile) -> HardwareProfile:
    """Return ``base`` with the numbers that a run has."""
    origin = f"{learned.source}, profiled training steps"
    curves = {(c.op, c.num_ranks, c.num_nodes): c for c in base.curves}
    for curve in _curves(learned.collectives, origin):
        key = (curve.op, curve.num_ranks, curve.num_nodes)
        curves[key] = _continued(curve, curves.get(key))
    shortest = min((row.median for row in learned.kernels), default=0.0)
    gpu = replace(base.gpu, kernel_latency=shortest) if shortest > 0 else base.gpu
    names = ["gpu.kernel_latency"] * (shortest > 0)
    origins = dict.fromkeys((f"host.{name}" for name in learned.host), origin)
    base = with_host_times(base, learned.host, origins)
    return replace(
        base,
        gpu=gpu,
        curves=tuple(curves.values()),
        sources={**base.sources, **dict.fromkeys(names, origin)},
        kinds={name: kind for name, kind in base.kinds.items() if name not in names},
        traced=TracedTimes(
            operators={row.name: row for row in learned.operators},
            kernels={row.name: row for row in learned.kernels},
        ),
    )


def _overheads(operators: Iterable[Operator]) -> list[OperatorOverheads]:
    """Return the mean host times of every operator, by name, the most frequent first."""
    kinds: dict[str, list[Operator]] = defaultdict(list)
    for operator in operators:
        kinds[operator.name].append(operator)
    rows = []
    for name, same in kinds.items():
        launching = [each for each in same if each.launches]
        launches = [launch for each in launching for launch in each.launches]
        inner = [launch.gap for each in launching for launch in each.launches[:-1]]
        rows.append(
            OperatorOverheads(
                name=name,
                count=len(same),
                before=_mean(each.before for each in same),
                lead=_mean(each.lead for each in launching),
                tail=_mean(each.tail for each in launching),
                call=_mean(launch.call_time for launch in launches),
                between=_mean([*inner, *(each.tail for each in same if not each.launches)]),
            )
        )
    return sorted(rows, key=lambda row: (-row.count, row.name))


def _host(run: ImportedRun, operators: Sequence[Operator]) -> dict[str, Seconds]:
    """Return the numbers of a profile's host that the run determines."""
    between = [times for rank in run.operators for times in _between_launches(rank.operators[1:])]
    calls = [launch.call_time for o in operators for launch in o.launches]
    nodes, returns = run.graph.nodes, []
    for node, (start, end) in zip(nodes, run.measured, strict=True):
        blocked = node.kind is NodeKind.WAIT and end - start - node.seconds > _BLOCKED
        if blocked and "Synchronize" in node.name:
            returns.append(node.seconds)
    delays = [n.launch_delay for n in nodes if n.launched_by is not None and n.launch_delay]
    found = {
        "launch_time": _mean(calls),
        "launch_latency": max(0.0, median(delays or [0.0]) - _mean(calls)),
        "op_time": _mean(seconds for seconds, backward in between if not backward),
        "backward_op_time": _mean(seconds for seconds, backward in between if backward),
        "sync_time": _mean(returns),
    }
    return {name: seconds for name, seconds in found.items() if seconds > 0}


def _between_launches(operators: Sequence[Operator]) -> Iterator[tuple[Seconds, bool]]:
    """Yield the host's own time from every launch to the next, and whether it is in backward."""
    since: Seconds = 0.0
    for operator in operators:
        since += operator.before + operator.lead
        for launch in operator.launches:
            yield since, operator.name.startswith(_BACKWARD)
            since = launch.gap
        since += operator.tail


def _kernels(run: ImportedRun) -> list[KernelTime]:
    """Return the median time of every kernel, the longest in all first."""
    times: dict[str, list[Seconds]] = defaultdict(list)
    for node in run.graph.nodes:
        if node.kind is NodeKind.KERNEL:
            times[node.name].append(node.seconds)
    rows = [KernelTime(name=n, count=len(all_), median=median(all_)) for n, all_ in times.items()]
    return sorted(rows, key=lambda row: (-row.count * row.median, row.name))


def _collectives(run: ImportedRun) -> list[TracedCollective]:
    """Return the run's collectives, each with the time of its slowest rank."""
    members = defaultdict(list)
    for node in run.graph.nodes:
        if node.collective is not None:
            members[node.collective].append(node)
    return [
        TracedCollective(
            op=CollectiveOp(nodes[0].stage.value),
            num_ranks=len(nodes),
            num_bytes=max(node.num_bytes for node in nodes),
            seconds=max(node.seconds for node in nodes),
        )
        for nodes in members.values()
    ]


def _curves(points: Sequence[TracedCollective], origin: str) -> list[CollectiveCurve]:
    """Return a curve for every collective with enough sizes, rising with the bytes."""
    times: dict[tuple[CollectiveOp, int], dict[Bytes, list[Seconds]]] = defaultdict(dict)
    for point in points:
        if point.num_bytes > 0 and point.seconds > 0:
            sizes = times[point.op, point.num_ranks]
            sizes.setdefault(point.num_bytes, []).append(point.seconds)
    curves = []
    for (op, num_ranks), sizes in times.items():
        if len(sizes) < _FEWEST_SIZES:
            continue
        knots: list[tuple[Bytes, Seconds]] = []
        for num_bytes in sorted(sizes):
            least = knots[-1][1] if knots else 0.0
            knots.append((num_bytes, max(least, median(sizes[num_bytes]))))
        curves.append(
            CollectiveCurve(
                op=op,
                num_ranks=num_ranks,
                knots=tuple(knots),
                source=Source.MEASURED,
                origin=f"{origin}, {sum(map(len, sizes.values()))} points",
            )
        )
    return curves


def _continued(curve: CollectiveCurve, base: CollectiveCurve | None) -> CollectiveCurve:
    """Return the learned curve, extended beyond its sizes by the base's, and never lower.

    A step has few sizes, and a curve goes on at its last knot's bandwidth: from small messages,
    which only wait for the network, the network would look slow.
    """
    if base is None:
        return curve
    size, time = curve.knots[-1]
    beyond = ((larger, max(time, seconds)) for larger, seconds in base.knots if larger > size)
    return replace(
        curve,
        knots=(*curve.knots, *beyond),
        last_measured=size,
        origin=f"{curve.origin}; beyond {size:,.0f} bytes: {base.origin}",
    )


def _mean(values: Iterable[Seconds]) -> Seconds:
    """Return the mean without outliers; 0 if there are no values."""
    known = list(values)
    if len(known) < 4:
        return fmean(known) if known else 0.0
    low, _, high = quantiles(known, n=4)
    return fmean(value for value in known if value <= high + 1.5 * (high - low))
