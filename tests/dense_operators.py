"""Operators of a dense model, for tests: of given sizes, each tensor in memory of its own."""

from collections.abc import Sequence

from costmodel.operators.operator_list import (
    BatchSize,
    DenseOperator,
    DenseParameter,
    ElementType,
    EmbeddingOutput,
    OperatorList,
    OperatorTensor,
    Pass,
    Size,
)

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


def rows(columns: int, storage: int) -> OperatorTensor[Size]:
    """A matrix of a row per sample."""
    sizes = (Size(samples=1), Size(constant=columns))
    return OperatorTensor(sizes=sizes, data_type=ElementType.FLOAT32, storage=storage)


def weights(inputs: int, outputs: int, storage: int) -> OperatorTensor[Size]:
    sizes = (Size(constant=inputs), Size(constant=outputs))
    return OperatorTensor(sizes=sizes, data_type=ElementType.FLOAT32, storage=storage)


def listed_step() -> OperatorList[Size]:
    """A linear layer of dense features, 5 to 8; embeddings of 8 are added, and the loss is a sum.

    Memory: -1 weight, -2 dense features, -3 embeddings; 0 layer's output, 1 sum, 2 loss; gradients
    of the sum 3, the embeddings 4, the weight 5.
    """

    def one(
        name: str, inputs: Sequence[OperatorTensor[Size]], output: OperatorTensor[Size],
        direction: Pass = Pass.FORWARD, **more: tuple[int, ...],
    ) -> DenseOperator[Size]:  # fmt: skip
        return DenseOperator(
            name=f"aten::{name}", direction=direction, inputs=tuple(inputs), outputs=(output,),
            **more,
        )  # fmt: skip

    scalar: OperatorTensor[Size] = OperatorTensor(
        sizes=(), data_type=ElementType.FLOAT32, storage=2
    )
    features, embedded, weight = rows(5, -2), rows(8, -3), weights(5, 8, -1)
    output, total, gradient = rows(8, 0), rows(8, 1), rows(8, 3)
    backward = Pass.BACKWARD
    return OperatorList(
        name="listed",
        operators=(
            one("mm", (features, weight), output),
            one("add", (output, embedded), total, reads=(0,)),
            one("sum", (total,), scalar),
            one("ones_like", (scalar,), gradient, backward),
            one("clone", (gradient,), rows(8, 4), backward, embeddings=(0,)),
            one("mm", (features, gradient), weights(5, 8, 5), backward, parameters=(0,)),
        ),
        parameters=(
            DenseParameter(name="weight", num_elements=40),
            DenseParameter(name="frozen", num_elements=7, trained=False),
        ),
        embeddings=(EmbeddingOutput(name="bags", tensor=embedded),),
        recorded=BatchSize(24),
    )
