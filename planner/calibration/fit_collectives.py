"""Curves of collectives, fitted to measured sizes and times."""

from collections.abc import Mapping
from dataclasses import dataclass

from costmodel.domain.hardware import CollectiveCurve, CollectiveOp, Source
from planner.calibration.curves import (
    Accuracy,
    Samples,
    accuracy,
    fitted_form,
    holdout_errors,
    knots_beyond,
)

FORM_CANDIDATES = ("paper_sigmoid", "two_lines", "three_lines", "log_pchip", "lines_and_residual")
"""Forms that may win; alpha-beta and the authors' breakpoints are there to be compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A curve, and what every form's hold-out errors were."""

    curve: CollectiveCurve
    form: str
    errors: Mapping[str, Accuracy]


def chosen(errors: Mapping[str, Accuracy]) -> str:
    """Name the form with the smallest mean error on held-out points."""
    return min(FORM_CANDIDATES, key=lambda form: errors[form].mape)


def fit_samples(
    samples: Samples, origin: str, op: CollectiveOp, num_ranks: int, num_nodes: int = 1
) -> Fit:
    """Fit every form, and make a curve of the one that misses held-out sizes least."""
    errors = {name: accuracy(each) for name, each in holdout_errors(samples).items()}
    winner = chosen(errors)
    points = samples.medians()
    inside, outside = knots_beyond(fitted_form(winner, samples), points)
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
