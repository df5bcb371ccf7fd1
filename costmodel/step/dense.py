"""The data-parallel part of a step: MLPs, interaction and loss, forward and backward.

Kernels are those of PyTorch's eager mode, counted in the single-GPU steps of
``v100_dlrm_kernels.csv`` and in the 8 x V100 TorchRec trace.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from types import MappingProxyType
from typing import Concatenate, NamedTuple, ParamSpec, TypeAlias

from costmodel.base.units import Bytes, Seconds
from costmodel.domain.dense_layers import (
    DenseLayer,
    bottom_layers,
    bottom_width,
    cross_layers,
    dense_layers,
    interaction_width,
    num_sparse_features,
    pooled_width,
    sparse_width,
    top_layers,
)
from costmodel.domain.hardware import Basis, Bound, Estimate, Gpu, Source
from costmodel.domain.workload import DataType, Interaction, Workload
from costmodel.kernels.gemm import gemm_estimate
from costmodel.kernels.pointwise import (
    batched_product_time,
    concat_time,
    index_backward_time,
    index_time,
    pointwise_time,
    view_concat_time,
)
from costmodel.step.buckets import GradientBuckets
from costmodel.step.builder import STREAMED, StepBuilder
from costmodel.step.graph import Resource, Role, Stage
from costmodel.step.issue import Issue

_INDEX_BACKWARD = Issue(2.0, 4.0)
Given = ParamSpec("Given")
Hooks: TypeAlias = Mapping[int, Callable[[], None]]
"""What is done once the gradients of a layer's parameters are there, by the layer's number."""
NO_HOOKS: Hooks = MappingProxyType({})


class Widths(NamedTuple):
    """Sizes around the interaction."""

    vectors: int
    """Embedding vectors per sample, with the bottom MLP's output."""
    columns: int
    """Columns of all of them."""
    top_inputs: int
    """Columns that enter the top MLP."""


def _layer_bytes(layer: DenseLayer) -> Bytes:
    return 4.0 * layer.num_parameters


def _gradient_sizes(layer: DenseLayer) -> tuple[Bytes, ...]:
    """Return bytes of a layer's gradients: the bias comes first, and has a copy of its own."""
    weights = 4.0 * layer.num_inputs * layer.num_outputs
    return (4.0 * layer.num_outputs, weights) if layer.bias else (weights,)


@dataclass(frozen=True)
class DenseCosts:
    """Sizes of a workload's dense model, and what its layers' matrix products take on a GPU.

    Each is worked out when first asked for: that is half the work of writing a step, and the same
    for all plans.
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
    def parameter_bytes(self) -> Bytes:
        """FP32 bytes of all parameters."""
        return sum(_layer_bytes(layer) for layer in dense_layers(self.workload))

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


def _called(
    write: "Callable[Concatenate[DensePart, Given], None]",
) -> "Callable[Concatenate[DensePart, Given], None]":
    """Have what a method writes issued as the workload says (``DenseModel.launch``)."""

    @wraps(write)
    def written(part: "DensePart", /, *args: Given.args, **kwargs: Given.kwargs) -> None:
        with part.builder.called_as(part.workload.dense.launch):
            write(part, *args, **kwargs)

    return written


@dataclass(frozen=True, slots=True)
class DensePart:
    """Writes the dense kernels of one step into a program."""

    builder: StepBuilder
    costs: DenseCosts

    @property
    def workload(self) -> Workload:
        """The workload whose step it is."""
        return self.costs.workload

    @property
    def gpu(self) -> Gpu:
        """The GPU whose times the kernels have."""
        return self.costs.gpu

    @_called
    def bottom_forward(self) -> None:
        """Bottom MLP."""
        self._forward(self.costs.bottom)

    @_called
    def interaction_forward(self) -> None:
        """From the bottom MLP's output and the embeddings to the top MLP's input."""
        widths, batch = self.costs.widths, self.workload.local_batch_size
        interaction = self.workload.dense.interaction
        if interaction is Interaction.DOT:
            self._dot_forward(widths, batch)
            return
        self._stream(
            "concat features", Stage.DENSE_FORWARD, 2 * batch * widths.columns, time=concat_time
        )
        for layer in self.costs.cross:
            self._forward((layer,))
            if layer.ends_cross:
                self._stream(
                    f"{layer.name} residual", Stage.DENSE_FORWARD, 4 * batch * widths.columns
                )

    @_called
    def top_forward(self) -> None:
        """Top MLP and loss: sigmoid, binary cross entropy, mean."""
        self._forward(self.costs.top)
        for name in ("sigmoid", "loss", "mean loss"):
            self._stream(name, Stage.DENSE_FORWARD, 2 * self.workload.local_batch_size)

    @_called
    def top_backward(self, gradients: GradientBuckets, hooks: Hooks = NO_HOOKS) -> None:
        """Loss and top MLP; hooks are called after the layers of their numbers."""
        for name in ("mean loss", "loss", "sigmoid"):
            self._stream(
                f"{name} backward", Stage.DENSE_BACKWARD, 3 * self.workload.local_batch_size
            )
        self._backward(self.costs.top, gradients, inputs_need_gradient=True, hooks=hooks)

    @_called
    def interaction_backward(self, gradients: GradientBuckets) -> None:
        """From the top MLP's input back to the bottom MLP's output and the embeddings.

        The parts of a concatenation's gradient are views of it; those of a module's pooled features
        are put together again.
        """
        widths, batch = self.costs.widths, self.workload.local_batch_size
        if self.workload.dense.interaction is Interaction.DOT:
            self._dot_backward(widths, batch)
            return
        for layer in reversed(self.costs.cross):
            if layer.ends_cross:
                self._stream(
                    f"{layer.name} residual backward",
                    Stage.DENSE_BACKWARD,
                    6 * batch * widths.columns,
                )
            self._backward((layer,), gradients, inputs_need_gradient=True)
        self._stream(
            "concat features backward",
            Stage.DENSE_BACKWARD,
            2 * batch * pooled_width(self.workload),
            time=view_concat_time,
        )

    @_called
    def bottom_backward(self, gradients: GradientBuckets) -> None:
        """Bottom MLP; nobody needs the gradient of the dense features."""
        self._backward(self.costs.bottom, gradients, inputs_need_gradient=False)

    def _forward(self, layers: Sequence[DenseLayer]) -> None:
        batch = self.workload.local_batch_size
        for layer in layers:
            self._cast_weight(layer)
            self._gemm(
                layer.name, Stage.DENSE_FORWARD, (batch, layer.num_outputs, layer.num_inputs)
            )
            if layer.activated:
                self._stream(
                    f"{layer.name} relu", Stage.DENSE_FORWARD, 2 * batch * layer.num_outputs
                )

    def _backward(
        self,
        layers: Sequence[DenseLayer],
        gradients: GradientBuckets,
        *,
        inputs_need_gradient: bool,
        hooks: Hooks = NO_HOOKS,
    ) -> None:
        batch = self.workload.local_batch_size
        for index, layer in reversed(list(enumerate(layers))):
            name, outputs = f"{layer.name} backward", batch * layer.num_outputs
            if layer.activated:
                self._stream(f"{name} relu", Stage.DENSE_BACKWARD, 3 * outputs)
            if index or inputs_need_gradient:
                self._gemm(
                    f"{name} input",
                    Stage.DENSE_BACKWARD,
                    (batch, layer.num_inputs, layer.num_outputs),
                )
            self._gemm(
                f"{name} weight", Stage.DENSE_BACKWARD, (layer.num_outputs, layer.num_inputs, batch)
            )
            self._stream(f"{name} bias", Stage.DENSE_BACKWARD, outputs)
            self._cast_weight(layer)
            for size in _gradient_sizes(layer):
                gradients.add(size)
            if index in hooks:
                hooks[index]()

    def _dot_forward(self, widths: Widths, batch: int) -> None:
        """Concatenate to (B, F, D), multiply by its transpose, take the triangle, concatenate."""
        dim = self._vector_width(widths)
        pairs = widths.vectors * (widths.vectors - 1) // 2
        if self.workload.dense.fused_interaction:
            moved = batch * (widths.columns + widths.top_inputs)
            self._stream("dot interaction", Stage.DENSE_FORWARD, moved)
            return
        self._stream(
            "concat features", Stage.DENSE_FORWARD, 2 * batch * widths.columns, time=concat_time
        )
        self._batched("dot interaction", Stage.DENSE_FORWARD, (widths.vectors, widths.vectors, dim))
        element_bytes = self.workload.dense.precision.num_bytes
        self.builder.kernel(
            "lower triangle", Stage.DENSE_FORWARD,
            index_time(batch * pairs, element_bytes, self.gpu),
            num_bytes=2.0 * batch * pairs * element_bytes,
        )  # fmt: skip
        self._stream(
            "concat interactions",
            Stage.DENSE_FORWARD,
            2 * batch * widths.top_inputs,
            time=concat_time,
        )

    def _dot_backward(self, widths: Widths, batch: int) -> None:
        dim, vectors = self._vector_width(widths), widths.vectors
        if self.workload.dense.fused_interaction:
            moved = batch * (2 * widths.columns + widths.top_inputs)
            self._stream("dot interaction backward", Stage.DENSE_BACKWARD, moved)
            return
        self._stream(
            "split interactions",
            Stage.DENSE_BACKWARD,
            2 * batch * widths.top_inputs,
            time=concat_time,
        )
        self._stream("zero triangle", Stage.DENSE_BACKWARD, batch * vectors**2)
        self.builder.kernel(
            "lower triangle backward", Stage.DENSE_BACKWARD,
            index_backward_time(batch * vectors * (vectors - 1) // 2, self.gpu),
            issue=_INDEX_BACKWARD, basis=Basis(Bound.SCATTER_RATE, Source.FITTED),
        )  # fmt: skip
        self._batched(
            "dot interaction backward left", Stage.DENSE_BACKWARD, (vectors, dim, vectors)
        )
        self._batched(
            "dot interaction backward right", Stage.DENSE_BACKWARD, (dim, vectors, vectors)
        )
        self._stream("add gradients", Stage.DENSE_BACKWARD, 3 * batch * widths.columns)
        self._stream(
            "split features", Stage.DENSE_BACKWARD, 2 * batch * widths.columns,
            time=view_concat_time,
        )  # fmt: skip

    @staticmethod
    def _vector_width(widths: Widths) -> int:
        return -(-widths.columns // widths.vectors)

    def _gemm(self, name: str, stage: Stage, shape: tuple[int, int, int]) -> None:
        estimate = self.costs.product_estimate(*shape)
        self.builder.kernel(name, stage, estimate.seconds, role=Role.PRODUCT, basis=estimate.basis)

    def _batched(self, name: str, stage: Stage, shape: tuple[int, int, int]) -> None:
        seconds = batched_product_time(
            self.workload.local_batch_size, *shape,
            self.workload.dense.precision, self.gpu,
        )  # fmt: skip
        basis = STREAMED._replace(bound_by=Bound.BATCHED_PRODUCT)
        self.builder.kernel(name, stage, seconds, role=Role.PRODUCT, basis=basis)

    def _stream(
        self,
        name: str,
        stage: Stage,
        elements: float,
        *,
        time: Callable[[Bytes, Gpu], Seconds] = pointwise_time,
    ) -> None:
        num_bytes = float(elements * self.workload.dense.precision.num_bytes)
        self.builder.kernel(name, stage, time(num_bytes, self.gpu), num_bytes=num_bytes)

    def _cast_weight(self, layer: DenseLayer) -> None:
        """Mixed precision casts every weight on its way in, and its gradient on the way out."""
        precision = self.workload.dense.precision
        if precision not in {DataType.FP16, DataType.BF16}:
            return
        backward = self.builder.thread is Resource.AUTOGRAD
        stage = Stage.DENSE_BACKWARD if backward else Stage.DENSE_FORWARD
        moved = _layer_bytes(layer) * 1.5
        self.builder.kernel(
            f"{layer.name} cast", stage, pointwise_time(moved, self.gpu),
            num_bytes=moved,
        )  # fmt: skip
