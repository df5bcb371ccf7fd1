"""Micro-benchmarks of operators, on the two ranks at once, at shapes that no case has.

Times are CPU times of the thread, so another process on the core does not count. Inputs rotate
over ``NEAR`` bytes, that the L2 cache holds, and over ``FAR``, that no cache does.
"""

import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from bench.nlp.timing import ARENA, PLACES, Call, cpu_time, rotating

_SIZES = (12, 300, 3_000, 14_000, 50_000, 150_000, 420_000, 1_100_000, 2_600_000, 6_200_000)
_HELD_OUT = (7_000, 90_000, 700_000, 4_100_000)
LONG, _SHORT = 704, 48
"""Lengths of rows: to tell what a row costs from what an element does."""
_REDUCTIONS, _OVERLAPS = 27, 11
_SIDE = 128
"""Side of the square matrices that are multiplied while an all-reduce runs."""
_HIDES = 2.5
"""How many times as long as the all-reduce that goes on."""
_PRODUCTS = 36
_MOST_LABELS = 100_000
_MOST_FLOP = 1.5e9
_REDUCED = (4e3, 3e4, 2e5, 7e5, 2e6, 6e6, 1e7, 1.5e7, 3.2e7)
"""Bytes of all-reduces."""


def _rows(size: int, width: int) -> tuple[int, int]:
    return max(1, size // width), min(size, width)


def _plain(function: Callable[..., object], num_inputs: int) -> Callable[[int, int], Call]:
    """Return a benchmark of an elementwise operator; short rows are those of wider tensors."""

    def bench(size: int, width: int) -> Call:
        rows, columns = _rows(size, width)
        pad = 0 if width == LONG else 16

        def make() -> tuple[torch.Tensor, ...]:
            return tuple(ARENA.cut(rows, columns, pad=pad) for _ in range(num_inputs))

        return rotating(make, function)

    return bench


def _by_rows(function: Callable[..., object], num_inputs: int) -> Callable[[int, int], Call]:
    """Return a benchmark of an operator that works row by row."""

    def bench(size: int, width: int) -> Call:
        shape = _rows(size, width)
        return rotating(lambda: tuple(ARENA.cut(*shape) for _ in range(num_inputs)), function)

    return bench


def _copied(size: int, width: int) -> Call:
    """Return a copy; of short rows, one that changes the order of two dimensions of them."""
    rows, columns = _rows(size, width)
    heads = 8 if width == _SHORT else 1

    def make() -> tuple[torch.Tensor, ...]:
        shape = (max(1, rows // heads), heads, columns)
        source = ARENA.cut(*shape).transpose(0, 1)
        return ARENA.cut(*source.shape), source

    return rotating(make, lambda target, source: target.copy_(source))


def _transposed(size: int, width: int) -> Call:
    rows, columns = _rows(size, width)
    return rotating(
        lambda: (ARENA.cut(rows, columns), ARENA.cut(columns, rows).t()),
        lambda target, source: target.copy_(source),
    )


def _norm_backward(size: int, width: int) -> Call:
    rows, columns = _rows(size, width)

    def make() -> tuple[torch.Tensor, ...]:
        grad, data = ARENA.cut(rows, columns), ARENA.cut(rows, columns)
        return grad, data, torch.rand(rows, 1), torch.rand(rows, 1), torch.rand(columns)

    def backward(*inputs: torch.Tensor) -> object:
        grad, data, mean, scale, weight = inputs
        return torch.ops.aten.native_layer_norm_backward(
            grad, data, [columns], mean, scale, weight, weight, [True, True, True]
        )

    return rotating(make, backward)


def _norm(size: int, width: int) -> Call:
    rows, columns = _rows(size, width)
    weight = torch.rand(columns)
    return rotating(
        lambda: (ARENA.cut(rows, columns),),
        lambda data: torch.native_layer_norm(data, [columns], weight, weight, 1e-5),
    )


def _lookup(size: int, width: int) -> Call:
    rows, columns = _rows(size, width)
    table = torch.rand(5_000, columns)
    return rotating(
        lambda: (torch.randint(0, 5_000, (rows,)),), lambda ids: table.index_select(0, ids)
    )


def _lookup_backward(size: int, width: int) -> Call:
    rows, columns = _rows(size, width)
    few = 8
    return rotating(
        lambda: (ARENA.cut(rows, columns), torch.randint(0, few, (rows,))),
        lambda grad, ids: torch.ops.aten.embedding_dense_backward(
            grad, ids, few, -1, scale_grad_by_freq=False
        ),
    )


def _scatter(size: int, width: int) -> Call:
    rows, columns = _rows(size, width)
    target = torch.zeros(rows, columns)
    ids = torch.randperm(rows)
    return rotating(
        lambda: (ARENA.cut(rows, columns),), lambda source: target.index_add_(0, ids, source)
    )


def _columns_sum(size: int, width: int) -> Call:
    shape = _rows(size, width)
    return rotating(lambda: (ARENA.cut(*shape),), lambda data: data.sum(0, keepdim=True))


def _concatenated(size: int, width: int) -> Call:
    del width
    return rotating(
        lambda: (ARENA.cut(size // 2 + 1), ARENA.cut(size // 2 + 1)),
        lambda first, second: torch.cat((first, second)),
    )


def _counted(size: int, width: int) -> Call:
    del width
    return lambda: torch.arange(size)


def _loss(size: int, width: int) -> Call:
    del width
    labels = torch.randint(0, 16, (size,))
    return rotating(
        lambda: (ARENA.cut(size, 16),),
        lambda data: torch.ops.aten.nll_loss_forward(data, labels, None, 1, -100),
    )


def _loss_backward(size: int, width: int) -> Call:
    del width
    labels = torch.randint(0, 2, (size,))
    total, grad = torch.tensor(float(size)), torch.tensor(1.0)
    return rotating(
        lambda: (ARENA.cut(size, 2),),
        lambda data: torch.ops.aten.nll_loss_backward(grad, data, labels, None, 1, -100, total),
    )


_STEP = torch.tensor(3.0)


def _fused_adam(size: int, width: int) -> Call:
    del width
    return rotating(
        lambda: tuple(ARENA.cut(size) for _ in range(4)),
        lambda p, g, m, v: _ATEN["_fused_adamw_"](
            [p], [g], [m], [v], [], [_STEP], lr=1e-4, beta1=0.9, beta2=0.999, weight_decay=0.01,
            eps=1e-8, amsgrad=False, maximize=False,
        ),
    )  # fmt: skip


_ATEN = {
    name: getattr(torch.ops.aten, name)
    for name in ("_softmax_backward_data", "_log_softmax_backward_data", "_fused_adamw_")
}
OPERATORS: Mapping[str, Callable[[int, int], Call]] = {
    "aten::add": _plain(torch.add, 2),
    "aten::add_": _plain(lambda a, b: a.add_(b), 2),
    "aten::sub": _plain(torch.sub, 2),
    "aten::mul": _plain(torch.mul, 2),
    "aten::mul_": _plain(lambda a: a.mul_(0.999), 1),
    "aten::div": _plain(lambda a: a / 3.0, 1),
    "aten::div_": _plain(lambda a: a.div_(0.999), 1),
    "aten::sqrt": _plain(torch.sqrt, 1),
    "aten::pow": _plain(lambda a: torch.pow(a, 3.0), 1),
    "aten::tanh": _plain(torch.tanh, 1),
    "aten::tanh_backward": _plain(torch.ops.aten.tanh_backward, 2),
    "aten::gelu": _plain(torch.nn.functional.gelu, 1),
    "aten::gelu_backward": _plain(torch.ops.aten.gelu_backward, 2),
    "aten::relu": _plain(torch.relu, 1),
    "aten::threshold_backward": _plain(lambda a, b: torch.ops.aten.threshold_backward(a, b, 0), 2),
    "aten::sin": _plain(torch.sin, 1),
    "aten::cos": _plain(torch.cos, 1),
    "aten::reciprocal": _plain(torch.reciprocal, 1),
    "aten::eq": _plain(torch.eq, 2),
    "aten::ne": _plain(torch.ne, 2),
    "aten::le": _plain(torch.le, 2),
    "aten::where": _plain(lambda a, b: torch.where(a > 2, a, b), 2),
    "aten::lerp_": _plain(lambda a, b: a.lerp_(b, 0.1), 2),
    "aten::addcmul_": _plain(lambda a, b: a.addcmul_(b, b, value=0.001), 2),
    "aten::addcdiv_": _plain(lambda a, b, c: a.addcdiv_(b, c, value=-1e-4), 3),
    "aten::copy_": _copied,
    "aten::copy_/strided": _transposed,
    "aten::zero_": _plain(lambda a: a.zero_(), 1),
    "aten::fill_": _plain(lambda a: a.fill_(1.0), 1),
    "aten::cat": _concatenated,
    "aten::bernoulli_": _plain(lambda a: a.bernoulli_(0.9), 1),
    "aten::sum": _by_rows(lambda a: a.sum(1), 1),
    "aten::sum/columns": _columns_sum,
    "aten::mean": _by_rows(lambda a: a.mean(1), 1),
    "aten::arange": _counted,
    "aten::cumsum": _by_rows(lambda a: a.cumsum(1), 1),
    "aten::_softmax": _by_rows(lambda a: torch.softmax(a, -1), 1),
    "aten::_softmax_backward_data": _by_rows(
        lambda a, b: _ATEN["_softmax_backward_data"](a, b, -1, torch.float32), 2
    ),
    "aten::_log_softmax": _by_rows(lambda a: torch.log_softmax(a, -1), 1),
    "aten::_log_softmax_backward_data": _by_rows(
        lambda a, b: _ATEN["_log_softmax_backward_data"](a, b, -1, torch.float32), 2
    ),
    "aten::native_layer_norm": _norm,
    "aten::native_layer_norm_backward": _norm_backward,
    "aten::index_select": _lookup,
    "aten::embedding_dense_backward": _lookup_backward,
    "aten::index_add_": _scatter,
    "aten::nll_loss_forward": _loss,
    "aten::nll_loss_backward": _loss_backward,
    "aten::_fused_adamw_": _fused_adam,
}


def _product_shapes(rng: random.Random) -> Iterator[tuple[int, int, int, int]]:
    """Yield (count, m, n, k) at random, even in the logarithm, sides in multiples of 32."""
    while True:
        m, n, k = (32 * round(2 ** rng.uniform(0.6, 7.5)) for _ in range(3))
        if 2.0 * m * n * k <= _MOST_FLOP:
            yield 1, m, n, k


def _small_shapes(rng: random.Random) -> Iterator[tuple[int, int, int, int]]:
    while True:
        m, n, k = (16 * rng.randint(1, 10) for _ in range(3))
        count = round(2 ** rng.uniform(1, 6.5))
        if 2.0 * count * m * n * k <= _MOST_FLOP / 3:
            yield count, m, n, k


def _product(name: str, shape: tuple[int, int, int, int], flavour: int) -> Call:
    """Return a product whose operands are transposed as in forward or in backward."""
    count, m, n, k = shape
    bias = torch.rand(n)

    def make() -> tuple[torch.Tensor, ...]:
        first = ARENA.cut(count, k, m).transpose(1, 2) if flavour == 2 else ARENA.cut(count, m, k)
        second = ARENA.cut(count, n, k).transpose(1, 2) if flavour == 0 else ARENA.cut(count, k, n)
        return (first, second) if name == "aten::bmm" else (first[0], second[0])

    if name == "aten::addmm":
        return rotating(make, lambda a, b: torch.addmm(bias, a, b))
    return rotating(make, torch.bmm if name == "aten::bmm" else torch.mm)


def products() -> list[dict[str, Any]]:
    """Measure matrix products."""
    rng = random.Random(1)  # noqa: S311 - a sample of shapes, nothing secret
    large, small = _product_shapes(rng), _small_shapes(rng)
    rows = []
    for index in range(_PRODUCTS):
        for name in ("aten::mm", "aten::addmm", "aten::bmm"):
            shape = next(small if name == "aten::bmm" and index % 3 else large)
            flavour = 0 if name == "aten::addmm" else index % 3
            row: dict[str, Any] = {"operator": name, "shape": shape}
            for key, rotated in PLACES:
                ARENA.rotated = rotated
                row[key] = cpu_time(_product(name, shape, flavour))
            rows.append(row)
    return rows


def operators() -> list[dict[str, Any]]:
    """Measure all other operators."""
    rows = []
    for name, bench in OPERATORS.items():
        ARENA.refill()
        for size in (*_SIZES, *_HELD_OUT):
            for width in (LONG, _SHORT):
                few = size < 1_000 or name.startswith((
                    "aten::nll",
                    "aten::cat",
                    "aten::_fused",
                    "aten::arange",
                ))
                if width == _SHORT and (few or size > 1_000_000):
                    continue
                if name.startswith("aten::nll") and size > _MOST_LABELS:
                    continue
                shape = _rows(size, width)
                rows.append({
                    "operator": name,
                    "elements": shape[0] * shape[1],
                    "runs": shape[0],
                    "width": width,
                    "held_out": size in _HELD_OUT,
                    **_near_and_far(bench, size, width),
                })
    return rows


def _near_and_far(bench: Callable[[int, int], Call], size: int, width: int) -> dict[str, float]:
    found = {}
    for key, rotated in PLACES:
        ARENA.rotated = rotated
        found[key] = cpu_time(bench(size, width))
    return found


def reductions() -> list[dict[str, float]]:
    """Measure all-reduces: their time, and what CPU time they add to computing meanwhile."""
    side = torch.rand(_SIDE, _SIDE)
    once = _median(lambda: torch.mm(side, side), _REDUCTIONS)
    return [_reduction(torch.ones(int(size / 4)), side, once) for size in _REDUCED]


def _reduction(data: torch.Tensor, side: torch.Tensor, once: float) -> dict[str, float]:
    wall = _median(lambda: dist.all_reduce(data), _REDUCTIONS)
    times = max(2, round(_HIDES * wall / once))
    both, alone = _meanwhile(data, side, times), _alone(side, times)
    clock = time.process_time
    added = statistics.median(_timed(both, clock) - _timed(alone, clock) for _ in range(_OVERLAPS))
    return {"bytes": 4.0 * data.numel(), "wall_s": wall, "work_s": max(added, wall / 20)}


def _median(work: Call, num_samples: int) -> float:
    return statistics.median(_timed(work) for _ in range(num_samples))


def _timed(work: Call, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the time of what all ranks begin together; that of threads by ``process_time``."""
    dist.barrier()
    begin = clock()
    work()
    return clock() - begin


def _alone(side: torch.Tensor, times: int) -> Call:
    def compute() -> None:
        for _ in range(times):
            torch.mm(side, side)

    return compute


def _meanwhile(data: torch.Tensor, side: torch.Tensor, times: int) -> Call:
    def compute() -> None:
        handle = dist.all_reduce(data, async_op=True)
        _alone(side, times)()
        handle.wait()

    return compute


def measured(rank: int) -> dict[str, Sequence[Mapping[str, Any]]]:
    """Run all micro-benchmarks on this rank."""
    del rank
    with torch.no_grad():
        found = {"products": products(), "operators": operators()}
    dist.barrier()
    return {**found, "reductions": reductions()}
