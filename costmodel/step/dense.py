"""The data-parallel part of a step: MLPs, interaction and loss, forward and backward.

Kernels are those of PyTorch's eager mode, counted in the single-GPU steps of
``v100_dlrm_kernels.csv``, in the 8 x V100 TorchRec trace, and in traces of five models' steps on an
H200 (``gpu_study_h200_2026-11-26``).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from types import MappingProxyType
from typing import Concatenate, ParamSpec, TypeAlias

from costmodel.domain.dense_layers import DenseLayer
from costmodel.domain.hardware import Gpu
from costmodel.domain.workload import Interaction, Pipeline, Workload
from costmodel.step.buckets import GradientBuckets
from costmodel.step.builder import StepBuilder
from costmodel.step.dense_kernels import (
    CAST,
    PARAMETER_BYTES,
    DenseCosts,
    DenseKernels,
    gradient_sizes,
)
from costmodel.step.interaction import InteractionKernels
from costmodel.step.issue import Issue

_LOSS = Issue(3.0, 6.0)
"""``binary_cross_entropy_with_logits``, 190 us on an H200's host (profiler attached), where an
operator as issue.py counts them takes some 50."""
_LOSS_BACKWARD = Issue(5.0, 4.0)
"""Its backward and those of a sum and a ``squeeze``, 350 us, where an operator takes some 60."""
Given = ParamSpec("Given")
Hooks: TypeAlias = Mapping[int, Callable[[], None]]
"""Functions called once the gradients of a layer's parameters are ready, by the layer's number."""
NO_HOOKS: Hooks = MappingProxyType({})


def _called(
    write: "Callable[Concatenate[DensePart, Given], None]",
) -> "Callable[Concatenate[DensePart, Given], None]":
    """Return a method whose operations are issued as the workload says (``DenseModel.launch``)."""

    @wraps(write)
    def written(part: "DensePart", /, *args: Given.args, **kwargs: Given.kwargs) -> None:
        with part.builder.called_as(part.workload.dense.launch):
            write(part, *args, **kwargs)

    return written


@dataclass(frozen=True, slots=True)
class DensePart:
    """Adds the dense kernels of one step."""

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

    @property
    def _kernels(self) -> DenseKernels:
        return DenseKernels(self.builder, self.costs)

    @_called
    def bottom_forward(self) -> None:
        """Add the forward of the bottom MLP, with FP32 features."""
        dense = self.workload.dense
        if self.costs.bottom:
            features = self.workload.local_batch_size * dense.num_dense_features
            self._kernels.cast_operand("dense features", features, PARAMETER_BYTES)
        self._forward(self.costs.bottom)

    @_called
    def interaction_forward(self) -> None:
        """Add the interaction's forward: bottom output and embeddings to the top MLP's input."""
        interaction = InteractionKernels(self._kernels)
        if self.workload.dense.interaction is Interaction.DOT:
            interaction.dot_forward()
        elif self.costs.cross:
            interaction.cross_forward(lambda layer: self._forward((layer,)))
        else:
            interaction.concat_forward()

    @_called
    def top_forward(self) -> None:
        """Add the forward of top MLP and loss.

        TorchRec's is a cross entropy of FP32 logits, of six kernels, and the sum of its mean; plain
        DLRM has a sigmoid before, and the loss is two kernels.
        """
        self._forward(self.costs.top)
        kernels, batch = self._kernels, self.workload.local_batch_size
        if self.workload.pipeline is Pipeline.DLRM:
            for name in ("sigmoid", "loss", "mean loss"):
                kernels.stream(name, 2 * batch * self.costs.element_bytes)
            return
        self._cast_logits()
        kernels.stream("loss", 2 * batch * PARAMETER_BYTES, issue=_LOSS, times=6)
        kernels.stream("sum of losses", PARAMETER_BYTES)

    @_called
    def top_backward(self, gradients: GradientBuckets, hooks: Hooks = NO_HOOKS) -> None:
        """Add the backward of loss and top MLP.

        Hooks are called after the layers of their numbers.
        """
        kernels, batch = self._kernels, self.workload.local_batch_size
        if self.workload.pipeline is Pipeline.DLRM:
            for name in ("mean loss", "loss", "sigmoid"):
                kernels.stream(f"{name} backward", 3 * batch * self.costs.element_bytes)
        else:
            kernels.stream(
                "loss backward", 3 * batch * PARAMETER_BYTES, issue=_LOSS_BACKWARD, times=4
            )
            self._cast_logits()
        self._backward(self.costs.top, gradients, inputs_need_gradient=True, hooks=hooks)

    @_called
    def interaction_backward(self, gradients: GradientBuckets) -> None:
        """Add the interaction's backward, to bottom output and embeddings."""
        interaction = InteractionKernels(self._kernels)
        if self.workload.dense.interaction is Interaction.DOT:
            interaction.dot_backward()
        elif self.costs.cross:
            interaction.cross_backward(
                lambda layer: self._backward((layer,), gradients, inputs_need_gradient=True)
            )
        else:
            interaction.concat_backward()

    @_called
    def bottom_backward(self, gradients: GradientBuckets) -> None:
        """Add the backward of the bottom MLP; dense features need no gradient."""
        self._backward(self.costs.bottom, gradients, inputs_need_gradient=False)

    def _cast_logits(self) -> None:
        """Convert the logits to FP32 for the loss, and their gradient back."""
        if self.costs.mixed:
            moved = PARAMETER_BYTES + self.costs.element_bytes
            self._kernels.scalar("logits cast", self.workload.local_batch_size, moved, issue=CAST)

    def _forward(self, layers: Sequence[DenseLayer]) -> None:
        kernels, batch = self._kernels, self.workload.local_batch_size
        for layer in layers:
            kernels.cast_parameters(layer)
            kernels.gemm(layer.name, (batch, layer.num_outputs, layer.num_inputs))
            if layer.activated:
                outputs = batch * layer.num_outputs * self.costs.element_bytes
                kernels.stream(f"{layer.name} relu", 2 * outputs)

    def _backward(
        self,
        layers: Sequence[DenseLayer],
        gradients: GradientBuckets,
        *,
        inputs_need_gradient: bool,
        hooks: Hooks = NO_HOOKS,
    ) -> None:
        kernels, batch = self._kernels, self.workload.local_batch_size
        for index, layer in reversed(list(enumerate(layers))):
            name, size = f"{layer.name} backward", self.costs.element_bytes
            inputs, outputs = layer.num_inputs, layer.num_outputs
            if layer.activated:
                kernels.stream(f"{name} relu", 3 * batch * outputs * size)
            if index or inputs_need_gradient:
                kernels.gemm(f"{name} input", (batch, inputs, outputs))
            kernels.gemm(f"{name} weight", (outputs, inputs, batch))
            if layer.bias and not layer.ends_cross:
                kernels.sum_rows(f"{name} bias", outputs, size)
            kernels.cast_parameters(layer)
            for each in gradient_sizes(layer):
                gradients.add(each)
            if index in hooks:
                hooks[index]()
