"""Plans to anneal from: of every set of sharding types that is worth a try.

Every sharding type in use costs all ranks a set of collectives, and which types a plan has decides
more than anything else how long its step is; moves of few tables hardly change it. So a search that
may take all types ends in whatever set its start had: on 200 uneven tables and 32 A100s, ten
seconds of such a search ended 17.6 to 17.9 ms, by seed, and half a second of one that may take only
the right two or three types at 17.7; on 500 tables and 64 H200s at 34.3 to 34.9, and at 34.1 after
1.3 seconds.

The linear program over the step (``sharders.lp.relaxed_step``) ranks sets within some hundredths of
a second each. The best sets have neighbours tried, of one type more or less. A set's first plan is
the program's, or that of a greedy rule, whichever is better once it is balanced.

The first set comes before rules are tuned: its plans have few sharding groups, and a step has to be
written for every new set of these, which is most of what tuning takes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import inf
from random import Random

from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingType
from sharders.engine.fill import Rule
from sharders.engine.params import TypeSetParams
from sharders.engine.search_engine import Engine
from sharders.greedy.tuning import (
    NEUTRAL,
    Chain,
    Found,
    Parameters,
    Tuning,
    threshold_rules,
    usual_rules,
)
from sharders.lp.lp import placed, smallest
from sharders.lp.relaxed_step import Array, LpOptions, Relaxed, RelaxedStep, by_share
from sharders.problem.option_costs import OptionCosts

KINDS = tuple(ShardingType)
EVERY_TYPE = (1 << len(KINDS)) - 1
"""The bits of all sharding types."""
FIRST = (ShardingType.DATA_PARALLEL, ShardingType.COLUMN_WISE, ShardingType.TABLE_ROW_WISE)
"""The set that is tried first: replicas of what is small, splits of what is not."""
RULES: Sequence[Parameters] = tuple(
    {**NEUTRAL, "split_above": split, "replicate_below": replicate}
    for split, replicate in ((4.0, 0.0), (0.5, 1.0), (0.1, 1.0))
)
"""What is tried of every set: hardly any splits, and ever more."""


def bits(types: Iterable[ShardingType]) -> int:
    """Return the bits of some sharding types."""
    return sum(1 << KINDS.index(kind) for kind in types)


class Programs:
    """The linear programs of sets of sharding types, over the options of an engine."""

    def __init__(self, engine: Engine, types: int) -> None:
        """Describe the options of the types with these bits."""
        problem, arrays = engine.problem, engine.arrays
        kinds = {kind for number, kind in enumerate(KINDS) if types >> number & 1}
        self.engine, self.types, self.choices = engine, types, LpOptions.of(problem, kinds)
        self._number = arrays.number_of[self.choices.numbers]
        """The engine's number of every option; -1: it has none."""
        self._kind = 1 << self.choices.kind

    def solve(self, types: int) -> Relaxed | None:
        """Return what a program says; None: there is no room.

        Its value bounds from below what the step can be if all of these types are used.
        """
        wanted = self.choices.some((self._kind & types) > 0) & (self._number >= 0)
        return RelaxedStep(self.choices, wanted).solve(wanted)

    def packed(self, shares: Array, *, may_pack: bool) -> list[Found]:
        """Return a plan of any types where those wanted have no room: moves may lead to them."""
        engine, problem = self.engine, self.engine.problem
        options = (engine.arrays.options_of(n) for n in range(len(problem.workload.tables)))
        spare = [smallest(problem, own) for own in options]
        costs = OptionCosts(problem)
        plan = placed(self.choices, costs, shares, spare, may_pack=may_pack)
        if plan is None or not engine.arrays.has(plan):
            return []
        choices = engine.choices_of(plan)
        return [(engine.start(choices), choices)]

    def plan(self, types: int, shares: Array) -> Found | None:
        """Return a plan of the options with the largest shares, others where these have no room.

        Others are of the types with these bits; None: they have no room either.
        """
        first = [next(iter(each)) for each in by_share(self.choices, shares)]
        self.engine.offer(types)
        time = self.engine.fill(Rule(RULES[0], 1.0, 1.0), self._number[first])
        return None if time is None else (time, self.engine.present())


@dataclass(slots=True)
class Start:
    """Plans of a set of sharding types, not balanced yet."""

    types: int
    """Their bits."""
    plans: list[Found]
    has_room: bool = True
    """Whether there are plans of these types alone. Where there are none, the program promises more
    than memory holds, and others are not to be judged by that: at 416 tables on 128 GPUs, 7.4 ms,
    where the plan then took 15.4, kept the set out whose plans take 10.5, for which 8.8 were said;
    with it ten CPU seconds end 10.60 where they ended 10.99 (another seed 10.54 both times)."""
    is_rough: bool = False
    """Whether better plans come soon, which runs are to begin from."""


class TypeSets:
    """Makes the first plans of sets of sharding types, the most promising sets first."""

    def __init__(self, engine: Engine, tuning: Tuning, rng: Random, params: TypeSetParams) -> None:
        problem = engine.problem
        self.engine, self.tuning, self.rng, self.params = engine, tuning, rng, params
        self._made = 0
        self._programs: Programs | None = None
        self.explored = self._explored()
        """Plans of one set after another, the most promising first; None where one is not."""
        self.balanced_load, self.capacity = problem.balanced_load, problem.capacity
        types_of = [{option.sharding_type for option in own} for own in problem.options.values()]
        self.offered = bits(frozenset().union(*types_of))
        self.forced = bits(frozenset().union(*(own for own in types_of if len(own) == 1)))
        """Types of tables that allow no other: every plan has them."""
        free = self.offered & ~self.forced
        self.singles = [1 << n for n in range(len(KINDS)) if free >> n & 1]

    def _programs_of(self, types: int) -> Programs:
        """Return programs that have some types: all, but of the first set only those it has.

        Describing all takes longer than all else before the first plans: 0.3 of 1.2 CPU seconds at
        978 tables on 128 GPUs.
        """
        if self._programs is None:
            self._programs = Programs(self.engine, types)
        elif types & ~self._programs.types:
            self._programs = Programs(self.engine, EVERY_TYPE)
        return self._programs

    @property
    def evaluated(self) -> int:
        """Return how many plans were made."""
        return self._made + self.tuning.evaluated

    def at_once(self) -> Iterator[Start | None]:
        """Yield plans of a few greedy rules, of the first set's program, of usual and tuned rules.

        None: it is time to run from what there is, as the next ones take long.
        """
        self.engine.offer(EVERY_TYPE)
        self.tuning.begin(RULES)
        for start in self._tuned(1):
            yield replace(start, is_rough=True)
        first = next(self.explored, None)
        if first is not None:
            yield first
        yield None
        self.engine.offer(EVERY_TYPE)
        self.tuning.begin(usual_rules())
        yield from self._tuned(1)
        yield None
        self.engine.offer(EVERY_TYPE)
        self.tuning.evolve()
        yield from self._tuned(self.params.max_at_once)

    def _tuned(self, count: int) -> Iterator[Start]:
        for time, choices in self.tuning.plans()[:count]:
            yield Start(self.engine.types_of(choices), [(time, choices)])

    def _explored(self) -> Iterator[Start | None]:
        """Yield plans of one set after another, best-first; None where a set is not promising.

        A set whose program's value is far behind the best one's of those that have room has no
        neighbours tried, and one whose program has no room only while none has.
        """
        first = bits(FIRST) & self.offered | self.forced or self.offered
        known, least = {first}, inf
        heap: list[tuple[Seconds, int]] = [(0.0, first)]
        roomy = best = least_of_all = inf
        while heap:
            least, around = heappop(heap)
            if least > self.params.expanded * best or best < least == inf:
                return
            sets = [around] if least == 0.0 else [around ^ single for single in self.singles]
            for types in sets:
                if types == 0 or (types in known and least > 0.0):
                    continue
                known.add(types)
                value, start = self.start_of(types, best)
                least_of_all = min(least_of_all, value)
                if start is not None and start.has_room:
                    roomy = min(roomy, value)
                best = roomy if roomy < inf else least_of_all
                heappush(heap, (value, types))
                yield start

    def start_of(self, types: int, best: Seconds) -> tuple[Seconds, Start | None]:
        """Return the value of a set's program, and its plans unless that is far behind the best.

        The value is infinite where the program has no room.
        """
        programs = self._programs_of(types)
        solved = programs.solve(types)
        if solved is not None and solved.value > self.params.behind * best:
            return solved.value, None
        plans: list[Found] = []
        value = inf
        if solved is not None:
            value, plan = solved.value, programs.plan(types, solved.shares)
            self._made += 1
            plans += [] if plan is None else [plan]
        # the first set's plan is annealed before rules are tuned
        tuned = (
            list(threshold_rules()) if best == inf else self.tuning.rules(self.params.tuned_rules)
        )
        greedy = self._greedy(types, tuned)
        plans += [] if greedy is None else [greedy]
        has_room = bool(plans)
        if not plans and solved is not None:
            known = self.tuning.plans()[:1]
            plans += programs.packed(solved.shares, may_pack=not known) or known
        return value, Start(types, plans, has_room)

    def _greedy(self, types: int, rules: Sequence[Parameters]) -> Found | None:
        """Return the best plan of some rules, and of changes of the best; None: no room."""
        self.engine.offer(types)
        best: Found | None = None
        chain: Chain | None = None
        for rule in (*RULES, *(each for each in rules if each not in RULES)):
            time = self._time(rule)
            if time < inf and (best is None or time < best[0]):
                best, chain = (time, self.engine.present()), Chain(rule, time)
        if best is None or chain is None:
            return None
        for _ in range(self.params.changes):
            child = chain.child(self.rng)
            time = self._time(child)
            chain.tell(child, time)
            if time < best[0]:
                best = time, self.engine.present()
        return best

    def _rule(self, parameters: Parameters) -> Rule:
        return Rule(parameters, self.balanced_load, self.capacity)

    def _time(self, rule: Parameters) -> Seconds:
        """Return the step time of a rule's plan; infinite where it finds no room."""
        self._made += 1
        seconds = self.engine.fill(self._rule(rule))
        return inf if seconds is None else seconds
