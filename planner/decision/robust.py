"""Descents to a plan that is good on many sampled machines and leaves most in reserve.

A search minimises the predicted step. Where that does not depend on the plan (the host decides,
say), the first plan found wins: it may put tables on few ranks and cut small ones over all. A
descent moves single tables as long as that shortens the mean step over machines drawn from the
models' errors (``costmodel.uncertainty.scenarios``), or makes the plan preferable (``Preference``)
without a longer step that the models could tell.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.base.arrays import Array, Mask
from costmodel.base.errors import InfeasibleError
from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingPlan, ShardingType
from costmodel.step.synthesis import MOST_WRITTEN
from costmodel.uncertainty.scenarios import scenarios
from planner.decision.narrow import NARROW, SMALL
from planner.environment.compiled import interpreted_modules
from sharders.annealing.plan_editor import Move, PlacedOption, PlanEditor
from sharders.annealing.schedule import COLD, HEAT
from sharders.engine.problem_arrays import offered
from sharders.problem.groundwork import Groundwork
from sharders.problem.options import places
from sharders.problem.sharding_problem import ShardingProblem

NUM_SCENARIOS, LEAST_SCENARIOS = 8, 2
"""Number of sampled machines that are searched over, and the smallest number worth searching
over."""
FULL_STEP = 0.02
"""Unit of ``Preference.full``, as a share of the bytes that a rank has for tables."""
EVEN, EVEN_STEP = 1.05, 0.05
"""Largest value over the mean, of lookups or memory, that is even; and the unit in which what is
above it counts (``Preference.skewed``)."""
SHARDS_STEP = 0.1
"""Unit of ``Preference.cuts``: a shard more for every tenth table is worth evener memory."""
DOUBLED_STEP = 0.01
"""Unit of ``Preference.doubled``, as a share of the step at twice the batch: the models tell no
less apart."""
UNEVEN_STEP = 0.01
"""Unit of ``Preference.uneven``. Unevenness of a quantity is the number of ranks times the sum of
its squares over the square of its sum: 1 where all ranks have the same, the number of ranks where
one rank has all."""
SLACK = 0.005
"""Share of the mean step by which a preferable plan may be slower."""
FAR = 0.02
"""Share by which a change may be slower on the first machines than the best one of its table before
it is left out."""
GAIN = 1e-3
"""A mean step counts as shorter if it is so by at least this share."""
MOVES = 100
"""Moves of an annealing run on one machine, for each table."""
MOST_PLACES = 8
"""Number of places (sets of ranks) tried for one option of one table, the least loaded ranks first.
The table's present ranks are tried besides, as its own load makes them look busy."""
MOST_EXCHANGES = 16
"""Number of tables that one on the fullest rank is exchanged with."""
MOST_PASSES = 6
"""Largest number of passes of a descent over all tables."""
EDITOR_TIME: Seconds = 0.015
OPTION_TIME: Seconds = 4.5e-5
"""CPU seconds that an editor takes to get ready for each option of a table, and a look at it takes,
once costs are known; and as much again for each further batch of a step that is written."""
TIMES_INTERPRETED = 100
"""Factor by which descents and the runs before them are slower where they run interpreted."""
PLANS_PER_LOOK = 20
"""Where plans are counted instead of time: number of plans of the search for which a descent may
look at one table."""
READY, DESCENTS = 0.25, 0.7
"""Shares of the time left by which the editors have to be ready and the descents done; timing plans
under all samples takes less than the rest."""
_MOST = 10**9


class Preference(NamedTuple):
    """How preferable a plan is among plans of the same step: the first difference decides.

    Less is better. Measured quantities are whole numbers of units (``FULL_STEP`` and so on), so
    that small differences do not count. What a reviewer would ask first comes first: does it leave
    room, why are small tables cut, why so many shards and collectives, is it even?
    """

    full: int
    """Bytes on the fullest rank above what is to be filled (``Search.headroom`` is not), in units
    of ``FULL_STEP``."""
    small: int
    """Number of small tables that are cut (``SMALL``)."""
    narrow: int
    """Number of shards narrower than ``NARROW`` columns, of tables that are not narrow."""
    cuts: int
    """Shards of a table in the mean, in units of ``SHARDS_STEP``: fewer are wider, and need fewer
    kernel arguments and checkpoint files."""
    types: int
    """Number of sharding types in use: each has collectives of its own."""
    skewed: int
    """Largest lookups and memory of a rank over the mean, above ``EVEN``, in ``EVEN_STEP``: even
    ones suit any error, and leave room for tables that grow."""
    shards: int
    """Number of shards; a replicated table counts as one."""
    doubled: int
    """Step at twice the batch, in units of ``DOUBLED_STEP`` of the first plan's step; a large
    number where it does not fit."""
    uneven: int
    """Unevenness of lookups and of memory, in units of ``UNEVEN_STEP``."""


LAST = Preference(*(_MOST for _ in Preference._fields))


class _Shape(NamedTuple):
    """The parts of a ``Preference`` that one table's option adds on any ranks."""

    small: int
    narrow: int
    shards: int
    type: ShardingType


class RobustSearch:
    """The plans of one problem on several machines at once, and at twice the batch."""

    def __init__(
        self,
        problem: ShardingProblem,
        go_on: Callable[[], bool],
        num_scenarios: int = NUM_SCENARIOS,
    ) -> None:
        workload, topology = problem.workload, problem.topology
        machines = scenarios(topology, workload.dense.precision, num_scenarios)
        problem = with_one_block(problem)
        self._problem, self._go_on = problem, go_on
        self._shapes: dict[tuple[int, PlacedOption], _Shape] = {}
        self._doubled_unit = 0.0
        self._predicted = PlanEditor(problem)
        self._machines = [
            PlanEditor(with_one_block(ShardingProblem.of(workload, machine)))
            for machine in machines
        ]
        self._doubled = _doubled(problem)

    def start(self, plan: ShardingPlan) -> Preference:
        """Make a plan the current one, and return its preference.

        The first plan's step at twice the batch is the unit of later preferences.
        """
        self._predicted.start(plan)
        self._mean = self.mean(plan)
        doubled = _started_step(self._doubled, plan)
        self._fits_doubled = doubled < inf
        self._doubled_unit = self._doubled_unit or (doubled if doubled < inf else 0.0)
        lookups, free = self._predicted.rank_times(), self._predicted.free()
        shapes = self._shapes_now()
        (self._preference,) = self._preferred(lookups[None], free[None], [doubled], [shapes])
        return self._preference

    def has_time(self) -> bool:
        """Return whether there is time for another descent."""
        return self._go_on()

    def mean(self, plan: ShardingPlan) -> Seconds:
        """Return the mean step of a plan on all machines, in seconds, and make it current there.

        It is infinite if the plan has options that are not offered.
        """
        if not offered(self._problem, [plan]):
            return inf
        return float(np.mean([editor.start(plan) for editor in self._machines]))

    def preference(self, plan: ShardingPlan) -> Preference:
        """Return how preferable a plan is; the worst value if it has options not offered."""
        return self.start(plan) if offered(self._problem, [plan]) else LAST

    def elsewhere(self, plan: ShardingPlan) -> Iterator[ShardingPlan]:
        """Yield the plans at which short annealing runs from a plan end, one on each machine.

        A few runs are made even without time left: they take less time than getting ready did. They
        find plans far from the first one, which a search cannot where the host decides on the
        predicted machine.
        """
        if not offered(self._problem, [plan]):
            return
        tables = len(self._problem.workload.tables)
        for number, editor in enumerate(self._machines):
            if number >= LEAST_SCENARIOS and not self._go_on():
                return
            editor.start(plan)
            yield editor.annealed(MOVES * tables, HEAT / tables, COLD)

    def descend(self, plan: ShardingPlan) -> ShardingPlan:
        """Return the plan at the end of a descent; its mean step is at most ``SLACK`` longer.

        A plan with options that are not offered is returned as it is.
        """
        if not offered(self._problem, [plan]):
            return plan
        self.start(plan)
        best = self._mean
        for _ in range(MOST_PASSES):
            changed = False
            for index in self._busiest_tables():
                if not self._go_on():
                    return self._predicted.plan()
                made = self._improved(index, best)
                best, changed = min(best, self._mean), changed or made
            if not changed:
                break
        return self._predicted.plan()

    def _improved(self, index: int, best: Seconds) -> bool:
        """Make the best change of one table, and return whether there was one.

        A change is one that shortens the mean step or makes the plan preferable.
        """
        moves: list[Move] = [{index: choice} for choice in self._other_choices(index)]
        moves += self._exchanges(index)
        seconds, lookups, free = self._predicted.outcomes(moves)
        means = self._means(moves, seconds < inf)
        shorter = float(means.min(initial=inf)) < self._mean * (1 - GAIN)
        allowed = (
            [int(means.argmin())]
            if shorter
            else np.flatnonzero(means <= best * (1 + SLACK)).tolist()
        )
        if not allowed:
            return False
        some: list[Move] = [moves[number] for number in allowed]
        others = [shape for i, shape in enumerate(self._shapes_now()) if i != index]
        after = self._preferred(
            lookups[allowed],
            free[allowed],
            self._doubled_times(some),
            # exchanged tables keep their shapes
            [[*others, self._shape(index, move[index])] for move in some],
        )
        preference, mean, chosen = min(zip(after, means[allowed].tolist(), allowed, strict=True))
        if shorter or preference < self._preference:
            self._make(moves[chosen])
            self._mean, self._preference = mean, preference
            return True
        return False

    def _means(self, moves: Sequence[Move], fits: Mask) -> Array:
        """Return the mean step after each move, shape (moves,); infinite where it is far from best.

        That is so if the plan does not fit, or takes longer than the best one by ``FAR`` on the
        first machines alone.
        """
        means, numbers = np.full(len(moves), inf), np.flatnonzero(fits)
        first, others = self._machines[:LEAST_SCENARIOS], self._machines[LEAST_SCENARIOS:]
        some = [moves[n] for n in numbers.tolist()]
        times = np.array([editor.times(some)[0] for editor in first])
        near = times.mean(axis=0) <= times.mean(axis=0).min(initial=inf) * (1 + FAR)
        numbers, times = numbers[near], times[:, near]
        some = [moves[n] for n in numbers.tolist()]
        means[numbers] = np.mean([*times, *(editor.times(some)[0] for editor in others)], axis=0)
        return means

    def _exchanges(self, index: int) -> Iterator[Move]:
        """Yield exchanges of a table on the fullest rank with tables of equal options elsewhere.

        Those with the most similar lookups come first: they even out memory and leave lookups.
        """
        choices, free = self._predicted.choices, self._predicted.free()
        mine = choices[index]
        if int(free.argmin()) not in mine.ranks:
            return
        work = [each.pooling_factor * each.embedding_dim for each in self._predicted.tables]
        others = [
            other
            for other, choice in enumerate(choices)
            if choice.option == mine.option and choice.ranks != mine.ranks
        ]
        for other in sorted(others, key=lambda each: abs(work[each] - work[index]))[
            :MOST_EXCHANGES
        ]:
            yield {
                index: PlacedOption(mine.option, choices[other].ranks),
                other: PlacedOption(choices[other].option, mine.ranks),
            }

    def _make(self, move: Move) -> None:
        """Make a move on all machines."""
        for editor in (self._predicted, *self._machines):
            editor.apply(move)
        if self._doubled is not None and self._fits_doubled:
            self._fits_doubled = self._doubled.knows(move) and self._doubled.apply(move)

    def _doubled_times(self, moves: Sequence[Move]) -> list[Seconds]:
        """Return the step of each move at twice the batch; infinite where it does not fit."""
        editor = self._doubled if self._fits_doubled else None
        if editor is None:
            return [inf] * len(moves)
        times = iter(editor.times([move for move in moves if editor.knows(move)])[0].tolist())
        return [next(times) if editor.knows(move) else inf for move in moves]

    def _preferred(
        self,
        lookups: Array,
        free: Array,
        doubled: Sequence[Seconds],
        shapes: Sequence[Sequence[_Shape]],
    ) -> list[Preference]:
        """Return the preference of each plan.

        Parameters
        ----------
        lookups, free
            Seconds of lookups and bytes of HBM left, shape (plans, ranks).
        doubled
            Steps at twice the batch, shape (plans,).
        shapes
            Of all tables, for each plan.

        """
        capacity = max(1.0, self._problem.capacity)
        held = np.maximum(capacity - free, 0.0)
        above = np.maximum(held.max(axis=1) / capacity - 1, 0.0)
        full = np.rint(above / FULL_STEP).astype(int).tolist()
        skewed = (_skewness(lookups) + _skewness(held)).tolist()
        uneven = np.rint((_unevenness(lookups) + _unevenness(held)) / UNEVEN_STEP).astype(int)
        unit = self._doubled_unit * DOUBLED_STEP
        found = []
        for number, own in enumerate(shapes):
            small, narrow, shards, kinds = zip(*own, strict=True)
            step_time = doubled[number]
            found.append(
                Preference(
                    full=full[number],
                    small=sum(small),
                    narrow=sum(narrow),
                    cuts=round(sum(shards) / (SHARDS_STEP * len(own))),
                    types=len(set(kinds)),
                    skewed=skewed[number],
                    shards=sum(shards),
                    doubled=round(step_time / unit) if unit and step_time < inf else _MOST,
                    uneven=int(uneven[number]),
                )
            )
        return found

    def _shapes_now(self) -> list[_Shape]:
        """Return the shape of every table in the current plan."""
        return [self._shape(i, choice) for i, choice in enumerate(self._predicted.choices)]

    def _shape(self, index: int, choice: PlacedOption) -> _Shape:
        """Return how finely a choice cuts a table; remembered."""
        known = self._shapes.get((index, choice))
        if known is None:
            option, table = choice.option, self._predicted.tables[index]
            whole = option.sharding_type is ShardingType.DATA_PARALLEL
            count = 1 if whole else option.num_shards(self._problem.topology)
            width = table.embedding_dim // option.num_column_shards
            narrow = count if width < min(NARROW, table.embedding_dim) else 0
            small = count > 1 and table.weight_bytes < SMALL
            known = _Shape(int(small), narrow, count, option.sharding_type)
            self._shapes[index, choice] = known
        return known

    def _busiest_tables(self) -> Sequence[int]:
        """Return the numbers of all tables, those with most lookup time first."""
        tables = self._predicted.tables
        work = [-table.pooling_factor * table.embedding_dim for table in tables]
        return sorted(range(len(tables)), key=work.__getitem__)

    def _other_choices(self, index: int) -> Iterator[PlacedOption]:
        """Yield other options and ranks for a table, in places where lookups are few."""
        topology, load = self._problem.topology, self._predicted.rank_times()
        free, present = self._predicted.free(), self._predicted.choices[index]
        order = sorted(
            range(topology.world_size), key=lambda r: (float(load[r]), -float(free[r]), r)
        )
        stay = sorted(order, key=lambda rank: rank not in present.ranks)  # of these, by load
        for option in self._problem.options[self._predicted.tables[index].name]:
            light = islice(places(topology, option, order), MOST_PLACES)
            for ranks in dict.fromkeys((*light, *islice(places(topology, option, stay), 1))):
                choice = PlacedOption(option, ranks)
                if choice != present and not self._shape(index, choice).narrow:
                    yield choice


def with_one_block(problem: ShardingProblem) -> ShardingProblem:
    """Return a problem whose whole tables may share the collectives of split ones.

    Sharders do not offer that: it takes as long as to split them, and they have fewer options to
    look at.
    """
    ground = Groundwork(problem.workload, problem.topology, one_block=True)
    return replace(problem, groundwork=ground)


def _skewness(values: Array) -> NDArray[np.int64]:
    """Return each plan's largest value over its mean, shape (plans,), of (plans, ranks).

    In units of ``EVEN_STEP`` above ``EVEN``.
    """
    mean = values.mean(axis=1)
    skew = values.max(axis=1) / np.where(mean > 0, mean, 1.0)
    units: NDArray[np.int64] = np.rint(np.maximum(skew - EVEN, 0.0) / EVEN_STEP).astype(np.int64)
    return units


def _unevenness(values: Array) -> Array:
    """Return each plan's unevenness (``UNEVEN_STEP``), shape (plans,), of (plans, ranks)."""
    total = values.sum(axis=1)
    square = np.where(total > 0, total, 1.0) ** 2
    uneven: Array = values.shape[1] * (values**2).sum(axis=1) / square
    return uneven


def robust_search(
    problem: ShardingProblem, time_left: Callable[[], Seconds], max_plans: int | None = None
) -> RobustSearch | None:
    """Return a search over as many machines as there is time for; None: not even over two.

    Getting ready and descents take at most ``DESCENTS`` of the time left. Where plans are counted,
    a descent looks at one table for every ``PLANS_PER_LOOK`` plans.
    """
    end = (1 - DESCENTS) * time_left() if time_left() < inf else 0.0
    num_machines = affordable_machines(problem, time_left())
    if num_machines < LEAST_SCENARIOS:
        return None
    looks = None if max_plans is None else iter(range(max_plans // PLANS_PER_LOOK))

    def go_on() -> bool:
        return time_left() > end and (looks is None or next(looks, None) is not None)

    return RobustSearch(problem, go_on, num_machines)


def affordable_machines(problem: ShardingProblem, seconds: Seconds) -> int:
    """Return the number of machines that can be searched over in some seconds."""
    if seconds == inf:
        return NUM_SCENARIOS
    batches = min(problem.workload.gradient_accumulation_steps, MOST_WRITTEN)
    each = (EDITOR_TIME + OPTION_TIME * problem.num_options) * batches
    if interpreted_modules():
        each *= TIMES_INTERPRETED
    return min(NUM_SCENARIOS, int(READY * seconds / each) - 2)


def _doubled(problem: ShardingProblem) -> PlanEditor | None:
    """Return an editor of plans at twice the batch; None: no plan fits there."""
    workload = replace(problem.workload, local_batch_size=2 * problem.workload.local_batch_size)
    try:
        return PlanEditor(with_one_block(ShardingProblem.of(workload, problem.topology)))
    except InfeasibleError:
        return None


def _started_step(editor: PlanEditor | None, plan: ShardingPlan) -> Seconds:
    """Return the step, in seconds, of a plan set in an editor; infinite where it does not fit."""
    if editor is None:
        return inf
    step_time = editor.start(plan)
    return step_time if float(editor.free().min()) >= 0 else inf
