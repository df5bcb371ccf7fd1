"""Kernel times for predictions, and the models of a GPU's kernels."""

from collections.abc import Callable, Mapping
from typing import Protocol

from costmodel.base.units import Seconds
from costmodel.domain.hardware import Bound, Estimate, Gpu, HardwareProfile, Source
from costmodel.domain.workload import DataType
from costmodel.kernels.operators import products_estimate
from costmodel.kernels.pointwise import concat_time, pointwise_time
from planner.traces.predict.calls import KernelCall, OpFamily

_TYPES: Mapping[str, DataType] = {
    "float": DataType.FP32,
    "c10::Half": DataType.FP16,
    "c10::BFloat16": DataType.BF16,
}
"""Our data type by PyTorch's name in execution traces."""


class KernelModel(Protocol):
    """Returns times of kernels."""

    def kernel(self, call: KernelCall) -> Estimate | None:
        """Return the time of a kernel; None if this model does not know the operator."""


class GpuModel:
    """Times of a GPU's kernels: matrix products by their model, others by the bytes they stream."""

    def __init__(self, hardware: HardwareProfile) -> None:
        self.gpu = hardware.gpu

    def kernel(self, call: KernelCall) -> Estimate | None:
        """Return the time of a kernel; None for families without a model."""
        return _BY_FAMILY.get(call.family, _streamed)(call, self.gpu)


def _products(call: KernelCall, gpu: Gpu) -> Estimate | None:
    """Return the time of a call's product; None: it has none that the GPU has constants for."""
    data_type = _TYPES.get(call.element_type)
    if call.product is None or data_type is None or not gpu.gemm:
        return None
    return products_estimate(call.product, data_type, gpu)


def _streamed(call: KernelCall, gpu: Gpu) -> Estimate | None:
    return _bandwidth(pointwise_time(call.num_bytes, gpu), gpu)


def _copied(call: KernelCall, gpu: Gpu) -> Estimate | None:
    time = concat_time if call.operator.startswith("aten::cat") else pointwise_time
    return _bandwidth(time(call.num_bytes, gpu), gpu)


def _unknown(call: KernelCall, gpu: Gpu) -> Estimate | None:
    del call, gpu
    return None


def _bandwidth(seconds: Seconds, gpu: Gpu) -> Estimate:
    """Return so many seconds as an estimate, bound by memory or by the kernel's latency."""
    launch_bound = seconds < 2 * gpu.kernel_latency
    bound = Bound.KERNEL_LATENCY if launch_bound else Bound.MEMORY_BANDWIDTH
    return Estimate(seconds=seconds, bound_by=bound, source=Source.ROOFLINE)


_BY_FAMILY: Mapping[OpFamily, Callable[[KernelCall, Gpu], Estimate | None]] = {
    OpFamily.GEMM: _products,
    OpFamily.COPY: _copied,
    OpFamily.UNKNOWN: _unknown,
}
