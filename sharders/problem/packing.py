"""Fitting tables into memory that they nearly fill, whatever the step time.

Where greedies run out of room: every table gets an option that takes little memory, its blocks of
columns go where most is free, and blocks are swapped between ranks until none holds too much (a
tabu search on bytes); small problems that this does not solve go to an integer program.
"""

from collections.abc import Iterator
from random import Random

import numpy as np
from numpy.typing import NDArray

from costmodel.base.units import size_text
from costmodel.domain.plan import ComputeKernel, ShardingPlan, ShardingType, TableSharding
from costmodel.kernels.lookup_shards import KERNELS, Mask
from costmodel.memory.rank_memory import infeasible, least_table_bytes
from sharders.problem.options import TableOption, make_plan, make_sharding
from sharders.problem.placement import no_room, option_bytes
from sharders.problem.sharding_problem import ShardingProblem
from sharders.problem.solvers import Limits, solve

Array = NDArray[np.float64]
Ints = NDArray[np.intp]
ROUNDING = 1e-9
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
    for chosen in _selections(problem):
        plan = _Packing(problem, chosen).plan()
        if plan is not None:
            return plan
    return None


def check_room(problem: ShardingProblem) -> None:
    """Raise InfeasibleError where sums of bytes prove that no plan fits, before any search.

    A table takes at least the least that any of its options do whose shards all fit on a rank.
    Memory of hosts is not looked at.

    Raises
    ------
    InfeasibleError
        All tables together, or one alone, are larger than what there is.

    """
    workload, room = problem.workload, problem.total_capacity * (1 + ROUNDING)
    needed = sum(_least_fitting(problem))
    if needed > room:
        whole = (least_table_bytes(workload, problem.topology, each) for each in workload.tables)
        message = (
            "no plan fits: sharded so that every shard fits on a rank, the tables take at least "
            f"{size_text(needed)}, and there is room for {size_text(problem.total_capacity)}"
        )
        told = message if sum(whole) <= room else None
        raise infeasible(workload, problem.topology, told)


def _least_fitting(problem: ShardingProblem) -> list[float]:
    """Return the least that each table takes in all, by options whose shards all fit on a rank."""
    arrays = problem.option_arrays
    fits = arrays.largest_bytes <= problem.capacity * (1 + ROUNDING)
    total = np.where(fits, arrays.total_bytes, np.inf)
    least: list[float] = np.minimum.reduceat(total, arrays.begins[:-1]).tolist()
    for table, size in zip(problem.workload.tables, least, strict=True):
        if size == np.inf:
            raise no_room(problem, table, problem.capacity * max(1, len(table.ranks)))
    return least


def _selections(problem: ShardingProblem) -> Iterator[Ints]:
    """Yield an option for each table, so that all take no more memory than there is, in sum.

    Those whose blocks may lie on any rank come first. Shards over all ranks hold the outputs of
    every sample on each: where these leave no room, shards within a node do.
    """
    arrays = problem.option_arrays
    flexible = (arrays.num_ranks == 0) | arrays.of_types(_ANYWHERE)
    yield from _selections_of(problem, arrays.of_each_table(flexible))
    if not flexible.all():
        yield from _selections_of(problem, np.ones_like(flexible))


def _selections_of(problem: ShardingProblem, every: Mask) -> Iterator[Ints]:
    arrays = problem.option_arrays
    in_hbm = ~np.isin(arrays.ways.kernel, [KERNELS[kernel] for kernel in _HOST])
    some = every & arrays.of_each_table(every & in_hbm)
    whole = _smallest(problem, some, problem.capacity)
    split = _smallest(problem, some, LARGE * problem.capacity)
    for chosen in (whole, split):
        if arrays.total_bytes[chosen].sum() <= problem.total_capacity:
            yield chosen
    spare = _smallest(problem, every, problem.capacity)
    for share in (0.97, 0.9, 0.7):
        moved = _spilled(problem, split, spare, share * problem.total_capacity)
        if (moved != split).any():
            yield moved


def _smallest(problem: ShardingProblem, some: Mask, most: float) -> Ints:
    """Return each table's option with the least bytes in all whose shards are small enough.

    Where none is, the one whose largest shard is smallest.
    """
    arrays = problem.option_arrays
    excess = np.where(some, np.maximum(0.0, arrays.largest_bytes - most), np.inf)
    order = np.lexsort((arrays.total_bytes, excess, arrays.ways.table))
    first: Ints = order[arrays.begins[:-1]]
    return first


def _spilled(problem: ShardingProblem, chosen: Ints, spare: Ints, most: float) -> Ints:
    """Put tables behind host memory until the rest is small enough.

    First those with most bytes for each that is looked up: what they have there is read slowly.
    """
    size = problem.option_arrays.total_bytes
    result, total = chosen.copy(), float(size[chosen].sum())
    read = [table.pooling_factor * table.embedding_dim for table in problem.workload.tables]
    for index in np.argsort(-size[chosen] / np.array(read), kind="stable").tolist():
        if total <= most:
            break
        total += float(size[spare[index]] - size[result[index]])
        result[index] = spare[index]
    return result


class _Packing:
    """Blocks of tables on ranks; ranks may hold too much until it is mended."""

    def __init__(self, problem: ShardingProblem, chosen: Ints) -> None:
        arrays = problem.option_arrays
        self.problem, self.options = problem, [arrays.flat[option] for option in chosen]
        self.topology = problem.topology
        self.free = np.array(problem.rooms)
        self.fixed: dict[int, TableSharding] = {}
        self.sizes = [
            option_bytes(problem, table, option)
            for table, option in zip(problem.workload.tables, self.options, strict=True)
        ]
        blocks = []
        largest = arrays.largest_bytes[chosen].tolist()
        for index, option in sorted(
            enumerate(self.options), key=lambda item: (item[1].num_ranks > 0, -largest[item[0]])
        ):
            if option.num_ranks and option.sharding_type in _ANYWHERE:
                blocks += [(index, size.total) for size in self.sizes[index]]
            else:
                self._fix(index, option)
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

    def _fix(self, index: int, option: TableOption) -> None:
        """Put a table where its type leaves no choice, or on the emptiest nodes."""
        local, count = self.topology.local_world_size, option.num_ranks
        nodes = self.free.reshape(-1, local).min(axis=1)
        table = self.problem.workload.tables[index]
        if option.sharding_type is ShardingType.TABLE_COLUMN_WISE:
            first = int(np.argmax(nodes)) * local
            places = sorted(range(first, first + local), key=lambda r: -self.free[r])[:count]
        else:
            places = [int(node) * local for node in np.argsort(-nodes, kind="stable")[:count]]
        self.fixed[index] = make_sharding(table, self.topology, option, places)
        sizes = [size.total for size in self.sizes[index]]
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
        has = np.zeros((len(self.options), len(self.free)), dtype=bool)
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
        ranks = range(len(self.free))
        if not 0 < len(self.size) * len(ranks) <= MOST_BINARIES:
            return False
        import pulp

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
            option = self.options[index]
            shardings[index] = make_sharding(tables[index], self.topology, option, ranks)
        return make_plan(self.topology, [shardings[index] for index in range(len(tables))])

    def _host_fits(self, plan: ShardingPlan) -> bool:
        host = np.zeros(self.topology.num_nodes)
        for sharding, sizes in zip(plan.tables, self.sizes, strict=True):
            nodes = [rank // self.topology.local_world_size for rank in sharding.ranks]
            np.add.at(host, nodes, [float(size.host) for size in sizes])
        return bool(host.max() <= self.problem.host_capacity)
