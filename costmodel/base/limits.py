"""Upper bounds of models and machines: a number beyond them is a mistake.

Each is some ten to a thousand times the largest known real one, so that nobody meets it, and low
enough that no product of numbers overflows or keeps a search busy for minutes.
"""

from math import log10

LEAST = 1e-100
"""Least number but 0: products of three lose no digits (``float`` does below 2.2e-308)."""
MOST_RANKS = 4_096
"""GPUs of one job: several times those of the largest published recommendation models."""
MOST_TABLES = 20_000
"""Tables of a model; the largest published have some thousands."""
MOST_ROWS = 2**40
"""Rows of a table: 10^12, a few hundred times the largest published tables."""
MOST_COLUMNS = 2**16
"""Columns of a table; FBGEMM's kernels take 2,048 in one shard."""
MOST_IDS = 1e6
"""Mean ids per sample: histories of users have up to some ten thousand."""
MOST_SAMPLES = 2**24
"""Samples per rank and batch."""
MOST_ACCUMULATED = 64
"""Batches between two updates of the dense model; a report takes as many times as long."""
MOST_INTERVAL = 10**6
"""Steps from one averaging of replicas to the next: days of training."""
MOST_WIDTH = 2**20
"""Width of a layer of the dense model."""
MOST_LAYERS = 1_000
MOST_PARAMETERS = 10**15
"""Parameters of a dense model read off a TorchRec model."""
MOST_PRODUCTS = 1e18
"""Multiplications of a sample's forward in a dense model read off a TorchRec model."""
MOST_OPERATORS = 20_000
"""Operators, or parameters, of a dense model that was read; the largest known has 3,826."""
MOST_DIMENSIONS = 16
"""Dimensions of a tensor; torch's kernels take some 25."""
MOST_OPERANDS = 20_000
"""Tensors that one operator reads or writes: a concatenation has those of all features."""
MOST_ELEMENTS = 2.0**50
"""Elements of a tensor."""
MOST_FEATURES = 10_000
"""Features that share a table."""
MOST_LOOKUPS = 1e15
"""Lookups of a table in counted batches: a log of years."""
MOST_BINS = 64
"""Bins of a reuse histogram: the last one is of 2^63 hits."""
MOST_RANGES = 1_000_000
"""Ranges of rows with a share of the lookups each."""
MOST_BYTES = 1e21
"""Memory of a machine: that of millions of data centres."""
MOST_SHARE = 1e18
"""The largest of shares that need not add up to 1: counts will do."""
MOST_COUNTED = 10**12
"""Measurements, or calls of an operator: a year of them, one every 30 microseconds."""
MOST_ERROR = 10.0
"""Relative error of a model: beyond it the model says nothing, and random factors overflow."""
LONGEST_NAME = 1_000
"""Characters of a table's name."""


def check_at_most(name: str, value: float, most: float) -> None:
    """Raise ValueError if a number is larger than it can be."""
    if not value <= most:
        raise ValueError(f"{name} must be at most {most:,.0f}, got {shown(value)}")


def shown(value: float) -> str:
    """Return a number as messages write it, however large it is."""
    if isinstance(value, int) and abs(value) >= 10**20:
        digits = int((value.bit_length() - 1) * log10(2)) + 1  # or one more; str() has a limit
        return f"a number of {digits + (abs(value) >= 10**digits)} digits"
    return f"{value:,}" if abs(value) < 10**20 else f"{value:g}"
