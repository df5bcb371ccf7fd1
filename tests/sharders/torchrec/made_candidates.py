"""Candidates with costs and bytes made up, so that what is chosen can be worked by hand."""

from collections.abc import Sequence

from costmodel.domain.plan import ShardingType
from costmodel.domain.workload import EmbeddingTable
from sharders.problem.options import TableOption
from sharders.torchrec.candidates import Candidates
from sharders.torchrec.costs import Perf, RankCounts, Storage
from sharders.torchrec.search_space import Candidate, SearchSpace


def candidate(
    kind: ShardingType,
    cost: float,
    hbm: int,
    *,
    blocks: int = 1,
    rows: int = 1,
    host: int = 0,
) -> Candidate:
    """Return one whose shards all cost and take the same."""
    return Candidate(
        option=TableOption(sharding_type=kind, num_column_shards=blocks),
        perf=Perf(cost, 0.0, 0.0, 0.0),
        storages=((Storage(hbm, host), rows),),
        num_blocks=blocks,
    )


def whole(cost: float, hbm: int, host: int = 0) -> Candidate:
    return candidate(ShardingType.TABLE_WISE, cost, hbm, host=host)


def space(tables: Sequence[Sequence[Candidate]], ranks: RankCounts) -> SearchSpace:
    named = (
        EmbeddingTable(name=f"t{index}", num_embeddings=1, embedding_dim=4)
        for index in range(len(tables))
    )
    return SearchSpace(tables=tuple(named), candidates=tuple(map(tuple, tables)), ranks=ranks)


def candidates(*tables: Sequence[Candidate]) -> Candidates:
    return Candidates(space(tables, RankCounts(world_size=4, local_world_size=2)))
