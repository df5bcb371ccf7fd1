import pytest
from dense_operators import operator

from costmodel.domain.hardware import Bound, Gpu
from costmodel.domain.workload import DataType
from costmodel.kernels.operators import bytes_estimate, operator_estimate
from costmodel.operators.operator_families import OperatorFamily
from costmodel.operators.operator_list import DenseOperator
from planner.files.profiles import load_profile
from planner.traces.predict.kernel_models import timed

H100, V100, CORE = (
    load_profile(each).gpu for each in ("h100-sxm", "v100-nvlink", "cpu-gloo")
)  # fmt: skip
CONVOLUTION = operator("cudnn_convolution", [(32, 64, 56, 56), (64, 64, 3, 3)], (32, 64, 56, 56))


@pytest.mark.parametrize("gpu", [H100, V100, CORE])
def test_kernels_take_what_those_of_a_plan_do(gpu: Gpu) -> None:
    for given in (
        operator("mm", [(4096, 512), (512, 256)], (4096, 256)),
        operator("add", [(4096, 512), (4096, 512)], (4096, 512)),
    ):
        made = timed(given, gpu)
        assert made.known
        assert made.estimate == operator_estimate(given, DataType.FP32, gpu)


def test_convolutions_of_fp32_are_tf32_where_a_gpu_has_it() -> None:
    assert timed(CONVOLUTION, H100).estimate == operator_estimate(CONVOLUTION, DataType.TF32, H100)
    assert timed(CONVOLUTION, V100).estimate == operator_estimate(CONVOLUTION, DataType.FP32, V100)


@pytest.mark.parametrize(
    "given",
    [
        operator("fused", [(4096, 512)], (4096, 512)),
        operator("mm", [(4096, 512)], (4096, 512)),
        operator("mm", [(4096,), ()], (4096, 512)),
        operator("cudnn_convolution", [(8, 3, 9), (4, 3, 5)], ()),
        operator("_scaled_dot_product_flash_attention", [(8, 8)] * 3, (8, 8)),
        operator("mm", [(4096, 512), (512, 256)], (4096, 256), data_type="int64"),
    ],
)
def test_what_no_model_knows_takes_what_its_bytes_do(given: DenseOperator[int]) -> None:
    made = timed(given, H100)
    assert (made.family, made.known) == (OperatorFamily.OTHER, False)
    assert made.estimate.seconds == bytes_estimate(given, H100).seconds
    assert (made.estimate.bound_by, made.estimate.extrapolated) == (Bound.BYTES_OF_TENSORS, True)
