from collections import Counter
from dataclasses import replace

import pytest
from plans import plan, table, workload
from study_records import CPU, FAMILIES, GPU, first_points, records

from bench.gpu_study.grid import (
    FEWEST_COLLECTIVES,
    StepTarget,
    collective_points,
    kind_of,
    ordered_units,
    step_points,
)
from bench.gpu_study.points import STUDY_KINDS, OptimizerPoint
from costmodel.base.units import GIB, MIB
from costmodel.domain.hardware import CollectiveOp, Device, Topology
from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.workload import Optimizer
from costmodel.engine.objective import Objective
from planner.calibration.fit_operators import MOVED
from planner.calibration.grids import Target
from planner.calibration.points import (
    CollectivePoint,
    EmbeddingPoint,
    OperatorPoint,
    Point,
    point_data,
    point_key,
    read_point,
)
from planner.calibration.profile import MachineFacts, fit_profile
from planner.calibration.records import Measured
from planner.files.profiles import dump_profile, parse_profile

MACHINE = MachineFacts(
    name="simple", memory_bytes=80 * GIB, host_memory_bytes=200 * GIB, l2_bytes=40 * MIB,
    num_sms=100, ranks_per_node=1,
)  # fmt: skip
FACTS = {
    "name": "simple", "num_ranks": 1, "num_nodes": 1, "cores": 8, "date": "2026-01-02",
    "versions": {"torch": "2.11.0"},
}  # fmt: skip
ROWS = (100_000, 1_000_000, 20_000)
"""Of the tables whose update by each optimizer is measured."""


@pytest.mark.parametrize("target", [CPU, pytest.param(GPU, marks=pytest.mark.slow)])
def test_every_point_is_there_once_and_reads_back(target: Target) -> None:
    first, others = ordered_units(target)
    points = [point for unit in (*first, *others) for point in unit]
    assert len({point_key(point) for point in points}) == len(points)
    assert all(read_point(p.family, point_data(p), STUDY_KINDS) == p for p in points[::17])
    lookups = [point for point in points if isinstance(point, EmbeddingPoint)]
    kept = [p for p in lookups if p.tables.compute_kernel not in _IN_HOST_MEMORY]
    assert len(kept) >= (1900 if target.on_cpu else 2000)


_IN_HOST_MEMORY = (ComputeKernel.FUSED_UVM, ComputeKernel.FUSED_UVM_CACHING)


@pytest.mark.slow
@pytest.mark.parametrize("target", [CPU, pytest.param(GPU, marks=pytest.mark.slow)])
def test_the_first_round_has_every_family_and_makes_a_profile(target: Target) -> None:
    points = first_points(target)
    assert {point.family for point in points} == set(FAMILIES)
    facts = {**FACTS, "device": "cpu" if target.on_cpu else "cuda"}
    measured = Measured(machine=facts, records=tuple(records(points)))
    profile = fit_profile(measured, replace(MACHINE, num_sms=1 if target.on_cpu else 100)).profile
    assert profile.device is (Device.CPU if target.on_cpu else Device.CUDA)
    assert profile.gpu.memory_bandwidth == pytest.approx(2e12, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("seconds_per_point", [pytest.param(3.0, marks=pytest.mark.nightly), 6.0])
def test_ten_minutes_of_a_gpu_give_a_profile_for_plans(seconds_per_point: float) -> None:
    # lookups take seconds, as their tables are filled; all else has 0.5 s at most to repeat in
    first, others = ordered_units(GPU)
    measured: list[Point] = []
    clock = 0.0
    for number, unit in enumerate((*first, *others)):
        if clock >= 600.0 and number >= len(first):
            break
        measured += unit
        clock += sum(
            seconds_per_point if isinstance(point, EmbeddingPoint) else 0.7 for point in unit
        )
    assert clock < 660.0
    taken = Measured(
        machine={**FACTS, "device": "cuda"}, records=tuple(records(measured, noise=0.03))
    )
    profile = fit_profile(taken, MACHINE).profile
    again = parse_profile(dump_profile(profile), "dumped")
    assert {"fp32", "bf16"} <= set(again.gpu.gemm)
    ranks = Topology(hardware=again, world_size=2, local_world_size=2)
    work = workload(table("t"))
    placed = plan(work, ranks, {"t": (ShardingType.TABLE_WISE, (1,))})
    assert 1e-4 < Objective(work, ranks).step_time(placed) < 0.1


def test_later_rounds_have_every_family_until_it_is_used_up() -> None:
    _, others = ordered_units(GPU)
    families = [unit[0].family for unit in others]
    assert set(families[:80]) >= {"embedding", "gemm", "typed operator", "stream"}


@pytest.mark.parametrize("target", [CPU, pytest.param(GPU, marks=pytest.mark.slow)])
def test_the_first_round_has_all_dense_operators_and_optimizers(target: Target) -> None:
    points = first_points(target)
    operators = {point.operator for point in points if isinstance(point, OperatorPoint)}
    assert operators >= MOVED.keys() - {"native_dropout", "bernoulli"}
    updated = Counter(
        point.tables.optimizer
        for point in points
        if isinstance(point, EmbeddingPoint) and point.tables.num_embeddings[0] in ROWS
    )
    asked = set(Optimizer) - {Optimizer.PARTIAL_ROWWISE_ADAM}
    assert updated.keys() >= asked - ({Optimizer.ADAM} if target.on_cpu else set())
    assert all(number >= 3 for number in updated.values())
    assert {p.optimizer for p in points if isinstance(p, OptimizerPoint)} == {
        Optimizer.SGD, Optimizer.ADAGRAD, Optimizer.ADAM,
    }  # fmt: skip


def test_steps_of_a_transformer_and_of_experts_come_next_to_the_first() -> None:
    models = [point.model for point in step_points(StepTarget(on_cpu=False, memory_bytes=GIB))]
    assert models[:3] == ["dlrm", "sasrec", "mmoe"]


def test_the_first_collectives_are_one_of_every_kind() -> None:
    points = collective_points(replace(CPU, num_ranks=2))[:FEWEST_COLLECTIVES]
    collectives = [point for point in points if isinstance(point, CollectivePoint)]
    assert {point.op for point in collectives} == set(CollectiveOp)
    assert sum(point.focus > 0 for point in collectives) == 1
    assert len(points) - len(collectives) == 1
    assert collective_points(CPU) == ()


def test_steps_are_seven_models_four_batches_and_two_ranks() -> None:
    points = step_points(StepTarget(on_cpu=False, memory_bytes=80 * GIB))
    assert len({point.model for point in points}) == 7
    one_rank = [p for p in points if p.model == "dlrm" and p.world_size == 1]
    assert len({point.local_batch_size for point in one_rank}) == 4
    assert [point.world_size for point in points].count(2) == 1


def test_every_kind_of_point_comes_early() -> None:
    first, others = ordered_units(GPU)
    points = [point for unit in (*first, *others) for point in unit]
    early = points[: sum(map(len, first)) + 100]
    assert {kind_of(point) for point in early} == {kind_of(point) for point in points}
    kernels = {p.tables.compute_kernel for p in early if isinstance(p, EmbeddingPoint)}
    assert kernels == {ComputeKernel.FUSED, ComputeKernel.DENSE, *_IN_HOST_MEMORY}
