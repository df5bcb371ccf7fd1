"""The page of recorded ids."""

from pathlib import Path

import numpy as np
import pytest

from planner.inspection.inspect import Inspection, inspect
from planner.inspection.inspection_page import inspection_page, rank_frequency_spec


@pytest.fixture
def found(tmp_path: Path) -> Inspection:
    random = np.random.default_rng(0)
    lengths = random.integers(0, 5, 400)
    ids = random.zipf(1.3, lengths.sum()) % 1000
    np.savez(tmp_path / "ids.npz", hist=ids, hist_lengths=lengths, label=np.ones(400))
    return inspect(tmp_path / "ids.npz")


def test_lookups_fall_with_the_rank_and_add_up(found: Inspection) -> None:
    rows = rank_frequency_spec(found)["data"]["values"]
    ranks, shares = [row["rank"] for row in rows], [row["share"] for row in rows]
    assert (ranks[0], ranks[-1]) == (1, found.tables[0].num_distinct)
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == found.tables[0].hot_rows[0].lookup_share


def test_the_page_has_tables_columns_and_lengths(found: Inspection) -> None:
    pytest.importorskip("vl_convert")
    page = inspection_page(found, lambda _: 64)
    for part in ("How often rows are hit", "Ids a sample", "Taken for", "ids by the file", "label"):
        assert part in page
