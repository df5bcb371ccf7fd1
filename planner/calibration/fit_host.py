"""Host overheads, from the pieces that were measured."""

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
"""Linear layers, each with an activation, that one piece of host work has."""
LAYERS_FORWARD = Issue(2.0 * LAYERS, 2.0 * LAYERS)
"""Product and activation: what ``costmodel.step.dense`` issues for a layer."""
LAYERS_BACKWARD = Issue(4.0 * LAYERS, 4.0 * LAYERS)
"""Activation, two products, sum of the bias."""
ONE_BACKWARD = Issue(2.0, 2.0)
"""A product with a number, and the sum that a leaf's gradient becomes."""
_BACKWARDS = {
    (HostPart.LOOKUP, "backward"): LOOKUP_BACKWARD,
    (HostPart.LAYER, "backward"): LAYERS_BACKWARD,
    (HostPart.BACKWARD, "call"): ONE_BACKWARD,
}
"""Pieces of backward, and what each issues; the last one is not measured on a core."""
_PIECES = (HostPart.LOOKUP, HostPart.LAYER)
_DEVICE_PIECES = (HostPart.LAUNCH, HostPart.SYNCHRONIZE, HostPart.OPERATOR)
"""What is measured of a device that runs by itself, too."""
_LEAST_LATENCY: Seconds = 0.1 * US
"""Least time of a kernel that does nothing; keeps a profile's numbers above zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFit:
    """Host times, by field of ``costmodel.domain.hardware.Host``, and how the pieces disagree."""

    times: Mapping[str, Seconds]
    origins: Mapping[str, str]
    errors: Accuracy
    """How far every piece is from the operator time that the other pieces give."""
    num_points: int


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
    begin = 0.0 if synchronous else START_BACKWARD_OPS  # a core's own thread goes on
    backward = [
        _operator(known[piece], issue._replace(num_ops=issue.num_ops + begin), launch)
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
