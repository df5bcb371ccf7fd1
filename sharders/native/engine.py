"""The compiled search as the annealer uses it: start from a plan, anneal, read the best plan."""

from collections.abc import Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

from costmodel.execution.lowering import LoweredStep, join, lower, machine
from costmodel.execution.native import Journal, Places, Plan, Scratch
from costmodel.execution.synthesis import template
from costmodel.execution.template import PLAN_FEATURES, RANK_FEATURES
from costmodel.kernels.embedding import NUM_TRAFFIC
from costmodel.plan import ShardingPlan
from costmodel.units import Seconds
from sharders.moves import MOST_TOGETHER
from sharders.native.annealing import Best, Standing, anneal
from sharders.native.greedy import Rule, desk, fill
from sharders.native.loads import rebuild
from sharders.native.moves import Aids
from sharders.native.state import Choices, Move, Rows, Search, guide_of, time_of, times_of
from sharders.native.tables import NativeProblem, native_problem
from sharders.problem import ShardingProblem

NOT_MADE = -1


class Engine:
    """One search on one problem; every burst starts from one of some plans, or one found since."""

    def __init__(self, problem: ShardingProblem, starts: Sequence[ShardingPlan] = ()) -> None:
        self.native: NativeProblem = native_problem(problem, starts)
        self.problem = problem
        self.steps: list[LoweredStep] = []
        self.groups_of: list[int] = []
        """Of every step, the bits of the groups its plans have."""
        self.search = self._empty()
        self.aids = self._aids()
        self.desk = desk(self.native.tables, problem.topology.world_size)
        width = self.native.widest
        self.move = Move(
            length=_ints(1), table=_ints(MOST_TOGETHER), option=_ints(MOST_TOGETHER),
            ranks=np.zeros((MOST_TOGETHER, width), dtype=np.int64),
        )  # fmt: skip
        self.standing = Standing(0, 0, np.inf, np.inf, np.inf, 0)

    def start(self, plan: ShardingPlan) -> Seconds:
        """Make a plan the present one, and the burst's best; return its step time."""
        option, ranks = self.native.choices(plan, self.native.widest)
        self.search = self.search._replace(choices=Choices(option, ranks))
        num_tables = len(option)
        self.best = Best(option.copy(), ranks.copy(), _ints(num_tables + 1), _ints(num_tables))
        self._rebuild()
        seconds = self.problem.objective.step_time(plan)
        guide = float(guide_of(self.search, seconds))
        self.standing = Standing(0, 0, guide, seconds, guide, 0)
        return seconds

    def anneal(self, count: int, schedule: tuple[float, float, float], rng: Random) -> Standing:
        """Draw so many moves, and return where the burst stands."""
        self._rebuild()  # sums of many changes are rounded
        until = self.standing.moves + count
        while self.standing.moves < until:
            left = until - self.standing.moves
            self.standing = Standing(*anneal(
                self.search, self.aids, self.move, self.best, self.standing, left, schedule,
                rng.getrandbits(31),
            ))  # fmt: skip
            if self.standing.moves < until:
                self._make_program(int(self.search.wanted[0]))
        return self.standing

    def fill(self, rule: Rule) -> Seconds | None:
        """Make a rule's plan the present one; return its step time, None if there is no room."""
        room = (float(self.problem.capacity), float(self.problem.host_capacity))
        if not fill(self.search, self.desk, rule, room):
            return None
        self._rebuild()
        return self.present_time()

    def step_times(
        self, options: NDArray[np.int64], ranks: NDArray[np.int64]
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
        room = (float(self.problem.capacity), float(self.problem.host_capacity))
        while done < len(times):
            done = times_of(self.search, options, ranks, room, times, done)
            if done < len(times):
                self._make_program(int(self.search.wanted[0]))
        return times

    def present_plan(self) -> ShardingPlan:
        """Return the present plan."""
        return self.native.plan(*self.search.choices)

    def present_types(self) -> int:
        """Return the bits of the sharding groups that the present plan has."""
        return self.groups_of[int(self.search.which[1])]

    def present_time(self) -> Seconds:
        """Return the step time of the present plan."""
        return float(time_of(self.search))

    def best_plan(self) -> ShardingPlan:
        """Return the best plan since the start."""
        return self.native.plan(self.best.option, self.best.ranks)

    def _rebuild(self) -> None:
        problem = self.problem
        while rebuild(self.search, problem.capacity, problem.host_capacity):
            self._make_program(int(self.search.wanted[0]))

    def _make_program(self, bits: int) -> None:
        """Lower the step of the plans that have these sharding groups."""
        signature = tuple(
            item for number, item in enumerate(self.native.signature) if bits >> number & 1
        )
        made = template(self.problem.workload, self.problem.topology, signature)
        self.search.program_of[bits] = len(self.steps)
        self.groups_of.append(bits)
        self.steps.append(lower(made, self.native.columns))
        self.search = self.search._replace(programs=join(self.steps))

    def _empty(self) -> Search:
        problem, native = self.problem, self.native
        groups, kernels = len(native.columns.groups), len(native.columns.kernels)
        ranks = problem.topology.world_size
        everything = template(problem.workload, problem.topology, native.signature)
        ops = len(everything.ops)
        places = Places(
            ranks=0,
            whole=groups * len(RANK_FEATURES),
            forward=groups * (len(RANK_FEATURES) + len(PLAN_FEATURES)),
            backward=groups * (len(RANK_FEATURES) + len(PLAN_FEATURES)) + kernels,
            steps=groups * (len(RANK_FEATURES) + len(PLAN_FEATURES)) + 2 * kernels,
            step_rows=3 * ops,
        )
        traffic = places.steps + 2 * places.step_rows
        load = traffic + kernels * NUM_TRAFFIC
        rows = Rows(traffic=traffic, load=load, free=load + 1, host_free=load + 2, counts=load + 3)
        numbers = np.zeros((rows.counts + groups, ranks))
        program_of = np.full(1 << groups, NOT_MADE, dtype=np.int64)
        program_of[-1] = len(self.steps)
        self.groups_of.append(len(program_of) - 1)
        self.steps.append(lower(everything, native.columns))
        tables = len(problem.workload.tables)
        return Search(
            plan=Plan(
                machine=machine(problem.topology, groups),
                places=places,
                numbers=numbers,
                journal=Journal(
                    np.zeros_like(numbers), _ints(len(numbers)), _ints(len(numbers) + 1)
                ),
                everyone=np.arange(ranks),
            ),
            rows=rows,
            tables=native.tables,
            choices=Choices(_ints(tables), np.zeros((tables, native.widest), dtype=np.int64)),
            programs=join(self.steps),
            program_of=program_of,
            which=_ints(2),
            wanted=_ints(1),
            scratch=Scratch(
                ends=np.zeros((2 * ops, ranks)),
                together=_ints(2 * ops),
                others=_ints(ops),
                waits=np.zeros(ops),
            ),
            changed=_ints(ranks + 1),
            is_changed=_ints(ranks),
        )

    def _aids(self) -> Aids:
        ranks = self.problem.topology.world_size
        return Aids(
            order=np.arange(ranks),
            slowest=_ints(len(self.problem.workload.tables) + 1),
            taken=_ints(ranks),
        )


def _ints(count: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.zeros(count, dtype=np.int64)
