"""Templates evaluated at a plan's loads: what the simulator, sampling and reports read."""

import numpy as np
import pytest
from hypothesis import given, settings
from machines import topology
from plans import plan, step, table, workload
from strategies import Case, cases

from costmodel.domain.hardware import Bound
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import DataType, Pooling
from costmodel.kernels.embedding import backward_time, forward_time
from costmodel.kernels.traffic import Traffic
from costmodel.step.evaluation import evaluated
from costmodel.step.graph import Role
from costmodel.step.groups import KernelKey
from costmodel.step.loads import PlanLoads
from costmodel.step.synthesis import Templates, step_operations
from costmodel.step.template import GroupFormulas, WorkKind

FUSED = KernelKey(dense=False, data_type=DataType.FP32, pooling=Pooling.SUM)


def test_a_lookup_takes_what_its_traffic_takes() -> None:
    work, ranks = workload(table()), topology(2)
    where = plan(work, ranks, {"t": (ShardingType.TABLE_WISE, (1,))})
    (load,) = PlanLoads(work, ranks).groups(where)
    ops = {op.role: op for op in step_operations(work, ranks, where).ops}
    traffic = load.traffic[FUSED]
    assert ops[Role.LOOKUP].seconds.tolist() == forward_time(traffic, ranks.hardware).tolist()
    assert ops[Role.UPDATE].seconds.tolist() == backward_time(traffic, ranks.hardware).tolist()
    assert ops[Role.LOOKUP].seconds[0] == 0.0
    assert ops[Role.LOOKUP].num_bytes.tolist() == traffic[:, Traffic.FORWARD_HBM].tolist()
    assert ops[Role.UPDATE].num_bytes.tolist() == traffic[:, Traffic.BACKWARD_HBM].tolist()


def test_a_lookup_is_bound_where_it_takes_longest() -> None:
    # 2,560 rows of 4 columns on rank 1: what a warp reads before its bag takes longest
    made = step(workload(table(dim=4, ids=0.01)), topology(2), ShardingType.TABLE_WISE, 1)
    (lookup,) = (op for op in made.ops if op.role is Role.LOOKUP)
    assert lookup.basis.bound_by is Bound.LONGEST_BAG


def test_a_template_of_groups_that_the_plan_lacks_is_refused() -> None:
    work, ranks = workload(table()), topology(2)
    where = plan(work, ranks, {"t": (ShardingType.TABLE_WISE, (1,))})
    (load,) = PlanLoads(work, ranks).groups(where)
    other = load.key._replace(sharding_type=ShardingType.ROW_WISE)
    both = Templates(work, ranks).of([(load.key, [FUSED]), (other, [FUSED])])
    with pytest.raises(ValueError, match="groups that the plan does not have"):
        evaluated(both, [load])


def test_formulas_of_a_group_name_every_load() -> None:
    work, ranks = workload(table()), topology(2)
    where = plan(work, ranks, {"t": (ShardingType.TABLE_WISE, (1,))})
    (load,) = PlanLoads(work, ranks).groups(where)
    formulas = GroupFormulas.of(load.key, [FUSED])
    for name in ("features", "ids", "columns", "table_columns", "sent_ids", "present"):
        ((feature, weight),) = getattr(formulas, name).weights.items()
        assert (feature.group, feature.name, weight) == (load.key, name, 1.0)


@given(cases())
@settings(max_examples=40)
def test_operations_wait_for_earlier_ones_and_for_all_that_a_resource_has(case: Case) -> None:
    workload, topology, plan = case
    loads = PlanLoads(workload, topology).groups(plan)
    template = Templates(workload, topology).of((load.key, tuple(load.traffic)) for load in loads)
    made = evaluated(template, loads)
    assert [op.name for op in made.ops] == [op.name for op in template.ops]
    for index, (op, formula) in enumerate(zip(made.ops, template.ops, strict=True)):
        assert all(0 <= each < index for each in op.after)
        assert op.seconds.shape == op.num_bytes.shape == (topology.world_size,)
        assert (op.seconds >= 0).all()
        if formula.work.kind is WorkKind.ISSUE:
            assert ((op.seconds > 0) == (made.ops[index + 1].seconds > 0)).all()
        for event in formula.after:
            if not isinstance(event, int):
                before = [i for i in range(index) if made.ops[i].resource == event.resource]
                assert before[-1] in op.after


@given(cases())
@settings(max_examples=40)
def test_every_exchange_lasts_as_long_on_all_ranks_of_its_group(case: Case) -> None:
    made = step_operations(*case)
    for op in made.ops:
        if op.group is not None:
            instances = [made.members(op.group, rank) for rank in range(made.world_size)]
            for instance in set(instances):
                times = op.seconds[np.array(instances) == instance]
                assert np.ptp(times) == 0.0
