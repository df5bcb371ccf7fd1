from dataclasses import replace

from dense_operators import operator, tensor

from costmodel.operators.on_cuda import on_cuda
from costmodel.operators.operator_list import BatchSize, DenseOperator, OperatorList

NOISE, INPUT, RESULT = tensor((4, 8), 0), tensor((4, 8), 1), tensor((4, 8), 2)


def named(name: str, *inputs: object, output: object = NOISE) -> DenseOperator[int]:
    return replace(operator(name, []), inputs=inputs, outputs=(output,))  # type: ignore[arg-type]


DRAWN, SCALED = named("bernoulli_", NOISE), named("div_", NOISE)
MULTIPLIED = named("mul", INPUT, NOISE, output=RESULT)


def names(*operators: DenseOperator[int]) -> list[str]:
    listed = OperatorList(operators=operators, recorded=BatchSize(4))
    return [each.name.removeprefix("aten::") for each in on_cuda(listed).operators]


def test_a_dropout_is_one_kernel_that_writes_a_mask_of_bytes() -> None:
    listed = OperatorList(operators=(DRAWN, SCALED, MULTIPLIED), recorded=BatchSize(4))
    (fused,) = on_cuda(listed).operators
    assert (fused.name, fused.inputs) == ("aten::native_dropout", (INPUT,))
    assert [each.num_bytes for each in fused.outputs] == [4 * 4 * 8, 4 * 8]


def test_what_is_no_dropout_stays() -> None:
    plain, other = MULTIPLIED, named("mul", INPUT, INPUT, output=RESULT)
    assert names(plain, DRAWN, SCALED, plain, plain) == ["mul", "native_dropout", "mul"]
    assert names(DRAWN, SCALED, other) == ["bernoulli_", "div_", "mul"]
    assert names(DRAWN, SCALED) == ["bernoulli_", "div_"]
    assert names(DRAWN, plain, SCALED) == ["bernoulli_", "mul", "div_"]
