"""Fitting memory-bound operators: a latency, bandwidths, and a correction where it errs less.

The profile's model of such an operator is ``t = latency + bytes / (share bandwidth)``. On a core,
whose operators are called, the latency is next to nothing; the rest of an operator's shortest
measurement is the host's (``LineFit.host``). A correction (``planner.calibration.correction``) is
learned without that part, and kept if it errs less on sizes held out. Errors are weighted as points
are in the fit: a core's caches hide the time of memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple

import numpy as np

from costmodel.base.arrays import Array
from costmodel.base.units import MIB, US, Bytes, BytesPerSecond, Seconds
from costmodel.domain.time_correction import NO_CORRECTION, TimeCorrection
from costmodel.kernels.pointwise import CONCAT_EFFICIENCY
from planner.calibration.correction import learned_correction
from planner.calibration.curves import Accuracy, accuracy, alpha_beta
from planner.calibration.enough import check_enough
from planner.calibration.points import Family, StreamOp, StreamPoint
from planner.calibration.records import Record

CALL_TIME: Seconds = 0.1 * US
"""Seconds of a kernel's call on a CPU, so that the latency is above zero."""
FRESH_BYTES: Bytes = 32 * MIB
"""Tensors from this size on get new memory from the system each time: glibc's largest threshold of
``mmap`` (malloc.c, ``DEFAULT_MMAP_THRESHOLD_MAX``)."""
_PLAIN = (StreamOp.COPY, StreamOp.ADD)
"""Operators that the memory bandwidth is fitted to."""
_GPU_SHARES = {StreamOp.CONCAT: CONCAT_EFFICIENCY, StreamOp.VIEWS: CONCAT_EFFICIENCY}
"""Share of the bandwidth of a GPU's kernels, as constants (``kernels.pointwise``)."""
_FEWEST_SIZES = 4
"""Fewest sizes of an operator: half are held out, and a line takes two."""
_LEAST_TOLD = 0.25
"""Smallest share of the time beside the host's from which a correction is learned: it is a
difference of measurements that repeat within some percent."""
_FOLDS = 10
"""Number of folds: a correction is learned on all but one of them, and judged on that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSetting:
    """Facts known before memory-bound operators are fitted."""

    maps_anew: bool = False
    """Whether the system maps tensors of ``FRESH_BYTES`` and more anew each time."""
    on_core: bool = False
    """Whether operators are functions of a core."""
    cache_bytes: Bytes = 0.0
    """Points that fit in these bytes of cache have a weight in proportion to their size: the
    bandwidth is to be the memory's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFit:
    """Latencies and bandwidths; called with points, it returns the profile's seconds."""

    latency: Seconds
    """Measured latency of copies and sums, on a core including the host's."""
    bandwidth: BytesPerSecond
    lines: Mapping[StreamOp, tuple[Seconds, BytesPerSecond]]
    """Latency and bandwidth of a core's other operators."""
    calls: Mapping[StreamOp, Seconds]
    """Seconds of the host in a core's operators."""
    on_core: bool

    def __call__(self, points: Sequence["MeasuredStream"]) -> Array:
        """Return the profile's seconds, uncorrected."""
        start = CALL_TIME if self.on_core else self.latency
        return np.array([start + p.num_bytes / self._rate(p.op) for p in points])

    def host(self, points: Sequence["MeasuredStream"]) -> Array:
        """Return the seconds of the host in measurements, which the profile's model lacks."""
        return np.array([self.calls.get(p.op, 0.0) for p in points])

    def _rate(self, op: StreamOp) -> BytesPerSecond:
        """Return an operator's bandwidth."""
        if self.on_core:
            return self.lines[op][1] if op in self.lines else self.bandwidth
        return self.bandwidth * _GPU_SHARES.get(op, 1.0)

    def with_calls(self, points: Sequence["MeasuredStream"]) -> "LineFit":
        """Return the fit with the host's seconds, from each operator's shortest measurement."""
        calls: dict[StreamOp, Seconds] = {}
        for op in {p.op for p in points} if self.on_core else ():
            shortest = min((p for p in points if p.op is op), key=lambda p: p.seconds)
            calls[op] = max(0.0, shortest.seconds - float(self((shortest,))[0]))
        return replace(self, calls=calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFit:
    """Latency, bandwidth and correction of memory-bound operators."""

    line: LineFit
    errors: Accuracy
    """Errors without a correction, as that was chosen by its errors."""
    num_points: int
    """Number of copies and sums."""
    num_others: int
    """Number of points of the operators in ``shares``."""
    num_bytes: tuple[float, float]
    fresh_bandwidth: BytesPerSecond | None
    """Bandwidth of filling new tensors of ``FRESH_BYTES`` and more; None: not measured."""
    learned: TimeCorrection
    """The learned correction, whether or not it is better."""
    correction: TimeCorrection
    """The correction that errs less on sizes held out: the learned one or none."""

    @property
    def latency(self) -> Seconds:
        """Measured latency of copies and sums, in seconds."""
        return self.line.latency

    @property
    def bandwidth(self) -> BytesPerSecond:
        """Bandwidth of copies and sums, in bytes per second."""
        return self.line.bandwidth

    @property
    def shares(self) -> dict[StreamOp, float]:
        """Share of the bandwidth that each other operator of a core reaches."""
        return {op: rate / self.bandwidth for op, (_, rate) in self.line.lines.items()}

    def predicted(self, points: Sequence["MeasuredStream"], correction: TimeCorrection) -> Array:
        """Return the seconds that measuring points would take: corrected, with the host's part."""
        return _predicted(self.line, points, correction)


def fit_stream(records: Sequence[Record], setting: StreamSetting | None = None) -> StreamFit:
    """Return latency and bandwidth fitted to copies and sums.

    Alternate sizes are held out in turn.

    With ``maps_anew`` to tensors below ``FRESH_BYTES`` alone: a larger one is new memory each time,
    and every page of it costs a fault. That bandwidth is returned, too.

    With ``on_core`` other operators have a bandwidth of their own, fitted and held out in the same
    way.

    Raises
    ------
    TooFewPointsError
        Fewer than four sizes of copies and sums were measured.

    """
    using = setting or StreamSetting()
    points = sorted(streams(records))
    fresh = [p for p in points if using.maps_anew and p.written >= FRESH_BYTES]
    kept = [p for p in points if p not in fresh]
    plain = _Streams.of([p for p in kept if p.op in _PLAIN], using.cache_bytes)
    num_sizes = len(np.unique(plain.sizes))
    check_enough(Family.STREAM, num_sizes, _FEWEST_SIZES, "sizes of copies and sums")
    line = _line(kept, using)
    others = [_Streams.of([p for p in kept if p.op is op], using.cache_bytes) for op in line.lines]
    learned = _learned(line, kept)
    return StreamFit(
        line=line,
        errors=accuracy(np.concatenate([fit.held_out() for fit in (plain, *others)])),
        num_points=len(plain.sizes),
        num_others=sum(len(fit.sizes) for fit in others),
        num_bytes=(float(plain.sizes[0]), float(plain.sizes[-1])),
        fresh_bandwidth=median(p.num_bytes / p.seconds for p in fresh) if fresh else None,
        learned=learned,
        correction=learned if learned.knots and _is_better(kept, using) else NO_CORRECTION,
    )


class MeasuredStream(NamedTuple):
    """One measured operator."""

    num_bytes: float
    written: float
    seconds: Seconds
    op: StreamOp


def streams(records: Sequence[Record]) -> Iterator[MeasuredStream]:
    """Yield the memory-bound operators among some records, in their order."""
    for record in records:
        point = record.point
        if isinstance(point, StreamPoint):
            tensors = 3 if point.op is StreamOp.ADD else 2
            written = 0.0 if point.op is StreamOp.IN_PLACE else point.num_bytes / tensors
            seconds = record.seconds["operator"]
            yield MeasuredStream(float(point.num_bytes), written, seconds, point.op)


def _line(points: Sequence[MeasuredStream], setting: StreamSetting) -> LineFit:
    """Return latencies and bandwidths fitted to some points."""

    def fitted(ops: Sequence[StreamOp]) -> tuple[Seconds, BytesPerSecond]:
        return _Streams.of([p for p in points if p.op in ops], setting.cache_bytes).line()

    latency, bandwidth = fitted(_PLAIN)
    own = [
        op
        for op in StreamOp
        if setting.on_core and op not in _PLAIN
        and sum(p.op is op for p in points) >= _FEWEST_SIZES
    ]  # fmt: skip
    line = LineFit(
        latency=latency,
        bandwidth=bandwidth,
        lines={op: fitted((op,)) for op in own},
        calls={},
        on_core=setting.on_core,
    )
    return line.with_calls(points)


def _predicted(
    line: LineFit, points: Sequence[MeasuredStream], correction: TimeCorrection
) -> Array:
    seconds: Array = correction.corrected(line(points)) + line.host(points)
    return seconds


def _learned(line: LineFit, points: Sequence[MeasuredStream]) -> TimeCorrection:
    """Return the correction learned from points with enough time beside the host's."""
    rough, host = line(points), line.host(points)
    measured = np.array([p.seconds for p in points]) - host
    told = rough >= _LEAST_TOLD * host
    return learned_correction(rough[told], measured[told])


def _is_better(points: Sequence[MeasuredStream], setting: StreamSetting) -> bool:
    """Return whether learned corrections err less on sizes held out, a tenth at a time."""
    sizes = np.array([p.num_bytes for p in points])
    folds = np.unique(sizes, return_inverse=True)[1] % _FOLDS
    plain = corrected = 0.0
    for fold in range(_FOLDS):
        given = [p for p, its in zip(points, folds, strict=True) if its != fold]
        asked = [p for p, its in zip(points, folds, strict=True) if its == fold]
        line = _line(given, setting)
        learned = _learned(line, given)
        plain += _missed(asked, _predicted(line, asked, NO_CORRECTION), setting)
        corrected += _missed(asked, _predicted(line, asked, learned), setting)
    return corrected < plain


def _missed(points: Sequence[MeasuredStream], predicted: Array, setting: StreamSetting) -> float:
    """Return the sum of relative errors, weighted as in the fit."""
    known = _Streams.of(points, setting.cache_bytes)
    return float(np.sum(known.weights * np.abs(predicted / known.times - 1)))


class _Streams(NamedTuple):
    """Points that one latency and one bandwidth are fitted to, in order of size."""

    sizes: Array
    times: Array
    weights: Array

    @classmethod
    def of(cls, points: Sequence[MeasuredStream], cache_bytes: Bytes) -> "_Streams":
        """Return points and their weights: size over the cache's size, and 1 from there on."""
        sizes = np.array([p.num_bytes for p in points], dtype=np.float64)
        weights = np.minimum(sizes / cache_bytes, 1.0) if cache_bytes else np.ones(len(sizes))
        return cls(sizes, np.array([p.seconds for p in points]), weights)

    def line(self) -> tuple[Seconds, BytesPerSecond]:
        """Return the latency and the bandwidth of the fitted line."""
        form = alpha_beta(*self)
        latency, byte = (float(value) for value in form(np.array([0.0, 1.0])))
        slope = byte - latency
        # times that do not grow with the size leave no slope: then the fastest point's, all of it
        return latency, 1.0 / slope if slope > 0.0 else float(np.max(self.sizes / self.times))

    def held_out(self) -> Array:
        """Return the errors of every other size, predicted from the rest, and the reverse."""
        ranks = np.unique(self.sizes, return_inverse=True)[1]
        errors = []
        for fold in (0, 1):
            out = ranks % 2 == fold
            form = alpha_beta(self.sizes[~out], self.times[~out], self.weights[~out])
            errors.append(form(self.sizes[out]) / self.times[out] - 1)
        return np.concatenate(errors)
