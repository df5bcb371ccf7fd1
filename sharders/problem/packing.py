"""Fitting tables into memory that they nearly fill, whatever the step time.

Where greedies run out of room: every table gets an option that takes little memory, its blocks of
columns go where most is free, and blocks are swapped between ranks until none holds too much (a
tabu search on bytes); small problems that this does not solve go to an integer program.
"""

from collections.abc import Iterator, Mapping, Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

from costmodel.base.units import size_text
from costmodel.domain.plan import ComputeKernel, ShardingPlan, ShardingType, TableSharding
from costmodel.domain.workload import EmbeddingTable
from costmodel.memory.rank_memory import infeasible, least_table_bytes
from sharders.problem.option_sizes import SizedOption, sized_options
from sharders.problem.options import TableOption, make_plan, make_sharding
from sharders.problem.placement import no_room, option_bytes
from sharders.problem.sharding_problem import ShardingProblem
from sharders.problem.solvers import Limits, solve

Array = NDArray[np.float64]
Ints = NDArray[np.intp]
ROUNDING = 1e-9
DOUBTFUL = 0.5
"""Share of the memory up to which whole tables are taken to fit: nothing is proved then."""
MOST_SWAPS = 3000
TABU = 12
"""Swaps during which a block stays where it was put."""
MOST_BINARIES = 4000
MOST_NODES = 2000
"""Limits of the integer program: its size, and that of its tree."""
LARGE = 0.2
"""Share of a rank's memory from which a block is split, if splits are what it takes."""
_HOST = (ComputeKernel.FUSED_UVM, ComputeKernel.FUSED_UVM_CACHING)
_ANYWHERE = (ShardingType.TABLE_WISE, ShardingType.COLUMN_WISE)


def packed(problem: ShardingProblem) -> ShardingPlan | None:
    """Return a plan that fits in memory; None if none is found.

    Tables stay whole first; then the large ones are split; then tables go to host memory, where
    their kernels allow it, those first with most bytes for each that is looked up. Always the same
    for the same problem.
    """
    for candidates in _selections(problem):
        plan = _Packing(problem, candidates).plan()
        if plan is not None:
            return plan
    return None


def check_room(problem: ShardingProblem) -> None:
    """Raise InfeasibleError where sums of bytes prove that no plan fits, before any search.

    A table takes at least the least that any of its options do whose shards all fit on a rank.
    Memory of hosts is not looked at. Where whole tables fit, nothing else is computed.

    Raises
    ------
    InfeasibleError
        All tables together, or one alone, are larger than what there is.

    """
    workload, room = problem.workload, problem.total_capacity * (1 + ROUNDING)
    whole = [least_table_bytes(workload, problem.topology, table) for table in workload.tables]
    different = {id(options): options for options in problem.options.values()}
    may_be_whole = {key: _may_be_whole(options) for key, options in different.items()}
    doubtful = [
        table
        for table, size in zip(workload.tables, whole, strict=True)
        if size > DOUBTFUL * problem.capacity or not may_be_whole[id(problem.options[table.name])]
    ]
    most = _least_fitting(problem, doubtful)
    sizes = zip(workload.tables, whole, strict=True)
    if sum(most.get(table.name, size) for table, size in sizes) <= room:
        return
    needed = sum(_least_fitting(problem, workload.tables).values())
    if needed > room:
        message = (
            "no plan fits: sharded so that every shard fits on a rank, the tables take at least "
            f"{size_text(needed)}, and there is room for {size_text(problem.total_capacity)}"
        )
        told = message if sum(whole) <= room else None
        raise infeasible(workload, problem.topology, told)


def _may_be_whole(options: Sequence[TableOption]) -> bool:
    """Return whether one of a table's options is what ``least_table_bytes`` counts."""
    kinds = {option.sharding_type for option in options}
    return ShardingType.TABLE_WISE in kinds or kinds == {ShardingType.DATA_PARALLEL}


def _least_fitting(
    problem: ShardingProblem, tables: Sequence[EmbeddingTable]
) -> Mapping[str, float]:
    """Return the least that each table takes in all, by options whose shards all fit on a rank."""
    some = len(tables) < len(problem.workload.tables)
    sizes = sized_options(problem, tables) if some else problem.option_sizes
    found: dict[str, float] = {}
    for table in tables:
        room = problem.capacity * (1 + ROUNDING)
        fitting = [each.total for each in sizes[table.name] if each.largest <= room]
        if not fitting:
            raise no_room(problem, table, problem.capacity * max(1, len(table.ranks)))
        found[table.name] = min(fitting)
    return found


def _selections(problem: ShardingProblem) -> Iterator[list[SizedOption]]:
    """Yield options for all tables that take no more memory than there is, in sum.

    Those whose blocks may lie on any rank come first. Shards over all ranks hold the outputs of
    every sample on each: where these leave no room, shards within a node do.
    """
    sized = [problem.option_sizes[table.name] for table in problem.workload.tables]
    flexible = [tuple(each for each in own if _is_flexible(each.option)) or own for own in sized]
    yield from _selections_of(problem, flexible)
    if flexible != sized:
        yield from _selections_of(problem, sized)


def _is_flexible(option: TableOption) -> bool:
    return not option.num_ranks or option.sharding_type in _ANYWHERE


def _selections_of(
    problem: ShardingProblem, every: Sequence[Sequence[SizedOption]]
) -> Iterator[list[SizedOption]]:
    hbm = [
        [candidate for candidate in candidates if candidate.option.compute_kernel not in _HOST]
        for candidates in every
    ]
    some = [here or candidates for here, candidates in zip(hbm, every, strict=True)]
    whole = [_smallest(candidates, problem.capacity) for candidates in some]
    split = [_smallest(candidates, LARGE * problem.capacity) for candidates in some]
    for chosen in (whole, split):
        if sum(candidate.total for candidate in chosen) <= problem.total_capacity:
            yield chosen
    for share in (0.97, 0.9, 0.7):
        moved = _spilled(problem, split, every, share * problem.total_capacity)
        if moved != split:
            yield moved


def _smallest(candidates: Sequence[SizedOption], most: float) -> SizedOption:
    """Return the candidate with the least bytes in all whose shards are small enough, if any."""
    return min(
        candidates, key=lambda candidate: (max(0.0, candidate.largest - most), candidate.total)
    )


def _spilled(
    problem: ShardingProblem,
    chosen: Sequence[SizedOption],
    every: Sequence[Sequence[SizedOption]],
    most: float,
) -> list[SizedOption]:
    """Put tables behind host memory until the rest is small enough.

    First those with most bytes for each that is looked up: what they have there is read slowly.
    """
    result, total = list(chosen), sum(candidate.total for candidate in chosen)
    tables = problem.workload.tables
    read = [table.pooling_factor * table.embedding_dim for table in tables]
    for index in sorted(range(len(result)), key=lambda i: -result[i].total / read[i]):
        if total <= most:
            break
        spare = _smallest(every[index], problem.capacity)
        total += spare.total - result[index].total
        result[index] = spare
    return result


class _Packing:
    """Blocks of tables on ranks; ranks may hold too much until it is mended."""

    def __init__(self, problem: ShardingProblem, candidates: Sequence[SizedOption]) -> None:
        self.problem, self.candidates = problem, candidates
        self.topology = problem.topology
        self.free = np.array(problem.rooms)
        self.fixed: dict[int, TableSharding] = {}
        self.sizes = [
            option_bytes(problem, table, candidate.option)
            for table, candidate in zip(problem.workload.tables, candidates, strict=True)
        ]
        blocks = []
        for index, candidate in sorted(
            enumerate(candidates),
            key=lambda item: (item[1].option.num_ranks > 0, -item[1].largest),
        ):
            if candidate.option.num_ranks and candidate.option.sharding_type in _ANYWHERE:
                blocks += [(index, float(problem.held(size))) for size in self.sizes[index]]
            else:
                self._fix(index, candidate)
        blocks.sort(key=lambda block: -block[1])
        self.table = np.array([index for index, _ in blocks], dtype=np.intp)
        self.size = np.array([size for _, size in blocks])
        self.at = np.zeros(len(blocks), dtype=np.intp)

    def plan(self) -> ShardingPlan | None:
        """Return the packing as a plan; None if some rank or node holds too much."""
        self._spread()
        if not self._mended() and not self._solved():
            return None
        plan = self._plan()
        return plan if self._host_fits(plan) else None

    def _fix(self, index: int, candidate: SizedOption) -> None:
        """Put a table where its type leaves no choice, or on the emptiest nodes."""
        local, count = self.topology.local_world_size, candidate.option.num_ranks
        nodes = self.free.reshape(-1, local).min(axis=1)
        table = self.problem.workload.tables[index]
        if candidate.option.sharding_type is ShardingType.TABLE_COLUMN_WISE:
            first = int(np.argmax(nodes)) * local
            places = sorted(range(first, first + local), key=lambda r: -self.free[r])[:count]
        else:
            places = [int(node) * local for node in np.argsort(-nodes, kind="stable")[:count]]
        self.fixed[index] = make_sharding(table, self.topology, candidate.option, places)
        sizes = [float(self.problem.held(size)) for size in self.sizes[index]]
        np.subtract.at(self.free, list(self.fixed[index].ranks), sizes)

    def _spread(self) -> None:
        """Put every block, the largest first, where most is free; blocks of a table apart."""
        for block, size in enumerate(self.size.tolist()):
            free = self.free.copy()
            free[self.at[:block][self.table[:block] == self.table[block]]] = -np.inf
            self.at[block] = int(np.argmax(free))
            self.free[self.at[block]] -= size

    def _mended(self) -> bool:
        """Swap blocks, or move them, from the fullest rank until none is too full."""
        rng = Random(0)  # noqa: S311 - any will do, as long as it is the same
        until = np.zeros(len(self.size))
        for turn in range(MOST_SWAPS):
            full = int(np.argmin(self.free))
            if self.free[full] >= 0:
                return True
            swap = self._best_swap(full, until > turn)
            if swap is None:
                return False
            here, there, rank = swap
            until[here] = turn + rng.randint(1, TABU)
            self._move(here, rank)
            if there is not None:
                until[there] = turn + rng.randint(1, TABU)
                self._move(there, full)
        return False

    def _best_swap(self, full: int, tabu: NDArray[np.bool_]) -> tuple[int, int | None, int] | None:
        """Return a block of a rank, one of another rank or None, and that rank."""
        mine = np.flatnonzero((self.at == full) & ~tabu)
        other = np.flatnonzero((self.at != full) & ~tabu)
        ranks = np.append(self.at[other], np.arange(len(self.free)))
        sizes = np.append(self.size[other], np.zeros(len(self.free)))
        if not len(mine):
            return None
        gain = self.size[mine][:, None] - sizes
        excess = np.maximum(0.0, -self.free[full] - gain)
        excess += np.maximum(0.0, gain - self.free[ranks]) - np.maximum(0.0, -self.free[ranks])
        excess[(gain <= 0) | (ranks == full) | ~self._apart(mine, other, ranks)] = np.inf
        best = int(np.argmin(excess))
        row, column = divmod(best, len(ranks))
        if not np.isfinite(excess[row, column]):
            return None
        there = int(other[column]) if column < len(other) else None
        return int(mine[row]), there, int(ranks[column])

    def _apart(self, mine: Ints, other: Ints, ranks: Ints) -> NDArray[np.bool_]:
        """Return which swaps leave the blocks of every table on distinct ranks."""
        has = np.zeros((len(self.candidates), len(self.free)), dtype=bool)
        has[self.table, self.at] = True
        full = self.at[mine[0]]
        leaves = ~has[self.table[mine]][:, ranks]
        comes = np.append(~has[self.table[other], full], np.ones(len(self.free), dtype=bool))
        apart: NDArray[np.bool_] = leaves & comes
        return apart

    def _move(self, block: int, rank: int) -> None:
        self.free[self.at[block]] += self.size[block]
        self.free[rank] -= self.size[block]
        self.at[block] = rank

    def _solved(self) -> bool:
        """Place all blocks by an integer program, if it is small enough; return whether it could.

        The total excess is minimised, which is 0 if everything fits.
        """
        import pulp

        ranks = range(len(self.free))
        if not 0 < len(self.size) * len(ranks) <= MOST_BINARIES:
            return False
        np.add.at(self.free, self.at, self.size)
        program = pulp.LpProblem("packing", pulp.LpMinimize)
        excess = program.add_variable("excess", lowBound=0)
        program += excess
        x = [
            [program.add_variable(f"x_{block}_{rank}", cat=pulp.LpBinary) for rank in ranks]
            for block in range(len(self.size))
        ]
        for row in x:
            program += pulp.lpSum(row) == 1
        for rank in ranks:
            share = (self.size / self.problem.capacity).tolist()
            held = pulp.lpSum(part * row[rank] for part, row in zip(share, x, strict=True))
            program += held - excess <= float(self.free[rank] / self.problem.capacity)
            for index in np.flatnonzero(np.bincount(self.table) > 1).tolist():
                blocks = np.flatnonzero(self.table == index).tolist()
                program += pulp.lpSum(x[block][rank] for block in blocks) <= 1
        solve(program, None, Limits(gap=0.0, max_nodes=MOST_NODES))
        self.at = np.array([max(ranks, key=lambda r: row[r].varValue or 0.0) for row in x])
        np.subtract.at(self.free, self.at, self.size)
        return bool(self.free.min() >= 0)

    def _plan(self) -> ShardingPlan:
        tables = self.problem.workload.tables
        shardings = dict(self.fixed)
        for index in set(range(len(tables))) - set(self.fixed):
            ranks = self.at[self.table == index].tolist()
            option = self.candidates[index].option
            shardings[index] = make_sharding(tables[index], self.topology, option, ranks)
        return make_plan(self.topology, [shardings[index] for index in range(len(tables))])

    def _host_fits(self, plan: ShardingPlan) -> bool:
        host = np.zeros(self.topology.num_nodes)
        for sharding, sizes in zip(plan.tables, self.sizes, strict=True):
            nodes = [rank // self.topology.local_world_size for rank in sharding.ranks]
            np.add.at(host, nodes, [float(size.host) for size in sizes])
        return bool(host.max() <= self.problem.host_capacity)
