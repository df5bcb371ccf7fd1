"""Options of all tables by linear programming, over the step that a balanced plan would take.

    minimise  M
    for every table:  sum over options of x = 1,  x >= 0
    for every cycle:  constant + sum over tables and options of weight x + sum of weight F <= M
    over all tables:  sum of bytes x <= what all ranks have

F is what the fullest rank of every group sends (``fullest_ranks``). Cycles are those of
``costmodel.bounds``: M is what the step takes at least with these shares of options, and about what
it takes if lookups and exchanges can be balanced over ranks. The heaviest cycle at a solution is
added until none is heavier than M, and options join that pay (``option_program``). Few tables get
more than one option: as many as there are rows that bind.

Where ranks send whole blocks (``FullestRanks.whole``), F is rounded up, and the group where that
costs most may then have only as many tables as one block less allows, if the step is shorter so.
Without that, three CPU seconds end 12% higher at 400 tables on 128 GPUs, where ranks have two or
three whole ones, and five 3 to 6% at 600; 27 problems drawn afterwards end within 0.2% in the mean,
but three seconds 14.5% off at worst, not 3.7.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.base.units import Seconds
from costmodel.bounds.feature_index import FeatureIndex, largest_features
from costmodel.bounds.fullest_ranks import FullestRanks
from costmodel.bounds.option_features import BoundOptions, OptionFeatures
from costmodel.bounds.option_program import DUAL, PRIMAL, BestShares, OptionProgram
from costmodel.bounds.paths import StepGraph, StreamOps, WeightedCycle
from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.engine.timer import Signature
from costmodel.kernels.lookup_shards import KERNELS
from costmodel.step.groups import GroupKey
from sharders.problem.options import TableOption
from sharders.problem.room import fits_alone
from sharders.problem.sharding_problem import ShardingProblem

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
TOLERANCE = 5e-3
"""Share of M by which a cycle may be heavier than it."""
OPTION_TOLERANCE = 1e-3
"""Share of M that options which are not in the program might gain."""
MOST_ROUNDS = 60
SENT_AT_ONCE = 3
"""Rows of tables that are added of what a group sends at a time."""
MOST_LIMITS = 4
"""How many times a group may be limited to fewer blocks."""
PLAYED = 6
"""Cycles that are looked for before the first solution."""
HEADROOM = 0.9
"""Share of all memory that shares of options may use, as whole shards do not fill ranks evenly."""
ROOM = 2 / 3
"""Share of what the smallest options leave that they may use, if that is more. While that was all
where the tables take 0.98, runs began with plans that do not fit: 1, 3 and 10 CPU seconds end 1.7,
1.1 and 1.0% lower in the mean of 15 problems of full memory (two seeds), 12% at 900 tables on 64
GPUs. With 0.5 they end 3% higher at 700 tables on 64, and with 0.8 5% at the 900."""


@dataclass(frozen=True)
class LpOptions:
    """Options of every table of a problem, and what each puts into a step's formulas."""

    problem: ShardingProblem
    numbers: NDArray[np.intp]
    """Their places in the problem's arrays."""
    bounds: BoundOptions
    """What the bound knows of every option."""
    memory: Array
    """Bytes of every option, as a share of what all ranks have."""

    @classmethod
    def of(
        cls, problem: ShardingProblem, types: Container[ShardingType] = frozenset(ShardingType)
    ) -> "LpOptions":
        """List those of some types; all of a table that would have none.

        Not those that have shards larger than a rank's memory.
        A cache counts as if it held every row, but takes the memory it does.
        """
        arrays = problem.option_arrays
        fits = arrays.of_each_table(fits_alone(problem))
        numbers = np.flatnonzero(fits & arrays.of_each_table(fits & arrays.of_types(types)))
        ways = arrays.ways.taken(numbers)
        bounds = OptionFeatures(problem.workload, problem.topology).some(ways)
        memory, caching = bounds.memory, ways.kernel == KERNELS[ComputeKernel.FUSED_UVM_CACHING]
        if caching.any():
            memory = np.where(caching, arrays.total_bytes[numbers], memory)
        return cls(problem, numbers, bounds, memory / max(1.0, problem.total_capacity))

    @cached_property
    def options(self) -> tuple[TableOption, ...]:
        """All of them."""
        flat = self.problem.option_arrays.flat
        return tuple(flat[number] for number in self.numbers.tolist())

    @cached_property
    def kind(self) -> NDArray[np.intp]:
        """Sharding type of every option, by its place in ``TYPES``."""
        return self.problem.option_arrays.ways.kind[self.numbers]

    @property
    def table(self) -> NDArray[np.intp]:
        """Return the table of every option."""
        return self.bounds.table

    def of_types(self, types: Container[ShardingType]) -> Mask:
        """Return which options are of some sharding types."""
        return self.problem.option_arrays.of_types(types)[self.numbers]

    @cached_property
    def width(self) -> NDArray[np.intp]:
        """Columns of every option's shards."""
        dims = np.array([table.embedding_dim for table in self.problem.workload.tables])
        width: NDArray[np.intp] = dims[self.table]
        return width // self.problem.option_arrays.ways.num_column_shards[self.numbers]

    def some(self, wanted: Mask) -> Mask:
        """Return the options that are wanted; all of a table that would have none."""
        has = np.zeros(len(self.problem.workload.tables), dtype=bool)
        has[self.table[wanted]] = True
        kept: Mask = wanted | ~has[self.table]
        return kept


class Relaxed(NamedTuple):
    """What a program says."""

    shares: Array
    """Share of its table that every option gets, 0 to 1."""
    value: Seconds
    """No plan of the options that were offered and wanted has a step shorter by more than
    ``OPTION_TOLERANCE``, if it has all the sharding groups that are offered."""
    of_blocks: Seconds
    """About what the step takes with these shares at least where ranks send whole blocks."""
    prices: Array
    """What a share of every option adds to the value, where others make room for it: 0 for those
    that have shares, infinite for those not offered, and less than 0 for some that were offered but
    not wanted; of the value's own unit (reduced costs)."""


@dataclass(eq=False)
class RelaxedStep:
    """The program of some options; cycles found for one set of them serve for its subsets."""

    choices: LpOptions
    offered: Mask
    """The options in question; their groups' fixed costs count in full."""
    _cycles: list[WeightedCycle] = field(default_factory=list)

    @cached_property
    def _kept(self) -> NDArray[np.intp]:
        """Numbers of the options in question."""
        return np.flatnonzero(self.offered)

    @cached_property
    def _likely(self) -> Mask:
        """Which of them programs begin with: those that have paid, or may be expected to."""
        return np.zeros(len(self._kept), dtype=bool)

    @cached_property
    def _begins(self) -> NDArray[np.intp]:
        """Places among them where every table's begin."""
        table = self.choices.table[self._kept]
        return np.searchsorted(table, np.arange(table[-1] + 1))

    @cached_property
    def _kernels(self) -> Signature:
        return self.choices.bounds.signature(self._kept)

    @cached_property
    def _index(self) -> FeatureIndex:
        return FeatureIndex(self._kernels, fullest=True)

    @cached_property
    def _places(self) -> NDArray[np.intp]:
        """Return the features that every option adds to."""
        bounds = self.choices.bounds
        used, which = np.unique(bounds.kernel[self._kept], return_inverse=True)
        places = [self._index.of_kernel(bounds.kernels[kernel]) for kernel in used]
        return np.array(places)[which]

    @cached_property
    def _values(self) -> Array:
        """And what it adds."""
        return self.choices.bounds.values[self._kept]

    @cached_property
    def _fullest(self) -> FullestRanks:
        return FullestRanks(self._index, self.choices.bounds, self._kept)

    @cached_property
    def _graph(self) -> StepGraph:
        problem, index = self.choices.problem, self._index
        groups = frozenset[GroupKey](index.groups)
        table = self.choices.table[self._kept]
        largest = largest_features(table, self._places, self._values, index.size)
        largest[index.fullest] = self._fullest.most
        return StepGraph(
            StreamOps(problem.templates.of(self._kernels), groups), index, largest, groups
        )

    def solve(self, wanted: Mask) -> Relaxed | None:
        """Return the best shares of the options that are offered and wanted; None: no room."""
        table, memory = self.choices.table[self._kept], self.choices.memory[self._kept]
        free = self.choices.some(wanted & self.offered)[self._kept]
        smallest = self._best(memory, free)
        least = float(memory[smallest].sum())
        if least > 1:
            return None
        self._likely[smallest] = True
        even = self._features(free / np.bincount(table, free)[table])
        if not self._cycles:
            self._cycles += [self._graph.heaviest(even), self._graph.direct(even)]
            self._cycles.append(self._graph.host())
            self._play(free)
        # not a cycle's constant: of tangents to a convex duration it may be negative
        unit = _weight(self._cycles[0], even) or 1.0
        most = max(HEADROOM, least + ROOM * (1 - least))
        program = OptionProgram(table, memory, most, self._fullest.count)
        self._begin(program, free, unit)
        found = self._solved(program, free, unit)
        if found is None:
            return None
        best, of_blocks = self._of_blocks(program, free, unit, found)
        shares, prices = np.zeros(len(self.offered)), np.full(len(self.offered), np.inf)
        shares[self._kept], prices[self._kept] = best.shares, best.reduced_costs
        return Relaxed(shares, found.value * unit, of_blocks, prices)

    def _begin(self, program: OptionProgram, free: Mask, unit: Seconds) -> None:
        """Begin with the solution that there is if only the first cycle binds, and no memory."""
        self._fullest.begin(program)
        for cycle in self._cycles:
            self._add(program, cycle, unit)
        best = self._best(self._weights(self._cycles[0]), free)
        self._likely[best] = True
        program.join(np.flatnonzero(self._likely & free))
        means, tables = self._fullest.num_rows
        cycles = [True] + [False] * (len(self._cycles) - 1)
        program.begin_with(best, [False] + [True] * means + [False] * tables + cycles)

    def _solved(self, program: OptionProgram, free: Mask, unit: Seconds) -> BestShares | None:
        """Let options join, and then cycles and tables bind, until none changes the solution."""
        found, strategy = None, DUAL
        for _ in range(MOST_ROUNDS):
            found = program.run(strategy)
            if found is None:
                break
            paying = program.paying(found, free, OPTION_TOLERANCE)
            if len(paying):
                self._likely[paying] = True
                program.join(paying)
                strategy = PRIMAL
                continue
            z = self._features(found.shares)
            cycle = self._graph.heaviest(z)
            if _weight(cycle, z) <= found.value * unit * (1 + TOLERANCE):
                break
            self._fullest.extend(program, found, SENT_AT_ONCE)
            self._cycles.append(cycle)
            self._add(program, cycle, unit)
            strategy = DUAL
        return found

    def _of_blocks(
        self, program: OptionProgram, free: Mask, unit: Seconds, first: BestShares
    ) -> tuple[BestShares, Seconds]:
        """Return the best shares found where ranks send whole blocks, and the step then."""
        found, best, least = first, first, np.inf
        for _ in range(MOST_LIMITS + 1):
            z, whole = self._features(found.shares), self._fullest.whole(found.shares)
            more = whole - z[self._index.fullest]
            z[self._index.fullest] = whole
            cycle = self._graph.heaviest(z)
            value = max(found.value * unit, _weight(cycle, z))
            if value < least:
                best, least = found, value
            added = cycle.weights[self._index.fullest] * more
            column = int(added.argmax())
            if added[column] <= TOLERANCE * value:
                break
            self._fullest.limit(program, column, whole[column])
            limited = self._solved(program, free, unit)
            if limited is None or limited.value * unit >= least:
                break
            found = limited
        return best, least

    def _features(self, x: Array) -> Array:
        values = (self._values * x[:, None]).ravel()
        size = self._index.size
        z: Array = np.bincount(self._places.ravel(), values, size).astype(np.float64)
        z[self._index.fullest] = self._fullest.sent(x)
        return z

    def _play(self, free: Mask) -> None:
        """Add cycles that are likely to bind: fictitious play of tables and cycles (Brown, 1951).

        Every table takes its best option for all cycles played so far, and the heaviest cycle for
        all options taken so far comes next. That takes as long as reaching the cycles by solving
        takes for one of them: with a basis to begin with, programs of 485 and 928 tables on 128
        GPUs are solved in 0.07 and 0.13 s, not 0.27 and 0.38.
        """
        total, taken = self._weights(self._cycles[0]), np.zeros(len(free))
        for number in range(1, PLAYED + 1):
            best = self._best(total, free)
            self._likely[best] = True
            taken[best] += 1.0
            cycle = self._graph.heaviest(self._features(taken / number))
            total += self._weights(cycle)
            if any(np.array_equal(cycle.weights, each.weights) for each in self._cycles):
                break
            self._cycles.append(cycle)

    def _best(self, weights: Array, free: Mask) -> NDArray[np.intp]:
        """Return the option of every table that weighs least, by its place among those kept."""
        table = self.choices.table[self._kept]
        order = np.lexsort((np.where(free, weights, np.inf), table))
        best: NDArray[np.intp] = order[self._begins]
        return best

    def _weights(self, cycle: WeightedCycle) -> Array:
        """Return what every option adds to a cycle, if ranks send all as much."""
        return self._own_weights(cycle) + self._fullest.evenly(cycle.weights)

    def _own_weights(self, cycle: WeightedCycle) -> Array:
        """Return the same without what ranks send."""
        weights: Array = (self._values * cycle.weights[self._places]).sum(axis=1)
        return weights

    def _add(self, program: OptionProgram, cycle: WeightedCycle, unit: Seconds) -> None:
        own, sent = self._own_weights(cycle), self._fullest.coefficients(cycle.weights)
        others = np.concatenate(([1.0], -sent / unit))
        program.add_row(cycle.constant / unit, -own / unit, np.arange(len(others)), others)


def _weight(cycle: WeightedCycle, z: Array) -> Seconds:
    return cycle.constant + float(cycle.weights @ z)


def by_share(choices: LpOptions, shares: Array) -> Iterator[Sequence[int]]:
    """Yield every table's options (their numbers) that have a share, the largest first."""
    begins = np.searchsorted(choices.table, np.arange(choices.table[-1] + 2))
    for first, last in zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True):
        order = np.argsort(-shares[first:last], kind="stable") + first
        yield [int(option) for option in order if shares[option] > 0]
