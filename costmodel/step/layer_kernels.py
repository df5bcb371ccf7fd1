"""Kernels of a dense part that is given as layers: MLPs, interaction and loss.

Kernels are those of PyTorch's eager mode, counted in the single-GPU steps of
``v100_dlrm_kernels.csv``, in the 8 x V100 TorchRec trace, and in traces of five models' steps on an
H200 (``gpu_study_h200_2026-11-26``).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from costmodel.domain.dense_layers import DenseLayer
from costmodel.domain.hardware import Gpu
from costmodel.domain.workload import Interaction, Pipeline, Workload
from costmodel.step.dense_kernels import (
    CAST,
    PARAMETER_BYTES,
    DenseCosts,
    DenseKernel,
    DenseKernels,
    DenseStretches,
    gradient_sizes,
)
from costmodel.step.graph import Stage
from costmodel.step.interaction import InteractionKernels
from costmodel.step.issue import Issue

_LOSS = Issue(3.0, 6.0)
"""``binary_cross_entropy_with_logits``, 190 us on an H200's host (profiler attached), where an
operator as issue.py counts them takes some 50."""
_LOSS_BACKWARD = Issue(5.0, 4.0)
"""Its backward and those of a sum and a ``squeeze``, 350 us, where an operator takes some 60."""


def layer_kernels(workload: Workload, gpu: Gpu) -> DenseStretches:
    """Return the kernels of a workload's layers."""
    layers = LayerKernels(DenseCosts(workload, gpu))
    return DenseStretches(
        before_lookups=layers.bottom_forward(),
        after_lookups=(*layers.interaction_forward(), *layers.top_forward()),
        before_exchange=(*layers.top_backward(), *layers.interaction_backward()),
        after_exchange=layers.bottom_backward(),
    )


@dataclass(frozen=True, slots=True)
class LayerKernels:
    """Lists the kernels of each part of the layers."""

    costs: DenseCosts

    @property
    def workload(self) -> Workload:
        """The workload whose layers they are."""
        return self.costs.workload

    def _forward_kernels(self) -> DenseKernels:
        return DenseKernels(self.costs, Stage.DENSE_FORWARD)

    def _backward_kernels(self) -> DenseKernels:
        return DenseKernels(self.costs, Stage.DENSE_BACKWARD)

    def bottom_forward(self) -> Sequence[DenseKernel]:
        """Return the forward of the bottom MLP, with FP32 features."""
        kernels, dense = self._forward_kernels(), self.workload.dense
        if self.costs.bottom:
            features = self.workload.local_batch_size * dense.num_dense_features
            kernels.cast_operand("dense features", features, PARAMETER_BYTES)
        self._forward(kernels, self.costs.bottom)
        return kernels.written

    def interaction_forward(self) -> Sequence[DenseKernel]:
        """Return the interaction's forward: bottom output and embeddings to the top MLP's input."""
        kernels = self._forward_kernels()
        interaction = InteractionKernels(kernels)
        if self.workload.dense.interaction is Interaction.DOT:
            interaction.dot_forward()
        elif self.costs.cross:
            interaction.cross_forward(lambda layer: self._forward(kernels, (layer,)))
        else:
            interaction.concat_forward()
        return kernels.written

    def top_forward(self) -> Sequence[DenseKernel]:
        """Return the forward of top MLP and loss.

        TorchRec's is a cross entropy of FP32 logits, of six kernels, and the sum of its mean; plain
        DLRM has a sigmoid before, and the loss is two kernels.
        """
        kernels, batch = self._forward_kernels(), self.workload.local_batch_size
        self._forward(kernels, self.costs.top)
        if self.workload.pipeline is Pipeline.DLRM:
            for name in ("sigmoid", "loss", "mean loss"):
                kernels.stream(name, 2 * batch * self.costs.element_bytes)
            return kernels.written
        self._cast_logits(kernels)
        kernels.stream("loss", 2 * batch * PARAMETER_BYTES, issue=_LOSS, times=6)
        kernels.stream("sum of losses", PARAMETER_BYTES)
        return kernels.written

    def top_backward(self) -> Sequence[DenseKernel]:
        """Return the backward of loss and top MLP."""
        kernels, batch = self._backward_kernels(), self.workload.local_batch_size
        if self.workload.pipeline is Pipeline.DLRM:
            for name in ("mean loss", "loss", "sigmoid"):
                kernels.stream(f"{name} backward", 3 * batch * self.costs.element_bytes)
        else:
            kernels.stream(
                "loss backward", 3 * batch * PARAMETER_BYTES, issue=_LOSS_BACKWARD, times=4
            )
            self._cast_logits(kernels)
        self._backward(kernels, self.costs.top, inputs_need_gradient=True, is_top=True)
        return kernels.written

    def interaction_backward(self) -> Sequence[DenseKernel]:
        """Return the interaction's backward, to bottom output and embeddings."""
        kernels = self._backward_kernels()
        interaction = InteractionKernels(kernels)
        if self.workload.dense.interaction is Interaction.DOT:
            interaction.dot_backward()
        elif self.costs.cross:
            interaction.cross_backward(
                lambda layer: self._backward(kernels, (layer,), inputs_need_gradient=True)
            )
        else:
            interaction.concat_backward()
        return kernels.written

    def bottom_backward(self) -> Sequence[DenseKernel]:
        """Return the backward of the bottom MLP; dense features need no gradient."""
        kernels = self._backward_kernels()
        self._backward(kernels, self.costs.bottom, inputs_need_gradient=False)
        return kernels.written

    def _cast_logits(self, kernels: DenseKernels) -> None:
        """Convert the logits to FP32 for the loss, and their gradient back."""
        if self.costs.mixed:
            moved = PARAMETER_BYTES + self.costs.element_bytes
            kernels.scalar("logits cast", self.workload.local_batch_size, moved, issue=CAST)

    def _forward(self, kernels: DenseKernels, layers: Sequence[DenseLayer]) -> None:
        batch = self.workload.local_batch_size
        for layer in layers:
            kernels.cast_parameters(layer)
            kernels.gemm(layer.name, (batch, layer.num_outputs, layer.num_inputs))
            if layer.activated:
                outputs = batch * layer.num_outputs * self.costs.element_bytes
                kernels.stream(f"{layer.name} relu", 2 * outputs)

    def _backward(
        self,
        kernels: DenseKernels,
        layers: Sequence[DenseLayer],
        *,
        inputs_need_gradient: bool,
        is_top: bool = False,
    ) -> None:
        batch = self.workload.local_batch_size
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
            kernels.ready(gradient_sizes(layer), index if is_top else None)
