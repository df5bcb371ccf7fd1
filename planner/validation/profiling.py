"""A trained step by phase, from the ranges of TorchRec and autograd in a profile."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from torch.profiler import ProfilerActivity, profile

from costmodel.base.units import US, Seconds
from planner.validation.phases import Phase

_RULES = (
    ("KJT", Phase.INPUT_DIST),
    ("sparse_data_dist", Phase.INPUT_DIST),
    ("splits_dist]", Phase.INPUT_DIST),
    ("tensors_dist]", Phase.INPUT_DIST),
    ("SplitsAllToAll", Phase.INPUT_DIST),
    ("all2all_data:kjt", Phase.INPUT_DIST),
    ("permute_2D_sparse_data", Phase.INPUT_DIST),
    ("[lookup]", Phase.LOOKUP),
    ("[output_dist]", Phase.OUTPUT_DIST),
    ("CollectionAwaitable", Phase.OUTPUT_DIST),
    ("SplitLookupFunction", Phase.LOOKUP_BACKWARD),
    ("_WaitBackward", Phase.GRADIENT_DIST),
    ("_ReqBackward", Phase.GRADIENT_DIST),
    ("c10d::allreduce", Phase.ALL_REDUCE),
    ("## backward", Phase.DENSE_BACKWARD),
    ("## forward", Phase.DENSE_FORWARD),
    ("## optimizer", Phase.OPTIMIZER),
)
"""(part of a range's name, phase); the innermost range that matches decides; TorchRec 1.9."""
_BACKWARD = "## backward"
"""Range whose own time, outside of autograd's nodes, is the wait for the reducers' all-reduces."""


def profiled_phases(step: Callable[[], float], num_steps: int) -> dict[str, Seconds]:
    """Return the calling thread's seconds by phase in one of some profiled steps."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(num_steps):
            step()
    events = list(profiler.events())
    backward = next((each for each in events if each.name.startswith(_BACKWARD)), None)
    if backward is None:
        return {}
    roots = [each for each in events if each.cpu_parent is None and each.thread == backward.thread]
    return {phase: seconds / num_steps for phase, seconds in _summed(roots).items()}


def _summed(roots: Iterable[Any]) -> dict[str, Seconds]:
    """Return the seconds of every phase, of events and all that they contain."""
    phases: dict[str, Seconds] = defaultdict(float, dict.fromkeys(Phase, 0.0))
    waiting = [(root, Phase.OPTIMIZER) for root in roots]
    while waiting:
        event, inherited = waiting.pop()
        phase = _phase(event.name) or inherited
        own = Phase.ALL_REDUCE if event.name.startswith(_BACKWARD) else phase
        phases[own] += event.self_cpu_time_total * US
        waiting += [(child, phase) for child in event.cpu_children]
    return dict(phases)


def _phase(name: str) -> Phase | None:
    return next((phase for part, phase in _RULES if part in name), None)
