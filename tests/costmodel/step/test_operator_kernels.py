from dataclasses import replace

import pytest
from dense_operators import listed_step
from machines import topology
from plans import index, named, step, table, workload

from costmodel.base.errors import PlanMismatchError
from costmodel.domain.dense_operators import rank_operators
from costmodel.domain.hardware import CollectiveOp
from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import DataType, DenseModel, Workload
from costmodel.kernels.collectives import RankGroup, collective_estimate
from costmodel.kernels.operators import operator_estimate
from costmodel.operators.operator_list import OperatorList, Size
from costmodel.step import dense
from costmodel.step.graph import Resource, Stage
from costmodel.step.operation_timeline import operation_timeline
from costmodel.step.operator_kernels import operator_kernels, unknown_shares

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


def tensor_parallel(ranks: int) -> Workload:
    """The list with an all-reduce of the layer's output before embeddings are added."""
    first, *rest = listed_step().operators
    sent = replace(first, name="c10d::allreduce_", inputs=first.outputs, ranks=ranks)
    operators = replace(listed_step(), operators=(first, sent, *rest))
    return replace(LISTED, dense=DenseModel(operators=operators))


def test_a_collective_of_the_list_waits_and_is_waited_for_at_its_place() -> None:
    ranks = topology(8, 4)
    made = step(tensor_parallel(4), ranks, ShardingType.TABLE_WISE, 0)
    sent, waits = index(made, "c10d::allreduce_"), index(made, "wait for c10d::allreduce_")
    first = made.ops.index(named(made, "mm")[0])
    assert first in made.ops[sent].after
    assert made.ops[waits].after == (sent,)
    assert first < sent < waits < index(made, "add")
    assert made.ops[waits].resource == Resource.COMPUTE
    assert (made.ops[sent].stage, made.ops[sent].group) == (Stage.ALL_REDUCE, "intra_node")
    of_four = RankGroup(num_ranks=4, ranks_per_node=4)
    size = 4.0 * 8 * LISTED.local_batch_size
    assert made.ops[sent].seconds.tolist() == pytest.approx(
        [collective_estimate(CollectiveOp.ALL_REDUCE, size, of_four, ranks.hardware).seconds] * 8
    )


def test_a_step_is_longer_by_the_collective_that_its_kernels_wait_for() -> None:
    ranks = topology(4)
    alone, joined = (
        operation_timeline(step(work, ranks, ShardingType.DATA_PARALLEL)).step_time
        for work in (tensor_parallel(1), tensor_parallel(2))
    )
    assert joined > alone


def test_ranks_that_nodes_or_the_job_do_not_hold_evenly_are_refused() -> None:
    for number, ranks in ((3, topology(4)), (6, topology(8, 4)), (16, topology(8, 4))):
        with pytest.raises(PlanMismatchError, match=f"a collective of {number} ranks"):
            step(tensor_parallel(number), ranks, ShardingType.TABLE_WISE, 0)


def test_collectives_have_no_share_of_the_kernels() -> None:
    assert not unknown_shares(tensor_parallel(2), TWO)


def test_operators_of_a_list_have_a_host_time_of_their_own() -> None:
    """Without one they take what others do; a collective always does."""
    plain = topology(4)
    host = replace(plain.hardware.host, listed_op_time=1.0, listed_backward_op_time=2.0)
    listed = replace(plain, hardware=replace(plain.hardware, host=host))
    found = {
        name: [
            float(each.seconds[0])
            for ranks in (plain, listed)
            for each in named(step(tensor_parallel(4), ranks, ShardingType.TABLE_WISE, 0), name)
        ]
        for name in ("launch add", "launch clone", "launch c10d::allreduce_")
    }
    assert found["launch add"] == pytest.approx([
        host.op_time + host.launch_time, 1.0 + host.launch_time,
    ])  # fmt: skip
    assert found["launch clone"] == pytest.approx([
        host.backward_op_time + host.launch_time, 2.0 + host.launch_time,
    ])  # fmt: skip
    assert len(set(found["launch c10d::allreduce_"])) == 1
