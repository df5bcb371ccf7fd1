"""Kernels of the dense model as PyTorch runs them: sizes, types, and host work.

With automatic mixed precision weights are FP32, and products half precision. Autocast converts
every operand of a product that is FP32, and the backward of a conversion converts the gradient
back. Other operators keep their operands' type, or the wider one of two: features that are FP32
make their concatenation FP32, and a cross layer is FP32 as its bias is.

References
----------
torch 2.11, aten/src/ATen/autocast_mode.h: lists of operators; native/cuda/Loops.cuh,
CUDALoops.cuh: which elementwise kernels are vectorized. Traces of training steps on an H200
(``gpu_study_h200_2026-11-26``): kernels, launches, and host time of an operator over that of one
as issue.py counts them (linear layers' forward 2, backward 4).

"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from costmodel.base.units import Bytes, Seconds
from costmodel.domain.dense_layers import (
    DenseLayer,
    bottom_layers,
    bottom_width,
    cross_layers,
    interaction_width,
    num_sparse_features,
    sparse_width,
    top_layers,
)
from costmodel.domain.hardware import Basis, Bound, Estimate, Gpu
from costmodel.domain.workload import DataType, Workload
from costmodel.kernels.gemm import gemm_estimate
from costmodel.kernels.listed_collectives import ListedCollective
from costmodel.kernels.pointwise import (
    batched_product_time,
    pointwise_time,
    row_sum_time,
    scalar_time,
)
from costmodel.step.builder import STREAMED
from costmodel.step.graph import Role, Stage
from costmodel.step.issue import ONE_OP, Issue

PARAMETER_BYTES = 4.0
"""Bytes of a parameter and of its gradient, whatever the products' precision."""
CAST = Issue(0.5, 1.0)
"""A conversion by autocast, or its backward: a linear layer takes 151 us with 2.1 of them and 75
without, ``ToCopyBackward`` 42 us (profiler attached)."""
_ROUNDED_SUM = Issue(2.0, 2.0)
"""The sum for a bias in half precision: ``AddmmBackward`` takes 254 us and copies once more, 175 us
in FP32 (as above)."""
_HALF = (DataType.FP16, DataType.BF16)


class Widths(NamedTuple):
    """Sizes around the interaction."""

    vectors: int
    """Embedding vectors per sample, with the bottom MLP's output."""
    columns: int
    """Columns of all of them."""
    top_inputs: int
    """Columns that enter the top MLP."""


def gradient_sizes(layer: DenseLayer) -> tuple[Bytes, ...]:
    """Return bytes of a layer's gradients: the bias comes first, and has a copy of its own."""
    weights = PARAMETER_BYTES * layer.num_inputs * layer.num_outputs
    return (PARAMETER_BYTES * layer.num_outputs, weights) if layer.bias else (weights,)


@dataclass(frozen=True)
class DenseCosts:
    """Sizes of a workload's dense model, and seconds of its layers' matrix products on a GPU.

    Each is computed when first asked for: that is half the work of writing a step, and the same for
    all plans.
    """

    workload: Workload
    gpu: Gpu

    @cached_property
    def bottom(self) -> tuple[DenseLayer, ...]:
        """Layers of the bottom MLP."""
        return bottom_layers(self.workload)

    @cached_property
    def cross(self) -> tuple[DenseLayer, ...]:
        """Layers of the cross network."""
        return cross_layers(self.workload)

    @cached_property
    def top(self) -> tuple[DenseLayer, ...]:
        """Layers of the top MLP."""
        return top_layers(self.workload)

    @cached_property
    def widths(self) -> Widths:
        """How wide the interaction is."""
        return Widths(
            1 + num_sparse_features(self.workload),
            bottom_width(self.workload) + sparse_width(self.workload),
            interaction_width(self.workload),
        )

    @cached_property
    def mixed(self) -> bool:
        """Whether products are of half precision and weights are not."""
        return self.workload.dense.precision in _HALF

    @cached_property
    def element_bytes(self) -> Bytes:
        """Bytes of an element of a product's operands and result."""
        return float(self.workload.dense.precision.num_bytes)

    @cached_property
    def feature_bytes(self) -> Bytes:
        """Bytes of an element of the embeddings; without mixed precision, of all tensors."""
        return float(self.workload.output_type.num_bytes) if self.mixed else self.element_bytes

    @cached_property
    def joined_bytes(self) -> Bytes:
        """Bytes of an element of bottom output and embeddings side by side."""
        return max(self.element_bytes, self.feature_bytes)

    def product_estimate(self, m: int, n: int, k: int) -> Estimate:
        """Return seconds of C[m, n] = A[m, k] B[k, n], and what bounds them (``gemm_estimate``).

        Raises
        ------
        ValueError
            The GPU has no matrix-product constants.

        """
        if (m, n, k) not in self._products:
            precision = self.workload.dense.precision
            self._products[m, n, k] = gemm_estimate(m, n, k, precision, self.gpu)
        return self._products[m, n, k]

    @cached_property
    def _products(self) -> dict[tuple[int, int, int], Estimate]:
        return {}


class DenseKernel(NamedTuple):
    """A kernel of the dense model, several in a row, or a collective; what its end makes known."""

    name: str
    seconds: Seconds
    num_bytes: Bytes = 0.0
    """Read and written."""
    issue: Issue = ONE_OP
    role: Role = Role.OTHER
    basis: Basis = STREAMED
    gradients: tuple[Bytes, ...] = ()
    """Bytes of each parameter's gradient that is there once it ends."""
    top_layer: int | None = None
    """The layer of the top MLP whose gradients these are, from 0 on."""
    collective: ListedCollective | None = None
    """What it is instead of a kernel."""


class DenseStretches(NamedTuple):
    """The kernels of a dense part, in the four stretches that the embeddings' work divides."""

    before_lookups: Sequence[DenseKernel]
    """Forward up to where embeddings are read."""
    after_lookups: Sequence[DenseKernel]
    before_exchange: Sequence[DenseKernel]
    """Backward up to where all embeddings have their gradients."""
    after_exchange: Sequence[DenseKernel]


@dataclass(frozen=True, slots=True)
class DenseKernels:
    """Lists single kernels of the dense model's forward or backward."""

    costs: DenseCosts
    stage: Stage
    written: list[DenseKernel] = field(default_factory=list)
    """Those so far."""

    @property
    def batch(self) -> int:
        """Samples of a step on a rank."""
        return self.costs.workload.local_batch_size

    def add(self, kernel: DenseKernel) -> None:
        """Add a kernel."""
        self.written.append(kernel)

    def ready(self, gradients: tuple[Bytes, ...], top_layer: int | None = None) -> None:
        """Note gradients that are there once the last kernel ends."""
        self.written[-1] = self.written[-1]._replace(gradients=gradients, top_layer=top_layer)

    def gemm(self, name: str, shape: tuple[int, int, int]) -> None:
        """Write a product."""
        estimate = self.costs.product_estimate(*shape)
        self.add(DenseKernel(name, estimate.seconds, role=Role.PRODUCT, basis=estimate.basis))

    def batched(self, name: str, shape: tuple[int, int, int]) -> None:
        """Write a product of every sample."""
        precision, gpu = self.costs.workload.dense.precision, self.costs.gpu
        seconds = batched_product_time(self.batch, *shape, precision, gpu)
        basis = STREAMED._replace(bound_by=Bound.BATCHED_PRODUCT)
        self.add(DenseKernel(name, seconds, role=Role.PRODUCT, basis=basis))

    def stream(
        self,
        name: str,
        num_bytes: Bytes,
        *,
        time: Callable[[Bytes, Gpu], Seconds] = pointwise_time,
        issue: Issue = ONE_OP,
        times: int = 1,
    ) -> None:
        """Add a kernel that reads and writes some bytes, or several of that size."""
        seconds = times * time(num_bytes, self.costs.gpu)
        self.add(DenseKernel(name, seconds, times * num_bytes, issue))

    def scalar(
        self,
        name: str,
        num_elements: float,
        element_bytes: Bytes,
        *,
        issue: Issue = ONE_OP,
        transposed: bool = False,
    ) -> None:
        """Add an elementwise kernel that is not vectorized.

        ``element_bytes`` are both read and written.
        """
        moved = num_elements * element_bytes
        seconds = scalar_time(num_elements, moved, self.costs.gpu, transposed=transposed)
        self.add(DenseKernel(name, seconds, moved, issue))

    def cast_operand(self, name: str, num_elements: float, element_bytes: Bytes) -> None:
        """Add the conversion of a product's operand or its gradient, if autocast needs it."""
        if not self.costs.mixed or element_bytes <= self.costs.element_bytes:
            return
        both = element_bytes + self.costs.element_bytes
        if self.stage is Stage.DENSE_BACKWARD:
            self.scalar(f"{name} cast", num_elements, both, issue=CAST)
        else:
            self.stream(f"{name} cast", num_elements * both, issue=CAST)

    def cast_parameters(self, layer: DenseLayer) -> None:
        """Add the conversion of a layer's weights, or in backward of their gradients."""
        if not self.costs.mixed:
            return
        gpu, both = self.costs.gpu, 1.0 + self.costs.element_bytes / PARAMETER_BYTES
        sizes = gradient_sizes(layer)
        if self.stage is Stage.DENSE_BACKWARD:
            seconds = sum(scalar_time(s / PARAMETER_BYTES, s * both, gpu) for s in sizes)
        else:
            seconds = sum(pointwise_time(size * both, gpu) for size in sizes)
        issue = Issue(CAST.num_ops * len(sizes), CAST.num_launches * len(sizes))
        self.add(DenseKernel(f"{layer.name} cast", seconds, sum(sizes) * both, issue))

    def sum_rows(self, name: str, num_columns: int, element_bytes: Bytes) -> None:
        """Add a gradient up over the samples, for a bias."""
        seconds = row_sum_time(self.batch, num_columns, element_bytes, self.costs.gpu)
        rounds = self.costs.mixed and element_bytes < PARAMETER_BYTES
        moved = self.batch * num_columns * element_bytes
        self.add(DenseKernel(name, seconds, moved, _ROUNDED_SUM if rounds else ONE_OP))
