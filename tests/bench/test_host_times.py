import pytest

from bench.fitting.host_times import FITTED, REFERENCE, traced_hosts
from costmodel.domain.hardware import Source
from planner.files.profiles import load_profile


@pytest.mark.parametrize("name", FITTED)
def test_profiles_have_the_host_times_of_the_traces(name: str) -> None:
    profile = load_profile(name)
    for field, seconds in traced_hosts()[name].times.items():
        assert getattr(profile.host, field) == pytest.approx(seconds), field
        assert profile.kind(f"host.{field}") in (Source.MEASURED, Source.FITTED)


def test_the_reference_is_as_fast_as_itself() -> None:
    found = traced_hosts()[REFERENCE]
    assert found.ratio == pytest.approx(1.0)
    assert found.launch_time == pytest.approx(load_profile(REFERENCE).host.launch_time)


def test_operators_on_a100_machines_take_what_their_profile_says() -> None:
    assert traced_hosts()["a100-sxm-80gb"].ratio == pytest.approx(1.0, abs=0.1)
