"""The compiled search as the annealer uses it: start from a plan, anneal, read the best plan."""

from collections.abc import Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

from costmodel.execution.lowering import (
    CONSTANT,
    EXCHANGE,
    ISSUE,
    STREAM,
    Columns,
    LoweredStep,
    join,
    lower,
    machine,
)
from costmodel.execution.native import Journal, Loads, Places, Plan, Touched
from costmodel.execution.native_cycles import no_cycles
from costmodel.execution.native_step import Scratch
from costmodel.execution.template import PLAN_FEATURES, RANK_FEATURES, Template, WorkKind
from costmodel.kernels.embedding import NUM_TRAFFIC
from costmodel.plan import ShardingPlan
from costmodel.units import Seconds
from sharders.guide import exchange_rates
from sharders.moves import MOST_TOGETHER
from sharders.native.annealing import Best, Standing, anneal
from sharders.native.greedy import Rule, desk, fill
from sharders.native.loads import rebuild
from sharders.native.moves import Aids
from sharders.native.state import MARGIN, Choices, Move, Rows, Search, guide_of, time_of, times_of
from sharders.native.tables import NativeProblem, native_problem
from sharders.problem import ShardingProblem

ENTRIES = anneal, fill, guide_of, rebuild, time_of, times_of
"""The compiled functions that Python calls."""
NOT_MADE = -1
CYCLES = 64
"""Programs whose cycles are kept: the first ones made, a search seldom makes more."""
ALL = -1
"""Bits of all sharding groups."""
NOWHERE = 0
"""Where durations are not kept that are constants."""
SAVED_PER_SHARD = 2
"""Times loads are saved where a shard comes or goes: what is looked up, and what is sent."""
NOTED_PER_SHARD = 2
"""Numbers that change there: memory of the rank and its host."""
NOTED_PER_TABLE = 2 * len(PLAN_FEATURES) + len(RANK_FEATURES) + 4
"""And where a table does: its group's sums, each by itself and all if it was the last one, what is
known of all ranks' features, whether there is the group, and its count."""
_KEPT_ELSEWHERE = (WorkKind.CONSTANT, WorkKind.FORWARD, WorkKind.BACKWARD)


class Engine:
    """One search on one problem; every burst starts from one of some plans, or one found since."""

    def __init__(self, problem: ShardingProblem, starts: Sequence[ShardingPlan] = ()) -> None:
        self.native: NativeProblem = native_problem(problem, starts)
        self.problem = problem
        self.room = float(problem.capacity), float(problem.host_capacity)
        self.everything = problem.templates.of(self.native.signature)
        self.rows: list[int]
        """Of every operation, where its duration is kept."""
        self.steps: list[LoweredStep]
        self.groups_of: list[int]
        """Of every step, the bits of the groups its plans have."""
        self.search = self._empty()
        self.aids = self._aids()
        self.desk = desk(self.native.tables, problem.topology.world_size)
        width = self.native.widest
        self.move = Move(
            length=_ints(1), table=_ints(MOST_TOGETHER), option=_ints(MOST_TOGETHER),
            ranks=np.zeros((MOST_TOGETHER, width), dtype=np.int16),
        )  # fmt: skip
        self.standing = Standing(0, 0, 0, np.inf, np.inf, np.inf, 0)

    def choices_of(self, plan: ShardingPlan) -> Choices:
        """Return a plan, one of those to start from or found since, as choices."""
        return Choices(*self.native.choices(plan))

    def plan_of(self, choices: Choices) -> ShardingPlan:
        """Return the plan of some choices; takes as long as some thousand moves."""
        return self.native.plan(*choices)

    def start(self, choices: Choices) -> Seconds:
        """Make a plan the present one, and the burst's best; return its step time."""
        self.search = self.search._replace(choices=_copy(choices))
        num_tables = len(choices.option)
        self.best = Best(*_copy(choices), _ints(num_tables + 1), _ints(num_tables))
        self._rebuild()
        seconds = self.present_time()
        guide = float(guide_of(self.search, seconds))
        self.standing = Standing(0, 0, 0, guide, seconds, guide, 0)
        return seconds

    def anneal(
        self,
        count: int,
        schedule: tuple[float, float, float],
        rng: Random,
        *,
        placing: bool = False,
    ) -> Standing:
        """Draw so many moves, and return where the burst stands; ``placing``: of places only."""
        self._rebuild()  # sums of many changes are rounded
        until = self.standing.moves + count
        while self.standing.moves < until:
            left = until - self.standing.moves
            self.standing = Standing(*anneal(
                self.search, self.aids, self.move, self.best, self.standing, left, schedule,
                placing, rng.getrandbits(31),
            ))  # fmt: skip
            if self.standing.moves < until:
                self._make_program(int(self.search.wanted[0]))
        return self.standing

    def fill(self, rule: Rule) -> Seconds | None:
        """Make a rule's plan the present one; return its step time, None if there is no room."""
        if not fill(self.search, self.desk, rule, self.room):
            return None
        self._rebuild(groups=0)
        return self.present_time()

    def step_times(
        self, options: NDArray[np.int64], ranks: NDArray[np.int16]
    ) -> NDArray[np.float64]:
        """Return the step times of whole plans, in seconds, shape (plans,); the last is present.

        Parameters
        ----------
        options
            Of every plan, each table's option, shape (plans, tables) (``NativeProblem.choices``).
        ranks
            And the ranks of its blocks, shape (plans, tables, ``NativeProblem.widest``).

        Returns
        -------
            Infinite where a plan does not fit in memory.

        """
        times, done = np.zeros(len(options)), 0
        while done < len(times):
            done = times_of(self.search, options, ranks, self.room, times, done)
            if done < len(times):
                self._make_program(int(self.search.wanted[0]))
        return times

    def present(self) -> Choices:
        """Return the present plan."""
        return _copy(self.search.choices)

    def present_types(self) -> int:
        """Return the bits of the sharding groups that the present plan has."""
        return self.groups_of[int(self.search.which[0])]

    def present_time(self) -> Seconds:
        """Return the step time of the present plan."""
        return float(time_of(self.search))

    def best_since(self) -> Choices:
        """Return the best plan since the start."""
        return _copy(Choices(self.best.option, self.best.ranks))

    def _rebuild(self, groups: int = ALL) -> None:
        """Bring loads up to date; durations, too, of these groups and those that the plan has."""
        while rebuild(self.search, self.room, groups):
            self._make_program(int(self.search.wanted[0]))

    def _make_program(self, bits: int) -> None:
        """Lower the step of the plans that have these sharding groups."""
        native = self.native
        signature = tuple(
            item for number, item in enumerate(native.signature) if bits >> number & 1
        )
        present = {key for key, _ in signature}
        made = self.problem.templates.of(signature)
        known = [  # a program may have constants that others have not
            row
            for op, row in zip(self.everything.ops, self.rows, strict=True)
            if row != NOWHERE and op.exists(present)
        ]
        rows = [NOWHERE] * len(made.ops)
        varying = [n for n, op in enumerate(made.ops) if op.work.kind is not WorkKind.CONSTANT]
        for number, row in zip(varying, known, strict=True):
            rows[number] = row
        self.search.program_of[bits] = len(self.steps)
        self.groups_of.append(bits)
        self.steps.append(lower(made, native.columns, rows))
        self.search = self.search._replace(programs=join(self.steps))

    def _empty(self) -> Search:
        problem, native = self.problem, self.native
        groups, kernels = len(native.columns.groups), len(native.columns.kernels)
        ranks, tables = problem.topology.world_size, len(problem.workload.tables)
        places = _places(self.everything, groups, kernels)
        self.rows = _duration_rows(self.everything, native.columns, places)
        every = lower(self.everything, native.columns, self.rows)
        self.steps, self.groups_of = [every], [(1 << groups) - 1]
        load, features = places.steps + 3 * places.step_rows, groups * len(RANK_FEATURES)
        rows = Rows(
            load=load, power=load + 1, exchanged=load + 2,
            free=load + 2 + features, host_free=load + 3 + features, counts=load + 4 + features,
        )  # fmt: skip
        numbers, ops = np.zeros((rows.counts + groups, ranks)), len(self.everything.ops)
        program_of = np.full(1 << groups, NOT_MADE, dtype=np.int64)
        program_of[-1] = 0
        shards = int(np.diff(native.tables.first).max())
        moved = 2 * MOST_TOGETHER * (shards * NOTED_PER_SHARD + NOTED_PER_TABLE)
        exchanges = places.step_rows * ranks * problem.topology.local_world_size
        noted = moved + 2 * numbers.size + exchanges  # ranks of a node may come one by one
        loads = np.zeros((ranks, features + kernels * NUM_TRAFFIC))
        saved = 2 * MOST_TOGETHER * shards * SAVED_PER_SHARD + ranks * kernels
        return Search(
            plan=Plan(
                machine=machine(problem.topology, groups),
                places=places,
                numbers=numbers,
                flat=numbers.reshape(-1),
                journal=Journal(_ints(noted), np.zeros(noted), _ints(1)),
                loads=Loads(
                    of_ranks=loads,
                    flat=loads.reshape(-1),
                    saved=Journal(_ints(saved), np.zeros(saved * NUM_TRAFFIC), _ints(1)),
                ),
                touched=_touched(every, groups),
                everyone=np.arange(ranks),
                node_of=np.arange(ranks) // problem.topology.local_world_size,
            ),
            rows=rows,
            tables=native.tables,
            exchange_rates=exchange_rates(self.everything, native.columns.groups).reshape(-1),
            choices=Choices(_ints(tables), np.zeros((tables, native.widest), dtype=np.int16)),
            every=every,
            programs=join(self.steps),
            program_of=program_of,
            which=_ints(1),
            wanted=_ints(1),
            scratch=Scratch(
                ends=np.zeros((2 * ops, ranks)),
                together=_ints(2 * ops),
                latest=np.zeros(2 * ops),
                others=_ints(ops),
                waits=np.zeros(ops),
            ),
            cycles=no_cycles(min(1 << groups, CYCLES), ops, len(numbers)),
            margin=MARGIN,
            changed=_ints(ranks + 1),
            is_changed=_ints(ranks),
        )

    def _op_of(self) -> NDArray[np.int64]:
        """Return of every row of the numbers which operation's duration it is; -1: none."""
        every, op_of = self.search.every, np.full(len(self.search.plan.numbers), -1)
        kept = np.flatnonzero((every.kind != CONSTANT) & (every.kind != ISSUE))
        op_of[every.rows[kept]] = kept
        return op_of

    def _aids(self) -> Aids:
        ranks = self.problem.topology.world_size
        return Aids(
            order=np.arange(ranks),
            slowest=_ints(len(self.problem.workload.tables) + 1),
            taken=_ints(ranks),
            op_of=self._op_of(),
            state=np.zeros(1, dtype=np.uint64),
        )


def _copy(choices: Choices) -> Choices:
    return Choices(choices.option.copy(), choices.ranks.copy())


def _ints(count: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.zeros(count, dtype=np.int64)


def _places(everything: Template, groups: int, kernels: int) -> Places:
    forward = groups * len(PLAN_FEATURES)
    given = sum(op.work.kind not in _KEPT_ELSEWHERE for op in everything.ops)
    return Places(
        whole=0,
        forward=forward,
        backward=forward + kernels,
        steps=forward + 2 * kernels,
        step_rows=given,
    )


def _duration_rows(everything: Template, columns: Columns, places: Places) -> list[int]:
    """Return where the duration of every operation is kept; a constant's is nowhere."""
    rows: list[int] = []
    count = 0
    for op in everything.ops:
        work = op.work
        if work.kernel is not None:
            backward = work.kind is WorkKind.BACKWARD
            first = places.backward if backward else places.forward
            rows.append(first + columns.kernels[work.kernel])
        elif work.kind is WorkKind.CONSTANT:
            rows.append(NOWHERE)
        else:
            rows.append(places.steps + count)
            count += 1
    return rows


def _touched(every: LoweredStep, groups: int) -> Touched:
    ops = [
        [
            op
            for op in reversed(range(len(every.kind)))
            if every.touched_by[op] >> group & 1 and every.kind[op] in (STREAM, EXCHANGE, ISSUE)
        ]
        for group in range(groups)
    ]
    starts = np.cumsum([0, *map(len, ops)])
    return Touched(starts, np.array([op for some in ops for op in some], dtype=np.int64))
