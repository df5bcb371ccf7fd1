"""The problem that a bound solves: options of all tables, and cycles with weights.

The value of its program (``step_program``) over the options that have joined is not a bound; its
prices give one, whatever they are (``OptionProgram.bound``).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from costmodel.base.arrays import Mask
from costmodel.base.units import Bytes, Seconds
from costmodel.bounds.feature_index import FeatureIndex, Vector
from costmodel.bounds.op_times import BACKWARD, FORWARD
from costmodel.bounds.option_features import WIDTH, BoundOptions, Part
from costmodel.bounds.option_program import ProgramBasis
from costmodel.bounds.paths import WeightedCycle
from costmodel.bounds.step_cycles import StepCycles
from costmodel.bounds.step_program import OptionCycle, RelaxedStep, StepProgram
from costmodel.domain.plan import ShardingType
from costmodel.memory.rank_memory import rank_rooms
from costmodel.step.groups import GroupKey
from costmodel.step.synthesis import Templates

MOST_HELD = 4
"""Number of tables, and of ranks with tables given to them, whose largest shard gets a cycle of its
own: those that take longest for a mixture."""
FIRST_TIME = WIDTH - len(Part)
"""Place of the first of an option's values that is a part of its lookup."""
PLAYED = 16
"""Number of cycles found before the first solution."""
NEARLY = 1e-3
"""Parts begin with cycles that are lighter than the heaviest one by at most this share."""
HALVED = 0.01
"""Share of the bound that a table alone, times its share outside its main group, has to take for
plans to be divided by its group."""
FRUITLESS, GAIN = 25, 1e-4
"""Solutions in a row that do not raise the bound by this share, after which a part is done: of
5,000 tables on 1,024 GPUs two raise it to 578 ms, and 85 more, in 30 seconds, to 579."""
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class PartLimits:
    """Which plans a part is of."""

    present: frozenset[GroupKey] = frozenset()
    """Groups that all of them have."""
    absent: frozenset[GroupKey] = frozenset()
    """Groups that none has."""
    inside: frozenset[tuple[int, GroupKey]] = frozenset()
    """Tables, by their number among options, that are in a group."""
    outside: frozenset[tuple[int, GroupKey]] = frozenset()
    """Tables that are not in a group."""

    def by_group(self, group: GroupKey) -> "tuple[PartLimits, PartLimits]":
        """Return the limits of those that have a group, and of those that lack it."""
        with_it, without = self.present | {group}, self.absent | {group}
        return replace(self, present=with_it), replace(self, absent=without)

    def by_table(self, table: int, group: GroupKey) -> "tuple[PartLimits, PartLimits]":
        """Return the limits of those that have a table in a group, and of the others."""
        pair = frozenset([(table, group)])
        return replace(self, inside=self.inside | pair), replace(self, outside=self.outside | pair)

    def allowed(self, options: BoundOptions) -> Mask:
        """Return which options such plans may have."""
        groups = [group for group, _ in options.kernels]

        def is_in(some: Collection[GroupKey]) -> Mask:
            found: Mask = np.array([each in some for each in groups], dtype=bool)[options.kernel]
            return found

        allowed = ~is_in(self.absent)
        for table, group in self.inside:
            allowed &= (options.table != table) | is_in([group])
        for table, group in self.outside:
            allowed &= (options.table != table) | ~is_in([group])
        return allowed


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    """The solution of one part of the plans, from which parts of it begin."""

    bound: Seconds = 0.0
    shares: Vector | None = None
    """Shares of the whole problem's options that reach the bound."""
    own: WeightedCycle | None = None
    """A cycle with all lookups, for the ranks that hold the largest shards."""
    cycles: tuple[OptionCycle, ...] = ()
    """Cycles that bind."""
    likely: Mask | None = None
    """Options of the whole problem that have paid, or may be expected to."""
    sent: frozenset[tuple[int, int, int]] = frozenset()
    """Rows of tables' amounts that solutions have needed (``FullestRanks.known``)."""
    basis: ProgramBasis | None = None
    """Basis of the last solution."""


@dataclass(eq=False)
class Relaxation:
    """The problem of the plans that have some groups and lack others."""

    templates: Templates
    options: BoundOptions
    """Options that tables can choose from in these plans."""
    index: FeatureIndex
    """Places of features of any plan."""
    room: Bytes
    """Bytes that all ranks have for tables."""
    count: int
    """Number of options of the whole problem."""
    present: frozenset[GroupKey] = frozenset()
    """Groups that all of these plans have."""
    _own: WeightedCycle | None = field(default=None, init=False)
    """A cycle with all lookups, for the ranks that hold the largest shards."""

    @classmethod
    def of(cls, templates: Templates, options: BoundOptions) -> "Relaxation | None":
        """Return the problem of all plans; None if a table has no shard that fits on a rank."""
        rooms = rank_rooms(templates.workload, templates.topology)
        some = options.some(options.largest <= max(rooms) * (1.0 + _ROUNDING))
        if some is None:
            return None
        index = FeatureIndex(some.signature(), fullest=True)
        return cls(templates, some, index, max(1.0, sum(rooms)), len(options.table))

    def restricted(self, limits: PartLimits) -> "Relaxation | None":
        """Return the problem of plans within some limits; None: there are none.

        No table need be in the groups that are there: only their costs count.
        """
        some = self.options.some(limits.allowed(self.options))
        return None if some is None else replace(self, options=some, present=limits.present)

    @property
    def has_room(self) -> bool:
        """Return whether all tables fit into all memory together, each in its smallest option."""
        memory = self._step.memory
        return float(memory[self._step.lightest(memory)].sum()) <= 1.0 + _ROUNDING

    def maximum(self, parent: Solved, time_left: Callable[[], Seconds]) -> Solved:
        """Return the largest bound that weights of cycles give, and shares that reach it.

        Parameters
        ----------
        parent
            The solution of plans that these are some of.
        time_left
            Asked between cycles that come before the first solution, and between solutions, which
            take no longer than that; at 0 the bound so far is taken.

        """
        step, number = self._step, self.options.number
        likely = np.zeros(len(number), dtype=bool)
        likely[step.lightest(step.memory)] = True
        shares = likely.astype(np.float64)
        if parent.shares is not None and parent.likely is not None:
            before = parent.shares[number]
            left = np.bincount(self.options.table, before)[self.options.table]
            shares = np.where(left > 0, before / np.where(left > 0, left, 1.0), shares)
            likely |= parent.likely[number]
        step.fullest.expect(parent.sent)
        z = step.features(shares)
        found = [OptionCycle(each) for each in self._program.heaviest(z)]
        found.append(OptionCycle(step.graph.host()))
        least = 0.0
        if not parent.cycles:
            found.append(OptionCycle(step.graph.direct(z)))
            played = list[OptionCycle]()
            for lightest, cycle in step.play(step.even_weights(found[-1]), PLAYED):
                likely[lightest] = True
                played.append(cycle)
                if time_left() <= 0:
                    break
            found += played
            least = self._mean_bound(played)
        self._note_own((*filter(None, [parent.own]), *(each.cycle for each in found)), z)
        cycles = [*parent.cycles, *found, *self._held(shares)]
        for each in cycles:
            likely[step.lightest(step.even_weights(each))] = True
        program = StepProgram(
            step,
            cycles,
            likely,
            unit=max(each.cycle.weight(z) for each in cycles),
            most_memory=1.0 + _ROUNDING,
            basis=parent.basis,
        )
        fruitless = 0
        for solution in program.solutions(self._heavier, time_left):
            shares = solution.shares
            bound = program.bound()
            fruitless = 0 if bound > least * (1 + GAIN) else fruitless + 1
            least = max(least, bound)
            if time_left() <= 0 or fruitless >= FRUITLESS:
                break
        of_all, joined = np.zeros(self.count), np.zeros(self.count, dtype=bool)
        of_all[number], joined[number] = shares, program.options.joined
        return Solved(
            least,
            of_all,
            self._own,
            tuple(self._tight(program.cycles, shares)),
            joined,
            step.fullest.known,
            program.options.basis(number, self.count),
        )

    def _mean_bound(self, cycles: Sequence[OptionCycle]) -> Seconds:
        """Return the bound that some cycles give, all with the same weight."""
        weights = np.mean([self._step.even_weights(each) for each in cycles], axis=0)
        constant = float(np.mean([each.cycle.constant for each in cycles]))
        return constant + float(weights[self._step.lightest(weights)].sum())

    def shares(self, solved: Solved) -> dict[GroupKey, float]:
        """Return the share of tables in each group."""
        if solved.shares is None:
            return {}
        return self.index.shares(self._step.features(solved.shares[self.options.number]))

    def halved(self, solved: Solved) -> tuple[int, GroupKey] | None:
        """Return the table that a mixture has most of outside its main group, and that group.

        Most by the seconds that its largest shard takes alone; None if that is too little to count.
        """
        if solved.shares is None:
            return None
        options, groups = (
            self.options,
            list(dict.fromkeys(each for each, _ in self.options.kernels)),
        )
        of_kernels = np.array([groups.index(group) for group, _ in options.kernels])
        size = options.table[-1] + 1
        mixed, alone = np.zeros((size, len(groups))), np.zeros(size)
        shares = solved.shares[options.number]
        np.add.at(mixed, (options.table, of_kernels[options.kernel]), shares)
        np.maximum.at(alone, options.table, options.alone)
        elsewhere = (mixed.sum(axis=1) - mixed.max(axis=1)) * alone
        table = int(elsewhere.argmax())
        if elsewhere[table] < HALVED * solved.bound:
            return None
        return table, groups[int(mixed[table].argmax())]

    def _tight(self, cycles: Sequence[OptionCycle], shares: Vector) -> Iterator[OptionCycle]:
        """Yield the cycles that are about as heavy as any at some shares."""
        z = self._step.features(shares)
        weights = [self._step.weight(each, z, shares) for each in cycles]
        for each, weight in zip(cycles, weights, strict=True):
            if weight >= max(weights) * (1 - NEARLY):
                yield each

    def _heavier(self, shares: Vector, than: float) -> list[OptionCycle]:
        """Return cycles heavier than ``than`` at some shares of options.

        Where no group is decided yet, those of streams alone come first, as host threads hardly
        matter there; parts of the plans begin with those that had weight.
        """
        z = self._step.features(shares)
        found: list[WeightedCycle] = []
        if not self.present:
            found = [each for each in (self._step.graph.heaviest(z),) if each.weight(z) > than]
        if not found:
            found = [e for e in self._program.heaviest(z, than) if e.weight(z) > than]
        self._note_own(found, z)
        held = (each for each in self._held(shares) if self._step.weight(each, z, shares) > than)
        return [*(OptionCycle(each) for each in found), *held]

    def _note_own(self, cycles: Iterable[WeightedCycle], z: Vector) -> None:
        """Keep the cycle with all lookups that weighs most on every rank without them."""
        owns = [each for each in (self._own, *cycles) if each is not None and each.lookups]
        self._own = max(owns, key=lambda cycle: cycle.floor + float(cycle.common @ z), default=None)

    def _held(self, shares: Vector) -> Iterator[OptionCycle]:
        """Yield cycles of the ranks that hold the largest shards, with these lookups alone.

        They are of single tables, of tables that are given to one rank, and of tables that all
        ranks hold.
        """
        if self._own is None:
            return
        options, own = self.options, self._own
        alike = replace(own, constant=own.floor, weights=own.common)
        seconds = self._seconds_held(shares)
        everywhere = np.where(self._is_everywhere, seconds, 0.0)
        of_tables = np.bincount(options.table, shares * options.alone)
        for table in np.argsort(-of_tables, kind="stable")[:MOST_HELD].tolist():
            held = np.where(options.table == table, options.alone, everywhere)
            yield self._holding(alike, held)
        is_given = options.rank >= 0
        of_ranks = np.bincount(options.rank[is_given], (shares * seconds)[is_given])
        for rank in np.argsort(-of_ranks, kind="stable")[:MOST_HELD].tolist():
            yield self._holding(alike, np.where(options.rank == rank, seconds, everywhere))

    def _holding(self, alike: WeightedCycle, held: Vector) -> OptionCycle:
        """Return a cycle with the seconds of the options that a rank holds."""
        used = np.flatnonzero(held)
        return OptionCycle(alike, self.options.number[used], held[used])

    def _seconds_held(self, shares: Vector) -> Vector:
        """Return the seconds of lookups of an option's single rank, or of all ranks; else 0.

        They are lower bounds if lookups of the same kernel on a rank are bounded as at these
        shares.
        """
        options, world = self.options, self.templates.topology.world_size
        times = options.values[:, FIRST_TIME : FIRST_TIME + Part.HERE]
        held = np.flatnonzero(self._is_everywhere | (options.rank >= 0))
        times = times[held] * np.where(self._is_everywhere[held], 1, world)[:, None]
        keys = options.rank[held] * len(options.kernels) + options.kernel[held]
        which = np.unique(keys, return_inverse=True)[1]
        totals = np.zeros((which.max(initial=-1) + 1, Part.HERE))
        np.add.at(totals, which, times * shares[held][:, None])
        seconds = np.zeros(len(options.number))
        every = np.arange(len(held))
        for rivals, other in ((FORWARD, Part.FORWARD_OTHER), (BACKWARD, Part.BACKWARD_OTHER)):
            longest = rivals[0] + totals[:, list(rivals)].argmax(axis=1)
            seconds[held] += times[every, longest[which]] + times[:, other]
        return seconds

    @cached_property
    def _is_everywhere(self) -> NDArray[np.bool_]:
        """Which options all ranks hold."""
        kinds = [group.sharding_type for group, _ in self.options.kernels]
        replicated = np.array([kind is ShardingType.DATA_PARALLEL for kind in kinds], dtype=bool)
        return replicated[self.options.kernel]

    @cached_property
    def _step(self) -> RelaxedStep:
        """Return the step of the sets' options; memory is in shares of the room."""
        options = self.options
        template, memory = self.templates.of(options.signature()), options.memory / self.room
        return RelaxedStep(template, options, self.index, memory, self.present)

    @cached_property
    def _program(self) -> StepCycles:
        step, busy = self._step, self.options.busy_shares(self.present)
        return StepCycles(step.template, self.index, step.largest, self.present, busy)
