"""A sharding problem as flat arrays: every option of every table, and what its shards add."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.blocks import like_row_blocks
from costmodel.distribution import is_hashed
from costmodel.execution.groups import KernelKey, group_key
from costmodel.execution.loads import ShardRow, shard_row
from costmodel.execution.lowering import Columns
from costmodel.kernels.embedding import Traffic
from costmodel.objective import Signature
from costmodel.plan import ShardingPlan, ShardingType
from costmodel.storage import ShardFactors, id_shares, shard_bytes, shard_factors, stacked_factors
from costmodel.workload import EmbeddingTable
from sharders.option_costs import OptionCosts
from sharders.options import TableOption, first_shard, make_plan, make_sharding, option_of
from sharders.problem import ShardingProblem
from sharders.search_state import Layout, signature_of

Ints = NDArray[np.int64]
Shorts = NDArray[np.int16]
"""Ranks are such, so there can be 32,767 at most (``planner.compiling.MOST_RANKS``)."""
Indices = NDArray[np.int32]
Floats = NDArray[np.float64]
EVERYWHERE, ON_RANKS, ON_NODES, FIXED = range(4)
"""Where an option's shards lie: one on every rank, one per block, one per block and local rank, or
where the user wants them."""

FINEST = 0.01
"""Shards that take less than this share of a balanced rank's lookups need not be split further."""


class Tables(NamedTuple):
    """All options of all tables; row ranges as in ``costmodel.execution.lowering``.

    Most of a move's time is waiting for numbers that are in no near cache: so they are short.
    """

    options: Ints
    """Where each table's options begin; one more than there are tables."""
    table_columns: Floats
    """Output columns of each table per sample."""
    group: Shorts
    """Of every option; the next ones, too."""
    kernel: Shorts
    kind: Shorts
    """Sharding type, by its place in ``ShardingType``."""
    spread: Shorts
    blocks: Shorts
    """Ranks to choose."""
    one_node: Shorts
    """1 where all blocks must be on one node."""
    replicated: Floats
    """Bytes that data parallelism keeps on every rank."""
    cost: Floats
    """Seconds over all shards (``OptionCosts``)."""
    shard_cost: Floats
    longest_bag: Floats
    """Seconds (``Traffic.CHAIN``), the most of all shards."""
    first: Indices
    """Where its shards begin in ``rows``."""
    rows: Indices
    """Of every shard, its row of ``traffic``, ``features`` and ``held``: most shards are alike."""
    traffic: Floats
    features: Floats
    held: Floats
    """Bytes in HBM, and in host memory."""
    at: Shorts
    """Of every shard, its rank, if its option is ``FIXED``."""


@dataclass(frozen=True)
class NativeProblem:
    """A problem's tables, and how plans are written in their terms."""

    problem: ShardingProblem
    tables: Tables
    columns: Columns
    signature: Signature
    options: tuple[TableOption, ...]

    def choices(self, plan: ShardingPlan) -> tuple[Ints, Shorts]:
        """Return every table's option, and the ranks of its blocks, (tables, ``widest``).

        The plan must be one of those the problem was written for, or use options kept for all.
        """
        begins = self.tables.options
        chosen = np.zeros(len(begins) - 1, dtype=np.int64)
        ranks = np.zeros((len(chosen), self.widest), dtype=np.int16)
        for index, table in enumerate(self.problem.workload.tables):
            sharding = plan.table(table.name)
            option = option_of(sharding, table)
            own = self.options[begins[index] : begins[index + 1]]
            chosen[index] = begins[index] + own.index(option)
            blocks = option.num_ranks
            ranks[index, :blocks] = sharding.homes[:blocks]
        return chosen, ranks

    def plan(self, chosen: Ints, ranks: Shorts) -> ShardingPlan:
        """Return the plan of some choices."""
        problem = self.problem
        shardings = []
        for index, table in enumerate(problem.workload.tables):
            option = self.options[chosen[index]]
            places = tuple(ranks[index, : option.num_ranks].tolist())
            shardings.append(make_sharding(table, problem.topology, option, places))
        return make_plan(problem.topology, shardings)

    @property
    def widest(self) -> int:
        """The most blocks of any option, and at least one."""
        return max(1, int(self.tables.blocks.max()))


def native_problem(problem: ShardingProblem, starts: Sequence[ShardingPlan] = ()) -> NativeProblem:
    """Write a problem as arrays: the options of some plans, and others that are worth trying.

    Not worth trying are splits finer than ``FINEST``, but for the coarsest of their type.
    """
    layout = Layout(signature_of(problem))
    columns = Columns(layout.groups, layout.kernels)
    writer = _Writer(problem, columns)
    for table in problem.workload.tables:
        started = {option_of(plan.table(table.name), table) for plan in starts}
        writer.add_table(table, _worth_trying(table, writer.costs, started))
    return NativeProblem(problem, writer.tables(), columns, layout.signature, tuple(writer.options))


def offered(problem: ShardingProblem, plans: Sequence[ShardingPlan]) -> list[ShardingPlan]:
    """Return the plans that use only options of the problem: caches may have other sizes."""
    options = problem.options
    return [
        plan
        for plan in plans
        if all(option_of(plan.table(t.name), t) in options[t.name] for t in problem.workload.tables)
    ]


def _worth_trying(
    table: EmbeddingTable, costs: OptionCosts, started: set[TableOption]
) -> list[TableOption]:
    finest, kept, types = FINEST * costs.balanced_load, [], set[ShardingType]()
    options = costs.problem.options[table.name]
    for option in sorted(options, key=lambda option: option.num_column_shards):
        coarsest = option.sharding_type not in types
        types.add(option.sharding_type)
        coarse = costs.cost(table, option).shard_load >= finest
        if option in started or coarsest or coarse or option.num_column_shards == 1:
            kept.append(option)
    return kept


class _Writer:
    """Collects options, and the different shards that they have: all arrays at once in the end."""

    def __init__(self, problem: ShardingProblem, columns: Columns) -> None:
        self.problem, self.columns, self.costs = problem, columns, OptionCosts(problem)
        self.options: list[TableOption] = []
        self.begins = [0]
        self.of_option: list[tuple[float, ...]] = []
        self.firsts = [0]
        self.rows: list[Ints] = []
        """Of every option, the row of each shard."""
        self.at: list[Ints] = []
        """Of every option, the rank of each shard, where the user has said it."""
        self.shards: list[ShardRow] = []
        self.shapes: list[tuple[float, float, float]] = []
        """Rows, columns and share of the ids of every different shard."""
        self.factors: list[ShardFactors] = []
        self.known: dict[tuple[object, ...], int] = {}
        self.of_table: dict[tuple[object, ...], ShardFactors] = {}
        """Rows of shards, and what their bytes depend on, of the table being written."""

    def add_table(self, table: EmbeddingTable, options: Sequence[TableOption]) -> None:
        """Add the options of one table."""
        self.known, self.of_table = {}, {}
        for option in options:
            self._add(table, option)
        self.begins.append(len(self.options))

    def _add(self, table: EmbeddingTable, option: TableOption) -> None:
        kind = option.sharding_type
        self.options.append(option)
        key = group_key(table, kind)
        kernel = key, KernelKey(option.compute_kernel, table.data_type)
        replicated = kind is ShardingType.DATA_PARALLEL
        cost = self.costs.cost(table, option)
        spread = ON_NODES if kind.within_node else ON_RANKS
        if not option.num_ranks:
            spread = FIXED if option.ranks else EVERYWHERE
        rows = self._shards(table, option, cost.row)
        self.of_option.append((
            self.columns.groups[key],
            self.columns.kernels[kernel],
            _KINDS[kind],
            spread,
            option.num_ranks,
            kind is ShardingType.TABLE_COLUMN_WISE,
            4.0 * table.num_embeddings * table.embedding_dim if replicated else 0.0,
            cost.total_load,
            cost.shard_load,
            max(self.shards[row].traffic[Traffic.CHAIN] for row in set(rows.tolist())),
        ))
        blocks = option.num_shards(self.problem.topology) // len(rows)
        self.rows.append(np.tile(rows, blocks))
        self.firsts.append(self.firsts[-1] + len(rows) * blocks)
        topology = self.problem.topology
        fixed = make_sharding(table, topology, option).ranks if spread == FIXED else ()
        self.at.append(np.array(fixed or (0,) * len(rows) * blocks))

    def _shards(self, table: EmbeddingTable, option: TableOption, first: ShardRow | None) -> Ints:
        """Return the row of every shard of one column block; add those that are not there yet.

        Shards of any type are alike if they have the same rows and columns; without hashing, the
        place of the rows counts, too.
        """
        hashed = is_hashed(table.inputs)
        rows: list[int] = []
        blocks = like_row_blocks(self.problem.topology, table, option.sharding_type)
        for offset, num_rows, _ in blocks:
            place = 0 if hashed else offset
            replicated = option.sharding_type is ShardingType.DATA_PARALLEL
            kernel = option.compute_kernel, option.cache_load_factor, replicated
            alike = (kernel, option.num_column_shards, place, num_rows)
            if alike not in self.known:
                self.known[alike] = len(self.shards)
                self._add_shard(table, option, (offset, num_rows), None if rows else first)
            rows.append(self.known[alike])
        return np.repeat(np.array(rows), [count for *_, count in blocks])

    def _add_shard(
        self,
        table: EmbeddingTable,
        option: TableOption,
        block: tuple[int, int],
        row: ShardRow | None,
    ) -> None:
        problem = self.problem
        whole = first_shard(table, problem.topology, option)
        shard = replace(whole.shards[0], row_offset=block[0], num_rows=block[1])
        if row is None:
            row = shard_row(problem.workload, problem.topology, table, whole, [shard])
        self.shards.append(row)
        (share,) = id_shares(table, option.sharding_type, [shard])
        self.shapes.append((shard.num_rows, shard.num_columns, share))
        kind, kernel = option.sharding_type, option.compute_kernel
        key = kind is ShardingType.DATA_PARALLEL, kernel, option.cache_load_factor
        if key not in self.of_table:
            self.of_table[key] = shard_factors(
                problem.workload, problem.topology, table, kind, kernel, option.cache_load_factor
            )
        self.factors.append(self.of_table[key])

    def tables(self) -> Tables:
        """Return all that was added."""
        workload = self.problem.workload
        columns = list(zip(*self.of_option, strict=True))
        fields: dict[str, Any] = dict(zip(_OPTION_FIELDS, _of_options(columns), strict=True))
        return Tables(
            options=np.array(self.begins),
            table_columns=np.array([
                float(table.embedding_dim * table.output_rows_per_sample)
                for table in workload.tables
            ]),
            **fields,
            first=np.array(self.firsts, dtype=np.int32),
            rows=np.concatenate(self.rows, dtype=np.int32),
            traffic=np.array([row.traffic for row in self.shards]),
            features=np.array([(row.features, row.ids, row.columns) for row in self.shards]),
            held=self._held(),
            at=np.concatenate(self.at, dtype=np.int16),
        )

    def _held(self) -> Floats:
        factors = stacked_factors(self.factors, [1] * len(self.factors))
        sizes = shard_bytes(factors, *np.array(self.shapes).T)
        return np.stack([sizes.total, sizes.host], axis=1)


_KINDS = {kind: number for number, kind in enumerate(ShardingType)}
_OPTION_FIELDS = Tables._fields[2:12]
_TYPES = *(np.int16,) * 6, *(np.float64,) * 4
"""Of their numbers."""


def _of_options(columns: list[tuple[float, ...]]) -> Iterator[NDArray[np.generic]]:
    for kind, column in zip(_TYPES, columns, strict=True):
        yield np.array(column, dtype=kind)
