"""Host overheads and memory bandwidth, from the pieces that were measured."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import NamedTuple

import numpy as np

from costmodel.base.units import MIB, US, Bytes, BytesPerSecond, Seconds
from costmodel.step.issue import LOOKUP, LOOKUP_BACKWARD, Issue
from planner.calibration.curves import Accuracy, Array, accuracy, alpha_beta, rounded
from planner.calibration.enough import check_enough
from planner.calibration.points import Family, HostPart, HostPoint, StreamOp, StreamPoint
from planner.calibration.records import Record

LAYERS = 4
"""Linear layers, each with an activation, that one piece of host work has."""
LAYERS_FORWARD = Issue(2.0 * LAYERS, 2.0 * LAYERS)
"""Product and activation: what ``costmodel.step.dense`` issues for a layer."""
LAYERS_BACKWARD = Issue(4.0 * LAYERS, 4.0 * LAYERS)
"""Activation, two products, sum of the bias."""
FRESH_BYTES: Bytes = 32 * MIB
"""Memory from here on comes anew from the system for each tensor: glibc's largest threshold of
``mmap`` (malloc.c, ``DEFAULT_MMAP_THRESHOLD_MAX``)."""
_PLAIN = (StreamOp.COPY, StreamOp.ADD)
"""What the memory bandwidth is fitted to."""
_FEWEST_SIZES = 4
"""A bandwidth needs so many sizes of an operator: half are held out, and a line takes two."""
_PIECES = (HostPart.LOOKUP, HostPart.LAYER)
_DEVICE_PIECES = (HostPart.LAUNCH, HostPart.SYNCHRONIZE, HostPart.OPERATOR)
"""What is measured of a device that runs by itself, too."""
_LEAST_LATENCY: Seconds = 0.1 * US
"""Least time of a kernel that does nothing; keeps a profile's numbers above zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFit:
    """Latency and bandwidth of memory-bound operators."""

    latency: Seconds
    bandwidth: BytesPerSecond
    errors: Accuracy
    num_points: int
    """Copies and sums, which latency and bandwidth are fitted to."""
    num_others: int
    """Points of the operators in ``shares``."""
    num_bytes: tuple[float, float]
    shares: Mapping[StreamOp, float]
    """Share of the bandwidth that operators other than copies and sums reach."""
    fresh_bandwidth: BytesPerSecond | None
    """How fast new tensors of `FRESH_BYTES` and more are filled; not fitted; None: not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFit:
    """Host times, by field of ``costmodel.domain.hardware.Host``, and how the pieces disagree."""

    times: Mapping[str, Seconds]
    origins: Mapping[str, str]
    errors: Accuracy
    """How far every piece is from the operator time that the other pieces give."""
    num_points: int


def fit_stream(
    records: Sequence[Record],
    *,
    maps_anew: bool,
    on_core: bool = False,
    cache_bytes: Bytes = 0.0,
) -> StreamFit:
    """Fit a latency and a bandwidth to copies and sums; alternate sizes are held out in turn.

    What fits in ``cache_bytes`` counts in proportion to its size: the bandwidth is the memory's,
    where the time goes, and not what a core's cache gives for an instant.

    With ``maps_anew`` to tensors below `FRESH_BYTES`: a larger one is new memory from the system
    each time, and every page of it costs a fault. That bandwidth is returned beside the fitted one.

    With ``on_core`` other operators have a bandwidth of their own, fitted and held out in the same
    way.

    Raises
    ------
    TooFewPointsError
        Fewer than four sizes of copies and sums were measured.

    """
    points = sorted(_streams(records))
    fresh = [p for p in points if maps_anew and p.written >= FRESH_BYTES]
    kept = [p for p in points if p not in fresh]
    plain = _Streams.of([p for p in kept if p.op in _PLAIN], cache_bytes)
    num_sizes = len(np.unique(plain.sizes))
    check_enough(Family.STREAM, num_sizes, _FEWEST_SIZES, "sizes of copies and sums")
    others = {
        op: _Streams.of([p for p in kept if p.op is op], cache_bytes)
        for op in StreamOp
        if on_core and op not in _PLAIN and sum(p.op is op for p in kept) >= _FEWEST_SIZES
    }
    latency, bandwidth = plain.line()
    errors = [fit.held_out() for fit in (plain, *others.values())]
    return StreamFit(
        latency=latency,
        bandwidth=bandwidth,
        errors=accuracy(np.concatenate(errors)),
        num_points=len(plain.sizes),
        num_others=sum(len(fit.sizes) for fit in others.values()),
        num_bytes=(float(plain.sizes[0]), float(plain.sizes[-1])),
        shares={op: fit.line()[1] / bandwidth for op, fit in others.items()},
        fresh_bandwidth=median(p.num_bytes / p.seconds for p in fresh) if fresh else None,
    )


def fit_host(records: Sequence[Record], *, synchronous: bool) -> HostFit:
    """Return the time per operator that the pieces take, at the counts the step model has.

    The model counts a piece's operators in a trace, and charges each the same. So an operator's
    time here is a piece's time, less its launches, over that count; the mean of the pieces.

    Raises
    ------
    TooFewPointsError
        A piece was not measured.

    """
    clock = "seconds" if synchronous else "wall"
    known = {
        (record.point.part, phase): seconds
        for record in records
        if isinstance(record.point, HostPoint)
        for phase, seconds in getattr(record, clock).items()
    }
    pieces = _PIECES if synchronous else (*_PIECES, *_DEVICE_PIECES)
    num_pieces = sum(any(part is piece for part, _ in known) for piece in pieces)
    check_enough(Family.HOST, num_pieces, len(pieces), "pieces of host work")
    launch = 0.0 if synchronous else known[HostPart.LAUNCH, "call"]
    forward = [
        _operator(known[HostPart.LOOKUP, "forward"], LOOKUP, launch),
        _operator(known[HostPart.LAYER, "forward"], LAYERS_FORWARD, launch),
    ]
    backward = [
        _operator(known[HostPart.LOOKUP, "backward"], LOOKUP_BACKWARD, launch),
        _operator(known[HostPart.LAYER, "backward"], LAYERS_BACKWARD, launch),
    ]
    misses = [one / other - 1 for one, other in (forward, forward[::-1], backward, backward[::-1])]
    averaged = f"a lookup and {LAYERS} linear layers, caches empty"
    times = {"op_time": fmean(forward), "backward_op_time": fmean(backward)}
    origins = dict.fromkeys(times, f"measured: mean of {averaged}")
    if not synchronous:
        more = _device_times(known, launch)
        times |= more
        origins |= dict.fromkeys(more, "measured on an idle stream")
    return HostFit(
        times={name: rounded(seconds) for name, seconds in times.items()},
        origins=origins,
        errors=accuracy(np.array(misses)),
        num_points=len(known),
    )


def _device_times(
    known: Mapping[tuple[HostPart, str], Seconds], launch: Seconds
) -> dict[str, Seconds]:
    """Return what only a device that runs by itself has."""
    sync = known[HostPart.SYNCHRONIZE, "return"]
    issue = known[HostPart.OPERATOR, "many"]
    latency = known[HostPart.OPERATOR, "until_done"] - issue - sync
    return {
        "launch_time": launch,
        "sync_time": sync,
        "launch_latency": max(latency, _LEAST_LATENCY),
    }


def _operator(seconds: Seconds, issue: Issue, launch: Seconds) -> Seconds:
    return max(seconds - issue.num_launches * launch, _LEAST_LATENCY) / issue.num_ops


class _Stream(NamedTuple):
    num_bytes: float
    written: float
    seconds: Seconds
    op: StreamOp


def _streams(records: Sequence[Record]) -> Iterator[_Stream]:
    for record in records:
        point = record.point
        if isinstance(point, StreamPoint):
            tensors = 3 if point.op is StreamOp.ADD else 2
            written = 0.0 if point.op is StreamOp.IN_PLACE else point.num_bytes / tensors
            seconds = record.seconds["operator"]
            yield _Stream(float(point.num_bytes), written, seconds, point.op)


class _Streams(NamedTuple):
    """Points that one latency and one bandwidth are fitted to, in order of size."""

    sizes: Array
    times: Array
    weights: Array

    @classmethod
    def of(cls, points: Sequence[_Stream], cache_bytes: Bytes) -> "_Streams":
        sizes = np.array([p.num_bytes for p in points], dtype=np.float64)
        weights = np.minimum(sizes / cache_bytes, 1.0) if cache_bytes else np.ones(len(sizes))
        return cls(sizes, np.array([p.seconds for p in points]), weights)

    def line(self) -> tuple[Seconds, BytesPerSecond]:
        form = alpha_beta(*self)
        latency, byte = (float(value) for value in form(np.array([0.0, 1.0])))
        slope = byte - latency
        # times that do not grow with the size leave no slope: then the fastest point's, all of it
        return latency, 1.0 / slope if slope > 0.0 else float(np.max(self.sizes / self.times))

    def held_out(self) -> Array:
        """Return errors of every other size, from the rest, and the other way round."""
        ranks = np.unique(self.sizes, return_inverse=True)[1]
        errors = []
        for fold in (0, 1):
            out = ranks % 2 == fold
            form = alpha_beta(self.sizes[~out], self.times[~out], self.weights[~out])
            errors.append(form(self.sizes[out]) / self.times[out] - 1)
        return np.concatenate(errors)
