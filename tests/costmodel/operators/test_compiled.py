from dataclasses import replace

from dense_operators import operator

from costmodel.domain.workload import DataType
from costmodel.kernels.operators import fused_estimate, operator_estimate
from costmodel.kernels.pointwise import pointwise_time
from costmodel.operators.compiled import fused
from costmodel.operators.operator_list import DenseOperator
from planner.files.profiles import load_profile

ROWS = (64, 32)
SIZE = 4 * 64 * 32
"""Bytes of a tensor."""


def chained(*names: str) -> list[DenseOperator[int]]:
    """Return operators that each read what the one before wrote."""
    made = []
    for place, name in enumerate(names):
        each = operator(name, [ROWS], ROWS)
        ((given,), (written,)) = each.inputs, each.outputs
        made.append(
            replace(
                each,
                inputs=(replace(given, storage=place),),
                outputs=(replace(written, storage=place + 1),),
            )
        )
    return made


def names(operators: list[DenseOperator[int]]) -> list[list[str]]:
    return [
        [each.name.removeprefix("aten::") for each in kernel.operators]
        for kernel in fused(operators)
    ]


def test_elementwise_operators_in_a_row_are_one_kernel() -> None:
    chain = chained("exp", "neg", "_softmax", "mm", "relu", "tanh")
    assert names(chain) == [["exp", "neg", "_softmax"], ["mm"], ["relu", "tanh"]]


def test_what_only_the_kernel_reads_is_not_written() -> None:
    (kernel,) = fused(chained("exp", "neg", "tanh"))
    assert kernel.moved == (SIZE, SIZE)


def test_what_is_read_later_is_written() -> None:
    exp, neg, tanh, backward = chained("exp", "neg", "tanh", "sigmoid_backward")
    backward = replace(backward, inputs=(*backward.inputs, *exp.outputs))
    (kernel,) = fused([exp, neg, tanh], [backward])
    assert kernel.moved == (SIZE, 2 * SIZE)


def test_other_elements_are_another_kernel() -> None:
    exp, neg = chained("exp", "neg")
    wider = operator("tanh", [(128, 32)], (128, 32))
    assert names([exp, neg, wider]) == [["exp", "neg"], ["tanh"]]


def test_one_operator_is_as_it_was() -> None:
    gpu = load_profile("h100-sxm").gpu
    for each in chained("exp", "cat", "sum"):
        (kernel,) = fused([each])
        alone = operator_estimate(each, DataType.FP32, gpu)
        assert fused_estimate(kernel, DataType.FP32, gpu) == alone


def test_a_fused_kernel_takes_its_bytes_and_the_elements_of_all() -> None:
    core = load_profile("cpu-gloo").gpu
    (kernel,) = fused(chained("tanh", "erf"))
    elements = 64 * 32 * (core.element_times["tanh"] + core.element_times["erf"])
    taken = fused_estimate(kernel, DataType.FP32, core).seconds
    assert taken == pointwise_time(2 * SIZE, core) + elements
