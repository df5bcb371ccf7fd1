"""Counting the contiguous runs in which an elementwise operator goes over its tensors."""

from collections.abc import Sequence
from math import prod

from planner.traces.execution.operator_trace import Tensor


def num_runs(tensors: Sequence[Tensor]) -> tuple[int, bool]:
    """Return the number of inner loops over memory, and whether some stride over elements.

    Neighbouring dimensions that all tensors can walk as one are merged, as in PyTorch's
    ``TensorIterator``. The innermost dimension left is a run; the others repeat it. A run in which
    a tensor does not go from element to element (and is not one repeated value) is strided.
    """
    largest = max(tensors, key=lambda tensor: tensor.num_elements, default=None)
    if largest is None or largest.num_elements <= 1:
        return 1, False
    shape = largest.shape
    strides = [_broadcast(t, shape) for t in tensors if _fits(t.shape, shape)]
    axes = [axis for axis, size in enumerate(shape) if size > 1]
    axes.sort(key=lambda axis: [_last_if_repeated(s[axis]) for s in strides])
    inner, steps = shape[axes[0]], [s[axes[0]] for s in strides]
    for axis in axes[1:]:
        joined = all(s[axis] == step * inner for s, step in zip(strides, steps, strict=True))
        if not joined:
            break
        inner *= shape[axis]
    return prod(shape) // inner, any(step not in {0, 1} for step in steps)


def _last_if_repeated(stride: int) -> float:
    return float("inf") if stride == 0 else stride


def _fits(shape: Sequence[int], into: Sequence[int]) -> bool:
    pairs = zip(reversed(shape), reversed(into), strict=False)
    return len(shape) <= len(into) and all(a in {1, b} for a, b in pairs)


def _broadcast(tensor: Tensor, shape: Sequence[int]) -> tuple[int, ...]:
    """Return a tensor's strides over a larger shape: 0 in dimensions that it is repeated in."""
    missing = len(shape) - len(tensor.shape)
    own = zip(tensor.shape, tensor.strides, strict=True)
    repeated = (0 if size == 1 else stride for size, stride in own)
    return (0,) * missing + tuple(repeated)
