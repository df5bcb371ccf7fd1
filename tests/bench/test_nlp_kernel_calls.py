from execution_trace_files import Arguments, EtMaker, tensor

from bench.nlp.kernel_calls import KernelCall, kernel_call, kernel_calls, unknown_call
from costmodel.operators.products import Product
from planner.traces.execution.operator_trace import TraceOp, operator_traces
from planner.traces.execution.walk import rank_work


def op(name: str, inputs: Arguments, outputs: Arguments = ()) -> TraceOp:
    maker = EtMaker()
    maker.add(name, inputs, outputs)
    (trace,) = operator_traces([("rank0.json", maker.document())], "job")
    return trace.ops[0]


def call(name: str, inputs: Arguments, outputs: Arguments = ()) -> KernelCall:
    found = kernel_call(op(name, inputs, outputs))
    assert found is not None
    return found


def test_a_linear_layer_is_a_product() -> None:
    made = call("aten::addmm", [tensor(30), tensor(20, 40), tensor(40, 30)], [tensor(20, 30)])
    assert made.product == Product(count=1, m=20, n=30, k=40)
    assert made.product.flop == 2 * 20 * 30 * 40
    assert made.num_bytes == 4 * (20 * 40 + 40 * 30 + 20 * 30)


def test_batched_products_count() -> None:
    made = call("aten::bmm", [tensor(6, 5, 4), tensor(6, 4, 3)])
    assert made.product == Product(count=6, m=5, n=3, k=4)


def test_an_elementwise_operator_streams_its_tensors() -> None:
    made = call("aten::add", [tensor(8, 16), tensor(8, 16)], [tensor(8, 16)])
    assert (made.num_elements, made.num_runs) == (128, 1)
    assert made.num_bytes == 3 * 4 * 128


def test_copies_do_not_read_what_they_overwrite() -> None:
    made = call("aten::copy_", [tensor(8, storage=1), tensor(8, storage=2)], [tensor(8)])
    assert made.num_bytes == 2 * 4 * 8


def test_sums_over_rows_and_columns_differ() -> None:
    rows = op("aten::sum", [tensor(8, 16), ([1], [[]], "GenericList[Int]", [])])
    columns = op("aten::sum", [tensor(8, 16), ([0], [[]], "GenericList[Int]", [])])
    assert [c.operator for c in map(kernel_call, (rows, columns)) if c is not None] == [
        "aten::sum",
        "aten::sum/columns",
    ]


def test_softmax_counts_rows() -> None:
    made = call("aten::_softmax", [tensor(2, 3, 4, 16)], [tensor(2, 3, 4, 16)])
    assert made.num_runs == 24


def test_a_lookup_counts_the_rows_it_reads_not_the_table() -> None:
    made = call("aten::index_select", [tensor(10_000, 8), tensor(5)], [tensor(5, 8)])
    assert made.num_elements == 40
    assert made.num_bytes == 2 * 4 * 40


def test_nothing_is_known_of_other_operators() -> None:
    strange = op("mine::attention", [tensor(100), tensor(1_000_000)], [tensor(100)])
    assert kernel_call(strange) is None
    # output, input, and as much of the large input as the output has
    assert unknown_call(strange).num_bytes == 4 * (100 + 100 + 100)


def test_reuse_is_the_memory_touched_in_between() -> None:
    maker = EtMaker()
    for storage in (1, 2, 1):
        maker.add("aten::mul_", [tensor(100, storage=storage)], [tensor(100, storage=storage)])
    (trace,) = operator_traces([("rank0.json", maker.document())], "job")
    calls = kernel_calls(rank_work(trace.ops).items)
    assert [call.reuse for call in calls if call is not None] == [
        ((400, float("inf")),),
        ((400, float("inf")),),
        ((400, 400),),
    ]
