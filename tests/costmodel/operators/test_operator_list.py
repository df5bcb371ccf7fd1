import pytest

from costmodel.operators.operator_list import (
    BatchSize,
    DenseOperator,
    ElementType,
    EmbeddingOutput,
    OperatorList,
    OperatorTensor,
    Pass,
    SequenceSize,
    SequenceTerms,
    Size,
)

BATCH = BatchSize(10, (SequenceSize(longest=7, ids=40), SequenceSize(longest=2, ids=15)))


def tensor(*sizes: Size, storage: int = 0) -> OperatorTensor[Size]:
    return OperatorTensor(sizes=sizes, data_type=ElementType.FLOAT32, storage=storage)


def one_operator(
    *sizes: Size, parameters: tuple[int, ...] = (), reads: tuple[int, ...] = ()
) -> OperatorList[Size]:
    operator = DenseOperator(
        name="aten::relu",
        direction=Pass.FORWARD,
        inputs=(tensor(*sizes),),
        outputs=(tensor(*sizes, storage=1),),
        parameters=parameters,
        reads=reads,
    )
    given = EmbeddingOutput(name="bags", tensor=tensor(Size(samples=1), storage=-1))
    return OperatorList(operators=(operator,), embeddings=(given,), recorded=BatchSize(1))


@pytest.mark.parametrize(
    ("size", "elements"),
    [
        (Size(constant=3), 3),
        (Size(samples=2), 20),
        (Size(-1, sequences=(SequenceTerms(longest=1),)), 6),
        (Size(sequences=(SequenceTerms(positions=1),)), 70),
        (Size(samples=4, sequences=(SequenceTerms(ids=1),)), 80),
        (Size(3, 1, (SequenceTerms(2, 1, 1), SequenceTerms(5, 3, 4))), 13 + 124 + 130),
        (Size(sequences=(SequenceTerms(), SequenceTerms(), SequenceTerms(1, 1, 1))), 0),
        (Size(samples=0.5), 5),
        (Size(constant=5, samples=-1), 0),  # no batch has fewer elements than none
    ],
)
def test_a_size_by_hand(size: Size, elements: int) -> None:
    assert size.at(BATCH) == elements


def test_a_list_at_a_batch_has_its_sizes_everywhere() -> None:
    sized = one_operator(Size(samples=1), Size(constant=8)).at(BATCH)
    (operator,) = sized.operators
    assert [each.sizes for each in (*operator.inputs, *operator.outputs)] == [(10, 8), (10, 8)]
    assert sized.embeddings[0].tensor.sizes == (10,)
    assert operator.inputs[0].num_bytes == 10 * 8 * 4


def test_an_expanded_dimension_is_one_element_in_memory() -> None:
    expanded = OperatorTensor(
        sizes=(10, 8), data_type=ElementType.BFLOAT16, storage=0, expanded=(0,)
    )
    assert expanded.num_bytes == 8 * 2
    with pytest.raises(ValueError, match="2 dimensions"):
        OperatorTensor(sizes=(10, 8), data_type=ElementType.INT64, storage=0, expanded=(2,))


def test_places_are_of_what_is_listed() -> None:
    with pytest.raises(ValueError, match="parameters are from 0 to -1, got 0"):
        one_operator(Size(constant=1), parameters=(0,))
    with pytest.raises(ValueError, match="reads are from 0 to 0, got 1"):
        one_operator(Size(constant=1), reads=(1,))


def test_a_tensor_larger_than_any_is_refused() -> None:
    enormous = one_operator(Size(samples=1e9), Size(samples=1e9))
    with pytest.raises(ValueError, match="elements of a tensor must be at most"):
        enormous.at(BATCH)


@pytest.mark.parametrize("data_type", ElementType)
def test_every_type_has_a_size(data_type: ElementType) -> None:
    assert data_type.num_bytes in {1, 2, 4, 8, 16}
