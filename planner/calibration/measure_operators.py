"""Measuring single operators of dense parts: elementwise ones, normalizations, gathers."""

from costmodel.base.units import Seconds
from planner.calibration.device import DeviceUnderTest, Stopwatch, repeated
from planner.calibration.operator_calls import CALLS, Numbers
from planner.calibration.points import OperatorPoint
from planner.calibration.records import Record, record_of

_BUDGET: Seconds = 0.06


def measure_operator(point: OperatorPoint, device: DeviceUnderTest) -> Record:
    """Return the record of an operator whose operands are not in the cache."""
    call = CALLS[point.operator](Numbers(point.num_elements, device.name))

    def once() -> dict[str, Stopwatch]:
        device.flush()
        with device.stopwatch() as watch:
            call()
        return {"operator": watch}

    return record_of(point, repeated(once, device, budget=_BUDGET))
