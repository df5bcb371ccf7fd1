"""Fitting what an element of an operator takes beyond its bytes.

An operator on n elements is modelled as ``t = call + memory(bytes) + n e``. Its smallest
measurement gives the call, which the step model charges as host time, and the others give e.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from statistics import median
from typing import NamedTuple

import numpy as np

from costmodel.base.units import Bytes, Seconds
from planner.calibration.curves import Accuracy, accuracy, rounded
from planner.calibration.points import OperatorPoint
from planner.calibration.records import Record

MOVED: Mapping[str, Bytes] = {
    **dict.fromkeys(
        (
            "exp", "sigmoid", "tanh", "gelu", "silu", "softplus", "relu", "erf", "sin", "cos",
            "elu", "leaky_relu", "abs", "neg", "log", "log1p", "sqrt", "rsqrt", "reciprocal",
            "mse_loss", "pow", "clamp", "_softmax", "_log_softmax", "cumsum", "clone",
            "binary_cross_entropy_with_logits", "native_layer_norm", "native_batch_norm",
            "embedding", "index_select", "index",
        ),
        8.0,
    ),
    **dict.fromkeys(
        (
            "log_sigmoid_forward", "add", "sub", "mul", "div", "maximum", "sigmoid_backward",
            "tanh_backward", "silu_backward", "gelu_backward", "threshold_backward",
            "softplus_backward", "_softmax_backward_data", "_log_softmax_backward_data",
            "native_layer_norm_backward", "native_batch_norm_backward", "_index_put_impl",
        ),
        12.0,
    ),
    **dict.fromkeys(("eq", "gt", "masked_fill", "native_dropout"), 9.0),
    **dict.fromkeys(
        ("linalg_vector_norm", "mean", "bernoulli", "sum", "amax", "embedding_dense_backward"), 4.0
    ),
    "where": 13.0,
    "gather": 16.0,
    "scatter_add": 20.0,
    "nll_loss_forward": 0.0,
}  # fmt: skip
"""Bytes that each operator moves for each FP32 element, as ``costmodel.operators.work.moved`` has
them of its measured call, those of rows' sizes and ids apart."""


_LEAST: Seconds = 1e-15
"""Shortest time of an element that is one: a millionth of a nanosecond, as in profiles' files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFit:
    """What was fitted to single operators."""

    element_times: Mapping[str, Seconds]
    errors: Accuracy
    """Errors at sizes that the time was not fitted to."""
    errors_by_bytes: Accuracy
    """Errors of memory alone, which an operator that was not measured is timed by."""
    num_points: int
    num_elements: tuple[float, float]


class _Measured(NamedTuple):
    """An operator on some elements, without its call."""

    num_elements: int
    seconds: Seconds
    memory: Seconds
    """What its bytes take of it."""

    @property
    def element_time(self) -> Seconds:
        """Return what each element takes beyond memory."""
        return max(0.0, self.seconds - self.memory) / self.num_elements


def fit_operators(
    records: Sequence[Record], memory: Callable[[Bytes], Seconds]
) -> OperatorFit | None:
    """Return the fit to all operators that were measured at two sizes or more; None: there is none.

    Parameters
    ----------
    records
        Those of operators.
    memory
        Seconds of a kernel that moves so many bytes.

    """
    points = {name: list(_points(name, sizes, memory)) for name, sizes in _by_name(records)}
    known = {name: each for name, each in points.items() if each}
    if not known:
        return None
    missed = [
        (other.memory + other.num_elements * one.element_time) / other.seconds - 1
        for each in known.values()
        for one, other in permutations(each, 2)
    ]
    every = [one for each in known.values() for one in each]
    sizes = [one.num_elements for one in every]
    return OperatorFit(
        element_times={
            name: rounded(time) if time >= _LEAST else 0.0
            for name, each in known.items()
            for time in [median(one.element_time for one in each)]
        },
        errors=accuracy(np.array(missed or [0.0])),
        errors_by_bytes=accuracy(np.array([one.memory / one.seconds - 1 for one in every])),
        num_points=len(every),
        num_elements=(float(min(sizes)), float(max(sizes))),
    )


def _by_name(records: Sequence[Record]) -> Iterator[tuple[str, Mapping[int, Seconds]]]:
    """Yield each operator that was measured, with its seconds by number of elements."""
    found: dict[str, dict[int, Seconds]] = {}
    for record in records:
        if isinstance(record.point, OperatorPoint) and record.point.operator in MOVED:
            sizes = found.setdefault(record.point.operator, {})
            sizes[record.point.num_elements] = record.seconds["operator"]
    yield from found.items()


def _points(
    name: str, sizes: Mapping[int, Seconds], memory: Callable[[Bytes], Seconds]
) -> Iterator[_Measured]:
    """Yield an operator's measurements but the smallest, which is its call."""
    (_, call), *rest = sorted(sizes.items())
    for elements, seconds in rest:
        if seconds > call:
            yield _Measured(elements, seconds - call, memory(MOVED[name] * elements))
