from dataclasses import replace

import pytest
from dense_operators import operator, tensor

from costmodel.operators.operator_families import OperatorFamily, family_of
from costmodel.operators.operator_list import (
    BatchSize,
    DenseOperator,
    OperatorList,
    Pass,
)
from costmodel.operators.products import check_form
from costmodel.operators.work import (
    Moved,
    flop,
    moved,
    work_of,
)

QUERY, KEY, VALUE, RESULT = (2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 4), (2, 3, 5, 4)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (operator("mm", [(4, 5), (5, 6)], (4, 6)), 2 * 4 * 5 * 6),
        (operator("addmm", [(6,), (4, 5), (5, 6)], (4, 6)), 2 * 4 * 5 * 6),
        (operator("bmm", [(3, 4, 5), (3, 5, 6)], (3, 4, 6)), 2 * 3 * 4 * 5 * 6),
        (operator("addmv", [(4,), (4, 5), (5,)], (4,)), 2 * 4 * 5),
        (operator("dot", [(5,), (5,)], ()), 2 * 5),
        (operator("_scaled_mm", [(4, 5), (5, 6), (), ()], (4, 6)), 2 * 4 * 5 * 6),
        # 2 x 3 heads, 5 queries, 7 keys, widths 8 and 4
        (
            operator("_scaled_dot_product_flash_attention", [QUERY, KEY, VALUE], RESULT),
            2 * 2 * 3 * 5 * 7 * (8 + 4),
        ),
        (
            operator(
                "_scaled_dot_product_flash_attention_backward",
                [RESULT, QUERY, KEY, VALUE], QUERY, KEY, VALUE,
            ),
            2 * 2 * 3 * 5 * 7 * (3 * 8 + 2 * 4),
        ),
        # 2 samples, 3 to 4 channels, 9 places, a filter of 5
        (operator("convolution", [(2, 3, 9), (4, 3, 5)], (2, 4, 9)), 2 * 2 * 4 * 3 * 5 * 9),
        (
            operator("convolution", [(2, 4, 6), (4, 3, 5)], (2, 3, 9), transposed=True),
            2 * 2 * 4 * 3 * 5 * 6,
        ),
        (
            operator(
                "convolution_backward", [(2, 4, 9), (2, 3, 9), (4, 3, 5)], (2, 3, 9), (4, 3, 5)
            ),
            2 * (2 * 2 * 4 * 3 * 5 * 9),
        ),
        (operator("convolution_backward", [(2, 4, 9), (2, 3, 9), (4, 3, 5)], (4, 3, 5)), 2160),
        (operator("add", [(4, 5), (4, 5)], (4, 5)), 0),
    ],
)  # fmt: skip
def test_flop_by_hand(given: DenseOperator[int], expected: float) -> None:
    assert flop(given) == expected


@pytest.mark.parametrize(
    ("given", "read", "written"),
    [
        (operator("add", [(4, 5), (5,)], (4, 5)), 80 + 20, 80),
        (operator("zeros", [], (4, 5)), 0, 80),
        (operator("fill_", [(4, 5)], (4, 5)), 0, 80),
        (operator("copy_", [(4, 5), (5,)], (4, 5)), 20, 80),
        # two rows of a thousand, and their indices
        (operator("index_select", [(1000, 5), (2,)], (2, 5)), 40 + 8, 40),
        # two rows of a thousand change in place
        (operator("index_add_", [(1000, 5), (2,), (2, 5)], (1000, 5)), 40 + 8 + 40, 40),
    ],
)
def test_bytes_by_hand(given: DenseOperator[int], read: float, written: float) -> None:
    assert moved(given) == Moved(read, written)


def test_a_tensor_given_twice_is_read_once() -> None:
    twice = tensor((4, 5), 0)
    squared = DenseOperator(
        name="aten::mul", direction=Pass.FORWARD, inputs=(twice, twice),
        outputs=(tensor((4, 5), 1),),
    )  # fmt: skip
    assert moved(squared).read == 80


def test_a_loss_that_picks_does_not_read_all_that_it_picks_from() -> None:
    # 7 labels of 8 bytes for 7 rows of a thousand logits
    logits, labels = tensor((7, 1000), 0), tensor((7,), 1, "int64")
    picked = DenseOperator(
        name="aten::nll_loss_forward", direction=Pass.FORWARD, inputs=(logits, labels),
        outputs=(tensor((), 2),),
    )  # fmt: skip
    assert moved(picked) == Moved(56, 4)


def test_an_optimizer_changes_what_it_reads() -> None:
    assert moved(operator("_fused_adam_", [(4, 5)] * 4)) == Moved(320, 320)


def test_in_place_and_of_lists_operators_are_what_the_plain_ones_are() -> None:
    for name in ("mul", "mul_", "_foreach_mul", "_foreach_mul_"):
        assert family_of(f"aten::{name}") is OperatorFamily.ELEMENTWISE
    assert family_of("aten::_foreach_zero_") is OperatorFamily.FILL
    assert family_of("aten::zero_") is OperatorFamily.FILL


def test_what_is_not_known_is_no_family_s() -> None:
    assert family_of("mine::fused") is OperatorFamily.OTHER


def listed(*operators: DenseOperator[int]) -> OperatorList[int]:
    return OperatorList(operators=operators, recorded=BatchSize(1))


def test_activations_are_what_the_backward_reads_of_the_forward() -> None:
    parameter, inputs = tensor((5, 6), -1), tensor((4, 5), -2)
    made, unused = tensor((4, 6), 0), tensor((4, 6), 1)
    gradient = tensor((4, 6), 2)
    forward = DenseOperator(
        name="aten::mm", direction=Pass.FORWARD, inputs=(inputs, parameter), outputs=(made,)
    )
    activated = DenseOperator(
        name="aten::relu", direction=Pass.FORWARD, inputs=(made,), outputs=(unused,)
    )
    backward = DenseOperator(
        name="aten::mm", direction=Pass.BACKWARD, inputs=(gradient, parameter, inputs, made),
        outputs=(gradient,),
    )  # fmt: skip
    assert work_of(listed(forward, activated, backward)).kept == 4 * 6 * 4


def test_a_list_is_the_sum_of_its_operators() -> None:
    forward = operator("mm", [(4, 5), (5, 6)], (4, 6))
    backward = operator("convolution_backward", [(2, 4, 9), (2, 3, 9), (4, 3, 5)], (4, 3, 5))
    work = work_of(listed(forward, forward, backward))
    assert (work.forward_flop, work.backward_flop, work.flop) == (480, 2160, 2640)
    assert work.moved == 2 * sum(moved(forward)) + sum(moved(backward))


@pytest.mark.parametrize(
    "given",
    [
        operator("mm", [(4, 5)], (4, 6)),
        operator("mm", [(4, 5), (5,)], (4, 6)),
        operator("mm", [(4, 5), (5, 6)]),
        operator("_scaled_dot_product_flash_attention", [QUERY, KEY], RESULT),
        operator("_scaled_dot_product_flash_attention_backward", [QUERY, KEY, VALUE], QUERY),
        operator("convolution_backward", [(2, 3, 9), (4, 3, 5)], (4, 3, 5)),
        operator("convolution", [(2, 3, 9), (4, 3, 5)], ()),
        operator("mv", [(4, 5), ()], (4,)),
    ],
)
def test_a_product_without_its_factors_is_refused(given: DenseOperator[int]) -> None:
    with pytest.raises(ValueError, match=f"`{given.name}` needs an output and"):
        check_form(given)


def test_other_operators_may_have_any_form() -> None:
    check_form(operator("mine", []))
    check_form(operator("_scaled_mm", [(4, 5), (5, 6), (), ()], (4, 6)))


def test_slices_of_one_tensor_are_all_read_where_they_are_put_side_by_side() -> None:
    joined = replace(operator("cat", [], (4, 24)), inputs=(tensor((4, 8), 7),) * 3)
    assert moved(joined) == (3 * 4 * 8 * 4, 4 * 24 * 4)
