"""Fitting host overheads to measured pieces of host work."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from statistics import fmean

import numpy as np

from costmodel.base.units import US, Seconds
from costmodel.step.issue import LOOKUP, LOOKUP_BACKWARD, START_BACKWARD_OPS, Issue
from planner.calibration.curves import Accuracy, accuracy, rounded
from planner.calibration.enough import check_enough
from planner.calibration.points import Family, HostPart, HostPoint
from planner.calibration.records import Record

LAYERS = 4
"""Number of linear layers, each with an activation, in one piece of host work."""
LAYERS_FORWARD = Issue(2.0 * LAYERS, 2.0 * LAYERS)
"""Operators and launches of a piece's forward: product and activation, as
``costmodel.step.layer_kernels``."""
LAYERS_BACKWARD = Issue(4.0 * LAYERS, 4.0 * LAYERS)
"""Operators and launches of its backward: activation, two products, sum of the bias."""
ONE_BACKWARD = Issue(2.0, 2.0)
"""Operators and launches of a backward of one number: a product, and the sum of a leaf's
gradient."""
_BACKWARDS = {
    (HostPart.LOOKUP, "backward"): LOOKUP_BACKWARD,
    (HostPart.LAYER, "backward"): LAYERS_BACKWARD,
    (HostPart.BACKWARD, "call"): ONE_BACKWARD,
}
"""Operators and launches of each measured piece of backward; the last is not measured on a core."""
_PIECES = (HostPart.LOOKUP, HostPart.LAYER)
_DEVICE_PIECES = (HostPart.LAUNCH, HostPart.SYNCHRONIZE, HostPart.OPERATOR)
"""Pieces that are measured besides on a device that runs by itself."""
_LEAST_LATENCY: Seconds = 0.1 * US
"""Smallest time of a kernel that does nothing, so that a profile's numbers are above zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFit:
    """Host times, by field of ``costmodel.domain.hardware.Host``, and their errors."""

    times: Mapping[str, Seconds]
    origins: Mapping[str, str]
    errors: Accuracy
    """Error of every piece, predicted with the operator time of the other pieces."""
    num_points: int


def fit_host(records: Sequence[Record], *, synchronous: bool) -> HostFit:
    """Return the mean time per operator of the measured pieces.

    An operator's time here is a piece's time, less its launches, over the number of operators that
    the step model counts for it.

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
        _operator_time(known[HostPart.LOOKUP, "forward"], LOOKUP, launch),
        _operator_time(known[HostPart.LAYER, "forward"], LAYERS_FORWARD, launch),
    ]
    begin = 0.0 if synchronous else START_BACKWARD_OPS  # a core's own thread goes on
    backward = [
        _operator_time(known[piece], issue._replace(num_ops=issue.num_ops + begin), launch)
        for piece, issue in _BACKWARDS.items()
        if piece in known
    ]
    misses = [
        one / other - 1 for each in (forward, backward) for one, other in permutations(each, 2)
    ]
    averaged = f"a lookup and {LAYERS} linear layers, caches empty"
    times = {"op_time": fmean(forward), "backward_op_time": fmean(backward)}
    origins = dict.fromkeys(times, f"measured: mean of {averaged}")
    if len(backward) > len(forward):
        origins["backward_op_time"] += ", and of a backward of one operator"
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
    """Return the host times that only a device which runs by itself has, by field."""
    sync = known[HostPart.SYNCHRONIZE, "return"]
    issue = known[HostPart.OPERATOR, "many"]
    latency = known[HostPart.OPERATOR, "until_done"] - issue - sync
    return {
        "launch_time": launch,
        "sync_time": sync,
        "launch_latency": max(latency, _LEAST_LATENCY),
    }


def _operator_time(seconds: Seconds, issue: Issue, launch: Seconds) -> Seconds:
    return max(seconds - issue.num_launches * launch, _LEAST_LATENCY) / issue.num_ops
