"""How far two moments of bags' lengths go, beside drawn batches: `python -m bench.length_forms`.

The model knows a table's mean and standard deviation of ids per sample. They enter where all ranks
wait for the one that has most ids (``costmodel.domain.lengths``): 1 + e(W) s / (m sqrt(B)), as if
a batch's sum were normal. The other quantity that lengths could decide is the longest bag of a
lookup, which a warp reads row by row. Both are drawn here: batches of W ranks and B samples, many
times over, beside what the two moments of the drawn law say.
"""

from collections.abc import Callable, Iterator, Mapping
from math import sqrt
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from costmodel.domain.lengths import expected_maximum

Lengths: TypeAlias = NDArray[np.float64]
DRAWS, POOL = 200, 2_000_000
RANKS = (8, 64)
SAMPLES = (512, 4096)


def _log_normal(rng: np.random.Generator, size: int) -> Lengths:
    return np.rint(rng.lognormal(2.0, 1.0, size))


def _mixture(rng: np.random.Generator, size: int) -> Lengths:
    return np.where(rng.random(size) < 0.05, 200.0, 0.0)


def _zipf(rng: np.random.Generator, size: int) -> Lengths:
    """Draw lengths with P(n) as n^-2.2, cut at 1,000: the histories of users, truncated."""
    n = np.arange(1.0, 1001.0)
    weights = n**-2.2
    return rng.choice(n, size, p=weights / weights.sum())


def _poisson(rng: np.random.Generator, size: int) -> Lengths:
    return rng.poisson(10.0, size).astype(np.float64)


LAWS: Mapping[str, Callable[[np.random.Generator, int], Lengths]] = {
    "Poisson, mean 10": _poisson,
    "log-normal, sigma 1": _log_normal,
    "nothing or 200 (5%)": _mixture,
    "Zipf 2.2 up to 1,000": _zipf,
}


class Row(NamedTuple):
    """A law, drawn and by its two moments."""

    law: str
    ranks: int
    samples: int
    drawn: float
    """Mean over batches of the fullest rank's ids over the mean rank's."""
    two_moments: float
    longest: float
    """Mean over batches of the longest bag of all samples, over the mean bag."""

    @property
    def error(self) -> float:
        """What the two moments are off by, as a share of the fullest rank's ids."""
        return self.two_moments / self.drawn - 1.0


def rows(seed: int = 0) -> Iterator[Row]:
    """Yield a row for each law, number of ranks and batch."""
    rng = np.random.default_rng(seed)
    for law, draw in LAWS.items():
        pool = draw(rng, POOL)
        mean, spread = float(pool.mean()), float(pool.std())
        for ranks in RANKS:
            for samples in SAMPLES:
                sums, longest = np.empty((DRAWS, ranks)), np.empty(DRAWS)
                for number in range(DRAWS):
                    bags = pool[rng.integers(0, POOL, (ranks, samples))]
                    sums[number], longest[number] = bags.sum(axis=1), bags.max()
                drawn = float((sums.max(axis=1) / sums.mean(axis=1)).mean())
                told = 1.0 + expected_maximum(ranks) * spread / (mean * sqrt(samples))
                yield Row(law, ranks, samples, drawn, told, float(longest.mean()) / mean)


def main() -> None:
    """Print the rows as a table."""
    print("| lengths | ranks | samples | fullest rank, drawn | two moments | error | longest bag |")
    print("|---|---|---|---|---|---|---|")
    for row in rows():
        print(
            f"| {row.law} | {row.ranks} | {row.samples:,} | {row.drawn:.4f} | "
            f"{row.two_moments:.4f} | {row.error:+.2%} | {row.longest:.0f} x mean |"
        )


if __name__ == "__main__":
    main()
