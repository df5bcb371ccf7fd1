"""``planner inspect`` counts how lengths differ, as typed."""

from pathlib import Path

import numpy as np
import pytest
from command_runs import Command

from planner.files.workload_reading import load_workload

TABLES = """\
local_batch_size: 64
tables:
  - {name: a, num_embeddings: 1000, embedding_dim: 64}
  - {name: b, num_embeddings: 1000, embedding_dim: 64}
"""


def test_a_workload_gets_the_deviation_of_samples_and_of_ranks_batches(
    run: Command, directory: Path
) -> None:
    # sixteen batches of 64 samples; one user's lengths of a and b go together
    random = np.random.default_rng(0)
    lengths = random.integers(0, 20, 1024)
    ids = random.integers(0, 1000, lengths.sum())
    named = {f"{name}.{what}": array for name in "ab" for what, array in
             (("values", ids), ("lengths", lengths))}  # fmt: skip
    np.savez(directory / "ids.npz", **named)
    (directory / "tables.yaml").write_text(TABLES)
    done = run("inspect", "ids.npz", "--workload", "tables.yaml", "-o", "new.yaml")
    assert done.code == 0
    assert "ids of a rank's batch: " in done.out
    found = load_workload("new.yaml")
    assert found.tables[0].pooling_std == pytest.approx(lengths.std(), rel=1e-4)
    assert found.tables[0].longest_bag == lengths.max()
    sums = lengths.reshape(16, 64).sum(axis=1)
    assert found.length_spread == pytest.approx(sums.std(ddof=1) / sums.mean(), rel=1e-4)
    # taken as independent tables, it would be about sqrt(2) less
    assert found.length_spread > 1.2 * lengths.std() / lengths.mean() / np.sqrt(2 * 64)
    data = run("inspect", "ids.npz", "--workload", "tables.yaml", "--json").data
    assert data["length_spread"] == pytest.approx(found.length_spread, rel=1e-4)
