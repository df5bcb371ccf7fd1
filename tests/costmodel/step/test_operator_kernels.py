from dataclasses import replace

import pytest
from dense_operators import listed_step
from machines import topology
from plans import index, named, step, table, workload

from costmodel.domain.dense_operators import rank_operators
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import DataType, DenseModel
from costmodel.kernels.operators import operator_estimate
from costmodel.operators.operator_list import OperatorList, Size
from costmodel.step import dense
from costmodel.step.operation_timeline import operation_timeline
from costmodel.step.operator_kernels import operator_kernels

LISTED = replace(workload(table(dim=8)), dense=DenseModel(operators=listed_step()))
TWO = topology(2)


def test_stretches_are_divided_where_embeddings_are_read_and_have_gradients() -> None:
    found = operator_kernels(LISTED, TWO.hardware.gpu)
    names = [[each.name for each in stretch] for stretch in found]
    assert names == [["mm"], ["add", "sum"], ["ones_like", "clone"], ["mm"]]
    assert [each.gradients for each in found.after_exchange] == [(160.0,)]


def test_kernels_take_what_their_operators_do_in_the_asked_precision() -> None:
    work = replace(LISTED, dense=replace(LISTED.dense, precision=DataType.BF16))
    gpu = TWO.hardware.gpu
    found = [each for stretch in operator_kernels(work, gpu) for each in stretch]
    expected = [
        operator_estimate(each, DataType.BF16, gpu) for each in rank_operators(work).operators
    ]
    assert [(each.seconds, each.basis) for each in found] == [
        (each.seconds, each.basis) for each in expected
    ]


def test_lookups_are_waited_for_after_the_first_stretch_and_sent_before_the_last() -> None:
    made = step(LISTED, TWO, ShardingType.TABLE_WISE, 0)
    first, last = (made.ops.index(each) for each in named(made, "mm"))
    lookup, gradients = index(made, "table_wise lookup"), index(made, "table_wise gradients")
    assert first < lookup < index(made, "add") < index(made, "ones_like")
    assert index(made, "clone") < gradients < last < index(made, "dense all-reduce")


def many() -> OperatorList[Size]:
    """The list with its layer and its gradient 400 times."""
    first, *between, last = listed_step().operators
    again = replace(last, parameters=())
    return replace(listed_step(), operators=(*(first,) * 400, *between, *(again,) * 400, last))


@pytest.mark.parametrize("world_size", [1, 4])
def test_runs_written_as_one_take_as_long(world_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    work = replace(LISTED, dense=DenseModel(operators=many()))
    ranks = topology(world_size)
    as_runs = step(work, ranks, ShardingType.ROW_WISE)
    monkeypatch.setattr(dense, "MOST_WRITTEN_KERNELS", 1000)
    apart = step(work, ranks, ShardingType.ROW_WISE)
    assert len(named(as_runs, "mm and 6 more")) >= 100
    assert len(apart.ops) > 2 * len(as_runs.ops)
    assert operation_timeline(as_runs).step_time == pytest.approx(
        operation_timeline(apart).step_time, rel=1e-12
    )
