"""Steps of plans that have only some of a template's groups are those written for these alone."""

from random import Random

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import cases, fixed_cases

from costmodel.domain.hardware import Device, Topology
from costmodel.domain.plan import ShardingPlan, ShardingType
from costmodel.domain.workload import Workload
from costmodel.engine.lowering import Columns, Lowering, lower
from costmodel.engine.timer import duration_rows, signature_of
from costmodel.step.loads import PlanLoads
from costmodel.step.synthesis import Templates

RECURRENCES = (
    "kind", "seconds", "group", "launched", "same", "rows", "starts", "sources", "lags", "finals",
    "like",
)  # fmt: skip
"""What a step is timed by, once its durations are known."""


@given(cases() | fixed_cases(), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_the_step_of_some_groups_is_the_one_that_is_written_for_them_alone(
    case: tuple[Workload, Topology, ShardingPlan], seed: int
) -> None:
    workload, topology, plan = case
    # a thread of a CPU waits for the kernel that was called last, whichever that is
    assume(topology.hardware.device is Device.CUDA)
    signature = signature_of(PlanLoads(workload, topology).groups(plan))
    drawn = Random(seed)
    some = [
        item
        for item in signature
        # without any replicas, dense parameters have another optimizer
        if item[0].sharding_type is ShardingType.DATA_PARALLEL or drawn.random() < 0.5
    ]
    assume(some)
    columns = Columns.of(signature)
    template, alone = (Templates(workload, topology).of(groups) for groups in (signature, some))
    _, rows = duration_rows(template, columns)
    present = {key for key, _ in some}
    own = [row for op, row in zip(template.ops, rows, strict=True) if op.exists(present)]
    assert len(own) == len(alone.ops)
    found, wanted = Lowering(template, columns, rows).step(present), lower(alone, columns, own)
    for name in RECURRENCES:
        assert np.array_equal(getattr(found, name), getattr(wanted, name)), name
