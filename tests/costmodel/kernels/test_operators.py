from dataclasses import replace

import pytest
from dense_operators import operator

from costmodel.domain.workload import DataType
from costmodel.kernels.gemm import gemm_estimate
from costmodel.kernels.operators import (
    ATTENTION_BACKWARD,
    is_known,
    operator_estimate,
    pass_times,
    products_estimate,
)
from costmodel.kernels.pointwise import (
    batched_product_time,
    concat_time,
    index_backward_time,
    pointwise_time,
    row_sum_time,
    scalar_time,
)
from costmodel.operators.operator_families import plain_name
from costmodel.operators.operator_list import (
    BatchSize,
    DenseOperator,
    ElementType,
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


def test_causal_attention_leaves_out_blocks_and_its_backward_is_slower() -> None:
    short, long = (2, 3, 128, 64), (2, 3, 1024, 64)
    core = load_profile("cpu-gloo").gpu
    for shape, share in ((short, 1.0), (long, 9 / 16)):
        given = operator(ATTENTION, [shape] * 3, shape)
        for gpu in (GPU, core):
            whole = operator_estimate(given, DataType.FP32, gpu).seconds
            causal = operator_estimate(replace(given, causal=True), DataType.FP32, gpu).seconds
            assert causal == pytest.approx(share * whole)
        back = operator(f"{ATTENTION}_backward", [shape] * 4, shape)
        products = sum(
            products_estimate(each, DataType.FP32, GPU).seconds for each in products_of(back)
        )
        taken = operator_estimate(back, DataType.FP32, GPU).seconds
        assert taken == pytest.approx(products / ATTENTION_BACKWARD)


def test_convolutions_of_fp32_are_made_in_tf32_and_products_are_not() -> None:
    convolution = operator("convolution", [(64, 32, 28, 28), (64, 32, 3, 3)], (64, 64, 26, 26))
    product = operator("mm", [(4096, 512), (512, 256)], (4096, 256))
    for given, same in ((convolution, True), (product, False)):
        times = [operator_estimate(given, each, GPU) for each in (DataType.FP32, DataType.TF32)]
        assert (times[0] == times[1]) is same
    v100 = load_profile("v100-nvlink").gpu  # it has no TF32
    assert operator_estimate(convolution, DataType.FP32, v100).seconds > 0


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


def test_elements_take_their_time_beside_bytes() -> None:
    core = load_profile("cpu-gloo").gpu
    each = core.element_times
    squashed = operator("tanh", [(4096, 512)], (4096, 512))
    streamed = pointwise_time(2 * 4096 * 512 * 4, core)
    more = 4096 * 512 * each["tanh"]
    assert more > streamed
    assert operator_estimate(squashed, DataType.FP32, core).seconds == streamed + more
    in_place = operator("tanh_", [(4096, 512)], (4096, 512))
    assert operator_estimate(in_place, DataType.FP32, core).seconds >= more
    query = (2, 3, 512, 64)
    scored = operator(ATTENTION, [query] * 3, query)
    free = replace(core, element_times={plain_name(scored.name): 0.0})
    slow = replace(core, element_times={plain_name(scored.name): 1e-9})
    times = (operator_estimate(scored, DataType.FP32, gpu).seconds for gpu in (slow, free))
    assert next(times) - next(times) == pytest.approx(2 * 3 * 512 * 512 * 1e-9)


def test_kernels_that_go_to_memory_in_another_way_have_their_own_time() -> None:
    bias = operator("sum", [(4096, 512)], (1, 512))
    assert operator_estimate(bias, DataType.FP32, GPU).seconds == row_sum_time(4096, 512, 4, GPU)
    index = replace(
        operator("_index_put_impl_", [(4096, 512), (64,), (4096, 64)], (4096, 512)),
        direction=Pass.BACKWARD,
    )
    added = index_backward_time(4096 * 64, GPU)
    assert operator_estimate(index, DataType.FP32, GPU).seconds == added
    half = operator("_to_copy", [(4096, 512)], (4096, 512))
    half = replace(half, outputs=(replace(half.outputs[0], data_type=ElementType.BFLOAT16),))
    cast = scalar_time(4096 * 512, 6 * 4096 * 512, GPU)
    assert operator_estimate(half, DataType.FP32, GPU).seconds == cast


@pytest.mark.parametrize("lacking", [("inputs",), ("outputs",), ("inputs", "outputs")])
@pytest.mark.parametrize("name", ["sum", "clone", "copy_", "_index_put_impl_", "cat", "relu"])
def test_operators_that_lack_tensors_take_a_kernels_time(
    name: str, lacking: tuple[str, ...]
) -> None:
    given = operator(name, [(64, 64), (64,)], (64, 64))
    some = replace(given, **dict.fromkeys(lacking, ()))
    for gpu in (GPU, load_profile("cpu-gloo").gpu):
        assert operator_estimate(some, DataType.FP32, gpu).seconds > 0


@pytest.mark.parametrize(
    ("name", "on_core", "on_gpu"),
    [
        ("mm", True, True), ("gelu", True, True), ("cat", True, True), ("trapezoid", False, False),
        ("celu", False, False), ("hardtanh", False, True),
    ],
)  # fmt: skip
def test_what_was_not_measured_is_not_known_on_a_core(
    name: str, *, on_core: bool, on_gpu: bool
) -> None:
    given = operator(name, [(64, 64), (64, 64)], (64, 64))
    assert is_known(given, load_profile("cpu-gloo").gpu) is on_core
    assert is_known(given, GPU) is on_gpu


def test_forward_and_backward_add_up_and_are_issued_one_by_one() -> None:
    forward = operator("add", [(4096, 512), (4096, 512)], (4096, 512))
    backward = operator("threshold_backward", [(4096, 512), (4096, 512)], (4096, 512))
    listed = OperatorList(operators=(forward, backward, backward), recorded=BatchSize(1))
    times, host = pass_times(listed, DataType.FP32, H100), H100.host
    each = operator_estimate(forward, DataType.FP32, GPU).seconds
    assert times[Pass.FORWARD] == (each, host.listed_time(backward=False) + host.launch_time)
    assert times[Pass.BACKWARD].kernels == 2 * each
    assert times[Pass.BACKWARD].host == 2 * (host.listed_time(backward=True) + host.launch_time)


@pytest.mark.parametrize("name", [ATTENTION, f"{ATTENTION}_backward"])
def test_attention_takes_as_long_as_that_of_whole_blocks(name: str) -> None:
    """A length that no vector of 16 bytes divides is no slower kernel's, as it is of a product."""

    def seconds(length: int) -> float:
        shape = (32, 4, length, 256)
        given = operator(name, [shape] * (3 + name.endswith("_backward")), shape)
        return operator_estimate(given, DataType.BF16, GPU).seconds

    assert seconds(4099) == seconds(4224)
    assert seconds(4096) < seconds(4099) < 1.1 * seconds(4096)
    odd, even = (gemm_estimate(4096, n, 256, DataType.BF16, GPU).seconds for n in (4099, 4224))
    assert odd > 1.5 * even
