"""A roofline, and the same with a correction of every phase (``planner.calibration.correction``).

A profile can hold such a correction, and it is one by the roofline's own seconds for that reason:
a search knows of a rank what its lookups move together, not what trees over tables would ask.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from costmodel.base.arrays import Array
from planner.calibration.correction import learned_correction
from planner.calibration.records import Record

PhaseSeconds: TypeAlias = Mapping[str, Array]
"""Predicted seconds by phase, a number for every record."""
Records: TypeAlias = Sequence[Record]
Predict: TypeAlias = Callable[[Records], PhaseSeconds]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rivals:
    """Two models fitted to the same records; both are monotone."""

    roofline: Predict
    corrected: Predict


def taught(roofline: Predict, records: Records) -> Rivals:
    """Teach corrections on the records that the roofline was fitted to."""
    corrections = {
        phase: learned_correction(seconds, np.array([record.seconds[phase] for record in records]))
        for phase, seconds in roofline(records).items()
    }

    def corrected(asked: Records) -> PhaseSeconds:
        rough = roofline(asked)
        return {phase: corrections[phase].corrected(seconds) for phase, seconds in rough.items()}

    return Rivals(roofline=roofline, corrected=corrected)
