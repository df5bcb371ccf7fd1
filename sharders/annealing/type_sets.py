"""Plans to anneal from: of every set of sharding types that is worth a try.

Every sharding type in use costs all ranks a set of collectives, and which types a plan has decides
more than anything else how long its step is; moves of few tables hardly change it. So a search that
may take all types ends in whatever set its start had: on 200 uneven tables and 32 A100s, ten
seconds of such a search ended 17.6 to 17.9 ms, by seed, and half a second of one that may take only
the right two or three types at 17.7; on 500 tables and 64 H200s at 34.3 to 34.9, and at 34.1 after
1.3 seconds.

The linear program over the step (``programs``) ranks sets within some hundredths of a second each:
the best sets' neighbours, of one type more or less, or of another one alone, are ranked, and what
is best has plans made, one of the program's options and one of a greedy rule.

The first set and its neighbours come before usual rules: their plans have few sharding groups, and
a step has to be written for every new set of these.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import inf
from random import Random

import numpy as np
from numpy.typing import NDArray

from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingType
from costmodel.step.cuts import KINDS, TYPES
from sharders.annealing.kind_types import KindTypes
from sharders.annealing.levels import LevelSearch
from sharders.annealing.programs import COARSE, EVERY_TYPE, WHOLE, Programs, SolvedSet
from sharders.annealing.type_changes import TypeChanges
from sharders.annealing.type_options import TypeOptions
from sharders.engine.search_engine import Engine
from sharders.greedy.tuning import (
    NEUTRAL,
    Chain,
    Found,
    Parameters,
    Tuning,
    kernels_apart,
    threshold_rules,
)
from sharders.problem.packing import PackingSearch

FIRST = (ShardingType.DATA_PARALLEL, ShardingType.COLUMN_WISE, ShardingType.TABLE_ROW_WISE)
"""The set that is tried first: replicas of what is small, splits of what is not."""
FULL = 0.95
"""Share of all memory. Where a program's options take more of it, memory decides more than time:
the search begins with the first plans that fit, of the program's options or of rules, not with the
best ones, and solves for levels later. There the first set may also get whole tables, if these
lower its value (``CLIMBED``). While all this began at 0.85, 1, 2 and 4 CPU seconds ended 0.7, 0.8
and 0.6% higher where options take 0.85 to 0.95 (74 runs, standard errors 0.4, 0.3, 0.2%); 18% at
182 tables of several kinds on 128 GPUs."""
BEYOND = 1.3
"""Times what a program says that the best plan takes, from which on the program says little, and
rules come before the first set's neighbours: so one CPU second ends 1.8% lower in the mean of 14
problems where it does, and four as low. Where memory is full, neighbours are then left for later.
While rules, levels and runs came between them wherever memory is full, 2 and 3 CPU seconds ended
0.4 and 0.3% higher there (32 problems, 82 runs, standard errors 0.2%; 3% at 918 tables on 64 GPUs,
whose best set is next to the first), one and four 0.2% (0.1 and 0.2%).
"""
FAR = 1.15
"""Times what a program says that the best plan takes, from which on a run with all types comes
before other sets. With it, 0.6 and 0.8 CPU seconds end 0.9 and 0.6% lower in the mean of the 12 of
150 problems where it does (48 runs, standard errors 0.4, 0.3%), one and two as low."""
NO_ROOM = 2.0
"""The plan of a set counts for at most so many times what the set's program says, and for just that
where no plan fits."""
CLIMBED = 0.97
"""A set is worth going on from if its program says less than this times what that of the best set
before it said: then the set's own neighbours are looked at next."""
MADE_AT_ONCE = 2
"""Neighbours' plans that are made after one another, without a run. While runs came only where one
was the best so far, 1, 1.3, 1.6 and 2 CPU seconds ended 0.2% higher in the mean of 48 problems of
68 to 963 tables on 128 GPUs (96 runs, standard errors 0.1%; after one 34 are lower now, 8 higher),
2.5 as low, as did 58 others."""
EXPANDED = 1.03
"""Times the least value of a set's linear program, up to which neighbours are tried."""
BEHIND = 1.06
"""Times that value, up to which plans are made."""
BEST_RULES = 3
"""The best of the usual rules, which are tried of every set besides a few others. While 300
rules were tuned before, and runs begun from six of their plans, one CPU second ended 0.3%
higher and two to five as high in the mean of 43 problems (63 runs, standard errors 0.1 to
0.2%)."""
BEST_CHANGES = 3
"""Changes of the best one that are tried then."""
PACKING_MOVES = 50
"""What packing whole tables may take at first, in moves of annealing for each table."""
MAX_CHANGED = 3
"""Plans that contend, of those with all tables of a type sharded by others
(``annealing.type_changes``)."""
CHANGED_BEHIND = 1.02
"""Times the step that they began with, up to which they do."""
GREEDY, PROGRAM, BY_LEVELS = range(3)
"""Origins of plans: of greedy rules, or anything else, of a program's options, and of its best
levels' (``annealing.levels``)."""
_SPLITS: Sequence[Parameters] = (COARSE, NEUTRAL, {**NEUTRAL, "split_above": 0.1})
RULES: Sequence[Parameters] = (*_SPLITS, *map(kernels_apart, _SPLITS))
"""What is tried of every set: hardly any splits, and ever more, with lookup kernels on the same
ranks or apart. Those apart are for all problems, as every sharding type has a kernel of its own."""


def bits(types: Iterable[ShardingType]) -> int:
    """Return the bits of some sharding types."""
    return sum(1 << KINDS[kind] for kind in types)


@dataclass(slots=True)
class Start:
    """Plans of a set of sharding types, not balanced yet."""

    types: int
    """Their bits."""
    plans: list[Found]
    """Those that take more memory than there is have an infinite time."""
    origin: int = GREEDY
    """Where the last one comes from; the one before it comes from the next."""
    is_rough: bool = False
    """Whether better plans come soon, which runs are to begin from."""


class TypeSets:
    """Makes the first plans of sets of sharding types, the most promising sets first."""

    def __init__(
        self,
        engine: Engine,
        tuning: Tuning,
        rng: Random,
        is_over: Callable[[], bool],
    ) -> None:
        """Look at no set yet; ``is_over`` is asked between plans, whether the budget is spent."""
        problem = engine.problem
        self.engine, self.tuning, self.rng = engine, tuning, rng
        self._is_over = is_over
        self._filled = 0
        self._levelled: set[int] = set()
        """Sets that were searched by levels (``annealing.levels``)."""
        self._of_levels = inf
        """The shortest step of their plans."""
        options = TypeOptions(engine)
        self.kinds, self.changes = KindTypes(engine, options), TypeChanges(engine, options)
        self.programs = Programs(engine)
        self._said: dict[int, SolvedSet | None] = {}
        """What a set's program says at first sight, and then for the best limit, by its types, of
        every set that was looked at; None: there is no room."""
        self._packings: dict[int, PackingSearch] = {}
        """Searches for plans that fit, of sets whose own plans do not."""
        self._solved: set[int] = set()
        """Sets whose programs were solved for the best limit."""
        self.has_room: dict[int, bool] = {}
        """Whether there were plans of these types alone, of every set that had plans made.

        Where there were none, the program promises more than memory holds, and others are not
        judged by that: at 416 tables on 128 GPUs, 7.4 ms, where the plan then took 15.4, kept the
        set out whose plans take 10.5, for which 8.8 were said; with it ten CPU seconds end 10.60
        where they ended 10.99 (another seed 10.54 both times)."""
        self._hopeless: set[int] = set()
        """Sets whose programs promise no shorter step than was found by then."""
        self.explored = self._explored()
        """Plans of one set after another, the most promising first."""
        types_of = [{option.sharding_type for option in own} for own in problem.options.values()]
        self.offered = bits(frozenset().union(*types_of))
        self.forced = bits(frozenset().union(*(own for own in types_of if len(own) == 1)))
        """Types of tables that allow no other: every plan has them."""
        free = self.offered & ~self.forced
        self.singles = [1 << n for n in range(len(TYPES)) if free >> n & 1]

    @property
    def evaluated(self) -> int:
        """Return how many plans were made."""
        others = self.tuning, self.programs, self.kinds, self.changes
        return self._filled + sum(each.evaluated for each in others)

    def rules_fit(self) -> bool:
        """Return whether the plan of any of the first rules fits in memory."""
        return next(self._of_rules(RULES), None) is not None

    def at_once(self, best: Callable[[], Seconds]) -> Iterator[Start | None]:
        """Yield plans of some greedy rules, of the first set's program, and of usual rules.

        Before programs comes a plan of one type for each kind, where kinds are several: one second
        ends 0.5% lower so in the mean of 23 such problems, and 14% off at worst, not 23.

        None: it is time to run from what there is, as the next ones take long; twice, with all
        types at last, where the first set's program says far less than its plans take. ``best``
        returns the best step found so far.
        """
        for start in self._of_rules(RULES):
            yield replace(start, is_rough=True)
        if not self.kinds.is_one_kind:
            yield self._of_kind_types(self.kinds.first())
        first = next(self.explored)
        yield first
        yield None
        if best() > FAR * self.value(first.types):
            yield None
        yield from self._of_one_type()
        is_told = best() <= BEYOND * self.value(first.types)
        if is_told:
            yield from self._climbed(best)
            yield None
        yield from self._of_rules(threshold_rules())
        yield None
        if not is_told and self._is_roomy(first.types):
            yield from self._climbed(best)
            yield None
        yield from self._of_kinds()

    def _climbed(self, best: Callable[[], Seconds]) -> Iterator[Start | None]:
        """Yield plans of the first set's best neighbour, of that one's if it is far better, and on.

        None: the last plan is the best so far, and a run from it may end far lower before others
        are found, or some were made since the last run. At 53 tables on 128 GPUs the first set's
        plans take 206 ms, and those of the third such neighbour 149; three CPU seconds end 9% lower
        with it, ten 3%.
        """
        before, num_made = inf, 0
        while self._best < CLIMBED * before:
            before = self._best
            for start in self.explored:
                least = best()
                yield start
                num_made += 1
                if best() < least or num_made % MADE_AT_ONCE == 0:
                    yield None
                if start.plans and start.types in self.has_room:
                    break

    def _of_one_type(self) -> Iterator[Start]:
        """Yield the best plan of one type alone, where tables have it; none: there is no room.

        Where launches cost most it is often the best of all. Half a CPU second ends 1.6% lower in
        the mean of 24 such problems (standard error 1.1%), at the 90th percentile 4.7% off instead
        of 18, and others as low; rules that only prefer a type left whole tables beside it. Tables
        of several kinds have several lookup kernels, which some rules keep apart: with these 64
        problems end as low in the mean, but three of them 10 to 15% lower. Whole tables, which take
        least memory, are packed if rules find no room for them: 32 tables on 8 GPUs end 0.3 CPU
        seconds 32% lower so.
        """
        rules = [COARSE] if self.kinds.is_one_kind else RULES
        roomy: list[Start] = []
        for single in self.singles:
            types = single | self.forced
            best = self._best_of(types, rules)
            found = best[0] if best else None
            if found is None and single == WHOLE:
                num_tables = len(self.engine.problem.workload.tables)
                found = self.packed(types, PACKING_MOVES * num_tables)
            if found is not None:
                roomy.append(Start(types, [found]))
        if roomy:
            yield min(roomy, key=lambda start: start.plans[0][0])

    def _of_rules(self, rules: Iterable[Parameters]) -> Iterator[Start]:
        """Yield the best plan of some rules and those before."""
        self.engine.offer(EVERY_TYPE)
        self.tuning.begin(rules)
        for time, choices in self.tuning.plans()[:1]:
            yield Start(self.engine.types_of(choices), [(time, choices)])

    def _explored(self) -> Iterator[Start]:
        """Yield plans of sets, the best first; and one of each when its value was found.

        That one says what the value does not: at 365 tables on 128 GPUs the eighth set looked at
        begins 8% lower than those tried before it, though its value was behind. With these plans
        ten CPU seconds end 0.18% lower in the mean of 54 problems of 32 to 128 GPUs (standard error
        0.07%, 124 runs: 37 better, 14 worse), 2% at those 365 tables; one and three seconds end as
        low.

        So the first set's neighbours are looked at before it has more plans than that, or runs,
        unless its plans take most of the memory: half a CPU second ends 2.1% lower in the mean of
        54 problems (standard error 0.7%, 108 runs), one to three as low, or 0.1%.

        A set whose value is far behind the best one's of those that have room has no more plans,
        and one whose program has no room only while none has; but the first one does at last.
        Neighbours of sets whose values are behind are not looked at.
        """
        first = self._first()
        heap: list[tuple[Seconds, int]] = []
        start = self._at_sight(first) if self._is_roomy(first) else self.start_of(first)
        yield self._pushed(start, heap)
        yield from self._neighbours(first, heap)
        while heap:
            _, types = heappop(heap)
            value = self.value(types)
            if value > BEHIND * self._best or self._best < value == inf:
                continue
            if types not in self.has_room:
                yield self.start_of(types)
            if self.value(types) <= EXPANDED * self._best:
                yield from self._neighbours(types, heap)
        if first not in self.has_room:
            yield self.start_of(first)

    def _is_roomy(self, types: int) -> bool:
        """Return whether the options of a set's program leave enough memory free."""
        said = self._said[types]
        return said is not None and said.memory <= FULL

    def _neighbours(self, types: int, heap: list[tuple[Seconds, int]]) -> Iterator[Start]:
        """Yield a plan of each neighbour that was not looked at yet, and let those be next.

        One that promises less than the set itself comes at once, others when all programs are
        solved, least values first. While each came when its program was solved, by the order of
        types, 30 problems of 300 to 990 tables on 32 to 128 GPUs ended 1.5 and 2 CPU seconds 0.4
        and 0.3% higher (60 runs, standard errors 0.3 and 0.2%; 4% where the last type was the one
        to add), one and three as high; 31 of 40 to 500 tables as high at any time.
        """
        others = [types ^ single for single in self.singles]
        if types & ~self.forced in self.singles:  # where launches decide, two cost far more
            others += [single | self.forced for single in self.singles]
        new = {other for other in others if other != 0 and other not in self._said}
        later: list[int] = []
        for other in sorted(new, key=self._num_options):
            if self._is_over():
                return
            if self.value(other) < self.value(types):
                yield self._pushed(self._at_sight(other), heap)
            else:
                later.append(other)
        for other in sorted(later, key=self.value):
            yield self._pushed(self._at_sight(other), heap)

    def _pushed(self, start: Start, heap: list[tuple[Seconds, int]]) -> Start:
        """Let a set be next by the mean of what its program says and of the plan's step.

        The program says too little of what no plan reaches, and the plan as it is placed too much:
        the geometric mean of both. By what programs say alone, 27 problems of 126 to 963 tables on
        128 GPUs ended three, four and five CPU seconds 0.4, 0.4 and 0.3% higher (54 runs, standard
        errors 0.3, 0.2, 0.2%) and 77 others three and four 0.07 and 0.03% (118 runs, 0.03%), one
        and two as high; by the plan's step alone, 58 problems ended as high.
        """
        value = self.value(start.types)
        placed = min((time for time, _ in start.plans), default=inf)
        heappush(heap, ((value * min(placed, NO_ROOM * value)) ** 0.5, start.types))
        return start

    def _num_options(self, types: int) -> tuple[int, int]:
        """Return how many options a set has: the fewer, the sooner its program is solved."""
        kinds = np.asarray(self.engine.search.tables.kind)
        return int((types >> kinds & 1).sum()), types

    def _at_sight(self, types: int) -> Start:
        """Return a plan of what a set's program says at first sight; none: there is no room."""
        said = self._said[types]
        if said is None:
            return Start(types, [], PROGRAM)
        found = self.programs.plan(types, said)
        return Start(types, [found] if found[0] < inf else [], PROGRAM)

    def _first(self) -> int:
        """Return the set that is tried first.

        With whole tables, which take least memory, if there is no room without, or hardly any and
        they promise far more. At 900 tables on 128 GPUs, in nine tenths of the memory, one
        second ends 4.5% lower so.
        """
        first = bits(FIRST) & self.offered | self.forced or self.offered
        value = self.value(first)
        whole = first | WHOLE & self.offered
        if self._is_roomy(first) or whole == first:
            return first
        return whole if self.value(whole) < CLIMBED * value or value == inf else first

    def _of_kinds(self) -> Iterator[Start]:
        """Yield the best plans of one type for every kind of tables; none where all are of one.

        Before other sets: while plans of kinds were timed in turn with these, 64 problems of
        several kinds ended 0.5% higher after 1.5 CPU seconds (standard error 0.3%; 12% off at
        worst, not 5), and 0.2 and 0.1% after one and two. Without them, 90 tables on 64 GPUs end 5%
        higher after six (two seeds), and 42 other runs as low.
        """
        for found in () if self.kinds.is_one_kind else self.kinds.descents():
            if self._is_over():
                return
            if found is not None:
                yield self._of_kind_types(found)

    def _of_kind_types(self, found: Found) -> Start:
        """Return a plan of types for kinds to start from, if there is room for it."""
        return Start(self.engine.types_of(found[1]), [found] if found[0] < inf else [])

    def changed(self, found: Found, is_over: Callable[[], bool]) -> Iterator[Start]:
        """Yield plans with all tables of a type sharded by others, the best ones, hardly worse."""
        seen: set[int] = set()
        for time, plan in self.changes.descend(found[1], is_over)[:MAX_CHANGED]:
            types = self.engine.types_of(plan)
            if time < found[0] * CHANGED_BEHIND and types not in seen:
                seen.add(types)
                yield Start(types, [(time, plan)])

    def beside(self, sets: Iterable[int], best: Seconds) -> Start | None:
        """Return plans of a set next to some others, the first that has none yet; None: all have.

        No plans where its program promises no shorter step than the best one so far. Where
        programs promise far too much they say little of which sets are good: at 72 tables on 64
        GPUs 8.4 ms of a set whose plans take 11.9, and 11.2 of one whose plans take 11.4.
        """
        for types in sets:
            for other in self._beside(types):
                if other in self.has_room or other in self._hopeless:
                    continue
                if self.value(other) < best:
                    return self.start_of(other)
                self._hopeless.add(other)
                return Start(other, [])
        return None

    def _beside(self, types: int) -> Iterator[int]:
        """Yield sets of a type less, of one instead of another, and of one more."""
        own = [single for single in self.singles if single & types]
        others = [single for single in self.singles if not single & types]
        yield from (types ^ single for single in own if types != single)
        yield from (types ^ single ^ other for single in own for other in others)
        yield from (types ^ other for other in others)

    @property
    def _best(self) -> Seconds:
        """Return the least value of sets that have room; of any that may, while none has yet."""
        roomy = [types for types in self._said if self.has_room.get(types)]
        untried = self._said.keys() - self.has_room.keys()
        return min(map(self.value, roomy or untried), default=inf)

    def value(self, types: int) -> Seconds:
        """Return the value of a set's program; infinite where there is no room.

        It is an estimate until the set has plans made: shards of one size take a third of the time
        of all sizes, and most sets are never worth a plan. While all sizes were tried of the first
        set at once, half a CPU second and one ended 0.6% higher in the mean of 67 problems (87
        runs, standard error 0.3%), three and four as high.
        """
        if types not in self._said:
            self._said[types] = self.programs.estimate(types)
        said = self._said[types]
        return inf if said is None else said.expected

    def prices(self, types: int) -> NDArray[np.float64] | None:
        """Return the prices of options in a set's program (``Relaxed``); None: there is none."""
        said = self._said.get(types)
        return None if said is None else said.prices

    def _solve(self, types: int) -> SolvedSet | None:
        """Return what a set's program says for the best limit."""
        if types not in self._solved:
            self._solved.add(types)
            self._said[types] = self.programs.solve(types)
        return self._said[types]

    def start_of(self, types: int) -> Start:
        """Return plans of a set: of its program's options, and of greedy rules."""
        plans: list[Found] = []
        solved = self._solve(types)
        if solved is not None:
            # where memory decides, levels come later, if the best plan is of these types
            by_levels = self._by_levels(types, solved) if self._is_roomy(types) else None
            plans.append(by_levels or self.programs.plan(types, solved, may_overfill=True))
        # the first set's plan is annealed before usual rules are tried
        usual = self.tuning.rules(BEST_RULES) if self.has_room else threshold_rules()
        greedy = self._greedy(types, list(usual))
        plans += [] if greedy is None else [greedy]
        self.has_room[types] = any(time < inf for time, _ in plans)
        return Start(types, plans)

    def packed(self, types: int, effort: float) -> Found | None:
        """Return a plan of a set that is packed into memory; None: an effort finds none.

        The next effort goes on from there (``PackingSearch``).
        """
        engine = self.engine
        self._filled += 1
        if types not in self._packings:
            kinds, numbers = np.asarray(engine.search.tables.kind), engine.arrays.number_of
            wanted = (numbers >= 0) & ((types >> kinds[numbers] & 1) > 0)
            self._packings[types] = PackingSearch(engine.problem.groundwork, wanted)
        plan = self._packings[types].go_on(effort, self._is_over)
        if plan is None or not engine.arrays.has(plan):
            return None
        choices = engine.choices_of(plan)
        return engine.start(choices), choices

    def is_worth_packing(self, types: int, best: Seconds) -> bool:
        """Return whether packing may find a set its first plan, and its program says less."""
        packing = self._packings.get(types)
        is_over = self.has_room.get(types) or (packing is not None and packing.is_over)
        return not is_over and self.value(types) < best

    def by_levels(self, types: int) -> Start | None:
        """Return the best plan of a set by levels; None: they were tried, or it has no program."""
        solved = self._said.get(types)
        if solved is None or types in self._levelled:
            return None
        found = self._by_levels(types, solved)
        return Start(types, [] if found is None else [found], BY_LEVELS)

    def _by_levels(self, types: int, solved: SolvedSet) -> Found | None:
        """Return the best plan of a set by levels; None: there is no room."""
        self._levelled.add(types)
        found = LevelSearch(self.programs, types, solved, self._is_over).run(self._of_levels)
        if found is not None:
            self._of_levels = min(self._of_levels, found[0])
        return found

    def _greedy(self, types: int, rules: Sequence[Parameters]) -> Found | None:
        """Return the best plan of some rules, and of changes of the best; None: no room."""
        tried = self._best_of(types, (*RULES, *(each for each in rules if each not in RULES)))
        if tried is None:
            return None
        best, rule = tried
        chain = Chain(rule, best[0])
        for _ in range(BEST_CHANGES):
            child = chain.child(self.rng)
            time = self._time(child)
            chain.tell(child, time)
            if time < best[0]:
                best = time, self.engine.present()
        return best

    def _best_of(self, types: int, rules: Iterable[Parameters]) -> tuple[Found, Parameters] | None:
        """Return the best plan that rules make of some types, and its rule; None: no room."""
        self.engine.offer(types)
        best: tuple[Found, Parameters] | None = None
        for rule in rules:
            time = self._time(rule)
            if time < inf and (best is None or time < best[0][0]):
                best = (time, self.engine.present()), rule
        return best

    def _time(self, rule: Parameters) -> Seconds:
        """Return the step time of a rule's plan; infinite without room, or when time is over."""
        if self._is_over():
            return inf
        self._filled += 1
        return self.engine.fill(rule)
