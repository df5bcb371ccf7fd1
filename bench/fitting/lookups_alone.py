"""Profiles whose lookups are one kernel, as public measurements have them."""

from dataclasses import replace

from costmodel.domain.hardware import HardwareProfile
from planner.files.profiles import load_profile


def lookups_alone(name: str) -> HardwareProfile:
    """Return a shipped profile without what FBGEMM runs before a lookup: no check of the ids.

    Public launches are of the lookup's kernel alone, and frameworks other than TorchRec look up by
    kernels of their own.
    """
    found = load_profile(name)
    return replace(found, gpu=replace(found.gpu, forward_latency=0.0, bag_time=0.0))
