import pytest
from plans import table, workload

from costmodel.domain.codecs import is_clamped, wire_element_bytes, wire_type
from costmodel.domain.workload import DataType

FP32, FP16, BF16 = DataType.FP32, DataType.FP16, DataType.BF16
FP8, INT8 = DataType.FP8, DataType.INT8


@pytest.mark.parametrize(
    ("asked", "alone", "summed"),
    [
        # forward and backward, of collectives that add nothing up and of those that do
        ((FP32, FP32), (None, None), (None, None)),
        ((FP16, BF16), (FP16, BF16), (FP16, BF16)),
        ((FP8, FP8), (FP8, FP8), (FP16, BF16)),
        ((INT8, FP32), (INT8, None), (INT8, None)),
    ],
)
def test_fp32_converts_nothing_and_fp8_is_not_summed(
    asked: tuple[DataType, DataType],
    alone: tuple[DataType | None, DataType | None],
    summed: tuple[DataType | None, DataType | None],
) -> None:
    forward, backward = asked
    work = workload(table(), comms_forward=forward, comms_backward=backward)
    for expected, adds in ((alone, False), (summed, True)):
        found = [wire_type(work, summed=adds, backward=each) for each in (False, True)]
        assert tuple(found) == expected


def test_elements_on_the_wire_by_hand() -> None:
    # INT8: 8 bytes more for every 32 elements
    assert [wire_element_bytes(each) for each in (FP16, FP8, INT8)] == [2.0, 1.0, 1.25]
    assert [is_clamped(each) for each in (FP16, BF16, FP8, INT8, None)] == [True] * 2 + [False] * 3
