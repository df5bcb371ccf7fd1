"""How single operators are called to be measured, by their names in aten."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch

_COLUMNS = 128
"""Numbers in a row of what normalizations, sums and gathers take."""
_HEADS, _HEAD_WIDTH = 4, 32
_BUCKETS = 200
"""Rows of the table whose gradient is made."""
_aten: Any = torch.ops.aten
Call: TypeAlias = Callable[[], Any]
Maker: TypeAlias = Callable[["Numbers"], Call]
"""Makes operands, and returns the call of an operator on them."""


class Numbers:
    """Operands of as many elements, in rows, on a device."""

    def __init__(
        self, num_elements: int, device: str, data_type: torch.dtype = torch.float32
    ) -> None:
        self.device, self.data_type = device, data_type
        self.rows = max(1, num_elements // _COLUMNS)
        self.elements = self.rows * _COLUMNS

    def normal(self) -> torch.Tensor:
        """Return numbers of both signs."""
        return torch.randn(self.rows, _COLUMNS, device=self.device, dtype=self.data_type)

    def positive(self) -> torch.Tensor:
        """Return numbers between 0 and 1."""
        return torch.rand(self.rows, _COLUMNS, device=self.device, dtype=self.data_type)

    def ids(self, most: int, *shape: int) -> torch.Tensor:
        """Return as many ids below a number."""
        return torch.randint(0, most, shape or (self.rows,), device=self.device)

    def columns(self, value: float = 1.0) -> torch.Tensor:
        """Return one number for each column."""
        return torch.full((_COLUMNS,), value, device=self.device, dtype=self.data_type)


def _unary(name: str, *more: object, positive: bool = False) -> Maker:
    def make(numbers: Numbers) -> Call:
        given, call = numbers.positive() if positive else numbers.normal(), getattr(_aten, name)
        return lambda: call(given, *more)

    return make


def _binary(name: str, *more: object) -> Maker:
    def make(numbers: Numbers) -> Call:
        left, right, call = numbers.normal(), numbers.positive(), getattr(_aten, name)
        return lambda: call(left, right, *more)

    return make


def _where(numbers: Numbers) -> Call:
    left, right = numbers.normal(), numbers.normal()
    told = left > 0
    return lambda: _aten.where(told, left, right)


def _masked_fill(numbers: Numbers) -> Call:
    given = numbers.normal()
    told = given > 0
    return lambda: _aten.masked_fill(given, told, 0.0)


def _softmax_backward(name: str) -> Maker:
    def make(numbers: Numbers) -> Call:
        left, right, call = numbers.normal(), numbers.positive(), getattr(_aten, name)
        return lambda: call(left, right, -1, torch.float32)

    return make


def _layer_norm(numbers: Numbers) -> Call:
    given, weight, bias = numbers.normal(), numbers.columns(), numbers.columns()
    return lambda: _aten.native_layer_norm(given, [_COLUMNS], weight, bias, 1e-5)


def _layer_norm_backward(numbers: Numbers) -> Call:
    left, right, weight, bias = (
        numbers.normal(), numbers.normal(), numbers.columns(), numbers.columns(),
    )  # fmt: skip
    mean = torch.zeros(numbers.rows, 1, device=numbers.device)
    scale, every = mean + 1.0, [True, True, True]
    return lambda: _aten.native_layer_norm_backward(
        left, right, [_COLUMNS], mean, scale, weight, bias, every
    )


def _batch_norm(numbers: Numbers) -> Call:
    given, one, zero = numbers.normal(), numbers.columns(), numbers.columns(0.0)
    return lambda: _aten.native_batch_norm(given, one, zero, zero, one, True, 0.1, 1e-5)  # noqa: FBT003


def _batch_norm_backward(numbers: Numbers) -> Call:
    left, right, one, zero = (
        numbers.normal(), numbers.normal(), numbers.columns(), numbers.columns(0.0),
    )  # fmt: skip
    every = [True, True, True]
    return lambda: _aten.native_batch_norm_backward(
        left, right, one, zero, one, zero, one, True, 1e-5, every  # noqa: FBT003
    )  # fmt: skip


def _summed(name: str, dimension: int) -> Maker:
    def make(numbers: Numbers) -> Call:
        given, call = numbers.normal(), getattr(_aten, name)
        return lambda: call(given, [dimension])

    return make


def _cumsum(numbers: Numbers) -> Call:
    given = numbers.normal()
    return lambda: _aten.cumsum(given, 0)


def _dropped(numbers: Numbers) -> Call:
    given = numbers.normal()
    return lambda: _aten.bernoulli_(given, 0.5)


def _native_dropout(numbers: Numbers) -> Call:
    given = numbers.normal()
    return lambda: _aten.native_dropout(given, 0.5, True)  # noqa: FBT003 - aten's


def _rows_of(name: str) -> Maker:
    def make(numbers: Numbers) -> Call:
        table, ids, call = numbers.normal(), numbers.ids(numbers.rows), getattr(_aten, name)
        return (lambda: call(table, ids)) if name == "embedding" else lambda: call(table, 0, ids)

    return make


def _table_gradient(numbers: Numbers) -> Call:
    given, ids = numbers.normal(), numbers.ids(_BUCKETS)
    return lambda: _aten.embedding_dense_backward(given, ids, _BUCKETS, -1, False)  # noqa: FBT003


def _pairs(numbers: Numbers) -> tuple[torch.Tensor, list[Any]]:
    """Return vectors of samples, and two indices that take of each as many numbers as it has."""
    given = numbers.normal().view(numbers.rows, _COLUMNS // 8, 8)
    return given, [None, numbers.ids(_COLUMNS // 8, _COLUMNS), numbers.ids(8, _COLUMNS)]


def _index(numbers: Numbers) -> Call:
    given, indices = _pairs(numbers)
    return lambda: _aten.index(given, indices)


def _index_put(numbers: Numbers) -> Call:
    given, indices = _pairs(numbers)
    added = numbers.normal()
    return lambda: _aten._index_put_impl_(given, indices, added, True)  # noqa: FBT003


def _gather(numbers: Numbers) -> Call:
    given, ids = numbers.normal(), numbers.ids(_COLUMNS, numbers.rows, _COLUMNS)
    return lambda: _aten.gather(given, 1, ids)


def _scatter_add(numbers: Numbers) -> Call:
    given, ids = numbers.normal(), numbers.ids(_COLUMNS, numbers.rows, _COLUMNS)
    added = numbers.normal()
    return lambda: _aten.scatter_add(given, 1, ids, added)


def _reordered(numbers: Numbers) -> Call:
    """Return a copy of heads side by side to heads one after the other, as attention asks for."""
    given = numbers.normal().view(numbers.rows, _HEADS, _HEAD_WIDTH).transpose(0, 1)
    return lambda: _aten.clone(given, memory_format=torch.contiguous_format)


def _nll(numbers: Numbers) -> Call:
    given, ids = numbers.normal(), numbers.ids(_COLUMNS)
    return lambda: _aten.nll_loss_forward(given, ids, None, 1, -100)


def _with_logits(numbers: Numbers) -> Call:
    left, right = numbers.normal().flatten(), numbers.positive().flatten()
    return lambda: _aten.binary_cross_entropy_with_logits(left, right)


CALLS: Mapping[str, Maker] = {
    **{
        name: _unary(name)
        for name in (
            "exp", "sigmoid", "tanh", "gelu", "silu", "softplus", "relu", "erf", "sin", "cos",
            "elu", "leaky_relu", "abs", "neg", "log_sigmoid_forward", "linalg_vector_norm", "mean",
        )
    },
    **{
        name: _unary(name, positive=True)
        for name in ("log", "log1p", "sqrt", "rsqrt", "reciprocal")
    },
    **{
        name: _binary(name)
        for name in (
            "add", "sub", "mul", "div", "maximum", "eq", "gt", "mse_loss", "sigmoid_backward",
            "tanh_backward", "silu_backward", "gelu_backward",
        )
    },
    "pow": _unary("pow", 1.5, positive=True),
    "clamp": _unary("clamp", 0.0, 1.0),
    "threshold_backward": _binary("threshold_backward", 0.0),
    "softplus_backward": _binary("softplus_backward", 1.0, 20.0),
    "where": _where,
    "masked_fill": _masked_fill,
    "bernoulli": _dropped,
    "native_dropout": _native_dropout,
    "_softmax": _unary("_softmax", -1, False),  # noqa: FBT003 - aten's
    "_log_softmax": _unary("_log_softmax", -1, False),  # noqa: FBT003
    "_softmax_backward_data": _softmax_backward("_softmax_backward_data"),
    "_log_softmax_backward_data": _softmax_backward("_log_softmax_backward_data"),
    "native_layer_norm": _layer_norm,
    "native_layer_norm_backward": _layer_norm_backward,
    "native_batch_norm": _batch_norm,
    "native_batch_norm_backward": _batch_norm_backward,
    "sum": _summed("sum", 0),
    "amax": _summed("amax", 1),
    "cumsum": _cumsum,
    "embedding": _rows_of("embedding"),
    "index_select": _rows_of("index_select"),
    "embedding_dense_backward": _table_gradient,
    "index": _index,
    "_index_put_impl": _index_put,
    "gather": _gather,
    "scatter_add": _scatter_add,
    "clone": _reordered,
    "nll_loss_forward": _nll,
    "binary_cross_entropy_with_logits": _with_logits,
}  # fmt: skip
"""By the name without an underscore at its end (``plain_name``)."""
