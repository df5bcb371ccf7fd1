import pytest
from calibration_cases import CALL, CORE, L2_BYTES, lookups

from planner.calibration.fit_embedding import Constants, LookupSetting, fit_lookups

SETTING = LookupSetting(l2_bytes=L2_BYTES, latency=CALL)
GPU = Constants(
    lookup_bandwidth=2e12,
    update_bandwidth=1.5e12,
    gather_bandwidth=4e12,
    sort_rate=2e10,
    overlap=1.0,
    lookup_time=0.0,
    row_read_time=0.0,
    row_update_time=0.0,
)


@pytest.fixture(scope="module", params=[CORE, GPU], ids=["core", "gpu"])
def constants(request: pytest.FixtureRequest) -> Constants:
    found: Constants = request.param
    return found


@pytest.mark.slow
def test_known_constants_are_found_again(constants: Constants) -> None:
    fit = fit_lookups(lookups(80, constants), SETTING)
    assert fit.forward.median < 0.01
    assert fit.backward.median < 0.02
    assert fit.constants.lookup_bandwidth == pytest.approx(constants.lookup_bandwidth, rel=0.1)
    assert fit.l2_bytes == L2_BYTES


@pytest.mark.slow
def test_a_gpus_profile_keeps_the_form_of_gpus() -> None:
    found = fit_lookups(lookups(80, GPU), SETTING).constants
    assert (found.overlap, found.lookup_time, found.row_read_time) == (1.0, 0.0, 0.0)


@pytest.mark.slow
def test_errors_are_said_by_optimizer_and_for_replicated_tables() -> None:
    fit = fit_lookups(lookups(120), SETTING)
    assert {"backward rowwise_adagrad", "forward dense", "backward dense"} == fit.by_kind.keys()
