"""A sharding problem as flat arrays: every option of every table, and what its shards add."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.domain.blocks import like_row_blocks
from costmodel.domain.plan import Shard, ShardingPlan, ShardingType
from costmodel.domain.workload import EmbeddingTable
from costmodel.engine.lowering import Columns
from costmodel.engine.timer import Signature
from costmodel.kernels.lookup_shards import LookupShard, LookupShards
from costmodel.kernels.traffic import Traffic
from costmodel.memory.storage import ShardFactors, shard_bytes, shard_factors, stacked_factors
from costmodel.step.groups import GroupKey, KernelKey, group_key, kernel_key
from costmodel.step.loads import lookup_shard, shard_loads
from costmodel.step.template import RANK_FEATURES
from sharders.engine.tables import SPREADS, Choices, Floats, Tables
from sharders.problem.option_costs import OptionCost, OptionCosts
from sharders.problem.options import TableOption, make_plan, make_sharding, option_of
from sharders.problem.sharding_problem import ShardingProblem

FINEST = 0.01
"""Shards that take less than this share of a balanced rank's lookups need not be split further."""


@dataclass(frozen=True)
class ProblemArrays:
    """A problem's tables, and how plans are written in their terms."""

    problem: ShardingProblem
    tables: Tables
    columns: Columns
    signature: Signature
    options: tuple[TableOption, ...]

    def choices(self, plan: ShardingPlan) -> Choices:
        """Return a plan as every table's option, and the ranks of its blocks.

        The plan must be one of those the problem was written for, or use options kept for all.
        """
        begins = np.array(self.tables.options)
        chosen = np.zeros(len(begins) - 1, dtype=np.int64)
        ranks = np.zeros((len(chosen), self.widest), dtype=np.int16)
        for index, table in enumerate(self.problem.workload.tables):
            sharding = plan.table(table.name)
            option = option_of(sharding, table)
            chosen[index] = begins[index] + self.options_of(index).index(option)
            blocks = option.num_ranks
            ranks[index, :blocks] = sharding.block_ranks[:blocks]
        return Choices(chosen, ranks)

    def plan(self, choices: Choices) -> ShardingPlan:
        """Return the plan of some choices; takes as long as some thousand moves."""
        problem, chosen, ranks = self.problem, np.array(choices.option), np.array(choices.ranks)
        shardings = []
        for index, table in enumerate(problem.workload.tables):
            option = self.options[chosen[index]]
            places = tuple(ranks[index, : option.num_ranks].tolist())
            shardings.append(make_sharding(table, problem.topology, option, places))
        return make_plan(problem.topology, shardings)

    def options_of(self, table: int) -> tuple[TableOption, ...]:
        """Return the options of a table, by its index, that a search may take."""
        begins = self.tables.options
        return self.options[begins[table] : begins[table + 1]]

    def has(self, plan: ShardingPlan) -> bool:
        """Return whether all of a plan's options are among those that a search may take."""
        return all(
            option_of(plan.table(table.name), table) in self.options_of(index)
            for index, table in enumerate(self.problem.workload.tables)
        )

    @property
    def widest(self) -> int:
        """The most blocks of any option, and at least one."""
        return max(1, int(np.max(self.tables.blocks)))


def problem_arrays(
    problem: ShardingProblem,
    starts: Sequence[ShardingPlan] = (),
    *,
    every_option: bool = False,
) -> ProblemArrays:
    """Write a problem as arrays: the options of some plans, and others that are worth trying.

    Not worth trying are splits finer than ``FINEST``, but for the coarsest of their type;
    ``every_option``: keep these, too.
    """
    signature = signature_of(problem)
    columns = Columns.of(signature)
    writer, costs = _Writer(problem, columns), OptionCosts(problem)
    for table, offered_costs in zip(problem.workload.tables, costs.all(), strict=True):
        started = {option_of(plan.table(table.name), table) for plan in starts}
        if every_option:
            others = sorted(started - {cost.option for cost in offered_costs}, key=repr)
            writer.add_table(table, [*offered_costs, *costs.some(table, others)])
        else:
            writer.add_table(table, _worth_trying(problem, offered_costs, started))
    return ProblemArrays(problem, writer.tables(), columns, signature, tuple(writer.options))


def offered(problem: ShardingProblem, plans: Sequence[ShardingPlan]) -> list[ShardingPlan]:
    """Return the plans that use only options of the problem: caches may have other sizes."""
    options = problem.options
    return [
        plan
        for plan in plans
        if all(option_of(plan.table(t.name), t) in options[t.name] for t in problem.workload.tables)
    ]


def _worth_trying(
    problem: ShardingProblem, costs: Sequence[OptionCost], started: set[TableOption]
) -> list[OptionCost]:
    finest, kept, types = FINEST * problem.balanced_load, [], set[ShardingType]()
    for cost in sorted(costs, key=lambda cost: cost.option.num_column_shards):
        option = cost.option
        coarsest = option.sharding_type not in types
        types.add(option.sharding_type)
        fine = cost.shard_load < finest and option.num_column_shards > 1
        if coarsest or not fine or option in started:
            kept.append(cost)
    return kept


class _Writer:
    """Collects options, and the different shards that they have: all arrays at once in the end."""

    def __init__(self, problem: ShardingProblem, columns: Columns) -> None:
        self.problem, self.columns = problem, columns
        self.options: list[TableOption] = []
        self.begins = [0]
        self.of_option: list[tuple[float, ...]] = []
        self.runs: list[tuple[int, int]] = []
        """Rows of shards, and how many shards in turn have each: those of all options."""
        self.firsts = [0]
        self.fixed: list[tuple[int, tuple[int, ...]]] = []
        """The first shard of every option whose ranks the user has said, and these."""
        self.shards: list[LookupShard] = []
        """The different ones."""
        self.factors: list[ShardFactors] = []
        self.factor: list[int] = []
        """What the bytes of every different shard depend on, and its place there."""
        self.known: dict[tuple[object, ...], int] = {}
        self.of_table: dict[tuple[object, ...], int] = {}
        """Rows of shards, and what their bytes depend on, of the table being written."""
        self.blocks: dict[ShardingType, list[tuple[int, int, int]]] = {}
        """Row blocks of that table."""

    def add_table(self, table: EmbeddingTable, options: Sequence[OptionCost]) -> None:
        """Add the options of one table."""
        self.known, self.of_table, self.blocks = {}, {}, {}
        for option in options:
            self._add(table, option)
        self.begins.append(len(self.options))

    def _add(self, table: EmbeddingTable, cost: OptionCost) -> None:
        option, kind = cost.option, cost.option.sharding_type
        self.options.append(option)
        key = group_key(table, kind)
        kernel = key, kernel_key(table, option.compute_kernel)
        spread = SPREADS["nodes" if kind.within_node else "ranks"]
        if not option.num_ranks:
            spread = SPREADS["fixed" if option.ranks else "everywhere"]
        self.of_option.append((
            self.columns.groups[key],
            self.columns.kernels[kernel],
            _KINDS[kind],
            spread,
            option.num_ranks,
            kind is ShardingType.TABLE_COLUMN_WISE,
            table.weight_bytes if kind is ShardingType.DATA_PARALLEL else 0.0,
            cost.total_load,
            cost.shard_load,
        ))
        if spread == SPREADS["fixed"]:
            ranks = make_sharding(table, self.problem.topology, option).ranks
            self.fixed.append((self.firsts[-1], ranks))
        runs = self._shards(table, option)
        self.runs += runs * option.num_column_shards
        shards = sum(count for _, count in runs) * option.num_column_shards
        self.firsts.append(self.firsts[-1] + shards)

    def _shards(self, table: EmbeddingTable, option: TableOption) -> list[tuple[int, int]]:
        """Return the rows of one column block's shards; add those that are not there yet.

        Shards of types that are alike in memory are if they have the same rows and columns; without
        hashing, the place of the rows counts, too.
        """
        kind, runs = option.sharding_type, []
        if kind not in self.blocks:
            self.blocks[kind] = like_row_blocks(self.problem.topology, table, kind)
        kernel = option.compute_kernel, option.cache_load_factor, kind.alike_in_memory
        for offset, num_rows, count in self.blocks[kind]:
            alike = (kernel, option.num_column_shards, offset, num_rows)
            if alike not in self.known:
                self.known[alike] = len(self.shards)
                self._add_shard(table, option, offset, num_rows)
            runs.append((self.known[alike], count))
        return runs

    def _add_shard(
        self, table: EmbeddingTable, option: TableOption, offset: int, num_rows: int
    ) -> None:
        problem, kind = self.problem, option.sharding_type
        columns = table.embedding_dim // option.num_column_shards
        shard = Shard(
            rank=0, row_offset=offset, num_rows=num_rows, column_offset=0, num_columns=columns
        )
        lookup = lookup_shard(problem.workload, problem.topology, table, option, shard)
        self.shards.append(lookup)
        kernel, cached = option.compute_kernel, option.cache_load_factor
        key = kind.alike_in_memory, kernel, cached
        if key not in self.of_table:
            self.of_table[key] = len(self.factors)
            self.factors.append(
                shard_factors(problem.workload, problem.topology, table, kind, kernel, cached)
            )
        self.factor.append(self.of_table[key])

    def tables(self) -> Tables:
        """Return all that was added."""
        workload, shards = self.problem.workload, LookupShards.of(self.shards)
        columns = list(zip(*self.of_option, strict=True))
        fields: dict[str, Any] = dict(zip(_OPTION_FIELDS, _of_options(columns), strict=True))
        loads = shard_loads(workload, self.problem.topology, shards)
        row, count = np.array(self.runs, dtype=np.int32).T
        rows = np.repeat(row, count)
        at = np.zeros(len(rows), dtype=np.int16)
        for first, ranks in self.fixed:
            at[first : first + len(ranks)] = ranks
        firsts = np.array(self.firsts, dtype=np.int32)
        return Tables(
            options=np.array(self.begins),
            table_columns=np.array([
                float(table.embedding_dim * table.output_rows_per_sample)
                for table in workload.tables
            ]),
            **fields,
            longest_bag=np.maximum.reduceat(loads.traffic[rows, Traffic.CHAIN], firsts[:-1]),
            first=firsts,
            rows=rows,
            traffic=loads.traffic,
            features=np.column_stack([getattr(loads, name) for name in RANK_FEATURES]),
            held=self._held(shards),
            at=at,
        )

    def _held(self, shards: LookupShards) -> Floats:
        factors = stacked_factors(self.factors, [1] * len(self.factors))
        sizes = shard_bytes(
            factors.taken(np.array(self.factor)),
            shards.num_rows,
            shards.num_columns,
            shards.id_share,
        )
        return np.stack([self.problem.held(sizes), sizes.host], axis=1)


_KINDS = {kind: number for number, kind in enumerate(ShardingType)}
_OPTION_FIELDS = (
    "group", "kernel", "kind", "spread", "blocks", "one_node",
    "replicated", "cost", "shard_cost",
)  # fmt: skip
_TYPES = *(np.int16,) * 6, *(np.float64,) * 3
"""Types of their numbers."""


def _of_options(columns: list[tuple[float, ...]]) -> Iterator[NDArray[np.generic]]:
    for kind, column in zip(_TYPES, columns, strict=True):
        yield np.array(column, dtype=kind)


def signature_of(problem: ShardingProblem) -> Signature:
    """Return every sharding group and kernel that some plan of the problem has."""
    kernels: dict[GroupKey, set[KernelKey]] = {}
    for table in problem.workload.tables:
        for option in problem.options[table.name]:
            key = group_key(table, option.sharding_type)
            kernel = kernel_key(table, option.compute_kernel)
            kernels.setdefault(key, set()).add(kernel)
    return tuple((key, tuple(sorted(kernels[key]))) for key in sorted(kernels))
