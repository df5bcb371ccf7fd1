"""Plans of the CPU study: balanced, unbalanced, split by rows and columns, replicated, mixed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random

from bench.plans import sharded
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan, ShardingType
from costmodel.domain.workload import EmbeddingTable, Workload

SMALL = 3e6
"""Bytes of weights up to which a table is replicated in plans that replicate small ones."""
MOST_REPLICATED = 500e6
"""Bytes of all tables up to which there is a plan that replicates everything."""
T = ShardingType
Choice = tuple[ShardingType, tuple[int, ...]]
"""Sharding type and ranks, where it has any to choose."""
Rule = Callable[[int, EmbeddingTable], Choice]


def work(table: EmbeddingTable) -> float:
    """Return what a table asks of its rank: numbers read in a sample."""
    return table.pooling_factor * table.embedding_dim


def study_plans(workload: Workload, topology: Topology) -> Mapping[str, ShardingPlan]:
    """Return plans of all kinds for two ranks; the same for the same workload."""
    rules = _rules(workload, Random(0))  # noqa: S311 -- nothing secret
    return {name: _plan(workload, topology, rule) for name, rule in rules}


def _rules(workload: Workload, rng: Random) -> Iterator[tuple[str, Rule]]:
    rank_of = balanced(workload.tables)
    heavy = sorted(workload.tables, key=work, reverse=True)
    half = {table.name for table in heavy[: len(heavy) // 3]}

    def whole(_: int, table: EmbeddingTable) -> Choice:
        return T.TABLE_WISE, (rank_of[table.name],)

    def split(kind: ShardingType) -> Rule:
        return lambda index, table: (kind, (0, 1)) if table.name in half else whole(index, table)

    def small_replicated(index: int, table: EmbeddingTable) -> Choice:
        return (T.DATA_PARALLEL, ()) if table.weight_bytes <= SMALL else whole(index, table)

    def mixed(index: int, table: EmbeddingTable) -> Choice:
        if table.weight_bytes <= SMALL:
            return T.DATA_PARALLEL, ()
        return ((T.ROW_WISE, ()), (T.COLUMN_WISE, (0, 1)), whole(index, table))[index % 3]

    yield "balanced", whole
    yield "in turn", lambda index, _: (T.TABLE_WISE, (index % 2,))
    yield "one rank", lambda *_: (T.TABLE_WISE, (0,))
    yield "heaviest together", lambda _, table: (T.TABLE_WISE, (int(table.name not in half),))
    yield "row-wise", lambda *_: (T.ROW_WISE, ())
    yield "column-wise", lambda *_: (T.COLUMN_WISE, (0, 1))
    yield "heavy row-wise", split(T.ROW_WISE)
    yield "heavy column-wise", split(T.COLUMN_WISE)
    yield "small replicated", small_replicated
    if workload.weight_bytes <= MOST_REPLICATED:
        yield "replicated", lambda *_: (T.DATA_PARALLEL, ())
    yield "mixed", mixed
    for number in (1, 2):
        ranks = [rng.randrange(2) for _ in workload.tables]
        yield f"random {number}", _fixed([(T.TABLE_WISE, (rank,)) for rank in ranks])
    kinds = [rng.choice([T.TABLE_WISE, T.ROW_WISE, T.COLUMN_WISE]) for _ in workload.tables]
    places = [(kind, (0, 1) if kind is T.COLUMN_WISE else (rng.randrange(2),)) for kind in kinds]
    yield "random types", _fixed(places)


def _fixed(choices: Sequence[Choice]) -> Rule:
    return lambda index, _: choices[index]


def balanced(tables: Sequence[EmbeddingTable]) -> dict[str, int]:
    """Return the rank of every table: the heaviest first, to the rank with less to do."""
    busy, rank_of = [0.0, 0.0], {}
    for table in sorted(tables, key=work, reverse=True):
        rank = busy.index(min(busy))
        rank_of[table.name] = rank
        busy[rank] += work(table)
    return rank_of


def _plan(workload: Workload, topology: Topology, rule: Rule) -> ShardingPlan:
    world, local = topology.world_size, topology.local_world_size
    shardings = []
    for index, table in enumerate(workload.tables):
        kind, ranks = rule(index, table)
        shardings.append(sharded(table, kind, ranks, world_size=world, local_world_size=local))
    return ShardingPlan(tables=tuple(shardings), world_size=world, local_world_size=local)
