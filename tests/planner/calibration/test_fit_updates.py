"""Backwards of a core that have kernels of their own."""

from dataclasses import replace

import pytest
from calibration_cases import BACKWARD_OP_TIME, CORE, FACTS, L2_BYTES, MACHINE, measured

from costmodel.domain.hardware import UpdateCost
from costmodel.domain.plan import ComputeKernel
from costmodel.kernels.embedding import backward_time
from costmodel.kernels.shard_traffic import Caches, gpu_caches, update_features
from costmodel.kernels.traffic import Traffic
from costmodel.step.issue import LOOKUP_BACKWARD
from planner.calibration.fit_updates import backward_of, by_backward
from planner.calibration.lookup_data import (
    point_of,
    point_shards,
    point_traffic,
    table_traffics,
    tables_of,
)
from planner.calibration.points import EmbeddingPoint
from planner.calibration.profile import fit_profile
from planner.calibration.records import Measured, Record
from planner.files.profiles import dump_profile, parse_profile

pytestmark = pytest.mark.slow  # whole calibrations are fitted

KNOWN = UpdateCost(row_time=4e-7, id_column_time=3e-10, row_pair_time=6e-11)
KEY = "adagrad unpooled"
DENSE = UpdateCost(bag_time=1e-8, miss_time=4e-8, miss_column_time=3e-10, element_time=2e-10)
"""As measured: zeros at 20 GB/s, and rows that come from memory."""


def lookups() -> list[Record]:
    return [each for each in measured().records if isinstance(each.point, EmbeddingPoint)]


def slow(record: Record, host: float) -> Record:
    """Return a measurement of a backward with ``KNOWN`` costs."""
    tables = tables_of(record)
    if backward_of(tables) != KEY:
        return record
    rows = table_traffics(point_of(record), Caches(l2_bytes=L2_BYTES))
    keys, unique = rows[:, Traffic.LOOKUPS], rows[:, Traffic.ROWS]
    own = KNOWN.row_time * unique + KNOWN.row_pair_time * unique**2
    own += KNOWN.id_column_time * keys * tables.embedding_dims
    seconds = host + float((own + keys / CORE.sort_rate).sum())
    return replace(record, seconds={**record.seconds, "backward": seconds})


def test_lookups_are_told_apart_by_their_backward() -> None:
    found = by_backward(lookups(), on_core=True)
    assert found.others.keys() == {
        "sgd", "adagrad", "sgd unpooled", "adagrad unpooled", "rowwise_adagrad unpooled", "dense",
        "sgd fp16", "adagrad fp16", "rowwise_adagrad fp16",
    }  # fmt: skip
    plain = map(tables_of, found.plain)
    fused = {backward_of(each) for each in plain if each.compute_kernel is ComputeKernel.FUSED}
    assert fused == {"rowwise_adagrad"}
    assert by_backward(lookups(), on_core=False) == (lookups(), {})


def test_known_costs_are_found_again_and_predict_that_backward_alone() -> None:
    host = LOOKUP_BACKWARD.num_ops * BACKWARD_OP_TIME
    records = tuple(
        slow(each, host) if isinstance(each.point, EmbeddingPoint) else each
        for each in measured().records
    )
    made = fit_profile(Measured(machine=FACTS, records=records), MACHINE)
    gpu = made.profile.gpu
    cost = gpu.update_costs[KEY]
    assert cost.row_time == pytest.approx(KNOWN.row_time, rel=0.1)
    assert cost.row_pair_time == pytest.approx(KNOWN.row_pair_time, rel=0.1)
    assert made.errors[f"embedding_backward {KEY}"].median < 0.05
    again = parse_profile(dump_profile(made.profile), "dumped")
    assert again.gpu.update_costs == gpu.update_costs
    assert "test core" in again.sources["gpu.update_costs"]
    record = next(
        each
        for each in records
        if isinstance(each.point, EmbeddingPoint) and backward_of(tables_of(each)) == KEY
    )
    traffic = point_traffic(point_of(record), gpu_caches(gpu))
    predicted = float(backward_time(traffic, made.profile))
    assert predicted + host == pytest.approx(record.seconds["backward"], rel=0.1)


def of_replicas(record: Record, host: float) -> Record:
    """Return a measurement of a dense backward with ``DENSE`` costs."""
    if tables_of(record).compute_kernel is not ComputeKernel.DENSE:
        return record
    counted = update_features(point_shards(point_of(record)), Caches(l2_bytes=L2_BYTES))
    seconds = host + float((counted * DENSE).sum())
    return replace(record, seconds={**record.seconds, "backward": seconds})


def test_the_gradient_of_replicated_tables_has_times_of_its_own() -> None:
    host = LOOKUP_BACKWARD.num_ops * BACKWARD_OP_TIME
    records = tuple(
        of_replicas(each, host) if isinstance(each.point, EmbeddingPoint) else each
        for each in measured().records
    )
    made = fit_profile(Measured(machine=FACTS, records=records), MACHINE)
    cost = made.profile.gpu.update_costs["dense"]
    assert cost.element_time == pytest.approx(DENSE.element_time, rel=0.1)
    assert cost.bag_time == pytest.approx(DENSE.bag_time, rel=0.3)
    assert made.errors["embedding_backward dense"].median < 0.05
    assert parse_profile(dump_profile(made.profile), "dumped").gpu.update_costs["dense"] == cost
    record = next(
        each
        for each in records
        if isinstance(each.point, EmbeddingPoint)
        and each.point.tables.compute_kernel is ComputeKernel.DENSE
    )
    traffic = point_traffic(point_of(record), gpu_caches(made.profile.gpu))
    predicted = host + float(backward_time(traffic, made.profile))
    assert predicted == pytest.approx(record.seconds["backward"], rel=0.1)


def test_small_replicated_tables_do_not_show_what_a_miss_takes() -> None:
    small = tuple(
        each
        for each in measured().records
        if not isinstance(each.point, EmbeddingPoint)
        or each.point.tables.compute_kernel is not ComputeKernel.DENSE
        or each.point.tables.num_bytes < 4 * L2_BYTES
    )
    made = fit_profile(Measured(machine=FACTS, records=small), MACHINE)
    assert "dense" not in made.profile.gpu.update_costs
