"""Runs of annealing in sets of sharding types: all are tried, the better ones for longer.

The order of runs and their lengths depend on the seed and on the plans found, never on a clock, a
limit or a number of plans: these only end the search. So a search that may take longer first does
all that a shorter one does, and its plan is never worse.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, inf, log
from random import Random

from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingPlan
from sharders.annealing.type_sets import Start, TypeSets
from sharders.engine.imbalance_penalty import BALANCE_WEIGHT
from sharders.engine.problem_arrays import offered
from sharders.engine.search_engine import Engine
from sharders.engine.tables import Choices
from sharders.greedy.tuning import Found, Tuning
from sharders.problem.sharding_problem import (
    IMPROVED,
    Budget,
    Progress,
)

FIRST_MOVES = 200
"""Number of moves after which the time of one is known."""
MAX_CONTENDERS = 12
"""Number of sets of types in which runs go on."""
DECAY = 1.5
"""Factor by which each set is annealed less than the one before it."""
BEHIND_POWER = 10.0
"""Power of the ratio of a set's step to the best one, by which it is annealed less: 10% behind, 2.6
times less."""
BALANCE_RANGE = (0.05, 1.0)
"""Range from which the weight of uneven ranks is drawn for every run. Where ranks send few tables'
outputs each, a step is shorter only when none sends as many as the fullest ones, and many have to
move before."""
MOVES_PER_SET = 5
"""Moves for each option of all tables between the first looks at two sets; estimating a set takes
as long as 1 to 3."""
BEST_SETS = 3
"""Number of contenders beside whose sets others are tried when programs know of no more."""
BALANCING_MOVES = 10
"""Moves for each table that balance a plan."""
FIRST_RUN = 50
"""Moves of a set's first run, for each table; later ones are as long as all before."""
FIRST_SHARE = 0.01
"""Share of all moves so far that a set's first run has at least, so that sets that come late can
contend."""
HEAT = 0.1
"""First temperature of a run as a share of the mean table's part of the step; the first ones are
drawn around it."""
HEAT_SPREAD = 1.0
"""Standard deviation of the logarithm of the drawn heat."""
HEAT_LEARNED = 0.3
"""Share by which the middle moves to the heat of a run that has gained."""
HEAT_RANGE = (0.02, 10.0)
"""Range of the drawn heat."""
ANY_HEAT_SHARE = 0.2
"""Share of the runs whose heat is drawn from all of the range."""
COLD = 1e-5
"""Last temperature of a run, as a share of the step time."""
MOVES_AT_ONCE = 4000
"""Most moves between two looks at the budget."""
LOOK_EVERY = 0.05
"""Seconds between two looks at the budget, about, once the time of a move is known."""
MIN_GAIN = 1e-3
"""Share of the step time that counts as a gain: models do not tell less apart."""
QUIET_MOVES = 10_000
QUIET_SHARE = 0.6
"""The search ends after so many moves for each table without a gain, and this share of all its
moves; it is then begun anew."""


@dataclass(slots=True)
class Contender:
    """A set of sharding types with the best plan found from one of its first ones."""

    type_bits: int
    """Bits of the types."""
    origin: int
    """Which of the set's first plans it comes from (``Start``)."""
    time: Seconds
    """Step time; infinite if the plan does not fit, and others of the set are packed into
    memory."""
    choices: Choices
    first: Choices
    """The plan that it began with."""
    moves: int
    """Moves annealed so far."""
    is_stuck: bool = False
    """Whether the last run gained nothing, so that the next one begins with ``first``."""

    @property
    def fits(self) -> bool:
        """Whether its plan fits in memory."""
        return self.time < inf


class AnnealingSearch:
    """Anneals in one set of sharding types after another, and keeps the best plan of all."""

    def __init__(
        self,
        engine: Engine,
        budget: Budget,
        rng: Random,
        evaluated: int = 0,
    ) -> None:
        self.engine, self.budget, self.rng = engine, budget, rng
        self.problem, self._annealed = engine.problem, evaluated
        self.num_tables = len(engine.problem.workload.tables)
        self.best: Found = inf, engine.present()
        self.contenders: list[Contender] = []
        """Contenders, best first."""
        self.moves = self.last_gain = 0
        """Annealed in all, and when that gained something last."""
        self._gained: Seconds = inf
        """The best step at the last gain."""
        self.seconds_per_move = 0.0
        self._balancing = BALANCING_MOVES * self.num_tables
        self._heat = log(HEAT)
        self._changed: set[int] = set()
        """Types of the plans whose tables of a type were changed together."""
        tuning = Tuning(engine, budget, rng)
        self.sets = TypeSets(engine, tuning, rng, self.spent)

    def run(self, known: Sequence[tuple[Seconds, ShardingPlan]]) -> None:
        """Anneal from known plans and greedy ones, until that gains nothing for long."""
        for start in self._starts(known):
            if start is None:
                self._begin_early()
            else:
                self.join(start)
            if self.spent():
                return
        self._join_best()
        next_set, knows_more = 0.0, True
        while self.contenders and not self.spent():
            if self.moves >= next_set:
                tried = self.own_set() or next(self.sets.explored, None) or self._beside()
                knows_more = tried is not None
                if tried is not None:
                    self.join(tried)
                next_set = self.moves + MOVES_PER_SET * self.problem.num_options
                continue
            if not knows_more and self._is_quiet():
                break
            self.run_next()

    def own_set(self) -> Start | None:
        """Return first plans of the best plan's set of types; None: they were made already.

        Those by levels come later where memory decides (``TypeSets.start_of``).
        """
        type_bits, sets = self.engine.types_of(self.contenders[0].choices), self.sets
        return sets.by_levels(type_bits) if type_bits in sets.has_room else sets.start_of(type_bits)

    def _beside(self) -> Start | None:
        """Return plans of a set of types next to one of the best plans'.

        None where there are no more.
        """
        best = self.contenders[:BEST_SETS]
        sets = [self.engine.types_of(each.choices) for each in best if each.fits]
        return self.sets.beside(sets, self.best[0])

    def _begin_early(self) -> None:
        """Run once from the plans so far, with moves to all types, and let the result contend.

        Where most sets of types are new, each one's step is written, and tuning rules takes long.
        """
        if self.contenders and not self.spent():
            self.run_next()
            self._join_best()

    def _join_best(self) -> None:
        """Let the best plan contend with moves to all types."""
        if self.best[0] < inf:
            self.join(Start(self.sets.offered, [self.best]))

    def _starts(self, known: Sequence[tuple[Seconds, ShardingPlan]]) -> Iterator[Start | None]:
        """Yield known plans and greedy ones; known plans that the first rules beat come last.

        None is yielded when it is time to run, as making the next plans takes long: at 5,000 tables
        on 1,024 GPUs balancing one takes 2 CPU seconds, and a few rules take a tenth of that to do
        better than the balanced plan of tables in turn.
        """
        usable = set(map(id, offered(self.problem, [plan for _, plan in known])))
        plans = [(time, self.engine.choices_of(plan)) for time, plan in known if id(plan) in usable]
        at_once = self.sets.at_once(lambda: self.best[0])
        first = next(at_once, None)
        beats = min((time for time, _ in first.plans), default=inf) if first else inf
        starts = [Start(self.engine.types_of(found[1]), [found]) for found in plans]
        yield from (start for start in starts if start.plans[0][0] <= beats)
        if first:
            yield first
        yield from at_once
        yield from (start for start in starts if start.plans[0][0] > beats)

    def balanced(self, plan: Choices) -> Found:
        """Return a plan after moves of its tables to other ranks.

        Their options stay as they are.
        """
        return self._anneal(plan, self._balancing, COLD, placing=True)

    @property
    def evaluated(self) -> int:
        """Return the number of plans looked at."""
        return self._annealed + self.sets.evaluated

    def spent(self) -> bool:
        """Return whether the budget is spent."""
        return self.budget.spent(self.evaluated)

    def join(self, start: Start) -> None:
        """Balance plans of a set, and let each contend; several are annealed first.

        The better ones come first. Plans that take more memory than there is are annealed first,
        too; if that does not make them fit, the set's tables are packed (``_pack``).

        The program's plan is often behind the greedy one until some tables that found no room are
        sharded anew, and then before it; sometimes it is the other way.
        """
        contenders: list[Contender] = []
        for number, first in enumerate(start.plans):
            if first[0] < self.best[0] * (1 - IMPROVED):
                self._note(first)
            if not start.is_rough:
                plans = [first] if self.spent() else [first, self.balanced(first[1])]
                found = min(plans, key=lambda each: each[0])
                origin = start.origin + len(start.plans) - 1 - number
                contenders.append(
                    Contender(start.type_bits, origin, *found, found[1], self._balancing)
                )
        for contender in sorted(contenders, key=lambda each: each.time):
            if len(contenders) > 1 or contender.time == inf:
                self._run(contender, self._first_run)
            if not contender.fits and self._is_worth_packing(contender):
                self._pack(contender, self._first_run)
            self._enter(contender)

    def _is_worth_packing(self, contender: Contender) -> bool:
        """Return whether plans of a contender's set may fit and take less time."""
        return self.sets.is_worth_packing(contender.type_bits, self.best[0])

    def _pack(self, contender: Contender, effort: int) -> None:
        """Look for a plan of a contender's set that fits in memory.

        Where tables take nearly all memory and GPUs have few, hardly any plan fits, and annealing
        finds none.
        """
        found = self.sets.packed(contender.type_bits, effort)
        contender.moves += effort
        self.moves += effort
        if found is not None:
            contender.time, contender.choices = found
            contender.first = contender.choices
            if found[0] < self.best[0] * (1 - IMPROVED):
                self._note(found)

    @property
    def _first_run(self) -> int:
        """Return the number of moves of the first run from a set's plan."""
        share = int(FIRST_SHARE * self.moves)
        return max(FIRST_RUN * self.num_tables, share)

    def _enter(self, contender: Contender) -> None:
        """Replace the contender of the same set and origin by a better one."""
        same = [
            each for each in self.contenders
            if (each.type_bits, each.origin) == (contender.type_bits, contender.origin)
        ]  # fmt: skip
        if same and same[0].time <= contender.time:
            return
        if same:
            contender.moves = same[0].moves
        self._rank([*(each for each in self.contenders if each not in same), contender])

    def _rank(self, contenders: Sequence[Contender]) -> None:
        """Order contenders by their steps, and drop the last ones if they are too many.

        Contenders that do not fit come last, by the values of their sets' programs, while that is
        less than the best step, and packing goes on.
        """

        def order(each: Contender) -> tuple[Seconds, Seconds, int, int]:
            said = 0.0 if each.fits else self.sets.value(each.type_bits)
            return each.time, said, each.type_bits, each.origin

        some = [each for each in contenders if each.fits or self._is_worth_packing(each)]
        self.contenders = sorted(some, key=order)[:MAX_CONTENDERS]

    def run_next(self) -> None:
        """Run from the contender that has had the fewest moves for its place and step.

        Contenders that do not fit are packed instead, and have places of their own. Before that, if
        runs from the best one gain nothing, all its tables of a type change.
        """
        self._change_types()
        best = self.contenders[0].time
        num_fit = sum(each.fits for each in self.contenders)
        shares = [
            each.moves * DECAY**place * (each.time / best) ** BEHIND_POWER
            if each.fits
            else each.moves * DECAY ** (place - num_fit)
            for place, each in enumerate(self.contenders)
        ]
        contender = self.contenders[shares.index(min(shares))]
        length = max(FIRST_RUN * self.num_tables, contender.moves)
        if contender.fits:
            self._run(contender, length)
        else:
            self._pack(contender, length)
        self._rank(self.contenders)

    def _change_types(self) -> None:
        """Let plans contend in which all tables of a type of the best plan have other types.

        It happens once for every set of types of a best plan, when runs from it gain nothing.
        """
        best = self.contenders[0]
        if not best.is_stuck:
            return
        type_bits = self.engine.types_of(best.choices)
        if type_bits not in self._changed:
            self._changed.add(type_bits)
            for start in self.sets.changed((best.time, best.choices), self.spent):
                self.join(start)

    def _run(self, contender: Contender, length: int) -> None:
        """Run from a contender's plan, or from its first one if stuck; keep a better plan."""
        self.engine.offer(contender.type_bits, self.sets.prices(contender.type_bits))
        heat = self._drawn_heat()
        plan = contender.first if contender.is_stuck else contender.choices
        weight = exp(self.rng.uniform(*map(log, BALANCE_RANGE)))
        found = self._anneal(plan, length, exp(heat) / self.num_tables, balance_weight=weight)
        contender.moves += length
        contender.is_stuck = found[0] >= contender.time * (1 - IMPROVED)
        if not contender.is_stuck:
            contender.time, contender.choices = found
            self._heat += HEAT_LEARNED * (heat - self._heat)

    def _note(self, found: Found) -> None:
        """Keep a plan as the best, and report progress."""
        self.best = found
        self.budget.report(Progress(evaluated=self.evaluated, best=found[0]))

    def _drawn_heat(self) -> float:
        """Return a drawn logarithm of a run's heat, near one that has gained lately."""
        low, high = map(log, HEAT_RANGE)
        if self.rng.random() < ANY_HEAT_SHARE:
            return self.rng.uniform(low, high)
        drawn = self.rng.gauss(self._heat, HEAT_SPREAD)
        return min(high, max(low, drawn))

    def _is_quiet(self) -> bool:
        """Return whether recent gains are too small for the model to tell."""
        least = QUIET_MOVES * self.num_tables
        return self.moves - self.last_gain > max(least, QUIET_SHARE * self.moves)

    def _anneal(
        self,
        plan: Choices,
        length: int,
        hot: float,
        *,
        placing: bool = False,
        balance_weight: float = BALANCE_WEIGHT,
    ) -> Found:
        """Return the best plan of one run, and its step time."""
        engine, drawn, decided = self.engine, 0, 0
        schedule = hot, COLD, float(length)
        best = engine.start(plan, self.rng.getrandbits(31), balance_weight)
        while drawn < length and not self.spent():
            count = self.budget.left(self.evaluated, min(self._at_once(), length - drawn))
            begin = self.budget.time_left()
            run = engine.anneal(count, schedule, placing=placing)
            if begin < inf:
                self.seconds_per_move = (begin - self.budget.time_left()) / count
            self._annealed += run.decided - decided
            drawn, decided = run.moves, run.decided
            best = run.best_time
            if best < self.best[0] * (1 - IMPROVED):
                self._note((best, engine.best_since()))
                if best < self._gained * (1 - MIN_GAIN):
                    self._gained, self.last_gain = best, self.moves + drawn
        self.moves += drawn
        return best, engine.best_since()

    def _at_once(self) -> int:
        """Return the number of moves until the next look at the budget."""
        if self.budget.time_left() == inf:
            return MOVES_AT_ONCE
        if self.seconds_per_move == 0:
            return FIRST_MOVES
        soon = int(LOOK_EVERY / self.seconds_per_move)
        return max(1, min(MOVES_AT_ONCE, soon))
