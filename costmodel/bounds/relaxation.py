"""The problem that a bound solves: options of all tables, and the cycles they weigh on.

A linear program over options (``option_program``), as the search has them, too (``sharders.lp``):
the heaviest cycles at a solution bind in the next one, and what fullest ranks send
(``fullest_ranks``). What it says without the options that are not there yet is not a bound;
its prices give one, whatever they are (``OptionProgram.bound``).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from costmodel.base.units import Bytes, Seconds
from costmodel.bounds.feature_index import FeatureIndex, Vector, largest_features
from costmodel.bounds.fullest_ranks import FullestRanks, Places
from costmodel.bounds.op_times import BACKWARD, FORWARD
from costmodel.bounds.option_features import WIDTH, BoundOptions, Part
from costmodel.bounds.option_program import DUAL, PRIMAL, BestShares, OptionProgram, ProgramBasis
from costmodel.bounds.paths import StepGraph, StreamOps, WeightedCycle
from costmodel.bounds.program_cycles import ProgramCycles
from costmodel.domain.plan import ShardingType
from costmodel.memory.rank_memory import rank_rooms
from costmodel.step.groups import GroupKey
from costmodel.step.synthesis import Templates
from costmodel.step.template import Template

Mask = NDArray[np.bool_]
SENT_AT_ONCE = 20
"""Rows of tables that are added of what a group sends at a time: with 3, 200 tables on 64 GPUs took
half as long again."""
MOST_HELD = 4
"""Tables whose largest shard gets a cycle of its own, and ranks with what is given to them: those
that take longest for a mixture."""
FIRST_TIME = WIDTH - len(Part)
"""The first of an option's values that is a part of its lookup."""
MOST_ROUNDS = 150
CYCLE_TOLERANCE = 5e-3
"""Share of a bound by which a cycle may be heavier than it."""
PLAYED = 16
"""Cycles that are looked for before the first solution."""
TOLERANCE = 1e-3
"""Share of a bound that counts as hardly anything to gain."""
NEARLY = 1e-3
"""Share of the heaviest cycle's weight by which others are lighter that parts begin with."""
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class _Cycle:
    """A cycle's weight, and what some options add to it beside their features."""

    cycle: WeightedCycle
    options: Places = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    """Numbers of options of the whole problem,"""
    seconds: Vector = field(default_factory=lambda: np.zeros(0))
    """and what each of them adds."""


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    """What was found of a part of the plans, to begin with in parts of it."""

    bound: Seconds = 0.0
    shares: Vector | None = None
    """Shares of the whole problem's options that attain it."""
    own: WeightedCycle | None = None
    """A cycle with all lookups, for the ranks that hold the largest shards."""
    cycles: tuple[_Cycle, ...] = ()
    """Those that bind."""
    likely: Mask | None = None
    """Which of the whole problem's options have paid, or may be expected to."""
    sent: frozenset[tuple[int, int, int]] = frozenset()
    """Rows of what tables send that solutions have needed (``FullestRanks.known``)."""
    basis: ProgramBasis | None = None
    """That of the last solution."""


@dataclass(eq=False)
class Relaxation:
    """The plans that have some groups, and lack others."""

    templates: Templates
    options: BoundOptions
    """What tables can choose from in these plans."""
    index: FeatureIndex
    """Where features of any plan are."""
    room: Bytes
    """What all ranks have for tables."""
    count: int
    """How many options the whole problem has."""
    present: frozenset[GroupKey] = frozenset()
    """Groups that all of these plans have."""
    _own: WeightedCycle | None = field(default=None, init=False)
    """A cycle with all lookups, for the ranks that hold the largest shards."""

    @classmethod
    def of(cls, templates: Templates, options: BoundOptions) -> "Relaxation | None":
        """Return the problem of all plans; None where a table has no shard that fits on a rank."""
        rooms = rank_rooms(templates.workload, templates.topology)
        some = options.some(options.largest <= max(rooms) * (1.0 + _ROUNDING))
        if some is None:
            return None
        index = FeatureIndex(some.signature(), fullest=True)
        return cls(templates, some, index, max(1.0, sum(rooms)), len(options.table))

    def restricted(
        self, present: frozenset[GroupKey], absent: frozenset[GroupKey]
    ) -> "Relaxation | None":
        """Return the problem of the plans with some groups, without others; None: there are none.

        Not that any table has to be in the groups that are there: only what they cost counts.
        """
        lacking = np.array([group in absent for group, _ in self.options.kernels])
        some = self.options.some(~lacking[self.options.kernel])
        return None if some is None else replace(self, options=some, present=present)

    @property
    def has_room(self) -> bool:
        """Whether all tables fit into all memory together, each in its smallest option."""
        return float(np.minimum.reduceat(self._memory, self._starts).sum()) <= 1.0 + _ROUNDING

    def maximum(self, parent: Solved, time_left: Callable[[], Seconds]) -> Solved:
        """Return the largest bound that weights of cycles give, and shares that attain it.

        Parameters
        ----------
        parent
            What was found of plans that these are some of.
        time_left
            Asked between solutions, which take no longer than that; at 0 the bound so far is taken.

        """
        likely = np.zeros(len(self.options.number), dtype=bool)
        likely[self._best(self._memory)] = True
        shares = likely.astype(np.float64)
        if parent.shares is not None and parent.likely is not None:
            before = parent.shares[self.options.number]
            left = np.bincount(self.options.table, before)[self.options.table]
            shares = np.where(left > 0, before / np.where(left > 0, left, 1.0), shares)
            likely |= parent.likely[self.options.number]
        self._fullest.expect(parent.sent)
        z = self.features(shares)
        found = [*self._program.heaviest(z), self._graph.host()]
        least = 0.0
        if not parent.cycles:
            found.append(self._graph.direct(z))
            played = list(self._play(found[-1], likely))
            found += played
            least = self._mean_bound(played)
        self._note_own((*filter(None, [parent.own]), *found), z)
        cycles = [*parent.cycles, *(_Cycle(each) for each in found), *self._held(shares)]
        unit = max(each.cycle.weight(z) for each in cycles)
        solved = self._solved(cycles, likely, unit, parent.basis, time_left)
        return replace(solved, bound=max(least, solved.bound))

    def _solved(
        self,
        cycles: list["_Cycle"],
        likely: Mask,
        unit: Seconds,
        basis: ProgramBasis | None,
        time_left: Callable[[], Seconds],
    ) -> Solved:
        """Let options join, and then cycles and tables bind, until none changes the solution."""
        program = OptionProgram(
            self.options.table, self._memory, 1.0 + _ROUNDING, self._fullest.count
        )
        self._fullest.begin(program)
        bests = [self._best(self._add(program, each, unit)) for each in cycles]
        likely[np.concatenate(bests)] = True
        program.join(np.flatnonzero(likely))
        if basis is None:
            means, tables = self._fullest.num_rows
            others = [False] * (len(cycles) - 1)
            program.begin_with(
                bests[0], [False] + [True] * means + [False] * tables + [True] + others
            )
        else:
            program.begin_from(basis, self.options.number)
        best, strategy, free = 0.0, DUAL, np.ones(len(likely), dtype=bool)
        shares = likely / np.bincount(self.options.table, likely)[self.options.table]
        for _ in range(MOST_ROUNDS):
            solution = program.run(strategy, time_left())
            if solution is None:
                break
            shares = solution.shares
            best = max(best, unit * program.bound(free))
            paying, heavier = program.paying(solution, free, TOLERANCE), list[_Cycle]()
            if len(paying):
                likely[paying] = True
                program.join(paying)
                strategy = PRIMAL
            else:
                heavier = self._heavier(shares, unit * solution.value * (1 + CYCLE_TOLERANCE))
                self._bind(program, solution, heavier, unit)
                cycles += heavier
                strategy = DUAL
            if time_left() <= 0 or not (len(paying) or heavier):
                break
        of_all, joined = np.zeros(self.count), np.zeros(self.count, dtype=bool)
        of_all[self.options.number], joined[self.options.number] = shares, likely
        tight = tuple(self._tight(cycles, shares))
        return Solved(
            best,
            of_all,
            self._own,
            tight,
            joined,
            self._fullest.known,
            program.basis(self.options.number, self.count),
        )

    def _bind(
        self,
        program: OptionProgram,
        solution: BestShares,
        heavier: Sequence["_Cycle"],
        unit: Seconds,
    ) -> None:
        """Let cycles bind that are heavier than a solution's value, and what fullest ranks send."""
        if heavier:
            self._fullest.extend(program, solution, SENT_AT_ONCE)
        for each in heavier:
            self._add(program, each, unit)

    def _mean_bound(self, cycles: Sequence[WeightedCycle]) -> Seconds:
        """Return the bound that some cycles give if each has the same weight."""
        added = [self._weights(_Cycle(c)) + self._fullest.evenly(c.weights) for c in cycles]
        weights = np.mean(added, axis=0)
        constant = float(np.mean([cycle.constant for cycle in cycles]))
        return constant + float(weights[self._best(weights)].sum())

    def _play(self, first: WeightedCycle, likely: Mask) -> Iterator[WeightedCycle]:
        """Yield cycles that are likely to bind: fictitious play of tables and cycles (Brown, 1951).

        Every table takes its best option for all cycles played so far, and the heaviest cycle for
        all options taken so far comes next. What is taken is likely.
        """
        total, taken = np.zeros(len(likely)), np.zeros(len(likely))
        cycle = first
        for number in range(1, PLAYED + 1):
            total += self._weights(_Cycle(cycle)) + self._fullest.evenly(cycle.weights)
            best = self._best(total)
            likely[best] = True
            taken[best] += 1.0
            cycle = self._graph.heaviest(self.features(taken / number))
            yield cycle

    def features(self, shares: Vector) -> Vector:
        """Return a plan's features for shares of options."""
        values = (self.options.values * shares[:, None]).ravel()
        z = np.bincount(self._places.ravel(), values, self.index.size).astype(np.float64)
        z[self.index.fullest] = self._fullest.sent(shares)
        return z

    def shares(self, solved: Solved) -> dict[GroupKey, float]:
        """Return the share of tables that is in each group."""
        if solved.shares is None:
            return {}
        return self.index.shares(self.features(solved.shares[self.options.number]))

    def _tight(self, cycles: Sequence["_Cycle"], shares: Vector) -> Iterator["_Cycle"]:
        """Yield the cycles that are about as heavy as any for some shares."""
        z = self.features(shares)
        weights = [self._weight(each, z, shares) for each in cycles]
        for each, weight in zip(cycles, weights, strict=True):
            if weight >= max(weights) * (1 - NEARLY):
                yield each

    def _heavier(self, shares: Vector, than: float) -> list["_Cycle"]:
        """Return cycles that are heavier than something for given shares of options.

        Where no group is decided yet, those of streams alone come first, as host threads have
        little to say there; parts of the plans begin with those that had weight.
        """
        z = self.features(shares)
        found: list[WeightedCycle] = []
        if not self.present:
            found = [each for each in (self._graph.heaviest(z),) if each.weight(z) > than]
        if not found:
            found = [e for e in self._program.heaviest(z, than) if e.weight(z) > than]
        self._note_own(found, z)
        held = (each for each in self._held(shares) if self._weight(each, z, shares) > than)
        return [*(_Cycle(each) for each in found), *held]

    def _note_own(self, cycles: Iterable[WeightedCycle], z: Vector) -> None:
        """Let the cycle with all lookups be that which weighs most on every rank without them."""
        owns = [each for each in (self._own, *cycles) if each is not None and each.lookups]
        self._own = max(owns, key=lambda cycle: cycle.floor + float(cycle.common @ z), default=None)

    def _held(self, shares: Vector) -> Iterator["_Cycle"]:
        """Yield cycles of the ranks that hold the largest shards, with these lookups alone.

        Of single tables, and of tables that are given to one rank; and what all ranks hold.
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

    def _holding(self, alike: WeightedCycle, held: Vector) -> "_Cycle":
        used = np.flatnonzero(held)
        return _Cycle(alike, self.options.number[used], held[used])

    def _seconds_held(self, shares: Vector) -> Vector:
        """Return how long lookups take on the one rank that holds an option, or on all; else 0.

        At least, where lookups of the same kernel on a rank are bounded by what bounds them for
        these shares.
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

    def _best(self, weights: Vector) -> Places:
        """Return the option of every table that weighs least."""
        order = np.lexsort((weights, self.options.table))
        best: Places = order[self._starts]
        return best

    def _weight(self, cycle: "_Cycle", z: Vector, shares: Vector) -> Seconds:
        """Return a cycle's weight for shares of options, and their features."""
        return cycle.cycle.weight(z) + float(self._own_seconds(cycle) @ shares)

    def _own_seconds(self, cycle: "_Cycle") -> Vector:
        """Return what every option adds to a cycle beside its features."""
        seconds = np.zeros(self.count)
        seconds[cycle.options] = cycle.seconds
        own: Vector = seconds[self.options.number]
        return own

    def _weights(self, cycle: "_Cycle") -> Vector:
        """Return what every option adds to a cycle, but for what fullest ranks send."""
        weights = cycle.cycle.weights[self._places]
        added: Vector = (self.options.values * weights).sum(axis=1)
        return added + self._own_seconds(cycle)

    def _add(self, program: OptionProgram, cycle: "_Cycle", unit: Seconds) -> Vector:
        """Let a cycle bind; return what every option adds to it (``_weights``)."""
        sent, weights = self._fullest.coefficients(cycle.cycle.weights), self._weights(cycle)
        others = np.concatenate(([1.0], -sent / unit))
        constant = cycle.cycle.constant / unit
        program.add_row(constant, -weights / unit, np.arange(len(others)), others, cycle)
        return weights

    @cached_property
    def _starts(self) -> NDArray[np.intp]:
        """First option of every table."""
        return np.flatnonzero(np.diff(self.options.table, prepend=-1))

    @cached_property
    def _memory(self) -> Vector:
        """Bytes of every option, as a share of the room."""
        return self.options.memory / self.room

    @cached_property
    def _places(self) -> NDArray[np.intp]:
        """Where every option's values are in z."""
        return self.index.places(self.options.kernels)[self.options.kernel]

    @cached_property
    def _is_everywhere(self) -> NDArray[np.bool_]:
        """Which options all ranks hold."""
        kinds = [group.sharding_type for group, _ in self.options.kernels]
        replicated = np.array([kind is ShardingType.DATA_PARALLEL for kind in kinds], dtype=bool)
        return replicated[self.options.kernel]

    @cached_property
    def _fullest(self) -> FullestRanks:
        """What fullest ranks send; tables that are given to one rank send from it together."""
        options = self.options
        holder, first = np.arange(options.table[-1] + 1), options.rank[self._starts]
        holder[first >= 0] = len(holder) + first[first >= 0]
        kept = np.arange(len(options.table))
        return FullestRanks(self.index, options, kept, holder=holder)

    @cached_property
    def _template(self) -> Template:
        return self.templates.of(self.options.signature())

    @cached_property
    def _largest(self) -> Vector:
        options = self.options
        size = self.index.size
        largest = largest_features(options.table, self._places, options.values, size)
        largest[self.index.fullest] = self._fullest.most
        return largest

    @cached_property
    def _graph(self) -> StepGraph:
        streams = StreamOps(self._template)
        return StepGraph(streams, self.index, self._largest, self.present)

    @cached_property
    def _program(self) -> ProgramCycles:
        busy = self.options.busy_shares(self.present)
        return ProgramCycles(self._template, self.index, self._largest, self.present, busy)
