"""How long a collective takes on a group of ranks.

``num_bytes`` is nccl-tests' "size" throughout: a rank's send buffer for all_to_all, all_reduce
and reduce_scatter, the gathered output buffer for all_gather. Uneven slices are charged as the
largest rank's size: the collective ends when its slowest member does.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log2

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costmodel.base.units import Bytes, Seconds
from costmodel.domain.hardware import (
    Bound,
    CollectiveCurve,
    CollectiveOp,
    Estimate,
    HardwareProfile,
    Link,
    Source,
)
from costmodel.kernels import times

_FLOOR_MARGIN = 1.5
"""Up to this multiple of a curve's floor, ``collective_estimate`` names latency as the bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroup:
    """The ranks of one process group, and how they are spread over nodes.

    The world is (W, P); the ranks of one node are (P, P); one rank of every node is (N, 1).
    """

    num_ranks: int
    ranks_per_node: int
    node_stride: int = 1
    """Nodes from one that has ranks of the group to the next one."""

    def __post_init__(self) -> None:
        if self.num_ranks < 1 or self.ranks_per_node < 1:
            raise ValueError(f"a group needs at least one rank per node, got {self}")
        if self.num_ranks % min(self.ranks_per_node, self.num_ranks):
            raise ValueError(f"a group must fill its nodes evenly, got {self}")

    @property
    def local_ranks(self) -> int:
        """Ranks of the group on one node (a small group does not fill its node)."""
        return min(self.ranks_per_node, self.num_ranks)

    @property
    def num_nodes(self) -> int:
        """Nodes the group spans."""
        return self.num_ranks // self.local_ranks

    def ranks_within(self, nodes: int) -> int:
        """Return how many of its ranks are on so many neighbouring nodes."""
        return min(self.num_ranks, self.local_ranks * max(1, nodes // self.node_stride))


def bus_factor(op: CollectiveOp, num_ranks: int) -> float:
    """Share of the size that crosses each rank's link.

    (n - 1)/n; for all_reduce, which is a reduce_scatter and an all_gather, twice that.

    References
    ----------
    nccl-tests, doc/PERFORMANCE.md: bus bandwidth.

    """
    share = (num_ranks - 1) / num_ranks
    return 2 * share if op is CollectiveOp.ALL_REDUCE else share


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveForm:
    """Time of one collective on one group, as a function of the size S alone.

        t = alpha + max(offset + scale curve(ratio S) + slope S, across S)

    The first argument is the part inside the nodes, the second the part between them. Curves are
    straight lines between the knots in log time over log bytes; below the first knot they keep its
    time (latency), above the last one its bandwidth, t = t_last S / S_last.
    """

    alpha: Seconds = 0.0
    offset: Seconds = 0.0
    scale: float = 0.0
    ratio: float = 1.0
    slope: float = 0.0
    """Seconds per byte."""
    across: float = 0.0
    """Seconds per byte."""
    curve: CollectiveCurve | None = None
    optional: bool = False
    """Whether it takes place only if there are bytes; else an empty message takes its latency."""

    @property
    def numbers(self) -> tuple[float, ...]:
        """The form as the columns that ``times.ExchangeTimes`` reads."""
        scale = 0.0 if self.curve is None else self.scale
        local = (self.alpha, self.offset, scale, self.ratio, self.slope)
        return (*local, self.across, float(self.optional))

    @property
    def knots(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Logarithms of the bytes and of the seconds at the curve's knots; without one, a 0."""
        if self.curve is None:
            return np.zeros(1), np.zeros(1)
        return self.curve.log_bytes, self.curve.log_seconds

    def time(self, num_bytes: ArrayLike) -> NDArray[np.float64]:
        """Return the time, any shape."""
        size = np.asarray(num_bytes, dtype=np.float64)
        flat = np.ascontiguousarray(size).reshape(-1)
        seconds = times.exchange_times(flat, np.array([self.numbers]), *self.knots)
        return seconds.reshape(size.shape)

    def of_part(self, share: float) -> "CollectiveForm":
        """Return the form for messages of which only a share counts."""
        return replace(self, ratio=self.ratio * share, slope=self.slope * share)


def link_form(op: CollectiveOp, num_ranks: int, link: Link) -> CollectiveForm:
    """Alpha-beta time of a collective, for want of anything measured.

        t = alpha g(n) + c(n) S / beta

    with c the bus factor and g = 1 for all_to_all, all_gather and reduce_scatter, whose
    transfers overlap, 2 log2 n for all_reduce (a tree up and down).

    Parameters
    ----------
    op
        The collective.
    num_ranks
        n, more than one.
    link
        Gives alpha and beta.

    """
    steps = 2 * log2(num_ranks) if op is CollectiveOp.ALL_REDUCE else 1.0
    slope = bus_factor(op, num_ranks) / link.bandwidth
    return CollectiveForm(offset=steps * link.latency, slope=slope)


def curve_time(curve: CollectiveCurve, num_bytes: ArrayLike) -> NDArray[np.float64]:
    """Return the time of a collective on the number of ranks it was measured on, any shape."""
    return CollectiveForm(scale=1.0, curve=curve).time(num_bytes)


def collective_time(
    op: CollectiveOp, num_bytes: ArrayLike, group: RankGroup, hardware: HardwareProfile
) -> NDArray[np.float64]:
    """Time of a collective from the moment its last rank starts.

    Within one node: the measured curve of that many ranks, or else the nearest one scaled
    (`_scaled_form`), or else alpha-beta. Over several nodes: a curve measured on that many
    ranks and nodes, or else `_two_level_form`.

    Parameters
    ----------
    op
        The collective.
    num_bytes
        nccl-tests' size; any shape. No bytes still cost the latency.
    group
        Who takes part. One rank talks to nobody: 0.
    hardware
        Curves and links.

    """
    return collective_form(op, group, hardware).time(num_bytes)


def collective_form(
    op: CollectiveOp, group: RankGroup, hardware: HardwareProfile
) -> CollectiveForm:
    """Return how long a collective takes on a group, for any size; see `collective_time`."""
    if group.num_ranks == 1:
        return CollectiveForm()
    measured = _curve(op, group, hardware.curves)
    if measured is not None:
        return CollectiveForm(scale=1.0, curve=measured)
    if group.num_nodes > 1:
        return _two_level_form(op, group, hardware)
    return _local_form(op, group.num_ranks, hardware)


def collective_estimate(
    op: CollectiveOp, num_bytes: Bytes, group: RankGroup, hardware: HardwareProfile
) -> Estimate:
    """Predict one collective, and say what bounds it and how far that can be trusted."""
    seconds = float(collective_time(op, num_bytes, group, hardware))
    if group.num_ranks == 1:
        return Estimate(seconds=seconds, bound_by=Bound.NOTHING_TO_SEND, source=Source.MEASURED)
    measured = _curve(op, group, hardware.curves)
    if measured is not None:
        source, extrapolated = measured.source, not measured.covers(num_bytes)
    else:
        source, extrapolated = _scaled_source(op, group, hardware), True
    return Estimate(
        seconds=seconds,
        bound_by=_bound(op, num_bytes, group, hardware),
        source=source,
        extrapolated=extrapolated,
    )


def _scaled_source(op: CollectiveOp, group: RankGroup, hardware: HardwareProfile) -> Source:
    """Return the source of the time of a group that was not measured: a link, or curves."""
    if group.num_nodes > 1:
        return hardware.kind("inter_node.bandwidth")
    if any(curve.op is op and curve.num_nodes == 1 for curve in hardware.curves):
        return Source.FITTED
    return hardware.kind("intra_node.bandwidth")


def _bound(
    op: CollectiveOp, num_bytes: Bytes, group: RankGroup, hardware: HardwareProfile
) -> Bound:
    """Return what bounds a collective: latency, bandwidth, or a measured curve."""
    floor = float(collective_time(op, 0.0, group, hardware))
    if float(collective_time(op, num_bytes, group, hardware)) <= _FLOOR_MARGIN * floor:
        return Bound.LINK_LATENCY
    if group.num_nodes > 1:
        form = collective_form(op, group, hardware)
        between = form.alpha + form.across * num_bytes >= float(form.time(num_bytes))
        return Bound.INTER_NODE_BANDWIDTH if between else Bound.INTRA_NODE_BANDWIDTH
    return Bound.LINK_BANDWIDTH


def _curve(
    op: CollectiveOp, group: RankGroup, curves: Sequence[CollectiveCurve]
) -> CollectiveCurve | None:
    """Return the curve measured on exactly this many ranks and nodes."""
    wanted = (op, group.num_ranks, group.num_nodes)
    for curve in curves:
        if (curve.op, curve.num_ranks, curve.num_nodes) == wanted:
            return curve
    return None


def _local_form(op: CollectiveOp, num_ranks: int, hardware: HardwareProfile) -> CollectiveForm:
    """Return the form within one node, on any number of ranks."""
    if num_ranks == 1:
        return CollectiveForm()
    curves = {
        curve.num_ranks: curve
        for curve in hardware.curves
        if curve.op is op and curve.num_nodes == 1
    }
    if num_ranks in curves:
        return CollectiveForm(scale=1.0, curve=curves[num_ranks])
    if curves:
        return _scaled_form(num_ranks, list(curves.values()))
    return link_form(op, num_ranks, hardware.intra_node)


def _scaled_form(num_ranks: int, curves: Sequence[CollectiveCurve]) -> CollectiveForm:
    """Return the form on a number of ranks that was not measured, from the nearest that was.

    Bus bandwidth is a function of the bytes per peer, S/n, so with c the bus factor, n' the
    nearest measured number of ranks, and a its latency, the time of its smallest message:

        t_n(S) = a_n + (n c(n)) / (n' c(n')) (t_n'(S n'/n) - a_n')

    Latency grows with n - 1, for all_reduce with log2 n: a_n is on the line through the
    measured latencies (that of n' where only one is measured).

    References
    ----------
    Leave-one-out on the NVSwitch curves of the project's data: 8 ranks from 2 and 4 within
    10-25%. It does not hold on PCIe (55-65%).

    """
    nearest = min(curves, key=lambda c: (abs(log2(c.num_ranks / num_ranks)), -c.num_ranks))
    op, known = nearest.op, nearest.num_ranks
    scale = num_ranks * bus_factor(op, num_ranks) / (known * bus_factor(op, known))
    latency = _latency(num_ranks, nearest, curves)
    return CollectiveForm(
        offset=latency - scale * nearest.knots[0][1],
        scale=scale,
        ratio=known / num_ranks,
        curve=nearest,
    )


def _latency(num_ranks: int, nearest: CollectiveCurve, curves: Sequence[CollectiveCurve]) -> float:
    """Time of the smallest message, on the line through the measured ones; see `_scaled_form`."""
    known = nearest.knots[0][1]
    if len(curves) == 1:
        return known
    ranks = np.array([curve.num_ranks for curve in curves] + [num_ranks], dtype=np.float64)
    steps = np.log2(ranks) if nearest.op is CollectiveOp.ALL_REDUCE else ranks - 1
    floors = [curve.knots[0][1] for curve in curves]
    slope = max(0.0, float(np.polyfit(steps[:-1], floors, 1)[0]))
    here = steps[:-1][list(curves).index(nearest)]
    return max(float(known + slope * (steps[-1] - here)), min(floors) / 2)


def _two_level_form(
    op: CollectiveOp, group: RankGroup, hardware: HardwareProfile
) -> CollectiveForm:
    """Return the form over several nodes: the slower of two levels that overlap, and a latency.

        t = alpha g + max(t_local, S_across / beta)

    alpha and beta are ``hardware.inter_node``'s; g is log2 N, the depth of a tree over N nodes,
    and for all_reduce, which goes up and down, twice that. Of W ranks, P to a node:

    all_to_all
        Of the W slices of S/W, P stay in the node (an all_to_all of S P/W on P ranks), W - P
        leave it: S_across = S (W - P)/W.
    reduce_scatter, all_gather
        S on the P ranks of the node, and 1/P of it on W/P ranks across, each rank with its own
        network port: S_across = S (W - P)/(W P). A ring over all ranks moves as much.
    all_reduce
        reduce_scatter in the node, all_reduce across, all_gather in the node: the local part is
        an all_reduce of S on P ranks, S_across = 2 S (W - P)/(W P).

    What leaves a block of nodes (``hardware.spine``) is a third level: the same S_across, with the
    ranks of a block for P, at 1/oversubscription of beta.
    """
    ranks, local = group.num_ranks, group.local_ranks
    repeats = 2 if op is CollectiveOp.ALL_REDUCE else 1
    inside = _local_form(op, local, hardware)
    if op is CollectiveOp.ALL_TO_ALL:
        inside = inside.of_part(local / ranks)
    crossing = _crossing(op, ranks, local)
    if hardware.spine is not None:
        beyond = _crossing(op, ranks, group.ranks_within(hardware.spine.nodes))
        crossing = max(crossing, hardware.spine.oversubscription * beyond)
    return replace(
        inside,
        alpha=repeats * log2(group.num_nodes) * hardware.inter_node.latency,
        across=crossing / hardware.inter_node.bandwidth,
    )


def _crossing(op: CollectiveOp, num_ranks: int, within: int) -> float:
    """Return S_across/S of a rank, of a group that has so many ranks within each of some bounds."""
    share = (num_ranks - within) / num_ranks
    if op is CollectiveOp.ALL_TO_ALL:
        return share
    return (2 if op is CollectiveOp.ALL_REDUCE else 1) * share / within
