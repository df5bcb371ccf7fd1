import pytest
from dense_operators import operator

from costmodel.domain.workload import DataType
from costmodel.kernels.gemm import gemm_estimate
from costmodel.kernels.operators import (
    operator_estimate,
    pass_times,
    products_estimate,
)
from costmodel.kernels.pointwise import batched_product_time, concat_time, pointwise_time
from costmodel.operators.operator_list import (
    BatchSize,
    DenseOperator,
    OperatorList,
    Pass,
)
from costmodel.operators.products import Product, products_of
from costmodel.operators.work import flop
from planner.files.profiles import load_profile

H100 = load_profile("h100-sxm")
GPU = H100.gpu


QUERY, KEY, VALUE, RESULT = (2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 4), (2, 3, 5, 4)
ATTENTION = "_scaled_dot_product_flash_attention"


@pytest.mark.parametrize(
    ("given", "number"),
    [
        (operator("addmm", [(6,), (4, 5), (5, 6)], (4, 6)), 1),
        (operator("bmm", [(3, 4, 5), (3, 5, 6)], (3, 4, 6)), 1),
        (operator("_scaled_mm", [(4, 5), (5, 6), (), ()], (4, 6)), 1),
        (operator(ATTENTION, [QUERY, KEY, VALUE], RESULT), 2),
        (
            operator(f"{ATTENTION}_backward", [RESULT, QUERY, KEY, VALUE], QUERY, KEY, VALUE),
            5,
        ),
        (operator("convolution", [(2, 3, 9), (4, 3, 5)], (2, 4, 9)), 1),
        (operator("convolution", [(2, 4, 6), (4, 3, 5)], (2, 3, 9), transposed=True), 1),
        (
            operator(
                "convolution_backward", [(2, 4, 9), (2, 3, 9), (4, 3, 5)], (2, 3, 9), (4, 3, 5)
            ),
            2,
        ),
        (operator("add", [(4, 5)], (4, 5)), 0),
    ],
)
def test_products_have_the_flop_of_their_operator(given: DenseOperator[int], number: int) -> None:
    products = list(products_of(given))
    assert len(products) == number
    assert sum(each.flop for each in products) == flop(given)


def test_a_product_takes_what_its_estimate_says() -> None:
    given = operator("mm", [(4096, 512), (512, 256)], (4096, 256))
    expected = gemm_estimate(4096, 256, 512, DataType.TF32, GPU).seconds
    assert operator_estimate(given, DataType.TF32, GPU).seconds == expected


def test_half_precision_is_its_own() -> None:
    shapes = [(4096, 512), (512, 256)]
    half = operator("mm", shapes, (4096, 256), data_type="bfloat16")
    expected = gemm_estimate(4096, 256, 512, DataType.BF16, GPU).seconds
    assert operator_estimate(half, DataType.FP32, GPU).seconds == expected


def test_small_products_of_a_batch_share_a_kernel() -> None:
    small = Product(count=4096, m=27, n=27, k=64)
    expected = batched_product_time(4096, 27, 27, 64, DataType.FP16, GPU)
    assert products_estimate(small, DataType.FP16, GPU).seconds == expected
    large = Product(count=8, m=512, n=256, k=64)
    rows = gemm_estimate(8 * 512, 256, 64, DataType.FP16, GPU).seconds
    assert products_estimate(large, DataType.FP16, GPU).seconds == rows


def test_all_else_takes_what_its_bytes_do() -> None:
    added = operator("add", [(4096, 512), (4096, 512)], (4096, 512))
    assert operator_estimate(added, DataType.FP32, GPU).seconds == pointwise_time(
        3 * 4096 * 512 * 4, GPU
    )
    joined = operator("cat", [(4096, 512), (4096, 512)], (4096, 1024))
    assert operator_estimate(joined, DataType.FP32, GPU).seconds == concat_time(
        4 * 4096 * 512 * 4, GPU
    )
    empty = operator("mm", [(0, 512), (512, 256)], (0, 256))
    assert operator_estimate(empty, DataType.FP32, GPU).seconds == pointwise_time(
        512 * 256 * 4, GPU
    )


def test_forward_and_backward_add_up_and_are_issued_one_by_one() -> None:
    forward = operator("add", [(4096, 512), (4096, 512)], (4096, 512))
    backward = operator("threshold_backward", [(4096, 512), (4096, 512)], (4096, 512))
    listed = OperatorList(operators=(forward, backward, backward), recorded=BatchSize(1))
    times, host = pass_times(listed, DataType.FP32, H100), H100.host
    each = operator_estimate(forward, DataType.FP32, GPU).seconds
    assert times[Pass.FORWARD] == (each, host.op_time + host.launch_time)
    assert times[Pass.BACKWARD].kernels == 2 * each
    assert times[Pass.BACKWARD].host == 2 * (host.backward_op_time + host.launch_time)
