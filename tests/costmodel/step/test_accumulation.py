"""Steps of several batches, whose dense gradients are reduced once."""

from dataclasses import replace

import pytest
from machines import topology
from plans import collectives, named, plan, step, table, workload

from costmodel.domain.dense_layers import dense_layers
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import Pipeline
from costmodel.engine.objective import Objective
from costmodel.step.graph import NodeKind
from costmodel.step.step_operations import StepOperations

TWO = topology(2)
TW, DP = ShardingType.TABLE_WISE, ShardingType.DATA_PARALLEL


def made(
    pipeline: Pipeline, batches: int, kind: ShardingType = TW, ranks: int = 2
) -> StepOperations:
    work = workload(table(), pipeline=pipeline, gradient_accumulation_steps=batches)
    placed = () if kind is DP else (0,)
    return step(work, topology(ranks), kind, *placed)


@pytest.mark.parametrize("pipeline", list(Pipeline))
def test_tables_are_updated_with_every_batch_and_the_dense_model_with_the_last(
    pipeline: Pipeline,
) -> None:
    once, thrice = made(pipeline, 1), made(pipeline, 3)
    for name in ("table_wise lookup", "table_wise lookup backward", "table_wise gradients"):
        assert len(named(thrice, name)) == 3 * len(named(once, name)) == 3
    for name in ("dense optimizer", "zero gradients"):
        assert len(named(thrice, name)) == len(named(once, name)) == 1
    sent = [
        [float(op.num_bytes[0]) for op in collectives(made) if op.name.endswith("all-reduce")]
        for made in (once, thrice)
    ]
    assert sent[0] == sent[1]


def test_gradients_are_added_to_those_there() -> None:
    # all but the first of three batches: read both, write one; the bias and weights of each layer
    program = made(Pipeline.SPARSE_DIST, 3)
    added = [float(op.num_bytes[0]) for op in named(program, "dense add gradient")]
    layers = dense_layers(workload(table()))
    assert len(added) == 2 * 2 * len(layers)
    assert sum(added) == 2 * 3 * 4 * sum(layer.num_parameters for layer in layers)


@pytest.mark.parametrize("ranks", [1, 2])
def test_so_are_those_of_replicated_tables(ranks: int) -> None:
    program = made(Pipeline.SPARSE_DIST, 3, DP, ranks)
    added = named(program, "data_parallel add gradient")
    assert [float(op.num_bytes[0]) for op in added] == [3.0 * 8000 * 64 * 4] * 2
    copies = named(program, "data_parallel gradient copy")
    assert len(copies) == (1 if ranks > 1 else 0)


def test_a_batch_waits_for_the_one_before_in_the_same_step() -> None:
    program = made(Pipeline.SPARSE_DIST, 2)
    first, second = named(program, "table_wise reorder ids")
    (early, late) = (i for i, op in enumerate(program.ops) if op.name == "table_wise ids")
    assert first.after_previous == (late,)
    assert early in second.after
    assert not second.after_previous


@pytest.mark.parametrize("pipeline", list(Pipeline))
def test_a_step_of_four_batches_is_shorter_than_four_steps_by_what_is_done_once(
    pipeline: Pipeline,
) -> None:
    work = workload(table(), pipeline=pipeline)
    placed = plan(work, TWO, {"t": (TW, (0,))})
    alone = Objective(work, TWO).step_time(placed)
    four = Objective(replace(work, gradient_accumulation_steps=4), TWO).step_time(placed)
    program = step(work, TWO, TW, 0)
    once = sum(
        float(op.seconds[0])
        for op in program.ops
        if op.kind is NodeKind.HOST and op.name in {"zero gradients", "launch dense optimizer"}
    )
    assert four <= 4 * alone - 2 * once
    assert four > 3 * alone


@pytest.mark.parametrize("number", [0, 65])
def test_the_number_of_batches_is_checked(number: int) -> None:
    with pytest.raises(ValueError, match="gradient_accumulation_steps must be at"):
        workload(table(), gradient_accumulation_steps=number)
