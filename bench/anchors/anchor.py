"""One public measurement, or one set of them, and how far off the model is."""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results" / "anchors.csv"
COLUMNS = ("family", "name", "points", "measured", "predicted", "unit", "error", "tolerance")


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A measurement, what the shipped model predicts, and by how much that may get worse.

    Where many points stand behind one anchor (``points`` above 1), ``error`` is the mean absolute
    relative error of all, and there is no single measured and predicted number.
    """

    family: str
    name: str
    error: float
    """Predicted over measured, less 1; of many points the mean of its absolute value."""
    tolerance: float = 0.01
    """How much further from 0 the error may get before the committed file must be renewed."""
    points: int = 1
    measured: float | None = None
    predicted: float | None = None
    unit: str = ""

    def worsened(self, committed: "Anchor") -> bool:
        """Tell whether the error is further from 0 than the committed one allows."""
        return abs(self.error) > abs(committed.error) + committed.tolerance


def single(family: str, name: str, *, measured: float, predicted: float, unit: str = "s") -> Anchor:
    """Return the anchor of one measured number."""
    return Anchor(
        family=family,
        name=name,
        measured=measured,
        predicted=predicted,
        unit=unit,
        error=predicted / measured - 1,
    )


def written(anchors: Iterable[Anchor], path: Path = RESULTS) -> None:
    """Write anchors as CSV, numbers with four digits."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for anchor in anchors:
            table.writerow([
                anchor.family,
                anchor.name,
                anchor.points,
                _text(anchor.measured),
                _text(anchor.predicted),
                anchor.unit,
                f"{anchor.error:.4f}",
                f"{anchor.tolerance:g}",
            ])


def committed(path: Path = RESULTS) -> tuple[Anchor, ...]:
    """Read the committed anchors."""
    with path.open(newline="", encoding="utf-8") as file:
        return tuple(
            Anchor(
                family=row["family"],
                name=row["name"],
                points=int(row["points"]),
                measured=_number(row["measured"]),
                predicted=_number(row["predicted"]),
                unit=row["unit"],
                error=float(row["error"]),
                tolerance=float(row["tolerance"]),
            )
            for row in csv.DictReader(file)
        )


def worsened(now: Sequence[Anchor], before: Sequence[Anchor]) -> list[str]:
    """Say which anchors got worse than the committed ones allow, or are gone, or are new."""
    known = {(anchor.family, anchor.name): anchor for anchor in before}
    lines = []
    for anchor in now:
        old = known.pop((anchor.family, anchor.name), None)
        if old is None:
            lines.append(f"{anchor.family}: {anchor.name} is not in {RESULTS.name}")
        elif anchor.worsened(old):
            lines.append(
                f"{anchor.family}: {anchor.name} went from {old.error:+.1%} to {anchor.error:+.1%}"
            )
    return lines + [f"{family}: {name} is gone" for family, name in known]


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _number(text: str) -> float | None:
    return float(text) if text else None
