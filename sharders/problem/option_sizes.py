"""What every option of every table takes in memory, in all and on its fullest rank."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from costmodel.domain.blocks import like_row_blocks
from costmodel.domain.plan import Shard, ShardingType
from costmodel.domain.workload import EmbeddingTable
from costmodel.memory.storage import (
    ShardFactors,
    id_shares,
    shard_bytes,
    shard_factors,
    stacked_factors,
)
from sharders.problem.options import TableOption
from sharders.problem.sharding_problem import ShardingProblem


@dataclass(frozen=True, slots=True)
class SizedOption:
    """An option of a table, the bytes of HBM that all its shards take, and the largest one."""

    option: TableOption
    total: float
    largest: float


def sized_options(
    problem: ShardingProblem, tables: Sequence[EmbeddingTable]
) -> Mapping[str, tuple[SizedOption, ...]]:
    """Return the options of some tables with their bytes, by name.

    All are computed together: one by one, 40,000 of them take two CPU seconds.
    """
    if not tables:
        return {}
    shards = _DifferentShards(problem)
    for table in tables:
        shards.add(table)
    factors = stacked_factors(shards.factors, [1] * len(shards.factors))
    rows, columns, share, count = np.array(shards.shapes).T
    sizes = shard_bytes(factors.taken(np.array(shards.factor)), rows, columns, share)
    each = np.asarray(problem.held(sizes))
    totals = iter(np.add.reduceat(each * count, shards.firsts).tolist())
    largest = iter(np.maximum.reduceat(each, shards.firsts).tolist())
    return {
        table.name: tuple(
            SizedOption(option, next(totals), next(largest))
            for option in problem.options[table.name]
        )
        for table in tables
    }


class _DifferentShards:
    """The different shards of options, one option after the other."""

    def __init__(self, problem: ShardingProblem) -> None:
        self.problem = problem
        self.firsts: list[int] = []
        """The first of every option."""
        self.shapes: list[tuple[float, float, float, float]] = []
        """Rows, columns, share of the ids, and how many are alike."""
        self.factors: list[ShardFactors] = []
        self.factor: list[int] = []
        """The place in ``factors`` of every shard's."""

    def add(self, table: EmbeddingTable) -> None:
        """Add all options of a table."""
        problem, factors = self.problem, dict[tuple[object, ...], int]()
        blocks = dict[ShardingType, list[tuple[int, float, int]]]()
        for option in problem.options[table.name]:
            kind, kernel, cached = (
                option.sharding_type,
                option.compute_kernel,
                option.cache_load_factor,
            )
            if kind not in blocks:
                blocks[kind] = self._blocks(table, kind)
            key = kind.alike_in_memory, kernel, cached
            if key not in factors:
                factors[key] = len(self.factors)
                self.factors.append(
                    shard_factors(problem.workload, problem.topology, table, kind, kernel, cached)
                )
            self.firsts.append(len(self.shapes))
            columns = table.embedding_dim // option.num_column_shards
            for num_rows, share, count in blocks[kind]:
                shape = (num_rows, columns, share, count * option.num_column_shards)
                self.shapes.append(shape)
                self.factor.append(factors[key])

    def _blocks(self, table: EmbeddingTable, kind: ShardingType) -> list[tuple[int, float, int]]:
        """Return rows, share of the ids and number of the different shards of a column block."""
        blocks = like_row_blocks(self.problem.topology, table, kind)
        shards = [
            Shard(rank=0, row_offset=offset, num_rows=rows, column_offset=0, num_columns=1)
            for offset, rows, _ in blocks
        ]
        shares = id_shares(table, kind, shards)
        return [
            (rows, share, count) for (_, rows, count), share in zip(blocks, shares, strict=True)
        ]
