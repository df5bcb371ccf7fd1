"""What of a traced step is the dense part: not its ids, exchanges, buckets, optimizer, batches."""

from execution_trace_files import FUNCTION, LOOKUP, EtMaker, floats, ids, sharded_step

from costmodel.operators.operator_list import Pass
from planner.traces.execution.dense_items import DenseItems, dense_items
from planner.traces.execution.operator_trace import operator_traces
from planner.traces.execution.walk import rank_work


def found_in(maker: EtMaker) -> DenseItems:
    (trace,) = operator_traces([("rank0.json", maker.document())], "job")
    return dense_items(rank_work(trace.steps[-1][1]))


def names(found: DenseItems) -> list[str]:
    return [item.op.name.removeprefix("aten::") for item in found.items]


def test_tables_and_buckets_and_optimizers_are_left_out() -> None:
    found = found_in(sharded_step())
    assert names(found) == ["mm", "mm", "mm"]
    assert [item.direction for item in found.items] == [Pass.FORWARD, *[Pass.BACKWARD] * 2]


def test_what_comes_back_of_an_exchange_is_what_the_dense_part_reads() -> None:
    found = found_in(sharded_step())
    (read,) = found.items[0].reads
    assert found.embeddings[read].shape == (2, 32)
    assert found.table_shapes == {(1000,)}


def test_the_gradient_of_embeddings_is_what_goes_on_to_their_exchange() -> None:
    found = found_in(sharded_step())
    ((place, (gradient,)),) = found.sent.items()
    assert place == found.items[1].place
    assert gradient.num_elements == 64


def test_batches_are_copied_from_the_host_by_others() -> None:
    maker = EtMaker()
    host = ([90, 90, 0, 26, 4, "cpu"], [2, 13], "Tensor(float)", [13, 1])
    maker.add("aten::copy_", [floats(2, 13, storage=1), host], [floats(2, 13, storage=1)])
    maker.add("aten::relu", [floats(2, 13, storage=1)], [floats(2, 13, storage=2)])
    assert names(found_in(maker)) == ["relu"]


def test_integers_that_serve_no_lookup_are_the_dense_parts() -> None:
    maker = EtMaker()
    maker.add("aten::add", [ids(4, storage=1), ids(4, storage=2)], [ids(4, storage=3)])
    weight = floats(10, 8, storage=4)
    maker.add("aten::index_select", [weight, ids(4, storage=3)], [floats(4, 8, storage=5)])
    assert names(found_in(maker)) == ["add", "index_select"]


def test_what_prepares_ids_is_not() -> None:
    maker = EtMaker()
    maker.add("aten::add", [ids(16, storage=9), ids(16, storage=9)], [ids(16, storage=1)])
    tables = [floats(1000, storage=3), ids(3, storage=8), ids(16, storage=1), ids(9, storage=2)]
    maker.add(LOOKUP, tables, [floats(4, 16, storage=4)])
    maker.add("aten::relu", [floats(4, 16, storage=4)], [floats(4, 16, storage=5)])
    found = found_in(maker)
    assert names(found) == ["relu"]
    assert len(found.items[0].reads) == 1


def test_the_fill_inside_a_losss_backward_is_a_part_of_it() -> None:
    maker = EtMaker()
    outer = maker.add(FUNCTION + "NllLossBackward0")
    inner = maker.add("NllLossBackward0", [floats(1, storage=9)], parent=outer)
    result = floats(4, 10, storage=5)
    loss = maker.add(
        "aten::nll_loss_backward",
        [floats(1, storage=9), floats(4, 10, storage=1), ids(4, storage=2)],
        [result],
        parent=inner,
    )
    maker.add("aten::zero_", [result], [result], parent=loss)
    assert names(found_in(maker)) == ["nll_loss_backward"]
