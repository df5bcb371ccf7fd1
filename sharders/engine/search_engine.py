"""The search of one problem as annealing uses it: start from a plan, anneal, read the best plan."""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from math import inf

import numpy as np
from numpy.typing import NDArray

from costmodel.base.units import Seconds
from costmodel.domain.hardware import Device
from costmodel.domain.plan import ShardingPlan, ShardingType
from costmodel.engine.lowering import Lowering, machine
from costmodel.engine.state import Journal, PlanState
from costmodel.engine.step import StepClock
from costmodel.engine.timer import NOWHERE, duration_rows, touched_operations
from costmodel.kernels.traffic import NUM_TRAFFIC
from costmodel.step.groups import GroupKey
from costmodel.step.template import KERNEL_FEATURES, PLAN_FEATURES, RANK_FEATURES, WorkKind
from sharders.engine.annealing_run import AnnealingRun
from sharders.engine.fill import Greedy, Rule
from sharders.engine.imbalance_penalty import BALANCE_WEIGHT, exchange_rates, launch_seconds
from sharders.engine.params import MAX_TOGETHER, MoveParams
from sharders.engine.problem_arrays import ProblemArrays, problem_arrays
from sharders.engine.rank_loads import RankLoads, SearchRows
from sharders.engine.search_state import SearchState
from sharders.engine.tables import UNKNOWN, Choices, Move
from sharders.problem.sharding_problem import ShardingProblem

NOT_MADE = -1
MAX_CYCLES = 512
"""Number of steps whose cycles are kept, the first ones made; 80 kB each where there are 22
groups."""
REBUILD_EVERY = 4000
"""Moves of a run after which loads are computed anew: sums of many changes are rounded."""
ALL = -1
"""Bits of all sharding groups."""
SAVED_PER_SHARD = 2
"""Times loads are saved when a shard comes or goes: lookups, and amounts sent."""
NOTED_PER_SHARD = 4
"""Numbers that change then: memory of the rank and its host, and the memory held beyond it."""
NOTED_PER_TABLE = 2 * len(PLAN_FEATURES) + len(KERNEL_FEATURES) + len(RANK_FEATURES) + 4
"""Numbers that change when a table comes or goes: its group's sums, each by itself and all if it
was the last one, those of its kernel, all ranks' features, whether there is the group, and its
count."""


class Engine:
    """The search of one problem; every run starts from a plan given or found since."""

    def __init__(
        self,
        problem: ShardingProblem,
        starts: Sequence[ShardingPlan] = (),
        params: MoveParams | None = None,
        *,
        every_option: bool = False,
    ) -> None:
        """Write a problem as arrays; with ``every_option``, also with very fine splits."""
        params = params or MoveParams()
        self.arrays: ProblemArrays = problem_arrays(problem, starts, every_option=every_option)
        self.problem = problem
        self.everything = problem.groundwork.templates.of(self.arrays.signature)
        """The template of plans that have all sharding groups."""
        self._rows, self._duration_rows = duration_rows(self.everything, self.arrays.columns)
        self.groups_of = [(1 << len(self.arrays.columns.groups)) - 1]
        """Bits of the groups of every step."""
        self.search = self._state()
        self.run = AnnealingRun(self.search, params)
        self._greedy = Greedy(self.search)
        self._moves_per_step = params.moves_per_step
        self._moves = self._num_steps = 0
        """Number of moves of all runs, and of steps made for them."""

    def choices_of(self, plan: ShardingPlan) -> Choices:
        """Return a plan, one given to start from or found since, as choices."""
        return self.arrays.choices(plan)

    def plan_of(self, choices: Choices) -> ShardingPlan:
        """Return the plan of some choices; it takes as long as some thousand moves."""
        return self.arrays.plan(choices)

    def offer(self, types: int, prices: NDArray[np.float64] | None = None) -> None:
        """Limit moves and greedy plans to options of the sharding types with these bits.

        Parameters
        ----------
        types
            Bits of places in ``ShardingType``; a table that has none of them may take all options
            of its own.
        prices
            What makes each option dear (``Relaxed.prices``), (options,): moves draw cheap ones
            sooner. By default their predicted times, each alone.

        """
        tables = self.search.tables
        tables.offer(types)
        np.copyto(np.asarray(tables.price), tables.cost if prices is None else prices)

    def types_of(self, choices: Choices) -> int:
        """Return the bits of the sharding types that some choices have."""
        kinds = np.unique(np.asarray(self.search.tables.kind)[np.asarray(choices.option)])
        return sum(1 << int(kind) for kind in kinds)

    def start(
        self, choices: Choices, seed: int = 0, balance_weight: float = BALANCE_WEIGHT
    ) -> Seconds:
        """Make a plan the present one, and the run's best, and return its step time.

        Infinite where memory is short: then the run's best is the first plan that fits.

        Parameters
        ----------
        choices
            The plan.
        seed
            Of the run's random numbers.
        balance_weight
            How much uneven ranks count besides the step time (``SearchState``).

        """
        present = self.search.choices
        np.copyto(np.asarray(present.option), np.asarray(choices.option))
        np.copyto(np.asarray(present.ranks), np.asarray(choices.ranks))
        self.rebuild()
        self.search.balance_weight = balance_weight
        self.run.begin(self.present_time(), seed)
        return float(self.run.best_time)

    def anneal(
        self,
        count: int,
        schedule: tuple[float, float, float],
        *,
        placing: bool = False,
    ) -> AnnealingRun:
        """Draw some moves, and return the state of the run.

        It does not depend on how many calls drew them. A move to sharding groups that no plan had
        before is not made: it may be when it is drawn again, if their step has been made.

        Parameters
        ----------
        count
            Moves to draw.
        schedule
            First and last temperature, as shares of the step time, and moves between.
        placing
            Whether options stay as they are.

        """
        until = self.run.moves + count
        while self.run.moves < until:
            since = self.run.moves % REBUILD_EVERY
            if since == 0:
                self.rebuild()
            some = min(until - self.run.moves, REBUILD_EVERY - since)
            self._moves += self.run.anneal(some, *schedule, placing)
            affordable = self._moves >= self._num_steps * self._moves_per_step
            if self.run.lacks_step and affordable:
                self._num_steps += 1
                self._make_step(self.search.wanted)
        return self.run

    def fill(
        self,
        parameters: Mapping[str, float],
        preferred: NDArray[np.int64] | None = None,
        *,
        may_overfill: bool = False,
    ) -> Seconds:
        """Make a rule's plan the present one; return its step time, infinite if it does not fit.

        Parameters
        ----------
        parameters
            What options tables take, among those offered, and on which ranks (``fill.Rule``).
        preferred
            The option of every table that it is to have if there is room, -1 for none, (tables,).
        may_overfill
            Whether there is to be a plan that takes more memory than there is where none fits;
            otherwise the present plan is of no use then.

        """
        rule = Rule(parameters, self.problem.groundwork.arrays.balanced_load, self.problem.capacity)
        np.asarray(self._greedy.preferred)[:] = NOT_MADE if preferred is None else preferred
        if not self._greedy.fill(rule, may_overfill):
            return inf
        self.rebuild(groups=0)
        return self.present_time() if self.search.loads.fits() else inf

    def step_times(
        self, options: NDArray[np.int64], ranks: NDArray[np.int32]
    ) -> NDArray[np.float64]:
        """Return the step times of whole plans, in seconds, shape (plans,); the last is present.

        Parameters
        ----------
        options
            Of every plan, each table's option, shape (plans, tables) (``ProblemArrays.choices``).
        ranks
            And the ranks of its blocks, shape (plans, tables, ``ProblemArrays.widest``).

        Returns
        -------
            Infinite where a plan does not fit in memory.

        """
        times, done = np.zeros(len(options)), 0
        while done < len(times):
            done = self.search.step_times(options, ranks, times, done)
            if done < len(times):
                self._make_step(self.search.wanted)
        return times

    def present(self) -> Choices:
        """Return the present plan."""
        return self.search.choices.copy()

    def present_types(self) -> int:
        """Return the bits of the present plan's sharding groups."""
        return self.groups_of[self.search.which]

    def try_move(self, move: Move) -> int:
        """Make a move and time the plan, without a limit.

        Return the outcome (``tables.FITS`` and so on).

        ``search.undo`` or ``search.keep`` must follow.
        """
        while self.search.try_move(move, inf) == UNKNOWN:
            self.search.undo(move)
            self._make_step(self.search.wanted)
        return int(self.search.outcome)

    def present_time(self) -> Seconds:
        """Return the step time of the present plan."""
        return float(self.search.present_time())

    def best_since(self) -> Choices:
        """Return the best plan since the start."""
        return self.run.best.copy()

    def rebuild(self, groups: int = ALL) -> None:
        """Recompute loads, and durations of ``groups`` and of the plan's groups."""
        while not self.search.rebuild(groups):
            self._make_step(self.search.wanted)

    def _make_step(self, bits: int) -> None:
        """Make the step of plans with these sharding groups."""
        groups = {key for n, (key, _) in enumerate(self.arrays.signature) if bits >> n & 1}
        self.groups_of.append(bits)
        self.search.add_step(bits, self._lowering(groups).step(groups))

    def _lowering(self, groups: Collection[GroupKey]) -> Lowering:
        """Return the lowering for plans with these sharding groups.

        On GPUs its operations are among those of the step of all groups, but for the optimizer of
        dense parameters, which is another one without replicas. To lower them takes a quarter of
        the time of writing the step. On CPUs a thread waits for the kernel that was called last,
        whichever that is.
        """
        if self.problem.topology.hardware.device is Device.CPU:
            return self._written(groups)
        kinds = {key.sharding_type for key in groups}
        return self._whole if ShardingType.DATA_PARALLEL in kinds else self._sharded

    def _written(self, groups: Collection[GroupKey]) -> Lowering:
        """Write the step of plans that have at most some sharding groups."""
        made = self.problem.groundwork.templates.of(
            item for item in self.arrays.signature if item[0] in groups
        )
        known = [  # it may have constants that the step of all groups has not
            row
            for op, row in zip(self.everything.ops, self._duration_rows, strict=True)
            if row != NOWHERE and op.exists(groups)
        ]
        rows = [NOWHERE] * len(made.ops)
        varying = [n for n, op in enumerate(made.ops) if op.work.kind is not WorkKind.CONSTANT]
        for number, row in zip(varying, known, strict=True):
            rows[number] = row
        return Lowering(made, self.arrays.columns, rows)

    @cached_property
    def _whole(self) -> Lowering:
        """The lowering of plans with replicas."""
        return Lowering(self.everything, self.arrays.columns, self._duration_rows)

    @cached_property
    def _sharded(self) -> Lowering:
        """The lowering of plans without replicas."""
        keys = [key for key, _ in self.arrays.signature]
        sharded = [key for key in keys if key.sharding_type is not ShardingType.DATA_PARALLEL]
        return self._whole if len(sharded) == len(keys) else self._written(sharded)

    def _state(self) -> SearchState:
        """Return a state with room for every row, journal and exchange of the problem."""
        problem, arrays, rows = self.problem, self.arrays, self._rows
        groups, kernels = len(arrays.columns.groups), len(arrays.columns.kernels)
        ranks, tables = problem.topology.world_size, len(problem.workload.tables)
        features = groups * len(RANK_FEATURES)
        first, counts = rows.end, rows.end + 6 + features
        search_rows = SearchRows(
            load=first, launches=first + 1, power=first + 2, exchanged=first + 3,
            free=first + 3 + features, host_free=first + 4 + features,
            excess=first + 5 + features, counts=counts, end=counts + groups,
        )  # fmt: skip
        every = self._whole.step()
        numbers = np.zeros((search_rows.end, ranks))
        shards = int(np.diff(arrays.tables.first).max())
        moved = 2 * MAX_TOGETHER * (shards * NOTED_PER_SHARD + NOTED_PER_TABLE)
        exchanges = rows.num_durations * ranks * problem.topology.local_world_size
        saved = 2 * MAX_TOGETHER * shards * SAVED_PER_SHARD + ranks * kernels
        plan = PlanState(
            machine=machine(problem.topology),
            rows=rows,
            numbers=numbers,
            loads=np.zeros((ranks, features + kernels * NUM_TRAFFIC)),
            num_rank_features=features,
            touched=touched_operations(every, groups),
            journal=Journal(moved + 2 * numbers.size + exchanges),  # ranks may come one by one
            saved=Journal(saved, NUM_TRAFFIC),
        )
        choices = Choices(
            np.zeros(tables, dtype=np.int64), np.zeros((tables, arrays.widest), dtype=np.int32)
        )
        step_of = np.zeros(1 << groups, dtype=np.int64)  # takes memory only where it is written
        step_of[-1] = 1
        return SearchState(
            loads=RankLoads(
                plan=plan,
                tables=arrays.tables,
                choices=choices,
                rows=search_rows,
                exchange_rates=exchange_rates(self.everything, arrays.columns.groups).reshape(-1),
                launch_seconds=launch_seconds(self.everything, arrays.columns.kernels),
                rooms=np.array(problem.rooms, dtype=np.float64),
                host_room=float(problem.host_capacity),
            ),
            choices=choices,
            clock=StepClock(
                numbers,
                busy=rows.num_durations,
                local_ranks=problem.topology.local_world_size,
                num_ops=len(self.everything.ops),
            ),
            every=every,
            step_of=step_of,
            max_cycles=MAX_CYCLES,
        )
