"""The objective of a search: the step time, and a small penalty for unevenly loaded ranks.

Most moves away from the rank that the others wait for leave the step as it is, as another rank is
as slow, and would look useless. So a search minimises the step time plus a share of power means
over the ranks: of their lookup times, launches by the host included, and of the times that each
rank's own bytes would take in every collective, as all ranks wait for the one that sends most, or
averages most with its replicas. Without the latter, no search of 10 s came below 39 ms for 500
tables in groups of 256 H100, five of 100M rows; with it, 27 to 30.

Where the host decides, steps are shorter when no rank has many kinds of tables (weighted ones, of
another data type, or sharded by columns: each kind has a kernel), and no single move may show it.
"""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from costmodel.base.arrays import Array
from costmodel.step.cuts import GroupKernel
from costmodel.step.groups import GroupKey
from costmodel.step.step_operations import ProcessGroup
from costmodel.step.template import RANK_FEATURES, Template, WorkKind

BALANCE_ROOTS = 3
"""Number of square roots taken of a mean of powers: the power is 2 to this."""
BALANCE_WEIGHT = 0.05
"""Weight of the power means, if a run has no other one."""
LARGE = float(1 << 26)
"""Bytes from which a collective is taken to be linear."""


def exchange_rates(template: Template, groups: Mapping[GroupKey, int]) -> Array:
    """Return the seconds to exchange or average a unit of every rank feature, over all collectives.

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
        if op.work.kind is WorkKind.EXCHANGE and form is not None:
            per_byte = float(form.time(2 * LARGE) - form.time(LARGE)) / LARGE
        elif op.group is ProcessGroup.REPLICAS:
            per_byte = 1.0  # its amount is in seconds
        else:
            continue
        for feature, weight in op.work.amount.weights.items():
            if feature.name in RANK_FEATURES:
                column = RANK_FEATURES.index(feature.name)
                rates[groups[feature.group], column] += per_byte * weight
    return rates


def launch_seconds(template: Template, kernels: Mapping[GroupKernel, int]) -> Array:
    """Return the host's seconds to launch every lookup kernel, forward and backward.

    Parameters
    ----------
    template
        Of plans that have all sharding groups.
    kernels
        Places of the kernels.

    Returns
    -------
        Seconds, shape (kernels,).

    """
    seconds = np.zeros(len(kernels))
    for issue, launched in pairwise(template.ops):
        kernel = launched.work.kernel
        if issue.work.kind is WorkKind.ISSUE and kernel is not None:
            seconds[kernels[kernel]] += issue.work.seconds
    return seconds
