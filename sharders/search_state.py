"""A plan under search: its choices, what every rank holds, and its loads as arrays to change.

Moves replace the shardings of one or two tables. Candidates are timed together: the loads are
copied once per candidate and each copy is changed where its move says, so thousands of plans per
second are timed exactly, by the objective itself.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from costmodel.execution.compiled import BatchLoads
from costmodel.execution.groups import GroupKey, KernelKey, group_key
from costmodel.execution.loads import table_rows
from costmodel.execution.synthesis import NUM_STEPS
from costmodel.execution.template import PLAN_FEATURES, RANK_FEATURES, Feature
from costmodel.kernels.embedding import NUM_TRAFFIC, Traffic, backward_time, forward_time
from costmodel.objective import Objective, Signature
from costmodel.plan import ShardingPlan, ShardingType, TableSharding
from costmodel.workload import EmbeddingTable
from sharders.guide import exchange_rates, guides
from sharders.options import TableOption, make_plan, make_sharding, option_of
from sharders.placement import option_bytes
from sharders.problem import ShardingProblem

Array = NDArray[np.float64]
EMPTY = 1e-6
"""Lookups below this are what rounding leaves on a rank whose last table went away."""
IMPROVED = 1e-6
"""Share of the step time that counts as an improvement: less may be rounding."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How one table is sharded: an option, and the ranks of its column blocks."""

    option: TableOption
    ranks: tuple[int, ...]


Move = Mapping[int, Choice]
"""New choices, by the table's index in the workload."""


@dataclass(frozen=True)
class Layout:
    """Where every feature of every group and kernel is in the arrays."""

    signature: Signature

    @cached_property
    def groups(self) -> dict[GroupKey, int]:
        """Index of every sharding group."""
        return {key: index for index, (key, _) in enumerate(self.signature)}

    @cached_property
    def kernels(self) -> dict[tuple[GroupKey, KernelKey], int]:
        """Index of every lookup kernel."""
        names = [(key, kernel) for key, kernels in self.signature for kernel in kernels]
        return {name: index for index, name in enumerate(names)}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Effect:
    """What one table's choice adds to the loads; arrays have one row per shard."""

    option: TableOption
    """Kept alive: effects are looked up by its identity."""
    in_hbm: bool
    """Whether it takes no host memory, and at most one shard per rank."""
    group: int
    kernel: int
    ranks: NDArray[np.intp]
    traffic: Array
    """Without ``CHAIN``, which does not add up."""
    features: Array
    """In the order of ``RANK_FEATURES``."""
    chains: Array
    whole: Array
    holders: NDArray[np.intp]
    """Ranks again, in the order of the next two."""
    held: Array
    """Bytes in HBM."""
    host: Array
    """Bytes in host memory."""


@dataclass(slots=True, eq=False)
class Loads:
    """Loads of one plan, or with a leading axis of several."""

    rank: Array
    """(groups, RANK_FEATURES, ranks)."""
    whole: Array
    """(groups, 3): table columns, replicated bytes, number of tables."""
    traffic: Array
    """(kernels, ranks, NUM_TRAFFIC)."""

    def repeated(self, count: int) -> "Loads":
        """Return so many copies, stacked."""
        return Loads(
            *(
                np.repeat(part[None], count, axis=0)
                for part in (self.rank, self.whole, self.traffic)
            )
        )

    def at(self, index: int) -> "Loads":
        """Return one of several, as a view."""
        return Loads(self.rank[index], self.whole[index], self.traffic[index])


class SearchState:
    """The current plan of a search, and everything needed to try others."""

    def __init__(self, problem: ShardingProblem, objective: Objective) -> None:
        self.problem = problem
        self.objective = objective
        self.tables = problem.workload.tables
        self.layout = Layout(signature_of(problem))
        self._effects: dict[tuple[int, int, tuple[int, ...]], Effect] = {}
        self._options: dict[TableOption, TableOption] = {
            option: option for options in problem.options.values() for option in options
        }
        self._chains: dict[tuple[int, int], dict[int, float]] = {}
        everything = problem.templates.of(self.layout.signature)
        self._exchange_rates = exchange_rates(everything, self.layout.groups)

    def start(self, plan: ShardingPlan) -> None:
        """Make a plan the current one."""
        topology = self.problem.topology
        self.choices = [self._choice_of(plan.table(table.name), table) for table in self.tables]
        shape = (len(self.layout.groups), len(RANK_FEATURES), topology.world_size)
        self.loads = Loads(
            np.zeros(shape),
            np.zeros((shape[0], 3)),
            np.zeros((len(self.layout.kernels), topology.world_size, NUM_TRAFFIC)),
        )
        self.free = np.full(topology.world_size, self.problem.capacity)
        self.host_free = np.full(topology.num_nodes, self.problem.host_capacity)
        self._chains = {}
        for index, choice in enumerate(self.choices):
            self._apply(self.loads, index, choice, sign=1.0)
            self._hold(index, choice, sign=-1.0)
            self._chain(index, choice, add=True)

    def plan(self) -> ShardingPlan:
        """Return the current plan."""
        topology = self.problem.topology
        shardings = [self._sharding(index, choice) for index, choice in enumerate(self.choices)]
        return make_plan(topology, shardings)

    def fits(self, move: Move) -> bool:
        """Return whether the plan still fits in memory after a move."""
        if len(move) == 1 and all(self._has_room(*item) for item in move.items()):
            return True
        free, host = self.free.copy(), self.host_free.copy()
        for index, choice in move.items():
            self._change_memory(free, host, index, self.choices[index], sign=1.0)
            self._change_memory(free, host, index, choice, sign=-1.0)
        return bool(free.min() >= 0 and host.min() >= 0)

    def _has_room(self, index: int, choice: Choice) -> bool:
        """Return whether there is room for a choice even beside the table's present one."""
        effect = self._effect(index, choice)
        roomy = self.free[effect.holders] >= effect.held
        return effect.in_hbm and bool(roomy.all())

    def times(self, moves: Sequence[Move]) -> tuple[Array, Array]:
        """Return step time and guide of the plan after each of some moves, one at a time."""
        loads = self.loads.repeated(len(moves))
        for number, move in enumerate(moves):
            self._change(loads.at(number), move)
        return self._timed(loads)

    def prefix_times(self, moves: Sequence[Move]) -> tuple[Array, Array]:
        """Return step time and guide after the first, the first two, ... of some moves."""
        loads = self.loads.repeated(len(moves))
        together: dict[int, Choice] = {}
        for number, move in enumerate(moves):
            together.update(move)
            self._change(loads.at(number), together)
        return self._timed(loads)

    def apply(self, moves: Iterable[Move]) -> None:
        """Make moves, which must fit together, in the current plan."""
        for move in moves:
            self._change(self.loads, move)
            for index, choice in move.items():
                self._hold(index, self.choices[index], sign=1.0)
                self._chain(index, self.choices[index], add=False)
                self.choices[index] = choice
                self._hold(index, choice, sign=-1.0)
                self._chain(index, choice, add=True)

    def rank_times(self) -> Array:
        """Return seconds of lookups, forward and backward, of every rank."""
        return self._lookup_times(self.loads.traffic)

    def _lookup_times(self, traffic: Array) -> Array:
        """Add up forward and backward of all kernels; traffic is (..., kernels, ranks, columns)."""
        hardware = self.problem.topology.hardware
        both = forward_time(traffic, hardware) + backward_time(traffic, hardware)
        total: Array = both.sum(axis=-2)
        return total

    # -- loads ------------------------------------------------------------------------------

    def _timed(self, loads: Loads) -> tuple[Array, Array]:
        present = self._present(loads)
        compiled = self.objective.compiled(present.signature)
        times = compiled.step_times(self._batch(loads, present), NUM_STEPS)
        times = np.broadcast_to(times, loads.rank.shape[:1])
        per_rank = self._lookup_times(loads.traffic)
        return times, guides(times, per_rank, loads.rank * self._exchange_rates[..., None])

    def _present(self, loads: Loads) -> Layout:
        """Return the groups and kernels that any of the plans has."""
        tables = loads.whole[:, :, 2].max(axis=0)
        lookups = loads.traffic[..., Traffic.LOOKUPS].max(axis=(0, 2))
        kernels = self.layout.kernels
        signature = tuple(
            (key, tuple(each for each in some if lookups[kernels[key, each]] > 0))
            for (key, some), count in zip(self.layout.signature, tables, strict=True)
            if count > 0
        )
        return Layout(signature)

    def _batch(self, loads: Loads, present: Layout) -> BatchLoads:
        rank: dict[Feature, Array] = {}
        whole: dict[Feature, Array] = {}
        world_size = self.problem.topology.world_size
        for key in present.groups:
            group = self.layout.groups[key]
            for number, name in enumerate(RANK_FEATURES):
                rank[Feature(key, name)] = loads.rank[:, group, number]
            values = {
                "table_columns": loads.whole[:, group, :1],
                "parameter_bytes": loads.whole[:, group, 1:2],
                "present": np.minimum(loads.whole[:, group, 2:], 1.0),
                "sent_ids": loads.rank[:, group, 1].sum(axis=1, keepdims=True) / world_size,
                "sent_features": loads.rank[:, group, 0].sum(axis=1, keepdims=True),
            }
            whole |= {Feature(key, name): values[name] for name in PLAN_FEATURES}
        traffic: dict[object, Array] = {
            name: loads.traffic[:, self.layout.kernels[name]] for name in present.kernels
        }
        return BatchLoads(rank=rank, plan=whole, traffic=traffic)

    def _change(self, loads: Loads, move: Move) -> None:
        for index in move:
            self._apply(loads, index, self.choices[index], sign=-1.0)
            self._lower_chain(loads, index, leaving=move)
        for index, choice in move.items():
            self._apply(loads, index, choice, sign=1.0)

    def _apply(self, loads: Loads, index: int, choice: Choice, *, sign: float) -> None:
        effect = self._effect(index, choice)
        group, traffic = loads.rank[effect.group], loads.traffic[effect.kernel]
        ranks = effect.ranks
        np.add.at(traffic, ranks, sign * effect.traffic)
        np.add.at(group.T, ranks, sign * effect.features)
        if sign > 0:
            np.maximum.at(traffic[:, Traffic.CHAIN], ranks, effect.chains)
        else:
            traffic[traffic[:, Traffic.LOOKUPS] < EMPTY] = 0.0
            group[:, group[0] < 0.5] = 0.0  # features are counted exactly, the rest leaves rounding
        loads.whole[effect.group] += sign * effect.whole

    def _lower_chain(self, loads: Loads, index: int, leaving: Collection[int]) -> None:
        """Take the longest bag of the tables that stay, where one that leaves was it."""
        effect = self._effect(index, self.choices[index])
        chains = loads.traffic[effect.kernel][:, Traffic.CHAIN]
        for rank in effect.ranks[effect.chains >= chains[effect.ranks]].tolist():
            held = self._chains.get((effect.kernel, rank), {})
            others = [chain for other, chain in held.items() if other not in leaving]
            chains[rank] = max(others, default=0.0)

    def _chain(self, index: int, choice: Choice, *, add: bool) -> None:
        effect = self._effect(index, choice)
        for rank, chain in zip(effect.ranks.tolist(), effect.chains.tolist(), strict=True):
            held = self._chains.setdefault((effect.kernel, rank), {})
            if add:
                held[index] = max(held.get(index, 0.0), chain)
            else:
                held.pop(index, None)

    def _effect(self, index: int, choice: Choice) -> "Effect":
        key = (index, id(choice.option), choice.ranks)  # hashing an option costs more than all else
        effect = self._effects.get(key)
        if effect is None:
            effect = self._effects[key] = self._new_effect(index, choice)
        return effect

    def _new_effect(self, index: int, choice: Choice) -> "Effect":
        table, option = self.tables[index], choice.option
        problem = self.problem
        sharding = self._sharding(index, choice)
        rows = table_rows(problem.workload, problem.topology, table, sharding)
        counts = [len(row.ranks) for row in rows]
        traffic = np.repeat([row.traffic for row in rows], counts, axis=0)
        chains = traffic[:, Traffic.CHAIN].copy()
        traffic[:, Traffic.CHAIN] = 0.0
        features = [(row.features, row.ids, row.columns) for row in rows]
        key = group_key(table, option.sharding_type)
        sizes = option_bytes(problem, table, option)
        host = np.array([float(size.host) for size in sizes])
        return Effect(
            option=option,
            in_hbm=not host.any() and len(set(sharding.ranks)) == len(sharding.ranks),
            group=self.layout.groups[key],
            kernel=self.layout.kernels[key, KernelKey(option.compute_kernel, table.data_type)],
            ranks=np.array([rank for row in rows for rank in row.ranks], dtype=np.intp),
            traffic=traffic,
            features=np.repeat(features, counts, axis=0),
            chains=chains,
            whole=np.array(_whole_features(table, option)),
            holders=np.array(sharding.ranks, dtype=np.intp),
            held=np.array([float(size.total) for size in sizes]),
            host=host,
        )

    # -- memory -----------------------------------------------------------------------------

    def _hold(self, index: int, choice: Choice, *, sign: float) -> None:
        self._change_memory(self.free, self.host_free, index, choice, sign=sign)

    def _change_memory(
        self, free: Array, host: Array, index: int, choice: Choice, *, sign: float
    ) -> None:
        effect = self._effect(index, choice)
        np.add.at(free, effect.holders, sign * effect.held)
        local = self.problem.topology.local_world_size
        np.add.at(host, effect.holders // local, sign * effect.host)

    # -- choices ----------------------------------------------------------------------------

    def _sharding(self, index: int, choice: Choice) -> TableSharding:
        topology = self.problem.topology
        return make_sharding(self.tables[index], topology, choice.option, choice.ranks)

    def _choice_of(self, sharding: TableSharding, table: EmbeddingTable) -> Choice:
        option = option_of(sharding, table)
        option = self._options.setdefault(option, option)
        return Choice(option, sharding.homes if option.num_ranks else ())


def _whole_features(table: EmbeddingTable, option: TableOption) -> tuple[float, float, float]:
    replicated = option.sharding_type is ShardingType.DATA_PARALLEL
    size = 4.0 * table.num_embeddings * table.embedding_dim
    columns = table.embedding_dim * table.output_rows_per_sample
    return columns, size if replicated else 0.0, 1.0


def signature_of(problem: ShardingProblem) -> Signature:
    """Return every sharding group and kernel that some plan of the problem has."""
    kernels: dict[GroupKey, set[KernelKey]] = {}
    for table in problem.workload.tables:
        for option in problem.options[table.name]:
            key = group_key(table, option.sharding_type)
            kernel = KernelKey(option.compute_kernel, table.data_type)
            kernels.setdefault(key, set()).add(kernel)
    return tuple((key, tuple(sorted(kernels[key]))) for key in sorted(kernels))


def with_ranks(choice: Choice, ranks: Sequence[int]) -> Choice:
    """Return the same option on other ranks."""
    return replace(choice, ranks=tuple(ranks))
