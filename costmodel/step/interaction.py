"""The interaction between bottom and top MLP: concatenation, dot products, a cross network.

As TorchRec's ``InteractionArch`` and ``LowRankCrossNet`` write it, and autograd their backward.

References
----------
torchrec 1.9.2, models/dlrm.py, modules/crossnet.py. Kernels and launches: traces of dlrm and dcnv2
on an H200 (``gpu_study_h200_2026-11-26``); a V100's launch as many (``v100_dlrm_kernels.csv``).

"""

from collections.abc import Callable
from dataclasses import dataclass

from costmodel.base.units import Bytes
from costmodel.domain.dense_layers import (
    DenseLayer,
    bottom_width,
    num_sparse_features,
    pooled_width,
    sparse_width,
)
from costmodel.domain.hardware import Basis, Bound, Source
from costmodel.domain.workload import Workload
from costmodel.kernels.pointwise import (
    concat_time,
    in_place_time,
    index_backward_time,
    index_time,
    view_concat_time,
)
from costmodel.step.dense_kernels import PARAMETER_BYTES, DenseKernel, DenseKernels
from costmodel.step.issue import (
    SPLIT_BACKWARD_OPS,
    SPLIT_BACKWARD_OPS_PER_FEATURE,
    Issue,
)

_CROSS_OP = Issue(0.5, 1.0)
"""``add`` and ``mul`` of a cross layer, 20 to 22 us with their launch (profiler attached)."""
_CROSS_BACKWARD = Issue(1.0, 2.0)
"""``MulBackward`` of a cross layer, 73 us with a sum that autograd adds (as above)."""
_ADDED_BY_AUTOGRAD = Issue(0.0, 2.0)
"""Two sums of gradients, which are in the time of the operators whose results they add."""
_INDEX_BACKWARD = Issue(5.0, 9.0)
"""``IndexBackward`` besides the zeros and the copy: nine launches of arithmetic on indices, their
sort, and the scatter. 456 us with all (as above), 280 in the 8 x V100 trace, where an operator of
backward takes 58 and 27."""
_HALF_A_CAT = Issue(0.5, 1.0)
"""One of the two copies of a ``cat`` of two types, one operator with a launch for each."""
Layer = Callable[[DenseLayer], None]
"""Adds a linear layer's products."""


@dataclass(frozen=True, slots=True)
class InteractionKernels:
    """Adds the kernels of an interaction, forward and backward."""

    kernels: DenseKernels

    @property
    def _workload(self) -> Workload:
        return self.kernels.costs.workload

    @property
    def _crossed_bytes(self) -> Bytes:
        """Bytes of an element of a cross layer: FP32 if its bias widens half precision."""
        costs = self.kernels.costs
        return PARAMETER_BYTES if costs.mixed else costs.element_bytes

    @property
    def _elements(self) -> int:
        """Elements of all vectors of a batch."""
        return self.kernels.batch * self.kernels.costs.widths.columns

    # -- features side by side ----------------------------------------------------------------

    def join(self) -> None:
        """Add the concatenation of bottom output and embeddings.

        ``cat`` of two types copies each by a kernel of its own.
        """
        kernels, costs = self.kernels, self.kernels.costs
        joined, name = costs.joined_bytes, "concat features"
        if costs.feature_bytes == costs.element_bytes:
            kernels.stream(name, 2 * self._elements * joined, time=concat_time)
            return
        sides = (
            (bottom_width(self._workload), costs.element_bytes),
            (sparse_width(self._workload), costs.feature_bytes),
        )
        for (width, element_bytes), part in zip(sides, ("dense", "sparse"), strict=True):
            elements = kernels.batch * width
            kernels.scalar(f"{name}, {part}", elements, element_bytes + joined, issue=_HALF_A_CAT)

    def part(self) -> None:
        """Add the split of the gradient, with pooled features as one piece.

        The parts are views; the bottom MLP's is converted if it is of another type.
        """
        kernels, costs = self.kernels, self.kernels.costs
        if costs.joined_bytes > costs.element_bytes:
            elements = kernels.batch * bottom_width(self._workload)
            both = costs.joined_bytes + costs.element_bytes
            kernels.scalar("dense features backward", elements, both)

    def split(self, name: str, columns: int) -> None:
        """Add the concatenation of the gradients of the embeddings' columns."""
        num_bytes = 2 * self.kernels.batch * columns * self.kernels.costs.feature_bytes
        narrowed = SPLIT_BACKWARD_OPS_PER_FEATURE * num_sparse_features(self._workload)
        issue = Issue(SPLIT_BACKWARD_OPS + narrowed, 1.0)
        self.kernels.stream(name, num_bytes, time=view_concat_time, issue=issue)

    # -- plain concatenation ------------------------------------------------------------------

    def concat_forward(self) -> None:
        """Add the concatenation, and a conversion if the top MLP needs one."""
        self.join()
        self._cast_joined("features")

    def concat_backward(self) -> None:
        """Add the concatenation's backward.

        Gradients of a module's pooled features are joined again.
        """
        self._cast_joined("features backward")
        self.part()
        self.split("concat features backward", pooled_width(self._workload))

    def _cast_joined(self, name: str) -> None:
        self.kernels.cast_operand(name, self._elements, self.kernels.costs.joined_bytes)

    # -- dot products ---------------------------------------------------------------------------

    def dot_forward(self) -> None:
        """Add a concatenation to (B, F, D), product with its transpose, triangle, concatenation."""
        kernels, widths = self.kernels, self.kernels.costs.widths
        batch, size = kernels.batch, kernels.costs.element_bytes
        if self._workload.dense.fused_interaction:
            moved = batch * (widths.columns + widths.top_inputs)
            kernels.stream("dot interaction", moved * size)
            return
        self.join()
        self._cast_joined("dot interaction left")
        self._cast_joined("dot interaction right")
        kernels.batched("dot interaction", (widths.vectors, widths.vectors, self._vector_width))
        pairs = batch * self._pairs
        indexed = index_time(pairs, size, kernels.costs.gpu)
        kernels.add(DenseKernel("lower triangle", indexed, 2.0 * pairs * size))
        kernels.stream(
            "concat interactions", 2 * batch * widths.top_inputs * size, time=concat_time
        )

    def dot_backward(self) -> None:
        """Add zeros, a copy of the gradient, its scatter, two products, and their sum.

        One of the two is of the transpose, and so strided.
        """
        kernels, widths = self.kernels, self.kernels.costs.widths
        batch, size = kernels.batch, kernels.costs.element_bytes
        dim, vectors = self._vector_width, widths.vectors
        if self._workload.dense.fused_interaction:
            moved = batch * (2 * widths.columns + widths.top_inputs)
            kernels.stream("dot interaction backward", moved * size)
            return
        pairs = batch * self._pairs
        kernels.stream("zero triangle", batch * vectors**2 * size)
        kernels.scalar("copy interactions' gradient", pairs, 2 * size)
        kernels.add(
            DenseKernel(
                "lower triangle backward",
                index_backward_time(pairs, kernels.costs.gpu),
                issue=_INDEX_BACKWARD,
                basis=Basis(Bound.SCATTER_RATE, Source.FITTED),
            )
        )
        kernels.batched("dot interaction backward left", (vectors, dim, vectors))
        kernels.batched("dot interaction backward right", (dim, vectors, vectors))
        self._cast_joined("dot interaction backward left")
        self._cast_joined("dot interaction backward right")
        joined = kernels.costs.joined_bytes
        kernels.scalar("add gradients", self._elements, 3 * joined, transposed=True)
        self.part()
        dense = batch * bottom_width(self._workload)
        kernels.scalar("add dense features' gradients", dense, 3 * size)
        self.split("split features", sparse_width(self._workload))

    @property
    def _vector_width(self) -> int:
        widths = self.kernels.costs.widths
        return -(-widths.columns // widths.vectors)

    @property
    def _pairs(self) -> int:
        """Number of pairs of vectors of a sample."""
        vectors = self.kernels.costs.widths.vectors
        return vectors * (vectors - 1) // 2

    # -- a cross network --------------------------------------------------------------------------

    def cross_forward(self, write: Layer) -> None:
        """Add x0 (W V x + bias) + x, layer by layer."""
        kernels, crossed = self.kernels, self._crossed_bytes
        self.join()
        size = kernels.costs.joined_bytes
        for layer in kernels.costs.cross:
            name = layer.name
            if not layer.ends_cross:
                kernels.cast_operand(f"{name} input", self._elements, size)
                write(layer)
                continue
            write(layer)
            both = kernels.costs.element_bytes + crossed
            kernels.scalar(f"{name} bias", self._elements, both, issue=_CROSS_OP)
            kernels.stream(f"{name} times x0", 3 * self._elements * crossed, issue=_CROSS_OP)
            kernels.stream(f"{name} residual", 3 * self._elements * crossed, issue=_CROSS_OP)
            size = crossed
        kernels.cast_operand("crossed features", self._elements, size)

    def cross_backward(self, write: Layer) -> None:
        """Add gradients of both factors, of the bias and of the products, and their sums.

        The gradient of a layer's input includes that of its residual; x0's gets one from each
        layer.
        """
        kernels, crossed = self.kernels, self._crossed_bytes
        moved = self._elements * crossed
        kernels.cast_operand("crossed features backward", self._elements, crossed)
        for index, layer in reversed(list(enumerate(kernels.costs.cross))):
            name = layer.name
            if layer.ends_cross:
                kernels.stream(
                    f"{name} times x0 backward", 3 * moved, issue=_CROSS_BACKWARD, times=2
                )
                if crossed > kernels.costs.element_bytes:
                    both = crossed + kernels.costs.element_bytes
                    kernels.stream(f"{name} cast gradient", self._elements * both, issue=_CROSS_OP)
                kernels.sum_rows(f"{name} backward bias", layer.num_outputs, crossed)
                write(layer)
                continue
            write(layer)
            size = crossed if index else kernels.costs.joined_bytes
            kernels.cast_operand(f"{name} backward input", self._elements, size)
            kernels.stream(
                f"{name} add gradients",
                3 * moved,
                time=in_place_time,
                issue=_ADDED_BY_AUTOGRAD,
                times=2,
            )
        self.part()
        self.split("concat features backward", pooled_width(self._workload))
