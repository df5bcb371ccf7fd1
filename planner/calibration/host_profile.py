"""A profile with this machine's host times: ``planner calibrate --host``.

It needs no GPU. The operators of a TorchRec step (a lookup with its autograd, linear layers) run on
tiny CPU tensors, so that the time is that of Python, dispatch and autograd on any device; the model
adds launches, at the profile's ``launch_time``.
"""

import warnings
from collections.abc import Mapping

from costmodel.domain.hardware import HardwareProfile
from planner.calibration.device import open_device
from planner.calibration.fit_host import HostFit, fit_host
from planner.calibration.host_times import with_host_times
from planner.calibration.machine import cache_bytes, cpu_name
from planner.calibration.measure_host import measure_host
from planner.calibration.points import HostPart, HostPoint

_PARTS = (HostPart.LAYER, HostPart.LOOKUP)


def measured_host() -> HostFit:
    """Return this machine's time per operator, forward and backward, measured within seconds."""
    device = open_device("cpu", 0, cache_bytes("cpu", 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's and fbgemm's, about themselves
        records = [measure_host(HostPoint(part=part), device) for part in _PARTS]
    return fit_host(records, synchronous=True)


def host_profile(base: HardwareProfile, host: HostFit, cpu: str | None = None) -> HardwareProfile:
    """Return ``base`` with measured host times; launches are ``base``'s."""
    return with_host_times(base, host.times, host_sources(host, cpu or cpu_name()))


def host_sources(host: HostFit, cpu: str) -> Mapping[str, str]:
    """Return the source of every measured time, by dotted field name."""
    return {
        f"host.{name}": f"{origin}, on CPU tensors, {cpu}; launches come on top"
        for name, origin in host.origins.items()
    }
