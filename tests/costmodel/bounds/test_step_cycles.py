import pytest
from bound_options import described
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machines import topology
from plans import mixed
from strategies import Case, cases

from costmodel.bounds.feature_index import Vector, largest_features
from costmodel.bounds.option_features import OptionFeatures
from costmodel.bounds.step_cycles import StepCycles, step_of
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import EmbeddingTable, Pipeline, Workload
from costmodel.engine.objective import Objective
from costmodel.step.groups import GroupKey
from costmodel.step.operation_timeline import operation_timeline
from costmodel.step.synthesis import Templates, step_operations
from sharders.problem.options import TableOption, make_plan, make_sharding

SLACK = 1 + 1e-9


def _cycles(case: Case, wanted: list[bool]) -> tuple[StepCycles, Vector]:
    """Return the cycles of plans with some of a plan's groups, and the plan's features."""
    workload, ranks, _ = case
    options, index, z = described(*case)
    present = frozenset(
        group for group, one in zip(index.groups, wanted * len(index.groups), strict=False) if one
    )
    largest = largest_features(options, index)
    template = Templates(workload, ranks).of(options.signature())
    return StepCycles(template, index, largest, present, options.busy_shares(present)), z


@pytest.mark.slow
@given(cases(min_tables=2), st.lists(st.booleans(), min_size=1, max_size=5))
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
def test_no_cycle_outweighs_the_plan_that_has_its_features(case: Case, wanted: list[bool]) -> None:
    cycles, z = _cycles(case, wanted)
    heaviest = max((cycle.weight(z) for cycle in cycles.heaviest(z)), default=0.0)
    if heaviest > Objective(*case[:2]).step_time(case[2]) * SLACK:
        ends = operation_timeline(step_operations(*case), 30).step_ends
        assert heaviest <= (ends[-1] - ends[9]) / 20 * SLACK


@pytest.mark.parametrize(("local_batch_size", "least"), [(1024, 0.87), (16_384, 0.4)])
@pytest.mark.parametrize("pipeline", [each for each in Pipeline if each is not Pipeline.DLRM])
def test_a_cycle_is_most_of_a_step_and_no_more(
    pipeline: Pipeline, local_batch_size: int, least: float
) -> None:
    """Of short steps, which wait for the host, nearly all; of long ones what mean ranks do."""
    work, ranks, both = mixed(pipeline, local_batch_size)
    for placed in both:
        cycles, z = _cycles((work, ranks, placed), [True])
        heaviest = max(cycle.weight(z) for cycle in cycles.heaviest(z))
        assert least <= heaviest / Objective(work, ranks).step_time(placed) <= SLACK


def _even_case(size: int, local_batch_size: int = 64, pooling_factor: float = 1.0) -> Case:
    """Return equal tables on ranks, one each."""
    tables = tuple(
        EmbeddingTable(
            name=f"t{i}", num_embeddings=1000, embedding_dim=64, pooling_factor=pooling_factor
        )
        for i in range(size)
    )
    workload, ranks = Workload(tables=tables, local_batch_size=local_batch_size), topology(size)
    option = TableOption(sharding_type=ShardingType.TABLE_WISE)
    shardings = [make_sharding(table, ranks, option, (i,)) for i, table in enumerate(tables)]
    return workload, ranks, make_plan(ranks, shardings)


@pytest.mark.parametrize(
    ("local_batch_size", "pooling_factor", "of_lookups"), [(64, 1.0, False), (16_384, 50.0, True)]
)
def test_where_all_ranks_do_the_same_a_cycle_is_the_step(
    local_batch_size: int, pooling_factor: float, *, of_lookups: bool
) -> None:
    """Of a small batch, of launches of the host and the device; of a large one, of lookups."""
    case = _even_case(4, local_batch_size, pooling_factor)
    cycles, z = _cycles(case, [True])
    step = Objective(*case[:2]).step_time(case[2])
    heaviest = max(cycles.heaviest(z), key=lambda cycle: cycle.weight(z))
    assert heaviest.weight(z) == pytest.approx(step, rel=1e-3)
    assert heaviest.lookups is of_lookups


def test_the_step_of_all_groups_is_the_whole_one() -> None:
    workload, ranks, _ = _even_case(2)
    group = GroupKey(pooled=True, weighted=False, sharding_type=ShardingType.TABLE_WISE)
    signature = OptionFeatures(workload, ranks).all(lambda: True).signature()
    template = Templates(workload, ranks).of(signature)
    assert step_of(template, [each for each, _ in signature]) == template
    alone = step_of(template, [group])
    assert {key for op in alone.ops for key in op.part_of} >= {group}
    assert len(step_of(template, []).ops) < len(alone.ops) < len(template.ops)


def test_lookups_of_other_groups_wait_for_their_queue_alone() -> None:
    workload, ranks, _ = _even_case(2)
    group = GroupKey(pooled=True, weighted=False, sharding_type=ShardingType.TABLE_WISE)
    signature = OptionFeatures(workload, ranks).all(lambda: True).signature()
    template = Templates(workload, ranks).of(signature)
    step = step_of(template, [group])
    others = [op for op in step.ops if not op.exists([group])]
    assert {op.work.kernel for op in step.ops} == {op.work.kernel for op in template.ops}
    assert others
    assert not any(op.after or op.after_previous or op.launched_by for op in others)
