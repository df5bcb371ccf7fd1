"""Curves of collectives, fitted to measured sizes and times."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.base.arrays import Array
from costmodel.domain.hardware import CollectiveCurve, CollectiveOp, HardwareProfile, Source
from costmodel.kernels.collectives import RankGroup, collective_time
from planner.calibration.curves import (
    FORMS,
    Accuracy,
    Forms,
    Samples,
    accuracy,
    fitted_form,
    holdout_errors,
    knots_beyond,
)
from planner.calibration.points import CollectivePoint
from planner.calibration.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A curve, and the hold-out errors of every form."""

    curve: CollectiveCurve
    form: str
    errors: Mapping[str, Accuracy]


def chosen(errors: Mapping[str, Accuracy], forms: Iterable[str] = FORMS) -> str:
    """Return the form with the smallest mean error on held-out points."""
    return min(forms, key=lambda form: errors[form].mape)


def fit_samples(
    samples: Samples,
    origin: str,
    op: CollectiveOp,
    num_ranks: int,
    num_nodes: int = 1,
    forms: Forms = FORMS,
) -> Fit:
    """Return the curve of the form that errs least on held-out sizes, after fitting all.

    Parameters
    ----------
    samples
        Sizes and times of the collective.
    origin
        Where they are from, for the profile.
    op, num_ranks, num_nodes
        What was measured.
    forms
        Forms that the curve may have.

    """
    held_out = holdout_errors(samples, forms)
    errors = {name: accuracy(each) for name, each in held_out.items()}
    winner = chosen(errors, forms)
    points = samples.medians()
    inside, outside = knots_beyond(fitted_form(forms[winner], samples), points)
    curve = CollectiveCurve(
        op=op,
        num_ranks=num_ranks,
        num_nodes=num_nodes,
        knots=(*inside, *outside),
        source=Source.FITTED,
        origin=f"{origin}; {len(samples.sizes)} points, {winner}",
        error=errors[winner].median,
        error_p90=errors[winner].p90,
        num_points=len(samples.sizes),
        last_measured=inside[-1][0],
    )
    return Fit(curve=curve, form=winner, errors=errors)


def uneven_errors(records: Sequence[Record], profile: HardwareProfile) -> Array:
    """Return the relative errors of taking an uneven message for its largest rank's."""
    errors = []
    for record in records:
        point = record.point
        if isinstance(point, CollectivePoint) and point.focus:
            group = RankGroup(
                num_ranks=point.num_ranks, ranks_per_node=point.num_ranks // point.num_nodes
            )
            predicted = float(collective_time(point.op, point.num_bytes, group, profile))
            errors.append(predicted / record.seconds["collective"] - 1)
    return np.array(errors)
