from dataclasses import replace

import pytest
from machines import machine

from costmodel.base.units import US
from costmodel.domain.traced import OperatorOverheads, TracedTimes
from costmodel.step.graph import Stage
from planner.traces.execution.walk import HostCounts, TracedWork, TracedWorkKind
from planner.traces.predict.gpu_graph import HostOperators


def work(*outermost: str, backward: bool = False) -> TracedWork:
    return TracedWork(
        kind=TracedWorkKind.KERNEL,
        name="aten::mm",
        stage=Stage.DENSE_FORWARD,
        backward=backward,
        before=HostCounts(outermost=list(outermost)),
    )


def overheads(
    name: str, before: float, lead: float, tail: float, call: float, between: float
) -> OperatorOverheads:
    return OperatorOverheads(
        name=name, count=1, before=before * US, lead=lead * US, tail=tail * US, call=call * US,
        between=between * US,
    )  # fmt: skip


def test_without_traces_every_launch_costs_the_average() -> None:
    hardware = machine()
    operators = HostOperators(hardware)
    forward = hardware.host.op_time + hardware.host.launch_time
    assert operators.launching(work("aten::t", "aten::mm")) == pytest.approx(forward)
    backward = hardware.host.backward_op_time + hardware.host.launch_time
    assert operators.launching(work(backward=True)) == pytest.approx(backward)
    assert operators.idle(HostCounts(outermost=["aten::t"])) == 0


def test_traced_operators_cost_what_they_did() -> None:
    # t: 1 before, 2 itself. mm: 3 before, 4 to its launch of 5, 6 after, 7 between launches
    rows = [overheads("aten::t", 1, 0, 0, 0, 2), overheads("aten::mm", 3, 4, 6, 5, 7)]
    known = TracedTimes(operators={row.name: row for row in rows})
    hardware = replace(machine(), traced=known)
    operators = HostOperators(hardware)
    assert operators.launching(work("aten::t", "aten::mm")) == pytest.approx(21 * US)
    assert operators.launching(work()) == pytest.approx(12 * US)  # a second launch of mm
    average = hardware.host.op_time + hardware.host.launch_time
    assert operators.launching(work("aten::new")) == pytest.approx(average)
    assert operators.idle(HostCounts(outermost=["aten::t", "aten::new"])) == pytest.approx(3 * US)
