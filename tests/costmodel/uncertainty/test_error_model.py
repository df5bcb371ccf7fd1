"""Which errors a machine's profile gives, and what an error is of."""

from collections.abc import Sequence
from dataclasses import replace
from math import hypot, log

import pytest
from hypothesis import given, settings
from machines import flat_curve, machine, topology
from plans import step, table, workload
from strategies import Case, cases

from costmodel.domain.hardware import (
    CollectiveOp,
    Device,
    HardwareProfile,
    KernelFamily,
    Source,
    Topology,
)
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import DataType
from costmodel.step.graph import NodeKind, Stage
from costmodel.step.step_operations import Op
from costmodel.step.synthesis import step_operations
from costmodel.uncertainty.error_model import (
    ANOTHER_MACHINE,
    CARRIED,
    NOT_MEASURED,
    OTHER_MAKER,
    OTHER_RANKS,
    SAME_MACHINE,
    STRUCTURE,
    STRUCTURE_ON_CORES,
    Cause,
    ErrorModel,
    Spread,
    cause_of,
    error_model,
    log_sigma,
)


def spreads(hardware: HardwareProfile, ranks: int = 8) -> dict[Cause, Spread]:
    return dict(error_model(topology(ranks, hardware=hardware), DataType.FP32).spreads)


def partly() -> HardwareProfile:
    """Return a machine of which one product was measured, in a type that nothing here uses."""
    gpu = machine().gpu
    one = replace(gpu.gemm["fp32"], num_points=9)
    return replace(machine(), gpu=replace(gpu, gemm={**gpu.gemm, "fp8": one}))


def causes(ops: Sequence[Op], ranks: Topology) -> dict[str, Cause]:
    return {op.name: cause_of(op, ranks) for op in ops}


def test_a_profile_without_errors_has_those_of_what_is_not_measured() -> None:
    assert spreads(partly()) == {**NOT_MEASURED, Cause.STRUCTURE: STRUCTURE}


def test_a_machine_of_which_nothing_was_measured_is_less_sure_than_any_other() -> None:
    unknown, known = spreads(machine()), spreads(partly())
    for cause, spread in NOT_MEASURED.items():
        assert unknown[cause] == Spread(OTHER_MAKER * spread.shared, spread.own)
        assert unknown[cause].shared > known[cause].shared
    assert unknown[Cause.STRUCTURE] == STRUCTURE  # of steps, not of machines


def test_every_cause_has_a_spread() -> None:
    # what was not read is the model's matter, not the machine's
    assert set(spreads(machine())) == set(Cause) - {Cause.UNREAD}


def test_nothing_that_has_a_model_is_off_by_a_factor_of_two() -> None:
    shared = (*ANOTHER_MACHINE.values(), SAME_MACHINE, OTHER_RANKS)
    kernels = (each for cause, each in NOT_MEASURED.items() if cause is not Cause.BY_BYTES)
    known = (*kernels, STRUCTURE, STRUCTURE_ON_CORES, Spread(max(shared), 0.0))
    assert all(0 <= part < log(2) for spread in known for part in spread)
    assert min(shared) > 0
    assert ErrorModel(spreads={}).spread(Cause.HOST) == Spread(0.0, 0.0)


def test_the_90th_percentile_counts_before_the_median() -> None:
    # 90% of errors are within 20%: the standard deviation is 0.2 / 1.645
    assert log_sigma(0.01, 0.2) == pytest.approx(0.2 / 1.645)
    assert log_sigma(0.05) == pytest.approx(4.0 * 0.05 / 1.645)
    assert log_sigma(None) is None


def test_a_curve_s_error_is_the_collective_s() -> None:
    curve = replace(flat_curve(CollectiveOp.ALL_TO_ALL, 8), error=0.03, error_p90=0.1)
    found = spreads(machine(curves=(curve,)))
    assert found[Cause.ALL_TO_ALL].own == pytest.approx(0.1 / 1.645)
    assert found[Cause.ALL_TO_ALL].shared == ANOTHER_MACHINE[Cause.ALL_TO_ALL]
    assert found[Cause.ALL_REDUCE] == NOT_MEASURED[Cause.ALL_REDUCE]


def test_a_curve_of_another_number_of_ranks_is_worth_less() -> None:
    curve = replace(flat_curve(CollectiveOp.ALL_TO_ALL, 8), error=0.03, error_p90=0.1)
    assert spreads(machine(curves=(curve,)), ranks=4)[Cause.ALL_TO_ALL].own == OTHER_RANKS


def test_lookups_measured_elsewhere_are_off_together() -> None:
    # no points on this machine: the error is of another kind of machine, the same for all tables
    elsewhere = KernelFamily(source=Source.ROOFLINE, origin="made up", error_p90=0.5)
    found = spreads(replace(partly(), families={"embedding_forward": elsewhere}))
    # and by what carrying constants to another machine costs
    assert found[Cause.LOOKUP].shared == pytest.approx(hypot(0.5 / 1.645, CARRIED[Cause.LOOKUP]))
    here = replace(elsewhere, num_points=9)
    found = spreads(replace(machine(), families={"embedding_forward": here}))
    assert found[Cause.LOOKUP].own == pytest.approx(0.5 / 1.645)


def test_a_calibrated_machine_is_not_another_one() -> None:
    curve = replace(flat_curve(CollectiveOp.ALL_TO_ALL, 8), error=0.03, error_p90=0.1)
    host = KernelFamily(source=Source.FITTED, origin="made up", num_points=9, error_p90=0.2)
    found = spreads(replace(machine(curves=(curve,)), families={"host": host}))
    assert found[Cause.HOST] == Spread(SAME_MACHINE, pytest.approx(0.2 / 1.645))
    assert found[Cause.ALL_TO_ALL].shared == SAME_MACHINE
    assert found[Cause.LATENCY] == found[Cause.ALL_TO_ALL]
    other = machine(curves=(curve,))
    elsewhere = replace(other, families={"host": replace(host, num_points=0)})
    assert spreads(elsewhere)[Cause.LATENCY] == spreads(other)[Cause.LATENCY]
    # what calibration did not measure is as unknown as before
    assert found[Cause.GEMM] == NOT_MEASURED[Cause.GEMM]


def test_cores_that_were_calibrated_have_the_structure_of_their_runs() -> None:
    host = KernelFamily(source=Source.FITTED, origin="made up", num_points=9, error_p90=0.2)
    calibrated = replace(machine(), families={"host": host})
    cores = replace(calibrated, device=Device.CPU)
    assert spreads(cores)[Cause.STRUCTURE] == STRUCTURE_ON_CORES
    # neither GPUs nor cores of another machine
    assert spreads(calibrated)[Cause.STRUCTURE] == STRUCTURE
    assert spreads(replace(machine(), device=Device.CPU))[Cause.STRUCTURE] == STRUCTURE


def test_causes_of_a_step() -> None:
    ranks = topology(2)
    work = workload(table())
    found = causes(step(work, ranks, ShardingType.TABLE_WISE, 0).ops, ranks)
    assert found["table_wise lookup"] is Cause.LOOKUP
    assert found["table_wise lookup backward"] is Cause.UPDATE
    assert found["launch table_wise lookup"] is Cause.HOST
    assert found["dense optimizer"] is Cause.MEMORY
    assert {Cause.GEMM, Cause.COPY} <= set(found.values())


def test_collectives_across_nodes_and_inside() -> None:
    ranks = topology(4, 2)
    big = replace(workload(table(dim=256)), local_batch_size=65536)
    found = causes(step(big, ranks, ShardingType.TABLE_ROW_WISE, 0).ops, ranks)
    named = {name: cause for name, cause in found.items() if not name.startswith("launch")}
    assert Cause.REDUCE_SCATTER in named.values()
    assert Cause.ALL_TO_ALL_ACROSS in named.values()
    alone = topology(4)
    one_node = causes(step(big, alone, ShardingType.TABLE_WISE, 0).ops, alone)
    assert Cause.ALL_TO_ALL in one_node.values()
    assert Cause.ALL_TO_ALL_ACROSS not in one_node.values()


@given(cases())
@settings(max_examples=30)
def test_every_operation_has_a_cause_with_a_spread(case: Case) -> None:
    _, ranks, _ = case
    known = error_model(ranks, DataType.FP32).spreads
    for op in step_operations(*case).ops:
        cause = cause_of(op, ranks)
        assert cause in known
        assert (cause is Cause.HOST) == (op.kind in (NodeKind.HOST, NodeKind.WAIT))
        if op.stage in (Stage.LOOKUP_FORWARD, Stage.LOOKUP_BACKWARD):
            assert cause in (Cause.LOOKUP, Cause.UPDATE)
