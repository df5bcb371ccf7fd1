from execution_trace_files import Argument, Arguments, EtMaker, tensor

from costmodel.operators.operator_list import DenseOperator, Pass
from costmodel.operators.work import Moved, flop, moved
from planner.traces.execution.operator_trace import operator_traces
from planner.traces.execution.trace_operators import dense_operator, is_metadata, launches, wraps

NO: tuple[bool, list[object], str, list[object]] = (False, [], "Bool", [])
LIST: tuple[list[int], list[list[int]], str, list[object]] = (
    [1], [[]], "GenericList[Int]", []
)  # fmt: skip


def converted(name: str, inputs: Arguments, outputs: Arguments = ()) -> DenseOperator[int]:
    maker = EtMaker()
    maker.add(name, inputs, outputs)
    (trace,) = operator_traces([("rank0.json", maker.document())], "job")
    return dense_operator(trace.ops[0], Pass.FORWARD)


def typed(kind: str, num_bytes: int) -> Argument:
    value, shape, _, strides = tensor(3, 4)
    return [*value[:4], num_bytes, "cuda:0"], shape, f"Tensor({kind})", strides


def of_lists(*lists: Arguments) -> list[Argument]:
    return [
        ([t[0] for t in each], [t[1] for t in each], "GenericList[Tensor(float)]", [])
        for each in lists
    ]


def test_elements_have_the_type_that_torch_names_or_that_their_bytes_say() -> None:
    given = [
        ("float", 4), ("c10::BFloat16", 2), ("c10::Half", 2), ("long int", 8), ("long", 8),
        ("int", 4), ("unsigned char", 1), ("bool", 1), ("c10::mine", 2), ("nullptr", 0),
    ]  # fmt: skip
    found = converted("mine::all", [typed(*each) for each in given]).inputs
    assert [each.data_type.value for each in found] == [
        "float32", "bfloat16", "float16", "int64", "int64", "int32", "uint8", "bool", "int16",
    ]  # fmt: skip


def test_a_repeated_row_is_in_memory_once() -> None:
    made = converted("aten::add", [tensor(6, 10, storage=1), tensor(6, 10, strides=(0, 1))])
    assert [each.num_bytes for each in made.inputs] == [240, 40]


def test_parts_of_one_storage_are_read_each_and_one_part_once() -> None:
    value, *rest = tensor(10, 10)
    other = ([*value[:2], 100, *value[3:]], *rest)
    parts = converted("aten::mul", [tensor(10, 10), other], [tensor(10, 10, storage=2)])
    assert moved(parts) == Moved(800, 400)
    squared = converted("aten::mul", [tensor(10, 10)] * 2, [tensor(10, 10, storage=2)])
    assert moved(squared) == Moved(400, 400)


def test_in_place_an_operator_reads_and_writes_one_tensor() -> None:
    assert moved(converted("aten::relu_", [tensor(100)], [tensor(100)])) == Moved(400, 400)
    lists = of_lists([tensor(100), tensor(50, storage=2)], [tensor(100, storage=3)] * 2)
    assert moved(converted("aten::_foreach_add_", lists)) == Moved(1000, 600)


def test_a_gradient_of_a_table_is_written_where_rows_were_read() -> None:
    # the table's gradient is filled by what the operator calls
    rows, ids, table = tensor(5, 8), tensor(5, storage=2), tensor(1000, 8, storage=3)
    made = converted("aten::embedding_dense_backward", [rows, ids], [table])
    assert moved(made) == Moved(160 + 20, 160)


def test_a_convolution_is_transposed_where_its_argument_says_so() -> None:
    data, weight, result = tensor(2, 4, 6), tensor(4, 3, 5, storage=2), tensor(2, 3, 9, storage=3)
    options = [tensor(3, storage=4), LIST, LIST, LIST]
    yes = (True, [], "Bool", [])
    forward = converted("aten::convolution", [data, weight, *options, yes], [result])
    assert flop(forward) == 2 * 2 * 4 * 3 * 5 * 6
    assert not converted("aten::convolution", [data, weight, *options, NO], [result]).transposed


def test_a_tensor_larger_than_any_can_be_is_none() -> None:
    assert converted("aten::add", [tensor(2**40, 2**40), tensor(3)]).inputs == (
        converted("aten::add", [tensor(3)]).inputs
    )


def test_operators_are_views_or_call_others_or_launch_kernels() -> None:
    names = ("aten::view", "aten::convolution", "aten::mul_", "mine::fused")
    found = [(is_metadata(each), wraps(each), launches(each)) for each in names]
    assert found == [
        (True, False, False), (False, True, False), (False, False, True), (False, False, False),
    ]  # fmt: skip
    assert wraps("aten::_foreach_mul_")
