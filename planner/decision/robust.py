"""Descent to a plan that stays good where the models are off, and has most in reserve.

A search minimises the step as predicted. Where that does not depend on the plan (the host decides,
say), ties go to whatever came first: tables on few ranks, small ones cut over all. Here single
tables are moved as long as that shortens the mean step over machines drawn from the models' errors
(``costmodel.uncertainty.scenarios``), or makes the plan preferable at no cost that the models could
tell: ``Preference`` has the order.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from math import inf
from typing import NamedTuple

import numpy as np

from costmodel.base.arrays import Array
from costmodel.base.errors import InfeasibleError
from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingPlan, ShardingType
from costmodel.step.synthesis import MOST_WRITTEN
from costmodel.uncertainty.scenarios import scenarios
from planner.decision.narrow import NARROW
from planner.environment.compiled import interpreted_modules
from sharders.annealing.plan_editor import Move, PlacedOption, PlanEditor
from sharders.annealing.schedule import COLD, HEAT
from sharders.engine.arrays import offered
from sharders.problem.options import places
from sharders.problem.sharding_problem import ShardingProblem

NUM_SCENARIOS, LEAST_SCENARIOS = 8, 2
"""Machines searched over; with time for fewer than the least, on none."""
LOOKUP_STEP = 0.02
"""Difference between the lookups of two plans' busiest ranks that counts, as a share of the step.
It is what the own errors of lookups (18%) make of lookups that are a tenth of the step."""
MEMORY_STEP = 0.05
"""Difference between the memory of two plans' fullest ranks that counts, as a share of all that a
rank has for tables: about what a reserve is off by."""
HEADROOM_STEP = 0.01
"""Difference between two steps at twice the batch that counts: what models can tell apart."""
UNEVEN_STEP = 0.01
"""Difference in unevenness that counts: ranks times the sum of squares over the square of the sum,
which is 1 where all ranks have the same, and as many as there are ranks where one has all."""
SLACK = 0.005
"""Share of the mean step that a preferable plan may cost."""
GAIN = 1e-3
"""Share of the mean step that counts as shorter."""
MOVES = 100
"""Moves for each table of a run on one machine: at 26 tables on 8 GPUs all runs take 0.05 CPU
seconds, and shorten the expected step of dlrm_dcnv2 from 7.58 to 7.46 ms; four times as many to
7.45."""
MOST_PLACES = 8
"""Sets of ranks tried for one option of one table, lightly loaded ranks first; and the ranks where
it is, as far as the option has them: its own load makes them look busy."""
MOST_PASSES = 6
"""Looks at every table."""
EDITOR_TIME: Seconds = 0.015
OPTION_TIME: Seconds = 4.5e-5
"""What an editor takes, and for each option of a table besides, once costs are known: 0.19 s for
the 3,900 of 300 tables on 128 GPUs, 0.025 s for the 260 of 26 on 8; as much again for every
further batch of a step that is written."""
TIMES_INTERPRETED = 100
"""Times as long as compiled that descents take, and the runs before them: 22 CPU seconds for 26
tables on 128 GPUs, of a limit of 4."""
PLANS_PER_LOOK = 20
"""Plans that a search counts for each look at a table. While nothing limited them, descents from a
search of 100 plans, a tenth of a second, took 50 for 400 tables on 64 GPUs."""
READY, DESCENTS = 0.25, 0.7
"""Shares of the time left in which to get ready, and to be done with descents: to time plans under
all samples takes less."""
_MOST = 10**9


class Preference(NamedTuple):
    """By what plans are chosen whose steps cannot be told apart: the first that differs decides.

    Less is better, everywhere; what is measured counts in steps, so that only differences that
    matter do.
    """

    lookups: int
    """Lookups of the busiest rank, in ``LOOKUP_STEP`` of the step: even ones suit any error."""
    memory: int
    """Bytes on the fullest rank, in ``MEMORY_STEP`` of what it has: room for tables that grow."""
    headroom: int
    """Step at twice the batch, in ``HEADROOM_STEP`` of the first plan's; many where it does not
    fit."""
    narrow: int
    """Shards narrower than ``NARROW`` columns, of tables that are not."""
    shards: int
    """Shards in all: fewer are wider, and fewer kernels' arguments, checkpoints' files, metrics."""
    cut: int
    """Tables that are not whole. Replicated ones are; those cut by rows are not, on one rank
    either."""
    types: int
    """Sharding types in use: each has collectives of its own."""
    uneven: int
    """Unevenness of lookups and of memory, however small they are, in ``UNEVEN_STEP``."""


LAST = Preference(*(_MOST for _ in Preference._fields))


class _Shape(NamedTuple):
    """What counts of one table's option whatever its ranks."""

    narrow: int
    shards: int
    cut: int
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
        self._problem, self._go_on = problem, go_on
        self._shapes: dict[tuple[int, PlacedOption], _Shape] = {}
        self._unit = self._doubled_unit = 0.0
        self._predicted = PlanEditor(problem)
        self._machines = [PlanEditor(ShardingProblem.of(workload, machine)) for machine in machines]
        self._doubled = _doubled(problem)

    def start(self, plan: ShardingPlan) -> Preference:
        """Make a plan the current one; the first one's step is what others are measured in."""
        step_time = self._predicted.start(plan)
        self._unit = self._unit or step_time
        self._mean = self.mean(plan)
        doubled = _started(self._doubled, plan)
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
        """Return the mean step of a plan on all machines; infinite where it has other options.

        It becomes the current one there.
        """
        if not offered(self._problem, [plan]):
            return inf
        return float(np.mean([editor.start(plan) for editor in self._machines]))

    def preference(self, plan: ShardingPlan) -> Preference:
        """Return what a plan is preferred by; last of all where it has other options."""
        return self.start(plan) if offered(self._problem, [plan]) else LAST

    def elsewhere(self, plan: ShardingPlan) -> Iterator[ShardingPlan]:
        """Yield where short runs of annealing from a plan end, one on each of the machines.

        Some are made whether or not there is time: they take less than it took to get ready.
        Where the host decides as predicted, the search cannot tell plans apart that lie far apart
        on a machine with a faster host.
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
        """Return where a descent from a plan ends: no longer a mean step, but for ``SLACK``.

        A plan that has options which are not offered stays as it is.
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
        """Make the best change of a table that shortens the mean step or is preferable, if any."""
        moves: list[Move] = [{index: choice} for choice in self._choices(index)]
        seconds, lookups, free = self._predicted.outcomes(moves)
        means = np.mean([editor.times(moves)[0] for editor in self._machines], axis=0)
        means[seconds == inf] = inf
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
            [[*others, self._shape(index, move[index])] for move in some],
        )
        preference, mean, chosen = min(zip(after, means[allowed].tolist(), allowed, strict=True))
        if shorter or preference < self._preference:
            self._make(moves[chosen])
            self._mean, self._preference = mean, preference
            return True
        return False

    def _make(self, move: Move) -> None:
        """Make a move on all machines."""
        for editor in (self._predicted, *self._machines):
            editor.apply(move)
        if self._doubled is not None and self._fits_doubled:
            self._fits_doubled = self._doubled.knows(move) and self._doubled.apply(move)

    def _doubled_times(self, moves: Sequence[Move]) -> list[Seconds]:
        """Return steps at twice the batch; infinite where memory or a cache's size has no room."""
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
        """Return the preferences of plans.

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
        busiest = np.rint(lookups.max(axis=1) / self._unit / LOOKUP_STEP).astype(int).tolist()
        fullest = np.rint(held.max(axis=1) / capacity / MEMORY_STEP).astype(int).tolist()
        uneven = np.rint((_unevenness(lookups) + _unevenness(held)) / UNEVEN_STEP).astype(int)
        unit = self._doubled_unit * HEADROOM_STEP
        found = []
        for number, own in enumerate(shapes):
            narrow, shards, cut, kinds = zip(*own, strict=True)
            step_time = doubled[number]
            found.append(
                Preference(
                    lookups=busiest[number],
                    memory=fullest[number],
                    headroom=round(step_time / unit) if unit and step_time < inf else _MOST,
                    narrow=sum(narrow),
                    shards=sum(shards),
                    cut=sum(cut),
                    types=len(set(kinds)),
                    uneven=int(uneven[number]),
                )
            )
        return found

    def _shapes_now(self) -> list[_Shape]:
        return [self._shape(i, choice) for i, choice in enumerate(self._predicted.choices)]

    def _shape(self, index: int, choice: PlacedOption) -> _Shape:
        known = self._shapes.get((index, choice))
        if known is None:
            option, table = choice.option, self._predicted.tables[index]
            whole = option.sharding_type is ShardingType.DATA_PARALLEL
            count = 1 if whole else option.num_shards(self._problem.topology)
            width = table.embedding_dim // option.num_column_shards
            narrow = count if width < min(NARROW, table.embedding_dim) else 0
            cut = count > 1 or option.sharding_type.splits_rows
            known = _Shape(narrow, count, int(cut), option.sharding_type)
            self._shapes[index, choice] = known
        return known

    def _busiest_tables(self) -> Sequence[int]:
        """Return tables by their lookups, the busiest first."""
        tables = self._predicted.tables
        work = [-table.pooling_factor * table.embedding_dim for table in tables]
        return sorted(range(len(tables)), key=work.__getitem__)

    def _choices(self, index: int) -> Iterator[PlacedOption]:
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


def _unevenness(values: Array) -> Array:
    """Return how uneven some plans' values are, shape (plans,), of shape (plans, ranks)."""
    total = values.sum(axis=1)
    square = np.where(total > 0, total, 1.0) ** 2
    uneven: Array = values.shape[1] * (values**2).sum(axis=1) / square
    return uneven


def robust_search(
    problem: ShardingProblem, time_left: Callable[[], Seconds], max_plans: int | None = None
) -> RobustSearch | None:
    """Return a search over as many machines as there is time for; None: there is none for two.

    ``DESCENTS`` of the time left go into descents at most, getting ready included; where plans are
    counted, a look at a table for every ``PLANS_PER_LOOK`` of them.
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
    """Return over how many machines there is time to search."""
    if seconds == inf:
        return NUM_SCENARIOS
    batches = min(problem.workload.gradient_accumulation_steps, MOST_WRITTEN)
    each = (EDITOR_TIME + OPTION_TIME * problem.num_options) * batches
    if interpreted_modules():
        each *= TIMES_INTERPRETED
    return min(NUM_SCENARIOS, int(READY * seconds / each) - 2)


def _doubled(problem: ShardingProblem) -> PlanEditor | None:
    """Return an editor of plans at twice the batch; None: nothing fits there."""
    workload = replace(problem.workload, local_batch_size=2 * problem.workload.local_batch_size)
    try:
        return PlanEditor(ShardingProblem.of(workload, problem.topology))
    except InfeasibleError:
        return None


def _started(editor: PlanEditor | None, plan: ShardingPlan) -> Seconds:
    """Return the step of a plan that an editor starts from; infinite where it does not fit."""
    if editor is None:
        return inf
    step_time = editor.start(plan)
    return step_time if float(editor.free().min()) >= 0 else inf
