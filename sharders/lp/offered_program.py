"""Linear programs over options of all tables for the step of a balanced plan.

A program's value (``costmodel.bounds.step_program``) is a lower bound of the step with shares of
options, and about what it takes if lookups and exchanges can be balanced over ranks.

Where ranks send whole blocks (``FullestRanks.whole``), F is rounded up, and the group where that
costs most may then have only as many tables as one block less allows, if the step is shorter so.
"""

from collections import deque
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.base.arrays import Array, Mask
from costmodel.base.units import Seconds
from costmodel.bounds.feature_index import FeatureIndex
from costmodel.bounds.option_features import BoundOptions, OptionFeatures, is_first
from costmodel.bounds.option_program import BestShares
from costmodel.bounds.step_program import (
    OptionCycle,
    RelaxedStep,
    StepProgram,
)
from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.kernels.lookup_shards import KERNELS
from sharders.problem.options import TableOption
from sharders.problem.room import fits_alone
from sharders.problem.sharding_problem import ShardingProblem

MOST_LIMITS = 4
"""Number of times a group may be limited to fewer blocks."""
ROUNDING = 0.03
"""Share of the step by which whole blocks may lengthen it before a group is limited."""
PLAYED = 6
"""Number of cycles found before the first solution."""
HEADROOM = 0.9
"""Share of all memory that shares of options may use, as whole shards do not fill ranks evenly."""
ROOM = 2 / 3
"""Share of the memory left by the smallest options that shares of options may use, if that is
more."""


@dataclass(frozen=True)
class LpOptions:
    """Options of every table of a problem, with their features in a step's formulas."""

    problem: ShardingProblem
    numbers: NDArray[np.intp]
    """Places of the options in the problem's arrays."""
    bounds: BoundOptions
    """Features of every option."""
    memory: Array
    """Bytes of every option, as a share of all ranks' memory."""

    @classmethod
    def of(
        cls,
        problem: ShardingProblem,
        types: Container[ShardingType] = frozenset(ShardingType),
        beside: Container[ShardingType] = frozenset(),
    ) -> "LpOptions":
        """Return options of some types, all of a table that would have none, and those ``beside``.

        Options with shards larger than a rank's memory are left out. A cache counts as if it held
        every row, but takes its own memory.
        """
        arrays = problem.groundwork.arrays
        fits = arrays.of_each_table(fits_alone(problem.groundwork))
        wanted = arrays.of_each_table(fits & arrays.of_types(types)) | arrays.of_types(beside)
        numbers = np.flatnonzero(fits & wanted)
        codes = arrays.codes.taken(numbers)
        bounds = OptionFeatures(problem.workload, problem.topology).some(codes)
        memory, caching = bounds.memory, codes.kernel == KERNELS[ComputeKernel.FUSED_UVM_CACHING]
        if caching.any():
            memory = np.where(caching, arrays.total_bytes[numbers], memory)
        return cls(problem, numbers, bounds, memory / max(1.0, problem.total_capacity))

    @cached_property
    def options(self) -> tuple[TableOption, ...]:
        """All options."""
        flat = self.problem.groundwork.arrays.flat
        return tuple(flat[number] for number in self.numbers.tolist())

    @cached_property
    def kind(self) -> NDArray[np.intp]:
        """Sharding type of every option, by its place in ``TYPES``."""
        return self.problem.groundwork.arrays.codes.kind[self.numbers]

    @property
    def table(self) -> NDArray[np.intp]:
        """Return the table of every option."""
        return self.bounds.table

    def of_types(self, types: Container[ShardingType]) -> Mask:
        """Return which options are of some sharding types."""
        return self.problem.groundwork.arrays.of_types(types)[self.numbers]

    @cached_property
    def width(self) -> NDArray[np.intp]:
        """Columns of every option's shards."""
        dims = np.array([table.embedding_dim for table in self.problem.workload.tables])
        width: NDArray[np.intp] = dims[self.table]
        return width // self.problem.groundwork.arrays.codes.num_column_shards[self.numbers]

    def some(self, wanted: Mask) -> Mask:
        """Return the options that are wanted, or all of a table that would have none."""
        has = np.zeros(len(self.problem.workload.tables), dtype=bool)
        has[self.table[wanted]] = True
        kept: Mask = wanted | ~has[self.table]
        return kept


class Relaxed(NamedTuple):
    """The solution of a program."""

    shares: Array
    """Share of its table that every option gets, 0 to 1."""
    value: Seconds
    """Lower bound of the step, within ``OPTION_TOLERANCE``, of plans of the options that were
    offered and wanted and have all the sharding groups that are offered."""
    of_blocks: Seconds
    """About the smallest step with these shares if ranks send whole blocks."""
    prices: Array
    """Reduced cost of every option, in the unit of the value: 0 for options that have shares,
    infinite for those not offered, and negative for some that were offered but not wanted."""


@dataclass(eq=False)
class OfferedProgram:
    """The program of some options; cycles found for a subset of them serve for others."""

    choices: LpOptions
    offered: Mask
    """The options of the program; their groups' fixed costs count in full."""
    _begun: StepProgram | None = field(default=None, init=False)
    """Its program, with the rows and columns that solutions have needed."""

    @cached_property
    def _kept(self) -> NDArray[np.intp]:
        """Numbers of the program's options."""
        return np.flatnonzero(self.offered)

    @cached_property
    def _step(self) -> RelaxedStep:
        """Return the step of the options that the program offers, with their memory."""
        options, memory = self.choices.bounds.taken(self.offered), self.choices.memory[self._kept]
        kernels = options.signature()
        index = FeatureIndex(kernels, fullest=True)
        template = self.choices.problem.groundwork.templates.of(kernels)
        return RelaxedStep(template, options, index, memory, frozenset(index.groups))

    def solve(self, wanted: Mask) -> Relaxed | None:
        """Return the best shares of the options that are offered and wanted; None: no room."""
        first = self._first_solved(wanted)
        if first is None:
            return None
        program, found = first
        best, of_blocks = self._of_blocks(program, found)
        return self._relaxed(program, best, found.value, of_blocks)

    def levels(self, wanted: Mask) -> "Levels | None":
        """Return the program of offered and wanted options by levels; None: no room."""
        first = self._first_solved(wanted)
        if first is None:
            return None
        program, found = first
        fullest, shares = self._step.fullest, found.shares
        columns = fullest.uneven
        of_groups = fullest.means(shares), fullest.largest(shares), fullest.blocks
        return Levels(self, program, columns, *(each[columns] for each in of_groups))

    def at_levels(
        self, program: StepProgram, columns: NDArray[np.intp], levels: Array
    ) -> Relaxed | None:
        """Return the best shares if fullest ranks send the amounts ``levels``, by column.

        None where no room.
        """
        for column, level in zip(columns.tolist(), levels.tolist(), strict=True):
            self._step.fullest.send(program.options, column, level)
        found = self._solved(program)
        if found is None:
            return None
        return self._relaxed(program, found, found.value, found.value * program.unit)

    def _first_solved(self, wanted: Mask) -> tuple[StepProgram, BestShares] | None:
        """Return the program of what is offered and wanted, and its solution; None: no room."""
        step, free = self._step, self.choices.some(wanted & self.offered)[self._kept]
        smallest = step.lightest(step.memory, free)
        least = float(step.memory[smallest].sum())
        if least > 1:
            return None
        most_memory = max(HEADROOM, least + ROOM * (1 - least))
        if self._begun is None:
            self._begun = self._begin(free, most_memory, smallest)
        else:
            self._begun.allow(free, most_memory, smallest)
        found = self._solved(self._begun)
        return None if found is None else (self._begun, found)

    def _relaxed(
        self, program: StepProgram, best: BestShares, value: float, of_blocks: Seconds
    ) -> Relaxed:
        """Return a solution in terms of all options."""
        shares, prices = np.zeros(len(self.offered)), np.full(len(self.offered), np.inf)
        shares[self._kept], prices[self._kept] = best.shares, best.reduced_costs
        return Relaxed(shares, value * program.unit, of_blocks, prices)

    def _begin(self, free: Mask, most_memory: float, needed: NDArray[np.intp]) -> StepProgram:
        """Return the program with cycles that are likely to bind.

        Playing takes as long as finding one of them by solving does: with a basis to begin with,
        programs of 485 and 928 tables on 128 GPUs are solved in 0.07 and 0.13 s, not 0.27 and 0.38.
        """
        graph, table, likely = self._step.graph, self._step.options.table, np.zeros_like(free)
        likely[needed] = True
        even = self._step.features(free / np.bincount(table, free)[table])
        first = [graph.heaviest(even), graph.direct(even), graph.host()]
        cycles = [OptionCycle(each) for each in first]
        total = self._step.even_weights(cycles[0])
        for lightest, played in self._step.play(total, PLAYED, free):
            likely[lightest] = True
            if any(_equal(played, each) for each in cycles):
                break
            cycles.append(played)
        # not a cycle's constant: of tangents to a convex duration it may be negative
        unit = cycles[0].cycle.weight(even) or 1.0
        return StepProgram(
            self._step, cycles, likely, unit=unit, most_memory=most_memory, free=free
        )

    def _solved(self, program: StepProgram) -> BestShares | None:
        """Return the last solution; None: there is none."""
        found = deque(program.solutions(self._heavier), maxlen=1)
        return found.pop() if found else None

    def _heavier(self, shares: Array, than: Seconds) -> list[OptionCycle]:
        """Return the heaviest cycle at some shares of options if it takes over ``than`` seconds."""
        z = self._step.features(shares)
        cycle = self._step.graph.heaviest(z)
        return [OptionCycle(cycle)] if cycle.weight(z) > than else []

    def _of_blocks(self, program: StepProgram, first: BestShares) -> tuple[BestShares, Seconds]:
        """Return the best shares found if ranks send whole blocks, and the step's seconds then."""
        fullest, places, unit = self._step.fullest, self._step.index.fullest, program.unit
        found, best, least = first, first, np.inf
        for _ in range(MOST_LIMITS + 1):
            z, whole = self._step.features(found.shares), fullest.whole(found.shares)
            more = whole - z[places]
            z[places] = whole
            cycle = self._step.graph.heaviest(z)
            value = max(found.value * unit, cycle.weight(z))
            if value < least:
                best, least = found, value
            added = cycle.weights[places] * more
            column = int(added.argmax())
            if added[column] <= ROUNDING * value:
                break
            fullest.one_less(program.options, column, whole[column])
            limited = self._solved(program)
            if limited is None or limited.value * unit >= least:
                break
            found = limited
        return best, least


@dataclass(eq=False)
class Levels:
    """A program by the columns that the fullest ranks of groups send, of groups that may differ."""

    offered: OfferedProgram
    program: StepProgram
    columns: NDArray[np.intp]
    """The groups' columns in the program."""
    means: Array
    """Columns that mean ranks send if fullest ones may send any number, (groups,)."""
    widest: Array
    """Columns of the widest shard then, (groups,)."""
    blocks: Array
    """Number of columns of which every shard has a multiple, (groups,)."""

    def at(self, levels: Array) -> Relaxed | None:
        """Return the best shares if fullest ranks send so many columns, (groups,).

        None where no room.
        """
        return self.offered.at_levels(self.program, self.columns, levels)


def _equal(one: OptionCycle, other: OptionCycle) -> bool:
    return np.array_equal(one.cycle.weights, other.cycle.weights)


def by_share(choices: LpOptions, shares: Array) -> Iterator[Sequence[int]]:
    """Yield the numbers of every table's options that have a share, the largest first."""
    ranked, begins = ranked_by_share(choices, shares)
    for own in np.split(ranked, begins[1:]):
        yield own.tolist()


def ranked_by_share(choices: LpOptions, shares: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return what ``by_share`` yields in one array, and where each table's options begin."""
    used = np.flatnonzero(shares > 0)
    ranked = used[np.lexsort((-shares[used], choices.table[used]))]
    return ranked, np.flatnonzero(is_first(choices.table[ranked]))
