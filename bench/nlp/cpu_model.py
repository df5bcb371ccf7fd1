"""Kernels of a CPU: what was measured on other shapes, interpolated.

A CPU runs a kernel on the thread that calls it, so a kernel's time here is that of the whole
call of its operator, with what PyTorch does around it.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import exp, log

import numpy as np

from bench.nlp.kernel_calls import KernelCall
from costmodel.base.units import Bytes, Seconds
from costmodel.domain.hardware import Bound, Estimate, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTimes:
    """Times of one operator against the number of elements.

        t = near(elements) + share (far(elements) - near(elements)) + run_time * runs

    The curves are log-log between their knots; below the first it is the first one's time, above
    the last one it grows in proportion.
    """

    elements: tuple[float, ...]
    seconds: tuple[Seconds, ...]
    """Times with operands that lie in the nearest caches."""
    far_seconds: tuple[Seconds, ...] = ()
    """Times with operands that come from afar."""
    run_time: Seconds = 0.0
    """What one inner loop over memory takes, or one row of a normalization."""
    error: float | None = None
    """Median absolute relative error on held-out sizes."""

    def __post_init__(self) -> None:
        sizes, times = self.elements, self.seconds
        grows = all(a < b for a, b in pairwise(sizes))
        if not sizes or len(sizes) != len(times) or not grows or min(*sizes, *times) <= 0:
            raise ValueError("needs as many times as sizes, above 0, and sizes that grow")
        if self.far_seconds and len(self.far_seconds) != len(sizes):
            raise ValueError("needs as many far times as sizes")
        if self.run_time < 0:
            raise ValueError("the time of a run must not be negative")

    def time(self, num_elements: float, num_runs: float = 0.0, far: float = 0.0) -> Seconds:
        """Return the time of one call, a share of whose operands comes from afar."""
        near = self._curve(num_elements, self.seconds)
        distant = self._curve(num_elements, self.far_seconds) if self.far_seconds else near
        return near + far * max(0.0, distant - near) + self.run_time * num_runs

    def _curve(self, num_elements: float, seconds: tuple[Seconds, ...]) -> Seconds:
        size = min(max(num_elements, self.elements[0]), self.elements[-1])
        curve = np.interp(log(size), np.log(self.elements), np.log(seconds))
        return exp(float(curve)) * max(1.0, num_elements / self.elements[-1])

    def covers(self, num_elements: float) -> bool:
        """Whether that many elements lie inside what was measured."""
        return num_elements <= self.elements[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixTimes:
    """Times of matrix products: C[m, n] = A[m, k] B[k, n], b of them in one call.

    t = call_time + b product_time + 2 b m n k flop_time + (bytes of A, B, C) byte_time
      + b ceil(m/..)...
    """

    call_time: Seconds
    product_time: Seconds
    flop_time: Seconds
    """What one multiplication or addition takes."""
    byte_time: Seconds
    """What one byte of A, B or C takes."""
    far_byte_time: Seconds
    """What a byte that comes from afar costs besides."""
    error: float | None = None
    """Median absolute relative error on held-out shapes."""

    def __post_init__(self) -> None:
        rest = (self.call_time, self.product_time, self.byte_time, self.far_byte_time)
        if min(rest) < 0 or self.flop_time <= 0:
            raise ValueError("times must not be negative")

    def time(self, call: KernelCall, far: float = 0.0) -> Seconds:
        """Return the time of one call, a share of whose operands comes from afar."""
        product = call.product
        if product is None:
            raise ValueError(f"`{call.operator}` is not a matrix product")
        return (
            self.call_time
            + self.product_time * product.count
            + self.flop_time * product.flop
            + (self.byte_time + far * self.far_byte_time) * call.num_bytes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuHost:
    """What a rank does around its kernels, fitted to steps, most of them with tiny kernels."""

    python_call_time: Seconds
    """What calling one operator from Python takes, with the model's Python around it."""
    dispatch_time: Seconds
    """What an operator takes that calls others, or only looks at tensors."""
    function_time: Seconds
    """What one function of autograd takes besides its kernels."""
    accumulation_time: Seconds
    """What adding up one gradient takes, with the hook of DistributedDataParallel."""
    step_time: Seconds
    """What every step takes once."""
    error: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InStep:
    """How much longer things take within a training step than when repeated by themselves.

    Repeated, a kernel finds its code, its branches and the pages of its operands where it left
    them; within a step, others have run in between. Ranks that only communicate begin together;
    within a step they differ by what each happened to compute. Fitted to steps of models.
    """

    products: float = 1.0
    operators: float = 1.0
    """Factor of all kernels that are not matrix products."""
    waiting: float = 1.0
    """Factor of what a collective waits."""

    def __post_init__(self) -> None:
        if min(self.products, self.operators, self.waiting) <= 0:
            raise ValueError("things must take some time within a step")


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuCollective:
    """Times of an all-reduce of ranks that have nothing else to do, and what of it is work.

    The rest is waiting, in which the core is free for other threads of the rank.
    """

    num_ranks: int
    sizes: tuple[Bytes, ...]
    seconds: tuple[Seconds, ...]
    work: tuple[Seconds, ...]
    """How much longer computing takes that goes on meanwhile."""
    error: float | None = None

    def __post_init__(self) -> None:
        OperatorTimes(elements=self.sizes, seconds=self.seconds)
        OperatorTimes(elements=self.sizes, seconds=self.work)

    def time(self, num_bytes: Bytes) -> Seconds:
        """Return the time from when the last rank is there."""
        return OperatorTimes(elements=self.sizes, seconds=self.seconds).time(num_bytes)

    def work_time(self, num_bytes: Bytes) -> Seconds:
        """Return the time that it takes from what every rank computes meanwhile."""
        return min(
            self.time(num_bytes),
            OperatorTimes(elements=self.sizes, seconds=self.work).time(num_bytes),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuProfile:
    """What is known about one kind of CPU, a core of it per rank."""

    name: str
    source: str
    """Machine, versions, date."""
    near_bytes: Bytes
    far_bytes: Bytes
    """Over how much memory the operands of the measurements rotated."""
    products: dict[str, MatrixTimes]
    """By operator."""
    operators: dict[str, OperatorTimes]
    host: CpuHost
    all_reduce: CpuCollective | None = None
    in_step: InStep = InStep()


class CpuModel:
    """Kernels by a profile's measurements."""

    def __init__(self, profile: CpuProfile) -> None:
        self.profile = profile

    def kernel(self, call: KernelCall) -> Estimate | None:
        """Return the time of a kernel; None of operators that were not measured."""
        if call.product is not None:
            return self._product(call)
        name = call.operator
        times = self.profile.operators.get(name) or self.profile.operators.get(_other_form(name))
        if times is None:
            return None
        seconds = times.time(call.num_elements, call.num_runs, self._far(call))
        return Estimate(
            seconds=seconds * self.profile.in_step.operators,
            bound_by=Bound.MEASURED_CURVE,
            source=Source.MEASURED,
            extrapolated=not times.covers(call.num_elements),
        )

    def _product(self, call: KernelCall) -> Estimate | None:
        times = self.profile.products.get(call.operator)
        if times is None:
            return None
        seconds = times.time(call, self._far(call)) * self.profile.in_step.products
        return Estimate(seconds=seconds, bound_by=Bound.ARITHMETIC, source=Source.FITTED)

    def _far(self, call: KernelCall) -> float:
        """Return how far away tensors are, near 0 and far 1, even in the logarithm between.

        It is relative to what is read: an operator that also makes a tensor in memory that was
        not used for long waits for that, too, and can have more than 1. In the measurements the
        allocator gives results the memory of the one before.
        """
        if not call.read_bytes:
            return 0.0
        near, far = self.profile.near_bytes, self.profile.far_bytes
        away = (size * log(min(max(d, near), far) / near) for size, d in call.reuse)
        return sum(away) / (call.read_bytes * log(far / near))


def _other_form(name: str) -> str:
    """Return the name of an operator that writes in place, or of its twin that does not."""
    plain, slash, layout = name.partition("/")
    other = plain.removesuffix("_") if plain.endswith("_") else f"{plain}_"
    return other + slash + layout
