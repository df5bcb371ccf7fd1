"""Numbers beyond all models and machines are refused, in words that say what they may be."""

import pytest

from costmodel.base import limits
from costmodel.base.limits import shown
from costmodel.domain.plan import column_counts
from costmodel.inputs.distribution import ReuseHistogram, UniqueFraction


def test_what_was_counted() -> None:
    with pytest.raises(ValueError, match="num_lookups must be at most"):
        UniqueFraction(fraction=0.5, num_lookups=1e300)
    with pytest.raises(ValueError, match="bins of reuse_histogram must be at most"):
        ReuseHistogram(row_shares=(1.0,) * 2000, num_lookups=10)
    with pytest.raises(ValueError, match="needs shares"):
        ReuseHistogram(row_shares=(1e308, 1e308), num_lookups=10)


def test_what_is_known_of_real_models_and_machines_is_far_within_the_limits() -> None:
    """A thousand tables of 10 billion rows, shards of 2,048 columns, 1,024 GPUs of 80 GB."""
    known = {
        limits.MOST_RANKS: 1_024, limits.MOST_TABLES: 5_000, limits.MOST_ROWS: 10**10,
        limits.MOST_COLUMNS: 2_048, limits.MOST_IDS: 10_000, limits.MOST_SAMPLES: 65_536,
        limits.MOST_WIDTH: 16_384, limits.MOST_LAYERS: 100, limits.MOST_PARAMETERS: 10**12,
        limits.MOST_PRODUCTS: 10**12, limits.MOST_FEATURES: 1_000, limits.MOST_LOOKUPS: 10**12,
        limits.MOST_BYTES: 10**15, limits.LONGEST_NAME: 100,
    }  # fmt: skip
    assert [most for most, real in known.items() if most < 3 * real] == []


def test_a_number_of_many_digits_can_be_shown() -> None:
    assert shown(10**5000) == "a number of 5001 digits"
    assert shown(10**20) == shown(1 - 10**21) == "a number of 21 digits"
    assert shown(10**20 - 1) == "99,999,999,999,999,999,999"
    assert shown(40_000_000) == "40,000,000"
    assert shown(1.7e308) == "1.7e+308"


def test_widths_are_found_without_trying_each() -> None:
    # 2^40 columns have 39 numbers of blocks, found by 2^19 divisions; each width alone takes hours
    assert len(column_counts(2**40)) == 39
