"""A lower bound on the step time of any plan, by Lagrangian relaxation.

**Why it holds.** The rules of a step are max-plus linear, so its steady-state time is the weight
per step of the heaviest cycle: a walk along dependencies from an operation to the same operation
of a later step. Hence the weight of *any* cycle, and any weighted mean of cycles, is a bound.

The cycles used (``bounds.paths``) run over one rank's streams, from the first to the last operation
of a step, along dependencies that are there whatever the plan. An operation that a plan does not
have counts nothing, and what it stood between has to follow one another without it: only operations
of which each two do (``bounds.precedence``) are on a cycle. Collectives take as long on every rank,
so the mean over ranks of such a cycle's weight is a bound, too.

That mean is at least linear in the choice of the tables' options: lookups are bounded by HBM or by
the L2 cache (whichever the cycle is given), both sums over shards; collectives take at least their
least time per byte (``paths.least_slope``) times the mean rank's bytes, as theirs is the
largest rank's; latencies that tables share are left out. A second kind of cycle runs through the
rank that holds the largest shard of one table, with that shard's lookups instead of the mean ones.
A third is that of the host's threads (``StepGraph.host``).

So with z the features of a plan (sums over tables), c a cycle's weights, and y >= 0 weights of
cycles that add up to 1, no plan is faster than

    sum over cycles of y (constant + c z)
        >=  sum over cycles of y constant + sum over tables of min over options of (y c z)

Memory enters with a price: no plan uses more than all ranks have. The right-hand side is concave
in y; a cutting-plane method maximises it over y, and finds the cycles: the heaviest for the best
mixture of options so far. Any y gives a valid bound, so stopping early costs tightness only.

Groups have fixed costs: latencies, and the host's work for them. A mixture pays them by halves, so
the plans are divided by which groups they have, a few times, the least bound first: with a group,
its fixed costs count in full; without it, its options are gone. The least of the parts' bounds
holds for all. The result is also at least the time of a step without any embedding work.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heappop, heappush
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.base.units import Seconds
from costmodel.bounds.feature_index import FeatureIndex, Vector
from costmodel.bounds.option_features import BoundOptions, OptionFeatures
from costmodel.bounds.paths import StepGraph, StreamOps, WeightedCycle
from costmodel.domain.hardware import Topology
from costmodel.domain.workload import Workload
from costmodel.engine.timer import StepTimer
from costmodel.memory.rank_memory import rank_rooms
from costmodel.step.groups import GroupKey
from costmodel.step.synthesis import Templates

MOST_SHARDS = 24
"""Tables whose largest shard gets a cycle of its own: those that take longest."""
MOST_PARTS, MOST_OPTIONS = 40, 60_000
"""How often plans are divided: so many parts, or fewer where tables have many options in all."""
MOST_ROUNDS = 150
TOLERANCE = 2e-4
"""Where to stop: what is left to gain, relatively."""
_ROUNDING = 1e-9


def _unlimited() -> Seconds:
    return inf


def step_time_bound(
    workload: Workload, topology: Topology, time_left: Callable[[], Seconds] = _unlimited
) -> Seconds:
    """Return a time that no valid plan's step undercuts.

    Parameters
    ----------
    workload, topology
        What is planned. Every sharding type, kernel and split that is valid for the tables is
        taken into account, whether or not a sharder would offer it, and the memory of all ranks
        together.
    time_left
        Asked between steps of some milliseconds; at 0 the bound so far is the answer. Half of the
        time may go into describing tables, the busiest first: those that are not reached count for
        nothing, which only lowers the bound.

    Returns
    -------
        Seconds; infinite where the tables need more memory than there is.

    """
    return max(improving_bounds(workload, topology, time_left))


def improving_bounds(
    workload: Workload, topology: Topology, time_left: Callable[[], Seconds] = _unlimited
) -> Iterator[Seconds]:
    """Yield bounds as ``step_time_bound`` finds them, the largest last: soon one, then better ones.

    The first is the step without any embedding work. Between two of them the caller may do
    something else, and give more time.
    """
    templates = Templates(workload, topology)
    alone = StepTimer(templates.of(()), ()).step_time(()) * (1 - _ROUNDING)
    yield alone
    until = time_left() / 2 if time_left() < inf else 0.0
    options = OptionFeatures(workload, topology).all(lambda: time_left() > until)
    if options.kernels:
        relaxation = _Relaxation.of(templates, options)
        for bound in _branched(relaxation, lambda: time_left() <= 0):
            yield max(alone, bound * (1 - _ROUNDING))


@dataclass(frozen=True, slots=True, order=True)
class _Part:
    """The plans that have some groups, and lack others."""

    bound: Seconds
    number: int
    present: frozenset[GroupKey] = field(compare=False)
    absent: frozenset[GroupKey] = field(compare=False)
    undecided: GroupKey | None = field(compare=False)
    """The group that is the largest part of the mixture, of those that may be there or not."""


def _branched(whole: "_Relaxation", should_stop: Callable[[], bool]) -> Iterator[Seconds]:
    """Yield the least bound of parts that together are all plans, each time they are divided."""
    budget = min(MOST_PARTS, MOST_OPTIONS // len(whole.alone))
    parts = [_part(whole, 0, frozenset(), frozenset(), should_stop)]
    solved = 1
    yield parts[0].bound
    while parts[0].undecided is not None and solved < budget and not should_stop():
        part = heappop(parts)
        group = frozenset(filter(None, [part.undecided]))
        for present, absent in (
            (part.present | group, part.absent),
            (part.present, part.absent | group),
        ):
            child = _part(whole, solved, present, absent, should_stop)
            heappush(parts, replace(child, bound=max(child.bound, part.bound)))
            solved += 1
        yield parts[0].bound


def _part(
    whole: "_Relaxation",
    number: int,
    present: frozenset[GroupKey],
    absent: frozenset[GroupKey],
    should_stop: Callable[[], bool],
) -> _Part:
    relaxation = whole.restricted(present, absent)
    if relaxation is None or not relaxation.has_room:
        return _Part(float("inf"), number, present, absent, None)
    bound, mixture = relaxation.maximum(should_stop)
    shares = relaxation.graph.index.shares(mixture)
    open_groups = [group for group, share in shares.items() if share > 0 and group not in present]
    undecided = max(open_groups, key=lambda group: (shares[group], group), default=None)
    return _Part(bound, number, present, absent, undecided)


@dataclass(frozen=True, slots=True, eq=False)
class _Choice:
    """One option for every table: a vertex of the relaxed problem."""

    z: Vector
    memory: float
    """Bytes beyond what all ranks have, in units of that; below 0 if it fits."""
    shards: Vector
    """What the largest shards of the tables with a cycle of their own take alone."""


@dataclass(frozen=True)
class _Relaxation:
    """The options of all tables as arrays, and the graph that times them."""

    graph: StepGraph
    values: Vector
    """Every option's values, shape (options, option_features.WIDTH)."""
    places: NDArray[np.intp]
    """Where they are in z."""
    memory: Vector
    """Bytes of every option, as a share of what all ranks have."""
    alone: Vector
    starts: NDArray[np.intp]
    """First option of every table."""
    large: NDArray[np.intp]
    """Tables with a cycle of their own."""
    group: NDArray[np.intp]
    """The place of every option's group in the index."""

    def restricted(
        self, present: frozenset[GroupKey], absent: frozenset[GroupKey]
    ) -> "_Relaxation | None":
        """Return the problem of the plans with some groups, without others; None: there are none.

        Not that any table has to be in the groups that are there: only what they cost counts.
        """
        groups = self.graph.index.groups
        kept = np.isin(self.group, [groups.index(key) for key in absent], invert=True)
        counts = np.bincount(self.table[kept], minlength=len(self.starts))
        if not counts.all():
            return None
        starts = np.cumsum([0, *counts[:-1]])
        graph = replace(
            self.graph,
            present=present,
            largest=largest_features(
                self.table[kept], self.places[kept], self.values[kept], self.graph.index.size
            ),
        )
        shortest = np.minimum.reduceat(self.alone[kept], starts)
        return _Relaxation(
            graph=graph,
            values=self.values[kept],
            places=self.places[kept],
            memory=self.memory[kept],
            alone=self.alone[kept],
            starts=starts,
            large=np.argsort(shortest)[::-1][:MOST_SHARDS],
            group=self.group[kept],
        )

    @classmethod
    def of(cls, templates: Templates, options: BoundOptions) -> "_Relaxation":
        workload, topology = templates.workload, templates.topology
        kernels = options.signature()
        index = FeatureIndex(kernels)
        groups = [index.groups.index(group) for group, _ in options.kernels]
        capacity = max(1.0, sum(rank_rooms(workload, topology)))
        return cls(
            graph=StepGraph(StreamOps(templates.of(kernels)), index, np.zeros(index.size)),
            values=options.values,
            places=np.array([index.of_kernel(pair) for pair in options.kernels])[options.kernel],
            memory=options.memory / capacity,
            alone=options.alone,
            starts=np.flatnonzero(np.diff(options.table, prepend=-1)),
            large=np.zeros(0, dtype=np.intp),
            group=np.array(groups)[options.kernel],
        )

    @property
    def has_room(self) -> bool:
        """Whether all tables fit into all memory together, each in its smallest option."""
        return float(np.minimum.reduceat(self.memory, self.starts).sum()) <= 1.0 + _ROUNDING

    @cached_property
    def table(self) -> NDArray[np.intp]:
        """Which table an option belongs to."""
        counts = np.diff(np.append(self.starts, len(self.alone)))
        return np.repeat(np.arange(len(self.starts)), counts)

    @cached_property
    def large_place(self) -> NDArray[np.intp]:
        """Every option's place among the tables with a cycle of their own; the last for none."""
        place = np.full(len(self.starts), len(self.large))
        place[self.large] = np.arange(len(self.large))
        return place[self.table]

    def cheapest(self, prices: Vector, memory_price: float, shard_prices: Vector) -> _Choice:
        """Return the cheapest option of every table for prices of z, memory and large shards."""
        cost = (self.values * prices[self.places]).sum(axis=1) + memory_price * self.memory
        cost += np.append(shard_prices, 0.0)[self.large_place] * self.alone
        least = np.minimum.reduceat(cost, self.starts)
        hits = np.flatnonzero(cost <= least[self.table])
        chosen = hits[np.flatnonzero(np.diff(self.table[hits], prepend=-1))]
        size = self.graph.index.size
        values = self.values[chosen].ravel()
        z = np.bincount(self.places[chosen].ravel(), values, size).astype(np.float64)
        return _Choice(
            z=z,
            memory=float(self.memory[chosen].sum()) - 1.0 - _ROUNDING,
            shards=self.alone[chosen[self.large]],
        )

    def maximum(self, should_stop: Callable[[], bool]) -> tuple[Seconds, Vector]:
        """Return the largest bound that weights of cycles give, and the mixture that attains it."""
        start = self.cheapest(np.ones(self.graph.index.size), 0.0, np.zeros(len(self.large)))
        first, direct = self.graph.heaviest(start.z), self.graph.direct(start.z)
        own = first if first.lookups else direct
        game = _Game(self, own, first.constant + float(first.weights @ start.z))
        game.add_cycle(direct)
        game.add_cycle(first)
        game.add_cycle(self.graph.host())
        game.add_choice(start)
        best, mixture = 0.0, start.z
        for _ in range(MOST_ROUNDS):
            solved = game.solve()
            if solved is None:
                break
            value, prices, mixture = solved
            choice = self.cheapest(*prices)
            reached = game.worth(choice)
            best = max(best, reached)
            cycle = self.graph.heaviest(mixture)
            open_cycles = cycle.constant + cycle.weights @ mixture > value * (1 + TOLERANCE)
            if (value <= best * (1 + TOLERANCE) and not open_cycles) or should_stop():
                break
            game.add_choice(choice)
            if open_cycles:
                game.add_cycle(cycle)
        return best, mixture


class _Game:
    """The master problem: weights of cycles against choices of options, a zero-sum game.

    A linear program in the weights y (of memory, large shards, cycles) and the value v: maximise v
    with v <= what every choice so far is worth under y. Its dual solution is a mixture of choices.
    """

    def __init__(self, relaxation: _Relaxation, own: WeightedCycle, unit: Seconds) -> None:
        import highspy

        self._own = own
        self._unit = unit
        self._choices: list[_Choice] = []
        self._cycles: list[WeightedCycle] = []
        self._num_shards = len(relaxation.large)
        self._solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        self._solver.setOptionValue("output_flag", False)  # noqa: FBT003 -- highspy's signature
        self._infinity = highspy.kHighsInf
        self._solver.addVar(-self._infinity, self._infinity)
        self._solver.addVar(0.0, 1e4)
        for _ in range(self._num_shards):
            self._solver.addVar(0.0, 1.0)
        self._solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
        self._solver.changeColCost(0, 1.0)
        shards = np.arange(2, 2 + self._num_shards, dtype=np.int32)
        self._solver.addRow(1.0, 1.0, len(shards), shards, np.ones(len(shards)))
        self._y: Vector = np.zeros(0)

    def add_cycle(self, cycle: WeightedCycle) -> None:
        """Let a cycle have weight."""
        worth = [cycle.constant + float(cycle.weights @ choice.z) for choice in self._choices]
        rows = np.arange(len(worth) + 1, dtype=np.int32)
        column = np.append(1.0, np.array(worth) / self._unit)
        self._solver.addCol(0.0, 0.0, 1.0, len(rows), rows, column)
        self._cycles.append(cycle)

    def add_choice(self, choice: _Choice) -> None:
        """Let a choice of options have weight."""
        row = np.append(-1.0, self._payoffs(choice))
        columns = np.arange(len(row), dtype=np.int32)
        self._solver.addRow(0.0, self._infinity, len(row), columns, row)
        self._choices.append(choice)

    def solve(self) -> tuple[Seconds, tuple[Vector, float, Vector], Vector] | None:
        """Return the value, the prices that the weights make, and the mixture's features.

        None where the solver gives up.
        """
        import highspy

        self._solver.run()
        if self._solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        solution = self._solver.getSolution()
        self._y = np.maximum(np.array(solution.col_value)[1:], 0.0)
        shards, cycles = self._weights
        self._y[1:] /= shards.sum() + cycles.sum()
        shards, cycles = self._weights
        prices = cycles @ np.array([cycle.weights for cycle in self._cycles])
        prices += shards.sum() * self._own.common
        shares = np.abs(np.array(solution.row_dual)[1:])
        mixture = shares @ np.array([choice.z for choice in self._choices]) / shares.sum()
        value = float(solution.col_value[0]) * self._unit
        return value, (prices, float(self._y[0]) * self._unit, shards), mixture

    def worth(self, choice: _Choice) -> Seconds:
        """Return what a choice is worth under the weights found last."""
        return float(self._payoffs(choice) @ self._y) * self._unit

    @property
    def _weights(self) -> tuple[Vector, Vector]:
        return self._y[1 : 1 + self._num_shards], self._y[1 + self._num_shards :]

    def _payoffs(self, choice: _Choice) -> Vector:
        """Return what a choice is worth per weight: memory, large shards, cycles; in units."""
        shared = self._own.constant + float(self._own.common @ choice.z)
        worth = [cycle.constant + float(cycle.weights @ choice.z) for cycle in self._cycles]
        memory = choice.memory * self._unit
        return np.concatenate(([memory], shared + choice.shards, worth)) / self._unit


def largest_features(
    table: NDArray[np.intp], places: NDArray[np.intp], values: Vector, size: int
) -> Vector:
    """Return the largest value that every feature of a plan can have.

    Of every option its table, the places of its features, and their values.
    """
    most = np.zeros((table[-1] + 1, size))
    np.maximum.at(most, (table[:, None], places), values)
    total: Vector = most.sum(axis=0)
    return total
