from dataclasses import replace
from statistics import median

import numpy as np
import pytest
from calibration_cases import CALL, CORE, L2_BYTES, lookups

from costmodel.domain.plan import ComputeKernel
from costmodel.kernels.embedding import kernel_times
from costmodel.kernels.shard_traffic import Caches, warp_caches
from costmodel.kernels.times import weight_gradient_times
from planner.calibration.fit_embedding import fit_lookups, fit_uvm, predicted_lookups
from planner.calibration.lookup_data import (
    NO_CORRECTIONS,
    Constants,
    LookupSetting,
    point_traffic,
)
from planner.calibration.points import EmbeddingPoint, Point
from planner.calibration.records import Record

SETTING = LookupSetting(caches=Caches(l2_bytes=L2_BYTES), latency=CALL)
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
    assert fit.caches.l2_bytes == L2_BYTES


@pytest.mark.slow
def test_a_gpus_profile_keeps_the_form_of_gpus() -> None:
    found = fit_lookups(lookups(80, GPU), SETTING).constants
    assert (found.overlap, found.lookup_time, found.row_read_time) == (1.0, 0.0, 0.0)


@pytest.mark.slow
def test_a_gpus_gradients_and_those_of_weights_are_told_apart() -> None:
    known = GPU._replace(
        overlap=0.0,
        row_update_time=2e-10,
        gradient_time=4e-10,
        backward_latency=1.2e-4,
        sort_latency=6e-5,
        forward_latency=1e-5,
        bag_time=3e-10,
    )
    setting = LookupSetting(caches=warp_caches(L2_BYTES, num_sms=108), latency=CALL)
    points = [
        replace(record.point, weighted=number % 3 == 0)
        for number, record in enumerate(lookups(80))
        if isinstance(record.point, EmbeddingPoint)
    ]
    fit = fit_lookups([_on_a_gpu(point, known, setting) for point in points], setting)
    assert fit.forward.median < 0.01
    assert fit.backward.median < 0.01
    assert fit.constants.gradient_time == pytest.approx(known.gradient_time, rel=0.1)
    found, asked = (each.backward_latency + each.sort_latency for each in (fit.constants, known))
    assert found == pytest.approx(asked, rel=0.1)
    assert fit.constants.bag_time == pytest.approx(known.bag_time, rel=0.1)
    assert fit.caches.row_time == setting.caches.row_time


@pytest.mark.slow
def test_a_correction_is_kept_where_it_errs_less_on_tables_held_out() -> None:
    straight = lookups(80)
    middle = median(record.seconds["forward"] for record in straight)
    bent = [
        replace(
            record,
            seconds={
                **record.seconds,
                "forward": record.seconds["forward"]
                * (2 if record.seconds["forward"] > middle else 1),
            },
        )
        for record in straight
    ]
    fit = fit_lookups(bent, SETTING)
    assert fit.corrections.forward.knots
    points = [record.point for record in bent if isinstance(record.point, EmbeddingPoint)]
    measured = np.array([record.seconds["forward"] for record in bent])
    errors = [
        np.abs(predicted_lookups(points, each, SETTING)[0] / measured - 1).mean()
        for each in (fit, replace(fit, corrections=NO_CORRECTIONS))
    ]
    assert errors[0] < errors[1]


def _on_a_gpu(point: EmbeddingPoint, known: Constants, setting: LookupSetting) -> Record:
    rates = known.rates(setting.latency)
    traffic = point_traffic(point, setting.caches)
    backward = float(kernel_times(traffic, rates, backward=True))
    if point.weighted:
        backward += float(weight_gradient_times(traffic.reshape(1, -1), rates)[0])
    forward = float(kernel_times(traffic, rates, backward=False))
    return Record(point=point, seconds={"forward": forward, "backward": backward})


@pytest.mark.slow
def test_errors_are_said_by_optimizer_and_for_replicated_tables() -> None:
    fit = fit_lookups(lookups(120), SETTING)
    assert {"backward rowwise_adagrad", "forward dense", "backward dense"} == fit.by_kind.keys()


@pytest.mark.slow
def test_lookups_in_host_memory_give_its_bandwidth() -> None:
    known = lookups(40, GPU)
    fit = fit_lookups(known, SETTING)
    points = [_in_host_memory(record.point) for record in known]
    forward, backward = predicted_lookups(points, fit, SETTING, uvm_bandwidth=25e9)
    records = [
        Record(point=point, seconds={"forward": one, "backward": other})
        for point, one, other in zip(points, forward.tolist(), backward.tolist(), strict=True)
    ]
    found = fit_uvm(records, fit, SETTING)
    assert found is not None
    assert found.bandwidth == pytest.approx(25e9, rel=1e-3)
    assert found.errors.median < 1e-3
    assert fit_uvm(known, fit, SETTING) is None


def _in_host_memory(point: Point) -> EmbeddingPoint:
    assert isinstance(point, EmbeddingPoint)
    tables = replace(point.tables, compute_kernel=ComputeKernel.FUSED_UVM)
    return replace(point, tables=tables)
