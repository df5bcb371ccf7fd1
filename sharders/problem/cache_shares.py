"""Sizes of the HBM cache of tables whose weights are in host memory.

RecShard (Sethi et al., ASPLOS 2022) splits tables between HBM and host memory at points of the
distribution of accesses over rows. A UVM cache does so by itself, keeping the rows that were used
last; only its size is to be chosen. From the distribution of ids and Che's model of the cache
(``costmodel.inputs``) follows how many of the rows that a batch reads a cache of some size lacks;
so sizes are offered that leave given shares of them to host memory.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import EmbeddingTable, Workload
from costmodel.inputs.unique_curves import UniqueCurves
from costmodel.kernels.lookup_shards import table_curves

MISSED = (0.5, 0.1)
"""Shares of a batch's distinct rows that may come from host memory."""
GRID = np.exp2(-np.arange(20, 0, -1) / 2)
"""Shares of a table's rows to choose from: 0.1% to 71%, two an octave."""
NEARLY_ALL = 0.99
"""Share of the rows cached of a table that may not be in HBM as a whole, if there is room. TorchRec
1.9.2 requires less than 1 (``planners.py`` 410)."""
ALIKE = 1.15
"""Two sizes whose ratio is at most this count as the same."""


CacheShares: TypeAlias = tuple[float | None, ...]
"""Shares of a table's rows to cache; None stands for the table's own."""
OWN_SHARE: CacheShares = (None,)


def cache_shares(
    workload: Workload, topology: Topology, tables: Sequence[EmbeddingTable]
) -> list[CacheShares]:
    """Return shares of every table's rows worth caching; None, the first, is the table's own.

    A table with a given share, or that may not be cached, has no others.
    """
    open_ = [
        place
        for place, table in enumerate(tables)
        if ComputeKernel.FUSED_UVM_CACHING in table.compute_kernels
        and table.cache_load_factor is None
    ]
    shares = [OWN_SHARE] * len(tables)
    if not open_:
        return shares
    some = [tables[place] for place in open_]
    samples = workload.local_batch_size * topology.world_size
    lookups = np.array([samples * table.pooling_factor for table in some])
    rows = np.array([table.num_embeddings for table in some])
    curves = UniqueCurves.of(table_curves(some))
    read = curves.unique_rows(lookups)
    number = np.repeat(np.arange(len(some)), len(GRID))
    every = replace(curves, curve=curves.curve[number], share=curves.share[number])
    lacked = every.warm_misses(lookups[number], np.outer(rows, GRID).ravel())
    enough = lacked.reshape(len(some), len(GRID), 1) <= np.outer(read, MISSED)[:, None, :]
    for place, table, fits in zip(open_, some, enough, strict=True):
        found: list[float] = []
        wanted = [GRID[column].min(initial=np.inf) for column in fits.T]
        if ComputeKernel.FUSED not in table.compute_kernels:
            wanted.append(NEARLY_ALL)
        for share in wanted:
            known = (table.cache_share, *found)
            if share < np.inf and all(max(share / k, k / share) > ALIKE for k in known):
                found.append(float(share))
        shares[place] = (None, *found)
    return shares
