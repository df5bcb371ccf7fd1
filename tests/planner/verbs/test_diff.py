"""Which plans can be compared."""

import pytest

from costmodel.base.errors import InputError
from costmodel.domain.workload import EmbeddingTable, Workload
from planner.planned.planned import Planned
from planner.verbs.diff import compare_plans
from planner.verbs.planning import plan


def planned(*names: str) -> Planned:
    tables = tuple(
        EmbeddingTable(name=name, num_embeddings=1000, embedding_dim=64, pooling_factor=2)
        for name in names
    )
    workload = Workload(tables=tables, local_batch_size=64)
    return plan(workload, gpus=2, sharder="naive", baseline="none", max_plans=1)


def test_plans_that_share_fewer_than_half_their_tables_are_refused() -> None:
    with pytest.raises(InputError, match="share 1 table, of 3 and 3"):
        compare_plans(planned("a", "b", "c"), planned("c", "d", "e"))


def test_those_that_share_half_have_a_warning() -> None:
    found = compare_plans(planned("a", "b"), planned("b", "c"))
    assert any("different models" in note for note in found.notes)
