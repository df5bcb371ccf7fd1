"""Whole steps measured on CPUs (``planner validate``): how far off, together and plan by plan.

Reads any JSON that has objects with ``predicted_s`` and ``measured_s`` in it, as
``planner.report.validation_data`` writes them; those in one list are plans of one workload.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt
from typing import Any

from costmodel.error_model import NORMAL_90


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Plans of one workload: log(measured / predicted) of each."""

    name: str
    errors: tuple[float, ...]

    @property
    def mean(self) -> float:
        """What all its plans are off by."""
        return sum(self.errors) / len(self.errors)


def groups(data: object, name: str = "") -> Iterator[Group]:
    """Yield every list of measured plans in some JSON."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from groups(value, f"{name} {key}".strip())
    elif isinstance(data, list):
        rows = [row for row in data if _is_measured(row)]
        if rows:
            errors = (log(row["measured_s"] / row["predicted_s"]) for row in rows)
            yield Group(name=name.removesuffix(" plans"), errors=tuple(errors))
            return
        for index, value in enumerate(data):
            named = value.get("name", index) if isinstance(value, Mapping) else index
            yield from groups(value, f"{name} {named}".strip())


def coverage(found: Sequence[Group]) -> dict[str, Any]:
    """Test every workload's plans with the spread of the other workloads' plans."""
    held = points = 0
    for group in found:
        others = [error for g in found if g is not group for error in g.errors]
        if not others:
            continue
        half_width = NORMAL_90 * _rms(others)
        held += sum(abs(error) <= half_width for error in group.errors)
        points += len(group.errors)
    every = [error for group in found for error in group.errors]
    own = [error - group.mean for group in found for error in group.errors if len(group.errors) > 1]
    lost = sum(len(group.errors) > 1 for group in found)
    return {
        "workloads": len(found),
        "points": points,
        "held": held,
        "coverage": round(held / points, 4) if points else None,
        "sigma": round(_rms(every), 4) if every else None,
        "own_sigma": round(_rms(own) * sqrt(len(own) / (len(own) - lost)), 4) if own else None,
    }


def _is_measured(row: object) -> bool:
    return isinstance(row, Mapping) and all(
        isinstance(row.get(key), float) and row[key] > 0 for key in ("predicted_s", "measured_s")
    )


def _rms(values: Sequence[float]) -> float:
    return sqrt(sum(value * value for value in values) / len(values))
