"""Measuring a point of any family, where a failure costs that point only."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from costmodel.base.errors import PlannerError
from planner.calibration.device import DeviceUnderTest
from planner.calibration.measure_collectives import measure_collective
from planner.calibration.measure_dense import measure_operator, measure_product, measure_stream
from planner.calibration.measure_embedding import TableKernel
from planner.calibration.measure_host import measure_host
from planner.calibration.points import EmbeddingPoint, Family, Point, StreamPoint, TableSet
from planner.calibration.records import Failure, Record

Measure = Callable[[Any, DeviceUnderTest], Record]
"""Returns the record of a point of one family on a device."""
NO_MEMORY = "out of memory"
"""Reason of a failure that another run may not have (``attempted``)."""
_LONGEST_REASON = 300
_ERRORS = (
    PlannerError,
    RuntimeError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    OSError,
    TypeError,
    ValueError,
)
"""Errors of torch, FBGEMM, the compilers behind torch.compile, and ranks that fail."""


class DeviceLostError(PlannerError):
    """A kernel left the device unusable: only a new process can use it again."""

    def __str__(self) -> str:
        return "the device can no longer be used: a kernel ended with an error"


class Measurer:
    """Measures points; tables stay in memory while points of the same set follow one another."""

    def __init__(
        self,
        device: DeviceUnderTest,
        *,
        meet: Callable[[], None] | None = None,
        more: Mapping[str, Measure] | None = None,
    ) -> None:
        """Take the device, a function that lets ranks begin together, and further families."""
        self._device, self._meet = device, meet
        self._measures: Mapping[str, Measure] = {
            Family.STREAM: self._stream,
            Family.OPERATOR: measure_operator,
            Family.GEMM: measure_product,
            Family.HOST: measure_host,
            Family.COLLECTIVE: measure_collective,
            Family.EMBEDDING: self._lookup,
            **(more or {}),
        }
        self._tables: TableSet | None = None
        self._kernel: TableKernel | None = None

    def measure(self, point: Point) -> Record:
        """Return the record of a point; raises the errors of its kernels."""
        if not isinstance(point, EmbeddingPoint):
            self._release()
        return self._measures[point.family](point, self._device)

    def _stream(self, point: StreamPoint, device: DeviceUnderTest) -> Record:
        return measure_stream(point, device, meet=self._meet)

    def _lookup(self, point: EmbeddingPoint, device: DeviceUnderTest) -> Record:
        if self._kernel is None or self._tables != point.tables:
            self._release()  # before the next tables come
            self._kernel, self._tables = TableKernel(point.tables, device), point.tables
        return self._kernel.measure(point)

    def _release(self) -> None:
        """Free the tables that are in memory."""
        self._kernel = self._tables = None


def attempted(measurer: Measurer, point: Point, device: DeviceUnderTest) -> Record | Failure:
    """Return the record of a point, or why it could not be measured.

    A point that finds no memory has the reason ``NO_MEMORY``: it may find some another time, so it
    is not written down.

    Raises
    ------
    DeviceLostError
        The device does not even synchronize any more; the failure is its ``__cause__``'s.

    """
    try:
        return measurer.measure(point)
    except torch.OutOfMemoryError:
        return Failure(point=point, reason=NO_MEMORY)
    except _ERRORS as error:
        _check_alive(device, error)
        return Failure(point=point, reason=reason_of(error))


def reason_of(error: BaseException) -> str:
    """Return an error's name and the beginning of its text, in one line."""
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said}"[:_LONGEST_REASON]


def _check_alive(device: DeviceUnderTest, error: BaseException) -> None:
    """Raise DeviceLostError if the device does not synchronize any more."""
    try:
        device.synchronize()
    except RuntimeError:
        raise DeviceLostError from error
