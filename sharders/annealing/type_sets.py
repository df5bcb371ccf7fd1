"""Plans to anneal from, of every set of sharding types that is worth a try.

Every sharding type in use costs all ranks a set of collectives, and which types a plan has decides
more than anything else how long its step is; moves of few tables hardly change it. A search that
may take all types ends in whatever set its start had.

The linear program over the step (``programs``) ranks sets within some hundredths of a second each.
Neighbours of the best sets, with one type more, less, or another one, are ranked, and plans are
made of the best: one of the program's options and one of a greedy rule.

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
"""The set of types that is tried first: replicas of small tables, splits of the others."""
FULL = 0.95
"""Share of all memory above which memory decides more than time: the search then begins with the
first plans that fit, not with the best ones, and solves for levels later; the first set may also
get whole tables if these lower its value (``CLIMBED``)."""
BEYOND = 1.3
"""Ratio of the best plan's step to the first program's value above which rules come before the
first set's neighbours; where memory is full, the neighbours are then left for later."""
FAR = 1.15
"""Ratio of the best plan's step to the first program's value above which a run with all types comes
before other sets."""
MANY_RANKS = 1024
"""Number of ranks from which usual rules come before any run: 856 tables on 4,096 are at 273 ms
after a second of rules, and at 510 after ten of a run from a few rules' plans."""
NO_ROOM = 2.0
"""The plan of a set counts as at most this multiple of the set's program value, and as just that if
no plan fits."""
CLIMBED = 0.97
"""A set's neighbours come next if its program's value is below this multiple of that of the best
set before it."""
MADE_AT_ONCE = 2
"""Number of neighbours' plans that are made in a row, without a run."""
EXPANDED = 1.03
"""Neighbours of a set are tried if its program's value is at most this multiple of the smallest
one."""
BEHIND = 1.06
"""Plans of a set are made if its program's value is at most this multiple of the smallest one."""
BEST_RULES = 3
"""Number of the best usual rules that are tried of every set, besides a few others."""
BEST_CHANGES = 3
"""Number of changes of the best rule that are tried then."""
PACKING_MOVES = 50
"""Effort of the first packing of whole tables, in moves of annealing for each table."""
MAX_CHANGED = 3
"""Number of plans that contend of those with all tables of a type changed
(``annealing.type_changes``)."""
CHANGED_BEHIND = 1.02
"""They contend if their step is at most this multiple of that they began with."""
GREEDY, PROGRAM, BY_LEVELS = range(3)
"""Origins of plans: of greedy rules or other, of a program's options, and of its best levels'
(``annealing.levels``)."""
_SPLITS: Sequence[Parameters] = (COARSE, NEUTRAL, {**NEUTRAL, "split_above": 0.1})
RULES: Sequence[Parameters] = (*_SPLITS, *map(kernels_apart, _SPLITS))
"""Rules that are tried of every set: hardly any splits, and ever more, with lookup kernels on the
same ranks or apart. Those apart are for all problems, as every sharding type has a kernel of its
own."""


def bits(types: Iterable[ShardingType]) -> int:
    """Return the bits of some sharding types."""
    return sum(1 << KINDS[kind] for kind in types)


@dataclass(slots=True)
class Start:
    """Plans of a set of sharding types, not balanced yet."""

    type_bits: int
    """Bits of the types."""
    plans: list[Found]
    """Plans; the time of those that take more memory than there is is infinite."""
    origin: int = GREEDY
    """Origin of the last plan; the one before it comes from the next origin."""
    is_rough: bool = False
    """Whether better plans come soon, from which runs are to begin."""


class TypeSets:
    """Makes the first plans of sets of sharding types, the most promising sets first."""

    def __init__(
        self,
        engine: Engine,
        tuning: Tuning,
        rng: Random,
        is_over: Callable[[], bool],
    ) -> None:
        """Look at no set yet; ``is_over`` is called between plans: whether the budget is spent."""
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
        self._solutions: dict[int, SolvedSet | None] = {}
        """Solution of each set's program by its types, an estimate until it is solved for the best
        limit; None: there is no room."""
        self._packings: dict[int, PackingSearch] = {}
        """Searches for plans that fit, of sets whose own plans do not."""
        self._solved: set[int] = set()
        """Sets whose programs were solved for the best limit."""
        self.has_room: dict[int, bool] = {}
        """By set, whether plans of its types alone fit.

        If none does, the program promises more than memory holds, and others are not judged by its
        value."""
        self._hopeless: set[int] = set()
        """Sets whose programs promise no shorter step than was found."""
        self.explored = self._explored()
        """Plans of one set after another, the most promising first."""
        types_of = [{option.sharding_type for option in own} for own in problem.options.values()]
        self.offered = bits(frozenset().union(*types_of))
        self.forced = bits(frozenset().union(*(own for own in types_of if len(own) == 1)))
        """Bits of types that some table needs: every plan has them."""
        free = self.offered & ~self.forced
        self.singles = [1 << n for n in range(len(TYPES)) if free >> n & 1]

    @property
    def evaluated(self) -> int:
        """Return the number of plans made."""
        others = self.tuning, self.programs, self.kinds, self.changes
        return self._filled + sum(each.evaluated for each in others)

    def rules_fit(self) -> bool:
        """Return whether the plan of any of the first rules fits in memory."""
        return next(self._rule_plans(RULES), None) is not None

    def at_once(self, best: Callable[[], Seconds]) -> Iterator[Start | None]:
        """Yield plans of some greedy rules, of the first set's program, and of usual rules.

        Where there are several kinds, plans of one type for each kind come before programs; where
        ranks are many, usual rules do, too. None is yielded when it is time to run, as the next
        plans take long; twice, the second time with all types, if the first set's program has a far
        lower value than its plans. ``best`` returns the best step found so far.
        """
        has_many_ranks = self.engine.problem.topology.world_size >= MANY_RANKS
        for start in self._rule_plans([*RULES, *threshold_rules()] if has_many_ranks else RULES):
            yield replace(start, is_rough=True)
        if not self.kinds.is_one_kind:
            yield self._kind_start(self.kinds.first())
        first = next(self.explored)
        yield first
        yield None
        if best() > FAR * self.value(first.type_bits):
            yield None
        yield from self._one_type_plans()
        is_told = best() <= BEYOND * self.value(first.type_bits)
        if is_told:
            yield from self._climbed(best)
            yield None
        if not has_many_ranks:
            yield from self._rule_plans(threshold_rules())
            yield None
        if not is_told and self._is_roomy(first.type_bits):
            yield from self._climbed(best)
            yield None
        yield from self._kind_plans()

    def _climbed(self, best: Callable[[], Seconds]) -> Iterator[Start | None]:
        """Yield plans of the first set's best neighbour, then of that one's if far better, etc.

        None is yielded if the last plan is the best so far, as a run from it may end far lower, or
        if some were made since the last run.
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
                if start.plans and start.type_bits in self.has_room:
                    break

    def _one_type_plans(self) -> Iterator[Start]:
        """Yield the best plan of one type alone, of tables that have it; none: there is no room.

        Where launches cost most it is often the best of all. Some rules keep the lookup kernels of
        several kinds of tables apart. Whole tables, which take least memory, are packed if rules
        find no room.
        """
        rules = [COARSE] if self.kinds.is_one_kind else RULES
        roomy: list[Start] = []
        for single in self.singles:
            type_bits = single | self.forced
            best = self._best_of(type_bits, rules)
            found = best[0] if best else None
            if found is None and single == WHOLE:
                num_tables = len(self.engine.problem.workload.tables)
                found = self.packed(type_bits, PACKING_MOVES * num_tables)
            if found is not None:
                roomy.append(Start(type_bits, [found]))
        if roomy:
            yield min(roomy, key=lambda start: start.plans[0][0])

    def _rule_plans(self, rules: Iterable[Parameters]) -> Iterator[Start]:
        """Yield the best plan of the rules so far, after each of some rules."""
        self.engine.offer(EVERY_TYPE)
        self.tuning.begin(rules)
        for time, choices in self.tuning.plans()[:1]:
            yield Start(self.engine.types_of(choices), [(time, choices)])

    def _explored(self) -> Iterator[Start]:
        """Yield plans of sets, the best first, and one of each set once its value is known.

        That one tells what the value does not. The first set's neighbours are looked at before it
        has more plans than that, or runs, unless its plans take most of the memory.

        A set whose value is far above the best one's of those that have room gets no more plans,
        and one whose program has no room only if none has; but the first one does at last.
        Neighbours of sets whose values are far above are not looked at.
        """
        first = self._first()
        heap: list[tuple[Seconds, int]] = []
        start = self._at_sight(first) if self._is_roomy(first) else self.start_of(first)
        yield self._pushed(start, heap)
        yield from self._neighbours(first, heap)
        while heap:
            _, type_bits = heappop(heap)
            value = self.value(type_bits)
            if value > BEHIND * self._best or self._best < value == inf:
                continue
            if type_bits not in self.has_room:
                yield self.start_of(type_bits)
            if self.value(type_bits) <= EXPANDED * self._best:
                yield from self._neighbours(type_bits, heap)
        if first not in self.has_room:
            yield self.start_of(first)

    def _is_roomy(self, type_bits: int) -> bool:
        """Return whether the options of a set's program leave enough memory free."""
        said = self._solutions[type_bits]
        return said is not None and said.memory <= FULL

    def _neighbours(self, type_bits: int, heap: list[tuple[Seconds, int]]) -> Iterator[Start]:
        """Yield a plan of each new neighbour of a set, and queue those whose plans come next.

        One with a lower value than the set itself comes at once, others when all programs are
        solved, smallest values first.
        """
        others = [type_bits ^ single for single in self.singles]
        if type_bits & ~self.forced in self.singles:  # where launches decide, two cost far more
            others += [single | self.forced for single in self.singles]
        new = {other for other in others if other != 0 and other not in self._solutions}
        later: list[int] = []
        for other in sorted(new, key=self._num_options):
            if self._is_over():
                return
            if self.value(other) < self.value(type_bits):
                yield self._pushed(self._at_sight(other), heap)
            else:
                later.append(other)
        for other in sorted(later, key=self.value):
            yield self._pushed(self._at_sight(other), heap)

    def _pushed(self, start: Start, heap: list[tuple[Seconds, int]]) -> Start:
        """Queue a set by the geometric mean of its program's value and its plan's step.

        The value is too low, as no plan reaches it, and the step of the plan as it is placed too
        high.
        """
        value = self.value(start.type_bits)
        placed = min((time for time, _ in start.plans), default=inf)
        heappush(heap, ((value * min(placed, NO_ROOM * value)) ** 0.5, start.type_bits))
        return start

    def _num_options(self, type_bits: int) -> tuple[int, int]:
        """Return a set's number of options: with fewer, its program is solved sooner."""
        kinds = np.asarray(self.engine.search.tables.kind)
        return int((type_bits >> kinds & 1).sum()), type_bits

    def _at_sight(self, type_bits: int) -> Start:
        """Return a plan of a set's estimated program; none: there is no room."""
        said = self._solutions[type_bits]
        if said is None:
            return Start(type_bits, [], PROGRAM)
        found = self.programs.plan(type_bits, said)
        return Start(type_bits, [found] if found[0] < inf else [], PROGRAM)

    def _first(self) -> int:
        """Return the set that is tried first.

        It has whole tables, which take least memory, if there is no room without, or hardly any and
        they promise far more.
        """
        first = bits(FIRST) & self.offered | self.forced or self.offered
        value = self.value(first)
        whole = first | WHOLE & self.offered
        if self._is_roomy(first) or whole == first:
            return first
        return whole if self.value(whole) < CLIMBED * value or value == inf else first

    def _kind_plans(self) -> Iterator[Start]:
        """Yield the best plans of one type for every kind of tables.

        None if all are of one kind.
        """
        for found in () if self.kinds.is_one_kind else self.kinds.descents():
            if self._is_over():
                return
            if found is not None:
                yield self._kind_start(found)

    def _kind_start(self, found: Found) -> Start:
        """Return a plan of types for kinds as a start."""
        return Start(self.engine.types_of(found[1]), [found] if found[0] < inf else [])

    def changed(self, found: Found, is_over: Callable[[], bool]) -> Iterator[Start]:
        """Yield the best plans with all tables of a type changed, if they are hardly worse."""
        seen: set[int] = set()
        for time, plan in self.changes.descend(found[1], is_over)[:MAX_CHANGED]:
            type_bits = self.engine.types_of(plan)
            if time < found[0] * CHANGED_BEHIND and type_bits not in seen:
                seen.add(type_bits)
                yield Start(type_bits, [(time, plan)])

    def beside(self, sets: Iterable[int], best: Seconds) -> Start | None:
        """Return plans of the first set next to some others that has none yet; None: all have.

        There are no plans if its program promises no shorter step than the best one so far.
        """
        for type_bits in sets:
            for other in self._beside(type_bits):
                if other in self.has_room or other in self._hopeless:
                    continue
                if self.value(other) < best:
                    return self.start_of(other)
                self._hopeless.add(other)
                return Start(other, [])
        return None

    def _beside(self, type_bits: int) -> Iterator[int]:
        """Yield sets with a type less, with another one instead, and with one more."""
        own = [single for single in self.singles if single & type_bits]
        others = [single for single in self.singles if not single & type_bits]
        yield from (type_bits ^ single for single in own if type_bits != single)
        yield from (type_bits ^ single ^ other for single in own for other in others)
        yield from (type_bits ^ other for other in others)

    @property
    def _best(self) -> Seconds:
        """Return the smallest value of sets that have room; of any that may, if none has yet."""
        roomy = [type_bits for type_bits in self._solutions if self.has_room.get(type_bits)]
        untried = self._solutions.keys() - self.has_room.keys()
        return min(map(self.value, roomy or untried), default=inf)

    def value(self, type_bits: int) -> Seconds:
        """Return the value of a set's program; infinite if there is no room.

        It is an estimate until the set has plans: shards of one size take a third of the time of
        all sizes, and most sets are never worth a plan.
        """
        if type_bits not in self._solutions:
            self._solutions[type_bits] = self.programs.estimate(type_bits)
        said = self._solutions[type_bits]
        return inf if said is None else said.expected

    def prices(self, type_bits: int) -> NDArray[np.float64] | None:
        """Return the prices of options in a set's program (``Relaxed``); None: there is none."""
        said = self._solutions.get(type_bits)
        return None if said is None else said.prices

    def _solve(self, type_bits: int) -> SolvedSet | None:
        """Return the solution of a set's program for the best limit."""
        if type_bits not in self._solved:
            self._solved.add(type_bits)
            self._solutions[type_bits] = self.programs.solve(type_bits)
        return self._solutions[type_bits]

    def start_of(self, type_bits: int) -> Start:
        """Return plans of a set, of its program's options and of greedy rules."""
        plans: list[Found] = []
        solved = self._solve(type_bits)
        if solved is not None:
            # where memory decides, levels come later, if the best plan is of these types
            by_levels = self._by_levels(type_bits, solved) if self._is_roomy(type_bits) else None
            plans.append(by_levels or self.programs.plan(type_bits, solved, may_overfill=True))
        # the first set's plan is annealed before usual rules are tried
        usual = self.tuning.rules(BEST_RULES) if self.has_room else threshold_rules()
        greedy = self._greedy(type_bits, list(usual))
        plans += [] if greedy is None else [greedy]
        self.has_room[type_bits] = any(time < inf for time, _ in plans)
        return Start(type_bits, plans)

    def packed(self, type_bits: int, effort: float) -> Found | None:
        """Return a plan of a set packed into memory; None: the effort finds none.

        The next effort goes on from there (``PackingSearch``).
        """
        engine = self.engine
        self._filled += 1
        if type_bits not in self._packings:
            kinds, numbers = np.asarray(engine.search.tables.kind), engine.arrays.number_of
            wanted = (numbers >= 0) & ((type_bits >> kinds[numbers] & 1) > 0)
            self._packings[type_bits] = PackingSearch(engine.problem.groundwork, wanted)
        plan = self._packings[type_bits].go_on(effort, self._is_over)
        if plan is None or not engine.arrays.has(plan):
            return None
        choices = engine.choices_of(plan)
        return engine.start(choices), choices

    def is_worth_packing(self, type_bits: int, best: Seconds) -> bool:
        """Return whether a set has no plan yet, may get one by packing, and has a low value."""
        packing = self._packings.get(type_bits)
        is_over = self.has_room.get(type_bits) or (packing is not None and packing.is_over)
        return not is_over and self.value(type_bits) < best

    def by_levels(self, type_bits: int) -> Start | None:
        """Return the best plan of a set by levels; None: they were tried, or it has no program."""
        solved = self._solutions.get(type_bits)
        if solved is None or type_bits in self._levelled:
            return None
        found = self._by_levels(type_bits, solved)
        return Start(type_bits, [] if found is None else [found], BY_LEVELS)

    def _by_levels(self, type_bits: int, solved: SolvedSet) -> Found | None:
        """Return the best plan of a set by levels; None: there is no room."""
        self._levelled.add(type_bits)
        found = LevelSearch(self.programs, type_bits, solved, self._is_over).run(self._of_levels)
        if found is not None:
            self._of_levels = min(self._of_levels, found[0])
        return found

    def _greedy(self, type_bits: int, rules: Sequence[Parameters]) -> Found | None:
        """Return the best plan of some rules, and of changes of the best; None: no room."""
        tried = self._best_of(type_bits, (*RULES, *(each for each in rules if each not in RULES)))
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

    def _best_of(
        self, type_bits: int, rules: Iterable[Parameters]
    ) -> tuple[Found, Parameters] | None:
        """Return the best plan of some rules and types, and its rule; None: no room."""
        self.engine.offer(type_bits)
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
