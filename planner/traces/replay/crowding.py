"""Which kernels leave no room for others on the GPU, and which streams have priority."""

from collections import defaultdict

from costmodel.base.units import US, Seconds
from planner.traces.kineto import RankTrace
from planner.traces.kineto_events import Activity, is_collective

_RESIDENT_WARPS = 64
"""Warps that one SM holds at once, on V100, A100 and H100 (CUDA C++ Programming Guide, compute
capabilities)."""
_LONG: Seconds = 100 * US
_NEAR: Seconds = 10 * US
_ENOUGH = 8
"""Number of kernel starts that are needed to judge a stream."""


def fills_gpu(activity: Activity) -> float:
    """Return the share of a kernel's time in which no other kernel's blocks are started.

    Blocks are started in the order of the kernels: as long as a kernel has blocks left, those of
    later ones wait. Blocks run in waves of as many as fit, and all are started when the last wave
    begins: 1 - 1 / waves. Profilers record warps per SM, and the share of resident warps; where
    one of them is missing, it is all of the time.
    """
    if is_collective(activity):
        return 0.0
    warps = activity.args.get("warps per SM")
    occupancy = activity.args.get("est. achieved occupancy %")
    if not isinstance(warps, int | float) or not isinstance(occupancy, int | float):
        return 1.0
    resident = occupancy / 100 * _RESIDENT_WARPS
    waves = warps / resident if resident else 0.0
    return max(0.0, 1 - 1 / waves) if waves else 0.0


def urgent_streams(trace: RankTrace) -> frozenset[int]:
    """Return the streams of high priority, which profilers do not record.

    Their kernels start in the middle of long ones that fill the GPU, and never at their ends.
    """
    kernels = [a for a in trace.activities if a.kind == "kernel"]
    wide = [a for a in kernels if a.end - a.start > _LONG and fills_gpu(a) > 0.5]
    inside: dict[int, int] = defaultdict(int)
    after: dict[int, int] = defaultdict(int)
    for activity in kernels:
        for other in wide:
            if other.stream == activity.stream:
                continue
            full = other.start + (other.end - other.start) * fills_gpu(other)
            if other.start + _NEAR < activity.start < full - _NEAR:
                inside[activity.stream] += 1
            elif full - _NEAR <= activity.start < other.end + _NEAR:
                after[activity.stream] += 1
    return frozenset(stream for stream in inside if inside[stream] > max(_ENOUGH, after[stream]))
