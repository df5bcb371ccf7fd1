"""What CUDA runs where a CPU, on which a list was recorded, ran something else.

References
----------
torch 2.13, aten/src/ATen/native/Dropout.cpp: ``_dropout`` draws noise, scales it in place and
multiplies with it; ``is_fused_kernel_acceptable``: on CUDA one kernel does all three.

"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from costmodel.operators.operator_list import (
    DenseOperator,
    ElementType,
    OperatorList,
    OperatorTensor,
    S,
)

_DROPOUT = ("aten::bernoulli_", "aten::div_", "aten::mul")


def on_cuda(operators: OperatorList[S]) -> OperatorList[S]:
    """Return a list with CUDA's operators."""
    return replace(operators, operators=tuple(_fused(operators.operators)))


def _fused(operators: Sequence[DenseOperator[S]]) -> Iterator[DenseOperator[S]]:
    """Yield operators, those of a dropout as one."""
    place = 0
    while place < len(operators):
        three = operators[place : place + len(_DROPOUT)]
        fused = _is_dropout(three)
        yield _dropout(*three) if fused else operators[place]
        place += len(_DROPOUT) if fused else 1


def _is_dropout(three: Sequence[DenseOperator[S]]) -> bool:
    """Tell whether three operators draw noise, scale it, and multiply with it."""
    if tuple(each.name for each in three) != _DROPOUT:
        return False
    (noise, *_), (scaled, *_), _ = (each.outputs for each in three)
    read = {each.storage for each in three[-1].inputs}
    return noise.storage == scaled.storage and noise.storage in read


def _dropout(
    drawn: DenseOperator[S], _: DenseOperator[S], multiplied: DenseOperator[S]
) -> DenseOperator[S]:
    """Return the one operator: it writes a mask of a byte for each element beside its result."""
    noise = drawn.outputs[0]
    mask: OperatorTensor[S] = OperatorTensor(
        sizes=noise.sizes,
        data_type=ElementType.BOOL,
        storage=noise.storage,
        expanded=noise.expanded,
    )
    return DenseOperator(
        name="aten::native_dropout",
        direction=multiplied.direction,
        inputs=tuple(each for each in multiplied.inputs if each.storage != noise.storage),
        outputs=multiplied.outputs + (mask,),  # noqa: RUF005 - mypy loses the type of the other way
        reads=multiplied.reads,
        parameters=multiplied.parameters,
        embeddings=multiplied.embeddings,
    )
