"""What a search minimises: the step time, and a little of how unevenly ranks are loaded.

Most moves away from the rank that the others wait for leave the step as it is, as another rank is
as slow, and would look useless. So a search minimises the step time plus a share of power means
over the ranks: of their lookup times, and of the times that each rank's own bytes would take in
every collective, as all ranks wait for the one that sends most.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from costmodel.step.groups import GroupKey
from costmodel.step.template import RANK_FEATURES, Template, WorkKind

Array = NDArray[np.float64]
BALANCE_ROOTS = 3
"""Square roots to take of a mean of powers."""
BALANCE_WEIGHT = 0.05
"""How much the power means count, if a run has no other weight."""
LARGE = float(1 << 26)
"""Bytes from which on a collective is taken to be linear."""


def exchange_rates(template: Template, groups: Mapping[GroupKey, int]) -> Array:
    """Return how long a unit of every rank feature takes to be exchanged, in all collectives.

    Parameters
    ----------
    template
        Of plans that have all sharding groups.
    groups
        Places of the groups.

    Returns
    -------
        Seconds, shape (groups, RANK_FEATURES).

    """
    rates = np.zeros((len(groups), len(RANK_FEATURES)))
    for op in template.ops:
        form = op.work.form
        if op.work.kind is not WorkKind.EXCHANGE or form is None:
            continue
        per_byte = float(form.time(2 * LARGE) - form.time(LARGE)) / LARGE
        for feature, weight in op.work.amount.weights.items():
            if feature.name in RANK_FEATURES:
                column = RANK_FEATURES.index(feature.name)
                rates[groups[feature.group], column] += per_byte * weight
    return rates
