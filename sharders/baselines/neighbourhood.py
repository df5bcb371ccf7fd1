"""The best choices for a few tables while the others stay: a small program, by pulp.

    minimise  M + w * (mean load)
    for every free table:   sum over its choices of x = 1,  x in {0, 1}
    for every rank:         load that stays + sum of shard loads x <= M
                            bytes that stay + sum of shard bytes x <= capacity
    for every node:         the same with host bytes

A choice is an option on given ranks, so whatever is legal can be one. Loads are separable
(``OptionCosts``); the mean load decides between plans that have the same M.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from costmodel.base.arrays import Array
from costmodel.domain.plan import ShardingType
from sharders.annealing.plan_editor import Move, PlacedOption, PlanEditor
from sharders.baselines.solvers import Limits, solve, weighted_sum
from sharders.problem.options import TableOption, make_sharding, places

if TYPE_CHECKING:
    import pulp

MEAN_WEIGHT = 0.1
"""Weight of the mean load beside the largest: a plan with less work leaves more to gain later."""
UNIT = 100.0
"""Load of the slowest rank, and bytes of a rank, in the program: solvers have absolute tolerances
around 1e-6."""


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """Unscaled load and HBM that a choice adds to every rank, and host memory to every node."""

    load: Array
    held: Array
    host: Array


class Neighbourhoods:
    """Programs around the current plan of a search."""

    def __init__(self, state: PlanEditor) -> None:
        self.state, self.costs = state, state.problem.groundwork.costs
        self.scales: Mapping[ShardingType, float] = dict.fromkeys(ShardingType, 1.0)
        """Factor on loads by sharding type."""
        self._weights: dict[tuple[int, TableOption, tuple[int, ...]], Weight] = {}

    def loads(self) -> Array:
        """Return the separable load of every rank under the current plan."""
        loads = [self.load(index, choice) for index, choice in enumerate(self.state.choices)]
        total: Array = np.sum(loads, axis=0)
        return total

    def load(self, index: int, choice: PlacedOption) -> Array:
        """Return the load that a choice for a table adds to every rank."""
        return self.weight(index, choice).load * self.scales[choice.option.sharding_type]

    def weight(self, index: int, choice: PlacedOption) -> Weight:
        """Return load and memory that a choice for a table adds."""
        key = (index, choice.option, choice.ranks)
        if key not in self._weights:
            self._weights[key] = self._weighed(index, choice)
        return self._weights[key]

    def _weighed(self, index: int, choice: PlacedOption) -> Weight:
        """Return what a table's choice adds to every rank's load and bytes, and to every node's."""
        problem, table = self.state.problem, self.state.tables[index]
        topology = problem.topology
        ranks = list(make_sharding(table, topology, choice.option, choice.ranks).ranks)
        sizes = problem.groundwork.option_bytes(table, choice.option)
        nodes = [rank // topology.local_world_size for rank in ranks]
        load = [self.costs.cost(table, choice.option).shard_load] * len(ranks)
        held = [size.total for size in sizes]
        host = [float(size.host) for size in sizes]
        return Weight(
            _summed(ranks, load, topology.world_size),
            _summed(ranks, held, topology.world_size),
            _summed(nodes, host, topology.num_nodes),
        )

    def choices(self, index: int, order: Sequence[int], most: int) -> list[PlacedOption]:
        """Return all options of a table, each on a few sets of some ranks."""
        topology = self.state.problem.topology
        kept = self.state.choices[index]
        found = {kept: None}
        for option in self.state.problem.options[self.state.tables[index].name]:
            for ranks in islice(places(topology, option, order), most):
                found[PlacedOption(option, ranks)] = None
        return list(found)

    def best(self, free: Mapping[int, Sequence[PlacedOption]], limits: Limits) -> Move | None:
        """Return the best choices for some tables as a move; None: the present ones."""
        if not free:
            return None
        import pulp

        program = pulp.LpProblem("neighbourhood", pulp.LpMinimize)
        largest = program.add_variable("largest", lowBound=0)
        each = [(index, choice) for index, choices in free.items() for choice in choices]
        x = [program.add_variable(f"x{n}", cat=pulp.LpBinary) for n in range(len(each))]
        for index in free:
            own = [x[n] for n, (other, _) in enumerate(each) if other == index]
            program += pulp.lpSum(own) == 1
        load = np.array([self.load(index, choice) for index, choice in each])
        now = self.loads()
        unit = UNIT / max(float(now.max()), 1e-9)
        stays = now - sum(self.load(index, self.state.choices[index]) for index in free)
        for row, start in _rows(load * unit, -stays * unit):
            program += _sum(x, row) - largest <= start
        self._add_memory(program, each, x, free)
        mean = MEAN_WEIGHT * unit * load.mean(axis=1)
        program += largest + _sum(x, mean)
        kept = [choice == self.state.choices[index] for index, choice in each]
        first = {f"x{n}": 1.0 for n, is_kept in enumerate(kept) if is_kept}
        solve(program, first | {"largest": unit * float(now.max())}, limits)
        values = [variable.varValue or 0.0 for variable in x]
        chosen = {
            index: choice
            for (index, choice), value in zip(each, values, strict=True)
            if value > 0.5
        }
        return {i: c for i, c in chosen.items() if c != self.state.choices[i]} or None

    def _add_memory(
        self,
        program: "pulp.LpProblem",
        each: Sequence[tuple[int, PlacedOption]],
        x: "Sequence[pulp.LpVariable]",
        free: Iterable[int],
    ) -> None:
        """Add the constraints of memory on ranks and nodes."""
        weights = [self.weight(index, choice) for index, choice in each]
        gone = [self.weight(index, self.state.choices[index]) for index in free]
        state, problem = self.state, self.state.problem
        held = np.array([weight.held for weight in weights]) * UNIT / problem.capacity
        host = np.array([weight.host for weight in weights]) * UNIT / problem.host_capacity
        room = (state.free() + sum(weight.held for weight in gone)) * UNIT / problem.capacity
        host_room = (state.host_free() + sum(weight.host for weight in gone)) * UNIT
        for row, end in (*_rows(held, room), *_rows(host, host_room / problem.host_capacity)):
            if row.any():
                program += _sum(x, row) <= end


def _rows(columns: Array, limits: Array) -> Iterator[tuple[Array, float]]:
    """Yield the different columns of an array, each with the smallest of its limits."""
    least: dict[bytes, tuple[Array, float]] = {}
    for column, limit in zip(columns.T, limits.tolist(), strict=True):
        key = column.tobytes()
        least[key] = (column, min(limit, least.get(key, (column, limit))[1]))
    yield from least.values()


def _sum(x: "Sequence[pulp.LpVariable]", values: Array) -> "pulp.LpAffineExpression":
    return weighted_sum((x[n], float(values[n])) for n in np.flatnonzero(values).tolist())


def _summed(places: Sequence[int], values: Sequence[float], size: int) -> Array:
    """Return the sum of the values at every place, of shape (size,)."""
    total = np.zeros(size)
    np.add.at(total, list(places), values)
    return total
