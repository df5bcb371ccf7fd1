"""Options of all tables by linear programming, over the step that a balanced plan would take.

    minimise  M
    for every table:  sum over options of x = 1,  x >= 0
    for every cycle:  constant + sum over tables and options of weight x + sum of weight F <= M
    over all tables:  sum of bytes x <= what all ranks have

F is what the fullest rank of every group sends (``fullest_ranks``). Cycles are those of
``costmodel.bounds``: M is what the step takes at least with these shares of options, and about what
it takes if lookups and exchanges can be balanced over ranks. The heaviest cycle at a solution is
added until none is heavier than M. Few tables get more than one option: as many as there are rows
that bind.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.base.units import Seconds
from costmodel.bounds.feature_index import FeatureIndex, largest_features
from costmodel.bounds.option_features import BoundOptions, OptionFeatures
from costmodel.bounds.paths import StepGraph, StreamOps, WeightedCycle
from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.engine.timer import Signature
from costmodel.kernels.lookup_shards import KERNELS
from costmodel.step.groups import GroupKey
from sharders.lp.fullest_ranks import FullestRanks
from sharders.problem.options import TableOption
from sharders.problem.room import fits_alone
from sharders.problem.sharding_problem import ShardingProblem

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
TOLERANCE = 5e-3
"""Share of M by which a cycle may be heavier than it."""
MOST_ROUNDS = 30
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
    """No plan of the options that were offered and wanted has a shorter step, if it has all the
    sharding groups that are offered."""
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
        import highspy

        graph, kept = self._graph, self._kept
        free = self.choices.some(wanted & self.offered)[kept]
        least = self._least_memory(free)
        if least > 1:
            return None
        solver = self._program(free, max(HEADROOM, least + ROOM * (1 - least)))
        x = free / np.bincount(self.choices.table[kept], free)[self.choices.table[kept]]
        z = self._features(x)
        if not self._cycles:
            self._cycles += [graph.heaviest(z), graph.direct(z), graph.host()]
            self._play(free)
        # not a cycle's constant: of tangents to a convex duration it may be negative
        unit = _weight(self._cycles[0], z) or 1.0
        self._fullest.begin(solver)
        for cycle in self._cycles:
            self._add(solver, cycle, unit)
        self._begin(solver, free)
        for _ in range(MOST_ROUNDS):
            solver.run()
            if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
                return None
            solution = solver.getSolution()
            x, _, fullest = np.split(solution.col_value, [len(kept), len(kept) + 1])
            value = solver.getInfo().objective_function_value * unit
            z = self._features(x)
            cycle = graph.heaviest(z)
            if _weight(cycle, z) <= value * (1 + TOLERANCE):
                break
            self._fullest.extend(solver, x, fullest)
            self._cycles.append(cycle)
            self._add(solver, cycle, unit)
        shares = np.zeros(len(self.choices.options))
        prices = np.full(len(shares), np.inf)
        shares[kept], prices[kept] = x, solution.col_dual[: len(kept)]
        return Relaxed(shares, value, prices)

    def _features(self, x: Array) -> Array:
        values = (self._values * x[:, None]).ravel()
        size = self._index.size
        z: Array = np.bincount(self._places.ravel(), values, size).astype(np.float64)
        z[self._index.fullest] = self._fullest.sent(x)
        return z

    def _least_memory(self, free: Mask) -> float:
        """Return the share of all memory that every table's smallest free option takes."""
        memory = np.where(free, self.choices.memory[self._kept], np.inf)
        return float(np.minimum.reduceat(memory, self._begins).sum())

    def _program(self, free: Mask, most_memory: float) -> Any:  # noqa: ANN401 - highspy's
        """Return the program without cycles: columns of options, M, and what fullest ranks send."""
        import highspy

        kept = self._kept
        table, count = self.choices.table[kept], len(kept)
        rows, more = int(table[-1]) + 2, self._fullest.count
        program: Any = highspy.HighsLp()
        program.num_col_, program.num_row_ = count + 1 + more, rows
        program.col_cost_ = np.concatenate((np.zeros(count), [1.0], np.zeros(more)))
        program.col_lower_ = np.zeros(count + 1 + more)
        unlimited = np.full(1 + more, highspy.kHighsInf)
        program.col_upper_ = np.append(np.where(free, 1.0, 0.0), unlimited)
        program.row_lower_ = np.append(np.ones(rows - 1), -highspy.kHighsInf)
        program.row_upper_ = np.append(np.ones(rows - 1), most_memory)
        ends = np.full(1 + more, 2 * count)
        program.a_matrix_.start_ = np.append(2 * np.arange(count + 1), ends)
        program.a_matrix_.index_ = np.array([table, np.full(count, rows - 1)]).T.ravel()
        ones = np.ones(count)
        program.a_matrix_.value_ = np.array([ones, self.choices.memory[kept]]).T.ravel()
        solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        solver.setOptionValue("output_flag", False)  # noqa: FBT003 -- highspy's signature
        solver.passModel(program)
        return solver

    def _play(self, free: Mask) -> None:
        """Add cycles that are likely to bind: fictitious play of tables and cycles (Brown, 1951).

        Every table takes its best option for all cycles played so far, and the heaviest cycle for
        all options taken so far comes next. That takes as long as reaching the cycles by solving
        takes for one of them: with a basis to begin with, programs of 485 and 928 tables on 128
        GPUs are solved in 0.07 and 0.13 s, not 0.27 and 0.38.
        """
        total, taken = self._weights(self._cycles[0]), np.zeros(len(free))
        for number in range(1, PLAYED + 1):
            taken[self._best(total, free)] += 1.0
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

    def _begin(self, solver: Any, free: Mask) -> None:  # noqa: ANN401 - highspy's
        """Begin with the solution that there is if only the first cycle binds, and no memory."""
        import highspy

        status, best = highspy.HighsBasisStatus, self._best(self._weights(self._cycles[0]), free)
        means, tables = self._fullest.num_rows
        columns = [status.kLower] * len(free) + [status.kBasic] * (1 + means)
        for column in best.tolist():
            columns[column] = status.kBasic
        sent = [status.kLower] * means + [status.kBasic] * tables
        cycles = [status.kLower] + [status.kBasic] * (len(self._cycles) - 1)
        basis: Any = highspy.HighsBasis()
        basis.col_status = columns
        basis.row_status = [status.kLower] * len(best) + [status.kBasic, *sent, *cycles]
        basis.valid = True
        solver.setBasis(basis)

    def _weights(self, cycle: WeightedCycle) -> Array:
        """Return what every option adds to a cycle, if ranks send all as much."""
        return self._own_weights(cycle) + self._fullest.evenly(cycle.weights)

    def _own_weights(self, cycle: WeightedCycle) -> Array:
        """Return the same without what ranks send."""
        weights: Array = (self._values * cycle.weights[self._places]).sum(axis=1)
        return weights

    def _add(self, solver: Any, cycle: WeightedCycle, unit: Seconds) -> None:  # noqa: ANN401 - highspy's
        own, sent = self._own_weights(cycle), self._fullest.coefficients(cycle.weights)
        row = np.concatenate((-own / unit, [1.0], -sent / unit))
        places = np.arange(len(row), dtype=np.int32)
        solver.addRow(cycle.constant / unit, float("inf"), len(row), places, row)


def _weight(cycle: WeightedCycle, z: Array) -> Seconds:
    return cycle.constant + float(cycle.weights @ z)


def by_share(choices: LpOptions, shares: Array) -> Iterator[Sequence[int]]:
    """Yield every table's options (their numbers) that have a share, the largest first."""
    begins = np.searchsorted(choices.table, np.arange(choices.table[-1] + 2))
    for first, last in zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True):
        order = np.argsort(-shares[first:last], kind="stable") + first
        yield [int(option) for option in order if shares[option] > 0]
