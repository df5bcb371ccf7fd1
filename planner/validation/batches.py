"""Random batches to train on, whose ids follow a workload's distributions."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torchrec.datasets.utils import Batch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from costmodel.domain.workload import EmbeddingTable, Workload
from costmodel.inputs.distribution import ReuseHistogram, Zipf, resolved

Ids = NDArray[np.int64]
_MOST_COUNTED = 20
"""Histograms of more than so many times the ids to draw are not written out id by id."""
_MULTIPLIER = 2_654_435_761
"""Knuth's multiplicative hash: it scatters popular rows over a table, as hashed ids are."""


def make_batch(workload: Workload, rng: np.random.Generator) -> Batch:
    """Return one rank's batch: dense features, ids of every table, labels."""
    samples = workload.local_batch_size
    keys: list[str] = []
    lengths: list[Ids] = []
    ids: list[Ids] = []
    for table in workload.tables:
        names = table.features
        for name in names:
            keys.append(name)
            lengths.append(draw_lengths(samples, table.pooling_factor / len(names), rng))
            ids.append(draw_ids(table, int(lengths[-1].sum()), rng))
    index_type = torch.int32 if workload.index_bytes == 4 else torch.int64
    return Batch(
        dense_features=_tensor(rng.standard_normal((samples, workload.dense.num_dense_features))),
        sparse_features=KeyedJaggedTensor(
            keys=keys,
            values=torch.from_numpy(np.concatenate(ids)).to(index_type),
            lengths=torch.from_numpy(np.concatenate(lengths)).to(torch.int32),
        ),
        labels=torch.from_numpy(rng.integers(0, 2, samples)),
    )


def draw_lengths(samples: int, pooling_factor: float, rng: np.random.Generator) -> Ids:
    """Return ids per sample, the two whole numbers around the pooling factor, with its mean."""
    return draw_rounded(np.full(samples, pooling_factor), rng)


def draw_rounded(means: NDArray[np.float64], rng: np.random.Generator) -> Ids:
    """Return numbers rounded up or down at random, so that the mean stays."""
    whole = np.floor(means)
    rounded: Ids = (whole + (rng.random(len(means)) < means - whole)).astype(np.int64)
    return rounded


def draw_ids(table: EmbeddingTable, num_ids: int, rng: np.random.Generator) -> Ids:
    """Return ``num_ids`` ids of a table, drawn by its distribution."""
    law = resolved(table.inputs, table.num_embeddings)
    if isinstance(law, ReuseHistogram):
        return _histogram_ranks(law, table.num_embeddings, num_ids, rng)
    ranks = _zipf_ranks(law.exponent, table.num_embeddings, num_ids, rng)
    return ranks if _ordered(table) else _scattered(ranks, table.num_embeddings)


def _ordered(table: EmbeddingTable) -> bool:
    """Return whether popular rows have small ids."""
    return isinstance(table.inputs, Zipf) and table.inputs.hot_rows_first


def _zipf_ranks(exponent: float, rows: int, num_ids: int, rng: np.random.Generator) -> Ids:
    """Return drawn ranks, the most popular one 0, by inverting the cumulative law."""
    if exponent == 0:
        even: Ids = rng.integers(0, rows, num_ids)
        return even
    mass = np.cumsum(np.arange(1, rows + 1, dtype=np.float64) ** -exponent)
    drawn = np.searchsorted(mass, rng.random(num_ids) * mass[-1])
    ranks: Ids = np.minimum(drawn, rows - 1).astype(np.int64)
    return ranks


def _histogram_ranks(law: ReuseHistogram, rows: int, num_ids: int, rng: np.random.Generator) -> Ids:
    """Return ids drawn from batches like the counted one: a part of one, or several.

    A log of many batches is drawn from with replacement, which as few ids do not notice.
    """
    if law.num_lookups > _MOST_COUNTED * num_ids:
        row_hits = _hits(law, min(rows, _MOST_COUNTED * num_ids), rng)
        drawn = rng.choice(len(row_hits), num_ids, p=row_hits / row_hits.sum())
        return _scattered(drawn, rows)
    parts: list[Ids] = []
    while sum(map(len, parts)) < num_ids:
        row_hits = _hits(law, rows, rng)
        first = int(rng.integers(0, rows))
        whole = rng.permutation(np.repeat(np.arange(len(row_hits)), row_hits))
        parts.append(_scattered(whole + first, rows))
    return np.concatenate(parts)[:num_ids]


def _hits(law: ReuseHistogram, most: int, rng: np.random.Generator) -> Ids:
    """Return the hits of every distinct row of a batch: whole numbers with the bins' means."""
    means = np.array(law.bin_means())
    distinct = max(1, min(most, round(law.num_lookups / law.mean_reuse)))
    shares = np.array(law.row_shares) / sum(law.row_shares)
    hits: Ids = draw_rounded(means[rng.choice(len(means), distinct, p=shares)], rng)
    return hits


def _scattered(ranks: Ids, rows: int) -> Ids:
    """Return ranks hashed over the rows of a table."""
    scattered: Ids = ranks * _MULTIPLIER % rows
    return scattered


def _tensor(values: NDArray[np.float64]) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.float32))


def make_batches(workload: Workload, count: int, seed: Sequence[int]) -> list[Batch]:
    """Return ``count`` batches; ``seed`` is that of the run and the rank."""
    rng = np.random.default_rng(list(seed))
    return [make_batch(workload, rng) for _ in range(count)]
