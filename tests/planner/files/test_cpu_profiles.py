from dataclasses import replace

import pytest

from costmodel.base.errors import InputError
from costmodel.domain.hardware import Device
from planner.files.profiles import dump_profile, load_profile, parse_profile, profile_names


def test_profiles_are_of_gpus_unless_they_say_otherwise() -> None:
    devices = {name: load_profile(name).device for name in profile_names()}
    assert [name for name, device in devices.items() if device is Device.CPU] == ["cpu-gloo"]
    assert "device" not in dump_profile(load_profile("h100-sxm"))


def test_a_cpus_profile_says_so_and_is_read_back() -> None:
    core = replace(load_profile("h100-sxm"), device=Device.CPU)
    text = dump_profile(core)
    assert "device: cpu" in text.splitlines()
    assert parse_profile(text, "cpu.yaml").device is Device.CPU


def test_an_unknown_device_is_refused_with_the_known_ones() -> None:
    text = dump_profile(load_profile("h100-sxm")) + "device: tpu\n"
    with pytest.raises(InputError) as caught:
        parse_profile(text, "cpu.yaml")
    (problem,) = caught.value.problems
    assert (problem.message, problem.hint) == ("unknown device `tpu`", "did you mean `cpu`?")
