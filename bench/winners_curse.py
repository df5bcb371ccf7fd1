"""What is left of the winner's curse after the correction, where the truth is known: made-up plans.

True log times are given, predictions are off by independent normal errors, and the plan with the
fastest prediction is picked, again and again. The correction sees predictions and errors' spread
only (``costmodel.uncertainty.step_samples.StepSamples.optimism``).
"""

from typing import Any

import numpy as np

from costmodel.uncertainty.sampling import Array, Draws
from costmodel.uncertainty.step_samples import StepSamples

SPREAD = 0.1
"""Standard deviation of the errors, in log time."""
REPEATS = 400
SEED = 0


def truths(num_plans: int) -> dict[str, Array]:
    """Return true log times of some plans, in four situations."""
    apart = np.arange(num_plans, dtype=np.float64)
    return {
        "all equal": 0.0 * apart,
        "3% apart": 0.03 * apart,
        "10% apart": 0.1 * apart,
        "one twice as fast": np.log(2.0) * (apart > 0),
    }


def bias(truth: Array) -> tuple[float, float]:
    """Return by how much the picked plan's log time is under-estimated: as predicted, corrected."""
    random, draws = np.random.default_rng(SEED), Draws()
    errors = SPREAD * np.stack([draws.normal(str(plan)) for plan in range(len(truth))], axis=1)
    misses = np.zeros((REPEATS, 2))
    for repeat in range(REPEATS):
        predicted = truth + SPREAD * random.normal(size=len(truth))
        picked = predicted.argmin()
        samples = StepSamples(
            predicted=np.exp(predicted), times=np.exp(predicted + errors), shared={}
        )
        missed = truth[picked] - predicted[picked]
        misses[repeat] = missed, missed - samples.optimism()
    before, after = misses.mean(axis=0)
    return float(before), float(after)


def results() -> list[dict[str, Any]]:
    """Return what picking costs in every situation, as JSON."""
    rows = []
    for num_plans in (2, 4, 8):
        for name, truth in truths(num_plans).items():
            before, after = bias(truth)
            rows.append({
                "plans": num_plans,
                "truly": name,
                "spread": SPREAD,
                "underestimated": round(before, 4),
                "corrected": round(after, 4),
            })
    return rows
