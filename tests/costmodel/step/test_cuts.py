"""Rows of the shards of a table, by hand."""

import pytest
from machines import topology

from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.workload import EmbeddingTable, Workload
from costmodel.inputs.distribution import Zipf
from costmodel.step.cuts import OptionCodes, cuts_of


@pytest.mark.parametrize(
    ("rows", "on_all", "on_a_node"),
    [
        # (rows, number): the long blocks, what is left, and empty ones
        (11, [(2, 5), (1, 1)], [(4, 2), (3, 1)]),
        (12, [(2, 6)], [(4, 3)]),
        (13, [(3, 4), (1, 1), (0, 1)], [(5, 2), (3, 1)]),
        (4, [(1, 4), (0, 2)], [(2, 2), (0, 1)]),
    ],
)
def test_blocks_of_rows_are_long_left_or_empty(
    rows: int, on_all: list[tuple[int, int]], on_a_node: list[tuple[int, int]]
) -> None:
    kinds = (ShardingType.ROW_WISE, ShardingType.TABLE_ROW_WISE, ShardingType.DATA_PARALLEL)
    codes = OptionCodes.of([(0, kind, ComputeKernel.FUSED, 1) for kind in kinds])
    for hot_rows_first in (False, True):
        law = Zipf(exponent=1.0, hot_rows_first=hot_rows_first)
        table = EmbeddingTable(name="t", num_embeddings=rows, embedding_dim=8, inputs=law)
        cuts = cuts_of(Workload(tables=(table,)), topology(6, 3), codes)
        for number, expected in enumerate((on_all, on_a_node, [(rows, 6)])):
            at = cuts.of_option[number]
            own = slice(cuts.first[at], cuts.first[at + 1])
            lengths, copies = cuts.shards.num_rows[own].tolist(), cuts.copies[own].tolist()
            assert sum(copies) == sum(count for _, count in expected)
            if hot_rows_first and kinds[number].splits_rows:  # each block is hit otherwise
                assert lengths == [each for each, count in expected for _ in range(count)]
            else:
                assert list(zip(lengths, copies, strict=True)) == expected
