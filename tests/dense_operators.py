"""Operators of a dense model, for tests: of given sizes, each tensor in memory of its own."""

from collections.abc import Sequence

from costmodel.operators.operator_list import DenseOperator, ElementType, OperatorTensor, Pass

Shape = tuple[int, ...]


def tensor(sizes: Shape, storage: int, data_type: str = "float32") -> OperatorTensor[int]:
    return OperatorTensor(sizes=sizes, data_type=ElementType(data_type), storage=storage)


def operator(
    name: str, inputs: Sequence[Shape], *outputs: Shape, data_type: str = "float32",
    transposed: bool = False,
) -> DenseOperator[int]:  # fmt: skip
    return DenseOperator(
        name=f"aten::{name}",
        direction=Pass.BACKWARD if "backward" in name else Pass.FORWARD,
        inputs=tuple(tensor(sizes, i, data_type) for i, sizes in enumerate(inputs)),
        outputs=tuple(tensor(sizes, 100 + i, data_type) for i, sizes in enumerate(outputs)),
        transposed=transposed,
    )
