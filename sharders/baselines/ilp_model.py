"""Choosing options and ranks of all tables as a mixed-integer program, by pulp.

    minimise  M
    for every table:   sum over options of y = 1
    for every option:  sum over ranks (nodes) of a = number of column blocks * y,  a in {0, 1}
    for every rank:    sum of shard loads a <= M,  sum of shard bytes a <= capacity
    for every node:    sum of host bytes a <= host capacity

Ranks of one node are alike, unless the user has put tables on some, so they are named in the order
in which tables, the longest first, use them: a table may only be on ranks that the tables before it
and itself can have needed.

Options that leave no rank to choose have no a: row_wise and data_parallel load all ranks alike,
those of a table that the user has put on certain ranks just these. Loads are ``OptionCosts``:
lookup and exchange of each shard alone, in seconds, so M is a makespan of separable costs and not
the step time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingPlan, ShardingType, TableSharding
from costmodel.domain.workload import EmbeddingTable
from sharders.baselines.solvers import Limits, solve
from sharders.problem.option_costs import OptionCost
from sharders.problem.options import TableOption, make_plan, make_sharding, option_of
from sharders.problem.sharding_problem import ShardingProblem

if TYPE_CHECKING:
    import pulp

_BALANCED = 100.0
"""Load, and bytes, of a perfectly balanced rank in the program: solvers have absolute tolerances
around 1e-6."""
_ANYWHERE = (ShardingType.TABLE_WISE, ShardingType.COLUMN_WISE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSolution:
    """A solver's solution; times are of the program's objective, not of the step."""

    plan: ShardingPlan
    makespan: Seconds
    bound: Seconds | None
    """Lower bound of the makespan of all plans."""
    optimal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProgramOption:
    """One option of one table in the program."""

    cost: OptionCost
    bytes_per_shard: float
    host_per_shard: float
    fixed: tuple[int, ...]
    """Ranks of its shards where the user has fixed them."""

    @property
    def option(self) -> TableOption:
        return self.cost.option


@dataclass(frozen=True)
class IlpModel:
    """The integer program of a problem."""

    problem: ShardingProblem
    sharding_types: frozenset[ShardingType] = frozenset(ShardingType)
    """Types to choose from; tables that may have none of them keep all of theirs."""
    max_options: int = 6
    """Options per table in HBM, and as many with host memory: the cheapest in all, and those with
    the fastest and the smallest shards, without options that another one dominates."""
    _variables: "dict[tuple[object, ...], pulp.LpVariable]" = field(default_factory=dict)

    @property
    def num_variables(self) -> int:
        """Number of binaries."""
        ranks, nodes = self.problem.topology.world_size, self.problem.topology.num_nodes
        places = {True: nodes, False: ranks}
        return sum(
            1
            + (
                places[candidate.option.sharding_type.within_node]
                if candidate.option.num_ranks
                else 0
            )
            for candidates in self.candidates
            for candidate in candidates
        )

    @cached_property
    def _per_second(self) -> float:
        """Units of the program's load in a second."""
        total = sum(
            min(candidate.cost.total_load for candidate in candidates)
            for candidates in self.candidates
        )
        return _BALANCED * self.problem.topology.world_size / max(total, 1e-9)

    @cached_property
    def candidates(self) -> list[list[_ProgramOption]]:
        """Options of every table, pruned."""
        return [self._candidates(table) for table in self.problem.workload.tables]

    def solve(self, start: ShardingPlan, limits: Limits) -> ProgramSolution | None:
        """Return the best plan found, from a plan to start with; None if the solver has none."""
        program = self._program()
        first = self._values(start) if self._covers(start) else None
        bound, optimal = solve(program, first, limits)
        plan = self._plan()
        if plan is None:
            return None
        return ProgramSolution(
            plan=plan,
            makespan=self.makespan(plan),
            bound=None if bound is None else bound / self._per_second,
            optimal=optimal,
        )

    def makespan(self, plan: ShardingPlan) -> Seconds:
        """Return the value of the program's objective for any plan."""
        load = [0.0] * self.problem.topology.world_size
        for table in self.problem.workload.tables:
            sharding = plan.table(table.name)
            cost = self.problem.groundwork.costs.cost(table, option_of(sharding, table))
            for rank in sharding.ranks:
                load[rank] += cost.shard_load
        return max(load)

    def _candidates(self, table: EmbeddingTable) -> list[_ProgramOption]:
        """Return the options of a table that the program chooses from: none undercuts another."""
        every = self.problem.options[table.name]
        options = [o for o in every if o.sharding_type in self.sharding_types] or every
        kinds = {option.sharding_type for option in options}
        candidates = [
            self._candidate(table, option)
            for option in options
            # within a node or not, column shards cost the same here
            if option.sharding_type is not ShardingType.TABLE_COLUMN_WISE
            or ShardingType.COLUMN_WISE not in kinds
        ]
        candidates.sort(
            key=lambda candidate: (candidate.cost.total_load, candidate.cost.shard_load)
        )
        kept: list[_ProgramOption] = []
        for candidate in candidates:
            if not any(_undercuts(other, candidate) for other in kept):
                kept.append(candidate)
        spread = sorted(kept, key=lambda candidate: candidate.cost.shard_load)[:1]
        small = sorted(kept, key=lambda candidate: candidate.bytes_per_shard)[:1]
        in_hbm = [candidate for candidate in kept if not candidate.host_per_shard][
            : self.max_options
        ]
        on_host = [candidate for candidate in kept if candidate.host_per_shard][: self.max_options]
        return list(dict.fromkeys([*in_hbm, *on_host, *spread, *small]))

    def _candidate(self, table: EmbeddingTable, option: TableOption) -> _ProgramOption:
        """Return an option with its cost and the bytes of its largest shard."""
        sizes = self.problem.groundwork.option_bytes(table, option)
        fixed = make_sharding(table, self.problem.topology, option).ranks if option.ranks else ()
        return _ProgramOption(
            cost=self.problem.groundwork.costs.cost(table, option),
            fixed=fixed,
            bytes_per_shard=max(size.total for size in sizes),
            host_per_shard=max(float(size.host) for size in sizes),
        )

    def _program(self) -> "pulp.LpProblem":
        import pulp

        program = pulp.LpProblem("sharding", pulp.LpMinimize)
        makespan = program.add_variable("makespan", lowBound=0)
        self._variables.clear()
        self._variables["makespan",] = makespan
        program += makespan
        for t in range(len(self.candidates)):
            self._add_table(program, t)
        self._add_ranks(program, makespan)
        return program

    def _add_table(self, program: "pulp.LpProblem", t: int) -> None:
        """Constrain a table to one option, and the option to as many ranks as it needs."""
        import pulp

        chosen = []
        for o, candidate in enumerate(self.candidates[t]):
            y = self._binary(program, "y", t, o)
            chosen.append(y)
            if candidate.option.num_ranks:
                places = [
                    self._binary(program, "a", t, o, place) for place in self._places(candidate)
                ]
                for place in places[self._needed[t] :]:
                    place.upBound = 0
                program += pulp.lpSum(places) == candidate.option.num_ranks * y
            if (
                candidate.option.num_ranks
                and candidate.option.sharding_type is ShardingType.TABLE_COLUMN_WISE
            ):
                self._keep_in_node(program, t, o, y)
        program += pulp.lpSum(chosen) == 1

    def _keep_in_node(
        self, program: "pulp.LpProblem", t: int, o: int, y: "pulp.LpVariable"
    ) -> None:
        import pulp

        local = self.problem.topology.local_world_size
        places = [self._binary(program, "home", t, o, node) for node in self._nodes]
        program += pulp.lpSum(places) == y
        for rank in range(self.problem.topology.world_size):
            program += self._variables["a", t, o, rank] <= places[rank // local]

    def _add_ranks(self, program: "pulp.LpProblem", makespan: "pulp.LpVariable") -> None:
        import pulp

        problem = self.problem
        local = problem.topology.local_world_size
        hosts: dict[int, list[Any]] = {node: [] for node in self._nodes}
        for rank in range(problem.topology.world_size):
            load, held = [], []
            for candidate, variable in self._shards_on(rank):
                load.append(self._per_second * candidate.cost.shard_load * variable)
                held.append(_BALANCED * candidate.bytes_per_shard / problem.capacity * variable)
                if candidate.host_per_shard:
                    share = candidate.host_per_shard / problem.host_capacity
                    hosts[rank // local].append(_BALANCED * share * variable)
            program += pulp.lpSum(load) <= makespan
            program += pulp.lpSum(held) <= _BALANCED * problem.rooms[rank] / problem.capacity
        for shares in hosts.values():
            if shares:
                program += pulp.lpSum(shares) <= _BALANCED

    def _shards_on(self, rank: int) -> "list[tuple[_ProgramOption, pulp.LpVariable]]":
        """Return the (option, variable) pairs that put a shard on a rank."""
        node = rank // self.problem.topology.local_world_size
        found = []
        for t, candidates in enumerate(self.candidates):
            for o, candidate in enumerate(candidates):
                place = node if candidate.option.sharding_type.within_node else rank
                if candidate.fixed and rank not in candidate.fixed:
                    continue
                key = ("a", t, o, place) if candidate.option.num_ranks else ("y", t, o)
                found.append((candidate, self._variables[key]))
        return found

    def _binary(self, program: "pulp.LpProblem", *key: object) -> "pulp.LpVariable":
        """Add a variable that is 0 or 1, kept by its key, and return it."""
        import pulp

        variable = program.add_variable("_".join(map(str, key)), cat=pulp.LpBinary)
        self._variables[key] = variable
        return variable

    def _places(self, candidate: _ProgramOption) -> range:
        ranks = range(self.problem.topology.world_size)
        return self._nodes if candidate.option.sharding_type.within_node else ranks

    @cached_property
    def _order(self) -> list[int]:
        """Numbers of tables, by the load of a shard of the costliest option, largest first."""
        load = [
            max(candidate.cost.shard_load for candidate in candidates)
            for candidates in self.candidates
        ]
        return sorted(range(len(load)), key=lambda t: (-load[t], t))

    @cached_property
    def _alike(self) -> bool:
        """Whether exchanging ranks makes no difference."""
        problem = self.problem
        topology = problem.topology
        free = not any(table.ranks for table in problem.workload.tables)
        return topology.num_nodes == 1 and topology.is_uniform and free

    @cached_property
    def _needed(self) -> list[int]:
        """Number of ranks that a table and those before it in the order can need.

        All if not alike.
        """
        needed = [self.problem.topology.world_size] * len(self.candidates)
        if not self._alike:
            return needed
        used = 0
        for t in self._order:
            used += max(candidate.option.num_ranks for candidate in self.candidates[t])
            needed[t] = used
        return needed

    def _renamed(self, plan: ShardingPlan) -> dict[int, int]:
        """Return new names of the ranks, in the order in which tables use them."""
        ranks = list(range(self.problem.topology.world_size))
        if not self._alike:
            return dict(zip(ranks, ranks, strict=True))
        tables = self.problem.workload.tables
        used = [
            rank
            for sharding in (plan.table(tables[t].name) for t in self._order)
            for rank in (() if sharding.sharding_type.everywhere else sharding.ranks)
        ]
        return {rank: name for name, rank in enumerate(dict.fromkeys([*used, *ranks]))}

    @property
    def _nodes(self) -> range:
        return range(self.problem.topology.num_nodes)

    def _covers(self, plan: ShardingPlan) -> bool:
        """Return whether the program has all options of a plan, with shards on distinct ranks."""
        for t, table in enumerate(self.problem.workload.tables):
            sharding = plan.table(table.name)
            option = option_of(sharding, table)
            known = option in [candidate.option for candidate in self.candidates[t]]
            if not known or len(set(sharding.ranks)) < len(sharding.ranks):
                return False
        return True

    def _values(self, plan: ShardingPlan) -> Mapping[str, float]:
        """Return a plan as values of the variables that are not 0, by name."""
        local, names = self.problem.topology.local_world_size, self._renamed(plan)
        values = {"makespan": self.makespan(plan) * self._per_second * (1 + 1e-9)}
        for t, table in enumerate(self.problem.workload.tables):
            sharding = plan.table(table.name)
            option = option_of(sharding, table)
            o = [candidate.option for candidate in self.candidates[t]].index(option)
            values[f"y_{t}_{o}"] = 1.0
            in_nodes = option.sharding_type.within_node
            for rank in [names[r] for r in sharding.ranks] if option.num_ranks else []:
                values[f"a_{t}_{o}_{rank // local if in_nodes else rank}"] = 1.0
                if option.sharding_type is ShardingType.TABLE_COLUMN_WISE:
                    values[f"home_{t}_{o}_{rank // local}"] = 1.0
        return values

    def _plan(self) -> ShardingPlan | None:
        """Return the plan of the variables' values; None where there is none."""
        local = self.problem.topology.local_world_size
        shardings: list[TableSharding] = []
        for t, table in enumerate(self.problem.workload.tables):
            candidates = self.candidates[t]
            o = max(range(len(candidates)), key=lambda o: _value(self._variables["y", t, o]))
            option = candidates[o].option
            places = self._places(candidates[o]) if option.num_ranks else range(0)
            chosen = [p for p in places if _value(self._variables["a", t, o, p]) > 0.5]
            if len(chosen) != option.num_ranks or _value(self._variables["y", t, o]) < 0.5:
                return None
            step = local if option.sharding_type.within_node else 1
            ranks = [place * step for place in chosen]
            shardings.append(make_sharding(table, self.problem.topology, option, ranks))
        return make_plan(self.problem.topology, shardings)


def _undercuts(other: _ProgramOption, candidate: _ProgramOption) -> bool:
    """Return whether another option can use some of this one's ranks, at less cost each."""
    alike = other.option.sharding_type is candidate.option.sharding_type
    return (
        (alike or other.option.sharding_type in _ANYWHERE)
        and candidate.option.sharding_type is not ShardingType.TABLE_COLUMN_WISE
        and (other.option.num_ranks <= candidate.option.num_ranks or not candidate.option.num_ranks)
        and other.cost.shard_load <= candidate.cost.shard_load
        and other.bytes_per_shard <= candidate.bytes_per_shard
        and other.host_per_shard <= candidate.host_per_shard
    )


def _value(variable: "pulp.LpVariable") -> float:
    return float(variable.varValue or 0.0)
