"""A sharding problem as flat arrays: every option of every table, and loads of its shards."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from costmodel.base.arrays import Places
from costmodel.base.ranges import range_numbers
from costmodel.domain.plan import ShardingPlan, ShardingType
from costmodel.engine.lowering import Columns
from costmodel.engine.timer import Signature
from costmodel.kernels.traffic import MAXIMA
from costmodel.step.cuts import KINDS, TYPES, Cuts, kernels_of
from costmodel.step.template import RANK_FEATURES
from sharders.engine.tables import SPREADS, Choices, Tables
from sharders.problem.option_arrays import OptionArrays
from sharders.problem.options import TableOption, make_plan, make_sharding, option_of
from sharders.problem.room import fits_alone
from sharders.problem.sharding_problem import ShardingProblem

FINEST = 0.01
"""Shards with less than this share of a balanced rank's lookups are not split further."""


@dataclass(frozen=True)
class ProblemArrays:
    """A problem's tables as arrays, and the conversion of plans."""

    problem: ShardingProblem
    tables: Tables
    columns: Columns
    signature: Signature
    every: OptionArrays
    """All options, of which the search takes some."""
    kept: Places
    """Places in ``every`` of the options that the search takes."""

    @cached_property
    def options(self) -> tuple[TableOption, ...]:
        """Return the options that the search takes, in its order."""
        return tuple(self.every.flat[option] for option in self.kept.tolist())

    def choices(self, plan: ShardingPlan) -> Choices:
        """Return a plan as every table's option and the ranks of its blocks.

        The plan must be one that the arrays were made for, or use options kept for all.
        """
        chosen = self.number_of[self.every.places(plan)]
        ranks = np.zeros((len(chosen), self.widest), dtype=np.int32)
        for index, option in enumerate(chosen.tolist()):
            blocks = self.options[option].num_ranks
            if blocks:
                table = self.problem.workload.tables[index]
                ranks[index, :blocks] = plan.table(table.name).block_ranks[:blocks]
        return Choices(chosen, ranks)

    def plan(self, choices: Choices) -> ShardingPlan:
        """Return the plan of some choices; it takes as long as some thousand moves."""
        problem, ranks = self.problem, np.array(choices.ranks)
        shardings = []
        for index, chosen in enumerate(np.array(choices.option).tolist()):
            table, option = problem.workload.tables[index], self.options[chosen]
            places = tuple(ranks[index, : option.num_ranks].tolist())
            shardings.append(make_sharding(table, problem.topology, option, places))
        return make_plan(problem.topology, shardings)

    def has(self, plan: ShardingPlan) -> bool:
        """Return whether the search may take all of a plan's options."""
        places = self.every.places(plan)
        return bool((places >= 0).all() and (self.number_of[places] >= 0).all())

    @cached_property
    def number_of(self) -> Places:
        """The search's number of every option of ``every``; -1: it does not take it."""
        numbers = np.full(len(self.every.flat), -1)
        numbers[self.kept] = np.arange(len(self.kept))
        return numbers

    @property
    def widest(self) -> int:
        """The most blocks of any option, at least 1."""
        return max(1, int(np.max(self.tables.blocks)))


def problem_arrays(
    problem: ShardingProblem,
    starts: Sequence[ShardingPlan] = (),
    *,
    every_option: bool = False,
) -> ProblemArrays:
    """Return the arrays of a problem: options of some plans, and others that are worth trying.

    Shards larger than a rank's memory are not worth trying, nor splits finer than ``FINEST``, but
    for the coarsest of their type; ``every_option`` keeps these, too.
    """
    arrays = problem.groundwork.arrays
    if every_option:
        used = [
            {option_of(plan.table(table.name), table) for plan in starts}
            for table in problem.workload.tables
        ]
        arrays = arrays.with_others(used)
        kept = np.arange(len(arrays.flat))
    else:
        kept = _worth_trying(problem, starts)
    signature = signature_of(problem)
    columns = Columns.of(signature)
    return ProblemArrays(problem, _tables(arrays, kept, columns), columns, signature, arrays, kept)


def offered(problem: ShardingProblem, plans: Sequence[ShardingPlan]) -> list[ShardingPlan]:
    """Return the plans whose options the problem has: caches may have other sizes."""
    return [plan for plan in plans if (problem.groundwork.arrays.places(plan) >= 0).all()]


def _worth_trying(problem: ShardingProblem, starts: Sequence[ShardingPlan]) -> Places:
    """Return the places of options that are worth trying, the coarsest of each table first."""
    arrays = problem.groundwork.arrays
    codes, count = arrays.codes, arrays.codes.num_column_shards
    fits = arrays.of_each_table(fits_alone(problem.groundwork))
    order = np.lexsort((count, codes.table))
    kept = (arrays.shard_load >= FINEST * arrays.balanced_load) | (count == 1)
    fitting = order[fits[order]]
    _, coarsest = np.unique((codes.table * len(TYPES) + codes.kind)[fitting], return_index=True)
    kept[fitting[coarsest]] = True
    kept &= fits
    for plan in starts:
        places = arrays.places(plan)
        kept[places[places >= 0]] = True
    some: Places = order[kept[order]]
    return some


def _tables(arrays: OptionArrays, kept: Places, columns: Columns) -> Tables:
    """Return some options as the search's ``Tables``."""
    codes, cuts = arrays.codes.taken(kept), arrays.cuts
    tables = arrays.workload.tables
    of_option = cuts.of_option[kept]
    used, row_of = _rows_used(cuts, of_option)
    block = np.repeat(of_option, codes.num_column_shards)
    different = range_numbers(cuts.first[block], cuts.first[block + 1])
    rows = np.repeat(row_of[different], cuts.copies[different])
    firsts = np.cumsum([0, *arrays.num_shards[kept].tolist()], dtype=np.int32)
    pairs, pair = kernels_of(tables, codes)
    groups = np.array([columns.groups[group] for group, _ in pairs], dtype=np.int32)
    kernels = np.array([columns.kernels[each] for each in pairs], dtype=np.int32)
    traffic = arrays.loads.traffic
    most = np.maximum.reduceat(traffic[:, MAXIMA], cuts.first[:-1])
    replicated = codes.kind == KINDS[ShardingType.DATA_PARALLEL]
    return Tables(
        options=np.searchsorted(codes.table, np.arange(len(tables) + 1)),
        table_columns=np.array([
            float(table.embedding_dim * table.output_rows_per_sample) for table in tables
        ]),
        group=groups[pair],
        kernel=kernels[pair],
        kind=codes.kind.astype(np.int32),
        spread=_spreads(arrays, kept),
        blocks=arrays.num_ranks[kept].astype(np.int32),
        one_node=(codes.kind == KINDS[ShardingType.TABLE_COLUMN_WISE]).astype(np.int32),
        replicated=replicated * np.array([table.weight_bytes for table in tables])[codes.table],
        cost=arrays.total_load[kept],
        shard_cost=arrays.shard_load[kept],
        most=most[of_option],
        first=firsts,
        rows=rows,
        traffic=traffic[used],
        features=np.column_stack([getattr(arrays.loads, name)[used] for name in RANK_FEATURES]),
        held=np.ascontiguousarray(arrays.held[:, used].T),
        at=_ranks_placed(arrays, kept, firsts),
    )


def _rows_used(cuts: Cuts, of_option: Places) -> tuple[Places, NDArray[np.int32]]:
    """Return the different shards of some options, and the row of each shard."""
    has = np.zeros(len(cuts.first) - 1, dtype=bool)
    has[of_option] = True
    used = np.flatnonzero(np.repeat(has, np.diff(cuts.first)))
    row_of = np.zeros(len(cuts.copies), dtype=np.int32)
    row_of[used] = np.arange(len(used))
    return used, row_of


def _spreads(arrays: OptionArrays, kept: Places) -> NDArray[np.int32]:
    """Return how each option's shards spread over ranks, a code such as ``EVERYWHERE``."""
    within = arrays.of_types([kind for kind in TYPES if kind.within_node])[kept]
    spread = np.where(within, SPREADS["nodes"], SPREADS["ranks"])
    spread[arrays.num_ranks[kept] == 0] = SPREADS["everywhere"]
    spread[arrays.is_placed[kept]] = SPREADS["fixed"]
    return spread.astype(np.int32)


def _ranks_placed(
    arrays: OptionArrays, kept: Places, firsts: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Return the ranks of shards whose table has given ranks; 0 for others."""
    at = np.zeros(firsts[-1], dtype=np.int32)
    for number in np.flatnonzero(arrays.is_placed[kept]).tolist():
        table = arrays.workload.tables[arrays.codes.table[kept[number]]]
        sharding = make_sharding(table, arrays.topology, arrays.flat[kept[number]])
        at[firsts[number] : firsts[number + 1]] = sharding.ranks
    return at


def signature_of(problem: ShardingProblem) -> Signature:
    """Return every sharding group and kernel that some plan of the problem has."""
    pairs, _ = kernels_of(problem.workload.tables, problem.groundwork.arrays.codes)
    groups = groupby(pairs, key=itemgetter(0))
    return tuple((group, tuple(kernel for _, kernel in own)) for group, own in groups)
