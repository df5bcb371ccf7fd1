"""How many ids the fullest of several ranks has: lengths of bags differ, and batches with them.

All ranks wait for the one with most ids wherever they exchange, so its batch counts where a rank
works on its own samples: what it sends, its replicated tables' lookups, its unpooled outputs. What
a rank receives is of all ranks' samples, and their differences cancel.

Two moments are enough for that. Here is the formula beside batches of one table alone, 200 drawn
of each kind (2026-11-29), whose fullest rank has 1.007 to 1.72 times the mean one's ids:

    lengths                   512 samples, 8 and 64 ranks      4,096 samples
    Poisson, mean 10             -0.1%    -0.0%                -0.0%    -0.0%
    log-normal, sigma 1          -0.4%    -1.0%                +0.0%    -0.1%
    nothing, or 200 (5%)         -0.7%    -2.4%                -0.0%    -0.2%
    Zipf 2.2 up to 1,000         -4.4%   -12.3%                -0.6%    -2.3%

A batch has many tables, and their sum is closer to normal. What two moments do not say is the
longest bag, 20 to 340 times the mean, which a warp reads by itself: ``longest_bag`` of a table.
"""

from functools import lru_cache
from math import erf, sqrt

import numpy as np

from costmodel.domain.workload import Workload

_STEPS, _FARTHEST = 4_000, 10.0
"""Number of steps of the integral, and standard deviations to both sides, beyond which nothing is
left."""


@lru_cache
def expected_maximum(count: int) -> float:
    """Return how far the largest of some normal draws lies above the mean, on average.

    In standard deviations, with F their distribution function:

        e(n) = integral over x > 0 of (1 - F(x)^n) - integral over x < 0 of F(x)^n
    """
    x = (np.arange(_STEPS) + 0.5) * (_FARTHEST / _STEPS)
    above = np.array([0.5 * (1.0 + erf(each / sqrt(2.0))) for each in x])
    width = _FARTHEST / _STEPS
    return float(((1.0 - above**count) - (1.0 - above) ** count).sum() * width)


def fullest_batch(workload: Workload, world_size: int) -> float:
    """Return the expected ids in the batch of the rank with most of them, over the mean.

    A sum over thousands of samples is close to normal: ``1 + e(W) batch_spread``.
    """
    return 1.0 + expected_maximum(world_size) * workload.batch_spread
