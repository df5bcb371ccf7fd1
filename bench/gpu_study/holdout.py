"""How far models are off on groups that they have not seen, and how sure they can be of that.

Groups (sets of tables, shapes) go to folds as scikit-learn's ``GroupKFold`` deals them. The
roofline is fitted, and its correction taught, on the other folds only. An interval of a fold comes
from the errors of the other folds: 90% of them lie within. Its coverage is counted on the fold.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.gpu_study.rooflines import Roofline
from costmodel.base.arrays import Array
from planner.calibration.curves import Accuracy, accuracy
from planner.calibration.enough import TooFewPointsError
from planner.calibration.records import Record

ROOFLINE, CORRECTED = "roofline", "corrected"
LEVEL = 0.9
"""Share of new measurements that an interval is to cover."""
_MOST_FOLDS = 5
_FEWEST_GROUPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """One model's errors on groups held out, all phases together."""

    errors: Accuracy
    width: float
    """Factor by which the 90% interval reaches up and down from a prediction."""
    coverage: float
    """Share of the held-out measurements within the interval of the other folds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A family's models side by side."""

    num_points: int
    num_groups: int
    models: Mapping[str, HeldOut]
    """By ``ROOFLINE`` and ``CORRECTED``; both are monotone."""

    @property
    def better(self) -> str:
        """The model with the smaller mean error on groups held out."""
        return min(self.models, key=lambda name: self.models[name].errors.mape)


def judged(
    roofline: Roofline, records: Sequence[Record], groups: Sequence[Hashable]
) -> Judged | None:
    """Hold out every group once; None where there are too few groups, or points beside a fold."""
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    if len(numbers) < _FEWEST_GROUPS:
        return None
    fold = _folds(np.array([numbers[group] for group in groups]))
    try:
        errors = _held_out_logs(roofline, records, fold)
    except TooFewPointsError:
        return None
    return Judged(
        num_points=len(records),
        num_groups=len(numbers),
        models={name: _summed_up(logs, fold) for name, logs in errors.items()},
    )


def _folds(numbers: NDArray[np.intp]) -> NDArray[np.intp]:
    from sklearn.model_selection import GroupKFold

    fold = np.zeros(len(numbers), dtype=np.intp)
    splits = GroupKFold(n_splits=min(_MOST_FOLDS, len(np.unique(numbers))))
    for number, (_, out) in enumerate(splits.split(numbers, groups=numbers)):
        fold[out] = number
    return fold


def _held_out_logs(
    roofline: Roofline, records: Sequence[Record], fold: NDArray[np.intp]
) -> dict[str, dict[str, Array]]:
    """Return log of predicted over measured time, by model and phase, a number for every record."""
    phases = tuple(records[0].seconds)
    found = {
        name: {phase: np.zeros(len(records)) for phase in phases} for name in (ROOFLINE, CORRECTED)
    }
    for number in np.unique(fold):
        out = fold == number
        known = [record for record, held in zip(records, out, strict=True) if not held]
        asked = [record for record, held in zip(records, out, strict=True) if held]
        rivals = roofline.fit(known)
        for name, model in ((ROOFLINE, rivals.roofline), (CORRECTED, rivals.corrected)):
            for phase, seconds in model(asked).items():
                measured = np.array([record.seconds[phase] for record in asked])
                found[name][phase][out] = np.log(seconds / measured)
    return found


def _summed_up(logs: Mapping[str, Array], fold: NDArray[np.intp]) -> HeldOut:
    every = np.concatenate(list(logs.values()))
    folds = np.tile(fold, len(logs))
    inside = np.zeros(len(every), dtype=bool)
    for number in np.unique(folds):
        out = folds == number
        inside[out] = np.abs(every[out]) <= half_width(every[~out])
    return HeldOut(
        errors=accuracy(np.expm1(every)),
        width=float(np.exp(half_width(every))),
        coverage=float(inside.mean()),
    )


def half_width(logs: Array) -> float:
    """Return the log error within which 90% of those of new groups are to lie.

    Of n errors the ceil((n + 1) 0.9)th, which leaves room for one more; at most the largest.
    """
    ranked = np.sort(np.abs(logs))
    place = int(np.ceil((len(ranked) + 1) * LEVEL))
    return float(ranked[min(place, len(ranked)) - 1])
