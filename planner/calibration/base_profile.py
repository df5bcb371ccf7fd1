"""The profile that has the numbers which are not measured."""

from costmodel.base.errors import InputError, Problem
from costmodel.domain.hardware import Device, HardwareProfile
from planner.files.profiles import load_profile

_CALLED = {Device.CPU: "a CPU", Device.CUDA: "a GPU"}


def base_profile(hardware: str, measured: Device) -> HardwareProfile:
    """Return a profile of the kind of device that is measured.

    Raises
    ------
    UnknownNameError
        No profile has that name.
    InputError
        The profile cannot be read, or is of another kind of device: its links and kernels have
        nothing to do with what is measured.

    """
    profile = load_profile(hardware)
    if profile.device is not measured:
        message = (
            f"`{hardware}` is a profile of {_CALLED[profile.device]}, and what is measured is "
            f"{_CALLED[measured]}"
        )
        raise InputError("--hardware", [Problem(message=message)])
    return profile
