"""Options of all tables by linear programming, over the step that a balanced plan would take.

A program's value (``costmodel.bounds.step_program``) is what the step takes at least with shares of
options, and about what it takes if lookups and exchanges can be balanced over ranks.

Where ranks send whole blocks (``FullestRanks.whole``), F is rounded up, and the group where that
costs most may then have only as many tables as one block less allows, if the step is shorter so.
Without that, three CPU seconds end 12% higher at 400 tables on 128 GPUs, where ranks have two or
three whole ones, and five 3 to 6% at 600; 27 problems drawn afterwards end within 0.2% in the mean,
but three seconds 14.5% off at worst, not 3.7.
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
"""How many times a group may be limited to fewer blocks."""
ROUNDING = 0.03
"""Share of the step that whole blocks may take longer for which no group is limited. While it was
0.005, half a CPU second and one ended 0.4 and 0.5% higher in the mean of 65 problems (standard
errors 0.2%; after one 25 lower now, 9 higher), two to four as high."""
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
        cls,
        problem: ShardingProblem,
        types: Container[ShardingType] = frozenset(ShardingType),
        beside: Container[ShardingType] = frozenset(),
    ) -> "LpOptions":
        """List those of some types, all of a table that would have none; and of others beside them.

        Not those that have shards larger than a rank's memory.
        A cache counts as if it held every row, but takes the memory it does.
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
        """All of them."""
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
class OfferedProgram:
    """The program of some options; cycles found for one set of them serve for its subsets."""

    choices: LpOptions
    offered: Mask
    """The options in question; their groups' fixed costs count in full."""
    _begun: StepProgram | None = field(default=None, init=False)
    """Its program, with what solutions so far have needed."""

    @cached_property
    def _kept(self) -> NDArray[np.intp]:
        """Numbers of the options in question."""
        return np.flatnonzero(self.offered)

    @cached_property
    def _step(self) -> RelaxedStep:
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
        """Return the program of what is offered and wanted by levels; None: no room."""
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
        """Return the best shares where fullest ranks send so much, by column; None: no room."""
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
        """Return what a solution says of all options."""
        shares, prices = np.zeros(len(self.offered)), np.full(len(self.offered), np.inf)
        shares[self._kept], prices[self._kept] = best.shares, best.reduced_costs
        return Relaxed(shares, value * program.unit, of_blocks, prices)

    def _begin(self, free: Mask, most_memory: float, needed: NDArray[np.intp]) -> StepProgram:
        """Return the program of cycles that are likely to bind.

        Playing takes as long as reaching the cycles by solving takes for one of them: with a basis
        to begin with, programs of 485 and 928 tables on 128 GPUs are solved in 0.07 and 0.13 s, not
        0.27 and 0.38.
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
        z = self._step.features(shares)
        cycle = self._step.graph.heaviest(z)
        return [OptionCycle(cycle)] if cycle.weight(z) > than else []

    def _of_blocks(self, program: StepProgram, first: BestShares) -> tuple[BestShares, Seconds]:
        """Return the best shares found where ranks send whole blocks, and the step then."""
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
    """A program by how many columns the fullest ranks of groups send, those that may differ."""

    offered: OfferedProgram
    program: StepProgram
    columns: NDArray[np.intp]
    """What the program knows the groups by."""
    means: Array
    """Columns that mean ranks send where fullest ones may send any number, (groups,),"""
    widest: Array
    """those of the widest shard then,"""
    blocks: Array
    """and those of which every shard has a multiple."""

    def at(self, levels: Array) -> Relaxed | None:
        """Return the best shares where fullest ranks send so many, (groups,); None: no room."""
        return self.offered.at_levels(self.program, self.columns, levels)


def _equal(one: OptionCycle, other: OptionCycle) -> bool:
    return np.array_equal(one.cycle.weights, other.cycle.weights)


def by_share(choices: LpOptions, shares: Array) -> Iterator[Sequence[int]]:
    """Yield every table's options (their numbers) that have a share, the largest first."""
    ranked, begins = ranked_by_share(choices, shares)
    for own in np.split(ranked, begins[1:]):
        yield own.tolist()


def ranked_by_share(choices: LpOptions, shares: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return what ``by_share`` yields in one array, and where each table's options begin."""
    used = np.flatnonzero(shares > 0)
    ranked = used[np.lexsort((-shares[used], choices.table[used]))]
    return ranked, np.flatnonzero(is_first(choices.table[ranked]))
