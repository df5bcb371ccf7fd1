"""How much of a table to cache in HBM where its weights are in host memory.

RecShard (Sethi et al., ASPLOS 2022) splits tables between HBM and host memory at points of the
distribution of accesses over rows. A UVM cache does so by itself, keeping the rows that were used
last; what is to be chosen is its size. From the distribution of ids and Che's model of the cache
(``costmodel.inputs``) follows how many of the rows that a batch reads a cache of some size
lacks; so sizes are offered that leave given shares of them to host memory.
"""

import numpy as np

from costmodel.domain.hardware import Topology
from costmodel.domain.workload import EmbeddingTable, Workload
from costmodel.inputs.distribution import unique_curve
from costmodel.inputs.unique_curves import UniqueCurves

MISSED = (0.5, 0.1)
"""Shares of a batch's distinct rows that may come from host memory."""
GRID = np.exp2(-np.arange(20, 0, -1) / 2)
"""Shares of a table's rows to choose from: 0.1% to 71%, two an octave."""
ALIKE = 1.15
"""Ratio up to which two sizes are the same."""


def cache_shares(
    workload: Workload, topology: Topology, table: EmbeddingTable
) -> tuple[float | None, ...]:
    """Return shares of a table's rows worth caching; None, the first, is the table's own.

    A table that says what is to be cached has no others.
    """
    if table.cache_load_factor is not None:
        return (None,)
    lookups = workload.local_batch_size * topology.world_size * table.pooling_factor
    curve = unique_curve(table.inputs, table.num_embeddings)
    lacked = UniqueCurves.of([curve] * len(GRID)).warm_misses(lookups, table.num_embeddings * GRID)
    read = curve.unique_rows(lookups)
    found: list[float] = []
    for missed in MISSED:
        share = next(iter(GRID[lacked <= missed * read].tolist()), None)
        known = (table.cache_share, *found)
        if share is not None and all(max(share / k, k / share) > ALIKE for k in known):
            found.append(share)
    return (None, *found)
