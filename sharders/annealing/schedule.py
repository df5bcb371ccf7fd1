"""Runs of annealing in sets of sharding types: all are tried, the better ones for longer.

The order of everything here, and the length of every run, depend on the seed and on what was found,
never on a clock, a limit or a number of plans: these only say where the search ends. So a search
that may take longer first does all that a shorter one does, and its plan is never worse.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, inf, log
from random import Random

from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingPlan
from sharders.annealing.type_sets import Start, TypeSets
from sharders.engine.arrays import offered
from sharders.engine.imbalance_penalty import BALANCE_WEIGHT
from sharders.engine.search_engine import Engine
from sharders.engine.tables import Choices
from sharders.greedy.tuning import Found, Tuning
from sharders.problem.sharding_problem import (
    IMPROVED,
    Budget,
    Progress,
)

FIRST_MOVES = 200
"""Moves after which the time of one is known."""
MAX_CONTENDERS = 12
"""Sets of types that runs go on in."""
DECAY = 1.5
"""Times less that each set is annealed than the one before it, the best one most."""
BEHIND_POWER = 10.0
"""Power of the times by which a set's plan is longer than the best one, by which it is annealed
less, too: 10% behind, 2.6 times less."""
BALANCE_RANGE = (0.05, 1.0)
"""Between which the weight of uneven ranks is drawn for every run: where ranks send few tables'
outputs each, a step is shorter only when none sends as many as the fullest ones, and many have
to move before. At 600 tables on 128 GPUs, where every rank sends four or five, long runs end at
44.6 ms by a weight of 0.05 and at 40.9 by 0.5; at 100 tables on 128, where a few decide, short
ones at 15.1 and 16.2. Three CPU seconds end 0.3% lower with it than with 0.05, and 0.05 to 0.4
where a run had gained nothing (58 problems, 84 runs, standard error 0.13%; 36 lower, 23
higher)."""
MOVES_PER_SET = 5
"""Moves for each option of all tables between two sets that are looked at first: estimating one
takes as long as 1 to 3. With twice as many, and programs that took as long as 3 to 7, three CPU
seconds ended 0.6% higher in the mean of 14 uneven problems, and ten as low."""
BEST_SETS = 3
"""Contenders next to whose sets of types others are tried when programs know of no more. On 14
problems of 26 to 76 tables on several nodes ten CPU seconds end 0.4% lower with it (standard
error 0.2%, 42 runs), 72 tables on 64 GPUs 4%."""
BALANCING_MOVES = 10
"""Moves for each table that balance a plan: at 856 tables on 64 GPUs five gain 2 to 7% of the
step, and 140 another 0.5%, as annealing does."""
FIRST_RUN = 50
"""Moves of a set's first run, for each table; later ones are as long as all before."""
FIRST_SHARE = 0.01
"""Share of all moves so far that a set's first run has, if that is more: sets that come late
contend with plans that have had hundreds of times as many. While they had ``FIRST_RUN`` alone,
eight CPU seconds ended 0.10% higher in the mean of 37 problems (70 runs, standard error 0.06%;
23 lower now, 12 higher), and the best set of 56 tables on 16 GPUs was left behind after 3 ms.
With 0.005 they end as high, and with 0.025 two seconds end 0.3% higher."""
HEAT = 0.1
"""Temperature at the begin of a run, as a share of the mean table's part of the step, about
which the first ones are drawn. None is best everywhere: of 0.02 to 8, the coolest ends lowest
at 500 tables on 64 GPUs, and the hottest where tables lie in host memory, too, by 12%."""
HEAT_SPREAD = 1.0
"""Standard deviation of its logarithm."""
HEAT_LEARNED = 0.3
"""Share of the way that the middle goes to the heat of a run that has gained."""
HEAT_RANGE = (0.02, 10.0)
"""Between which it is drawn."""
ANY_HEAT_SHARE = 0.2
"""Share of the runs whose heat is any of the range."""
COLD = 1e-5
"""Temperature at the end, as a share of the step time."""
MOVES_AT_ONCE = 4000
"""Moves between two looks at the budget, at most."""
LOOK_EVERY = 0.05
"""Seconds between two looks at the budget, about, once the time of a move is known."""
MIN_GAIN = 1e-3
"""Share of the step time that counts as a gain: less than the model can tell apart is not worth
seconds of search."""
QUIET_MOVES = 10_000
QUIET_SHARE = 0.6
"""The search ends after so many moves for each table without a gain, and so large a share of
all its moves; it is then begun anew."""


@dataclass(slots=True)
class Contender:
    """A set of sharding types, the best plan found from one of its first ones, and the effort."""

    types: int
    """Their bits."""
    origin: int
    """Which of the set's first plans it comes from (``Start``)."""
    time: Seconds
    """Infinite where the plan does not fit: others of the set are then packed into memory."""
    choices: Choices
    first: Choices
    """The plan that it began with."""
    moves: int
    """Annealed from its plans so far."""
    is_stuck: bool = False
    """Whether the last run gained nothing: the next one begins anew."""

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
        """Best first."""
        self.moves = self.last_gain = 0
        """Annealed in all, and when that gained something last."""
        self._gained: Seconds = inf
        """The best step then."""
        self.seconds_per_move = 0.0
        self._balancing = BALANCING_MOVES * self.num_tables
        self._heat = log(HEAT)
        self._changed: set[int] = set()
        """Types of the plans whose tables were sharded by others together."""
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
        """Return plans of the set of types that the best plan has; None: they were made already.

        Those by levels come later where memory decides (``TypeSets.start_of``).
        """
        types, sets = self.engine.types_of(self.contenders[0].choices), self.sets
        return sets.by_levels(types) if types in sets.has_room else sets.start_of(types)

    def _beside(self) -> Start | None:
        """Return plans of a set of types next to one that the best plans have; None: no more."""
        best = self.contenders[:BEST_SETS]
        sets = [self.engine.types_of(each.choices) for each in best if each.fits]
        return self.sets.beside(sets, self.best[0])

    def _begin_early(self) -> None:
        """Run once from the plans so far, and let what that finds join with moves to all types.

        Where most sets of types are new, each one's step is written, and tuning rules takes long.
        """
        if self.contenders and not self.spent():
            self.run_next()
            self._join_best()

    def _join_best(self) -> None:
        """Let the best plan join with moves to all types."""
        if self.best[0] < inf:
            self.join(Start(self.sets.offered, [self.best]))

    def _starts(self, known: Sequence[tuple[Seconds, ShardingPlan]]) -> Iterator[Start | None]:
        """Yield known plans and greedy ones; those known that the first rules beat come last.

        None: it is time to run from what there is, as making the next ones takes long.

        At 5,000 tables on 1,024 GPUs balancing one takes 2 CPU seconds, and a few rules take a
        tenth of that to do better than the balanced plan of tables in turn.
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
        """Return what other places make of a plan; its options stay as they are."""
        return self._anneal(plan, self._balancing, COLD, placing=True)

    @property
    def evaluated(self) -> int:
        """Return how many plans were looked at."""
        return self._annealed + self.sets.evaluated

    def spent(self) -> bool:
        """Return whether the budget is."""
        return self.budget.spent(self.evaluated)

    def join(self, start: Start) -> None:
        """Balance plans of a set, and let each contend; where there are several, anneal them first.

        Of these, the better ones come first. Those that take more memory than there is are annealed
        first, too; if that does not make them fit, the set's tables are packed (``_pack``).

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
                contenders.append(Contender(start.types, origin, *found, found[1], self._balancing))
        for contender in sorted(contenders, key=lambda each: each.time):
            if len(contenders) > 1 or contender.time == inf:
                self._run(contender, self._first_run)
            if not contender.fits and self._is_worth_packing(contender):
                self._pack(contender, self._first_run)
            self._enter(contender)

    def _is_worth_packing(self, contender: Contender) -> bool:
        """Return whether there may be plans of a contender's set that fit and take less time."""
        return self.sets.is_worth_packing(contender.types, self.best[0])

    def _pack(self, contender: Contender, effort: int) -> None:
        """Look for another plan of a contender's set, one that fits in memory.

        Where tables take nearly all memory and GPUs have few, hardly any plan fits, and annealing
        comes upon none: 30 tables on 64 GPUs end two CPU seconds 37% lower with it (6.64 ms, where
        the only set that contended took 9.64), and two of 26 other such problems 13 and 32% lower
        after 0.3 to one; 78 problems of full memory drawn afterwards end as low.
        """
        found = self.sets.packed(contender.types, effort)
        contender.moves += effort
        self.moves += effort
        if found is not None:
            contender.time, contender.choices = found
            contender.first = contender.choices
            if found[0] < self.best[0] * (1 - IMPROVED):
                self._note(found)

    @property
    def _first_run(self) -> int:
        """Return how many moves the first run from a set's plan has."""
        share = int(FIRST_SHARE * self.moves)
        return max(FIRST_RUN * self.num_tables, share)

    def _enter(self, contender: Contender) -> None:
        """Let a contender take the place of the one of its set and origin, if it is better."""
        same = [
            each for each in self.contenders
            if (each.types, each.origin) == (contender.types, contender.origin)
        ]  # fmt: skip
        if same and same[0].time <= contender.time:
            return
        if same:
            contender.moves = same[0].moves
        self._rank([*(each for each in self.contenders if each not in same), contender])

    def _rank(self, contenders: Sequence[Contender]) -> None:
        """Order contenders by their steps; leave those behind that are too many.

        Those that do not fit come last, by what their sets' programs say, while that is less than
        the best step, and packing goes on.
        """

        def order(each: Contender) -> tuple[Seconds, Seconds, int, int]:
            said = 0.0 if each.fits else self.sets.value(each.types)
            return each.time, said, each.types, each.origin

        some = [each for each in contenders if each.fits or self._is_worth_packing(each)]
        self.contenders = sorted(some, key=order)[:MAX_CONTENDERS]

    def run_next(self) -> None:
        """Run from the contender that has had the least for its place and for how good it is.

        Those that do not fit are packed instead, and have places of their own. Before that, where
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
        """Let plans contend that shard all tables of a type of the best one by others.

        Once for every set of types that it has, and where runs from it gain nothing.
        """
        best = self.contenders[0]
        if not best.is_stuck:
            return
        types = self.engine.types_of(best.choices)
        if types not in self._changed:
            self._changed.add(types)
            for start in self.sets.changed((best.time, best.choices), self.spent):
                self.join(start)

    def _run(self, contender: Contender, length: int) -> None:
        """Run from a contender's plan, or the first it had; keep a better one that is found.

        Where the last run gained nothing, from the first one again. While every other of these
        began with all tables of a kind sharded by another type instead, 28 problems of several
        kinds ended 0.2% higher after eight CPU seconds (56 runs, standard error 0.1%).
        """
        self.engine.offer(contender.types, self.sets.prices(contender.types))
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
        """Take a plan for the best, and tell of it."""
        self.best = found
        self.budget.report(Progress(evaluated=self.evaluated, best=found[0]))

    def _drawn_heat(self) -> float:
        """Draw the logarithm of the heat of a run, near the one that has paid of late."""
        low, high = map(log, HEAT_RANGE)
        if self.rng.random() < ANY_HEAT_SHARE:
            return self.rng.uniform(low, high)
        drawn = self.rng.gauss(self._heat, HEAT_SPREAD)
        return min(high, max(low, drawn))

    def _is_quiet(self) -> bool:
        """Return whether all that was gained of late is less than the model can tell apart."""
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
        """Return how many moves to draw before the next look at the budget."""
        if self.budget.time_left() == inf:
            return MOVES_AT_ONCE
        if self.seconds_per_move == 0:
            return FIRST_MOVES
        soon = int(LOOK_EVERY / self.seconds_per_move)
        return max(1, min(MOVES_AT_ONCE, soon))
