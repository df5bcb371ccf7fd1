"""Moves of a search: how one or two tables could be sharded instead."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from costmodel.plan import ShardingType
from sharders.option_costs import OptionCosts
from sharders.options import TableOption
from sharders.search_state import Choice, Move, SearchState, with_ranks

CRITICAL_SHARE = 0.5
"""Share of the moves that take a table from the rank with the longest lookups: as useful as moves
from anywhere up to some 64 ranks, and more so beyond."""
SWAP_SHARE = 0.25
OPTION_SHARE = 0.35
"""Shares of the moves that swap two tables' ranks, and that change a table's option; the others
move one column block to another rank."""
TOGETHER_SHARE = 0.1
"""Share of the moves that give several tables another sharding type at once: every type in use
costs a set of collectives and the host time to issue them, which only the last table to leave it
saves, and only several tables may be worth."""
MOST_TOGETHER = 12


@dataclass(frozen=True)
class Proposer:
    """Draws moves for a search state."""

    state: SearchState
    costs: OptionCosts
    rng: Random

    def draw(self, count: int) -> list[Move]:
        """Return at most that many moves that fit in memory; no two alike."""
        load = self.state.rank_times()
        order = sorted(range(len(load)), key=lambda r: (float(load[r]), r))
        on_slowest = self._tables_on(order[-1])
        moves: dict[tuple[tuple[int, Choice], ...], Move] = {}
        for _ in range(2 * count):
            move = self._one(order, on_slowest)
            if move and len(moves) < count and self.state.fits(move):
                moves.setdefault(tuple(sorted(move.items(), key=lambda item: item[0])), move)
        return list(moves.values())

    def _tables_on(self, rank: int) -> list[int]:
        return [i for i, choice in enumerate(self.state.choices) if rank in choice.ranks]

    def _one(self, order: Sequence[int], on_slowest: Sequence[int]) -> Move | None:
        rng = self.rng
        critical = on_slowest and rng.random() < CRITICAL_SHARE
        index = rng.choice(on_slowest) if critical else rng.randrange(len(self.state.choices))
        if rng.random() < TOGETHER_SHARE:
            return self._leave_type(order) if rng.random() < 0.5 else self._join_type(order)
        kind = rng.random()
        if kind < SWAP_SHARE:
            return self._swap(index)
        if kind < SWAP_SHARE + OPTION_SHARE:
            return self._other_option(index, order)
        return self._other_rank(index, order)

    def _swap(self, index: int) -> Move | None:
        """Exchange the ranks of two tables with equally many."""
        choices = self.state.choices
        other = self.rng.randrange(len(choices))
        first, second = choices[index], choices[other]
        alike = first.option.sharding_type is second.option.sharding_type
        if not alike or first.ranks == second.ranks or len(first.ranks) != len(second.ranks):
            return None
        return {index: with_ranks(first, second.ranks), other: with_ranks(second, first.ranks)}

    def _other_rank(self, index: int, order: Sequence[int]) -> Move | None:
        """Put one column block on another rank, lightly loaded ones first."""
        choice = self.state.choices[index]
        if not choice.ranks:
            return self._other_option(index, order)
        ranks = list(choice.ranks)
        ranks[self.rng.randrange(len(ranks))] = self._light(order)
        moved = with_ranks(choice, ranks)
        return {index: moved} if self._legal(moved) and moved != choice else None

    def _other_option(self, index: int, order: Sequence[int]) -> Move | None:
        """Shard the table in another way, on lightly loaded ranks."""
        table = self.state.tables[index]
        options = self.state.problem.options[table.name]
        option = self._drawn(index, options)
        choice = Choice(option, self._places(option, order))
        return {index: choice} if choice != self.state.choices[index] else None

    def _leave_type(self, order: Sequence[int]) -> Move | None:
        """Shard all tables of one type, if they are few, in other ways."""
        choices = self.state.choices
        types = sorted({choice.option.sharding_type for choice in choices})
        left = self.rng.choice(types)
        indices = [i for i, choice in enumerate(choices) if choice.option.sharding_type is left]
        if len(indices) > MOST_TOGETHER:
            return None
        move: dict[int, Choice] = {}
        for index in indices:
            options = self._options(index, but=left)
            if not options:
                return None
            option = self._drawn(index, options)
            move[index] = Choice(option, self._places(option, order))
        return move

    def _join_type(self, order: Sequence[int]) -> Move | None:
        """Shard some of the costliest tables of a rank by one type."""
        load = {i: self._load(i) for i in self._tables_on(order[-1])}
        count = self.rng.randint(1, 4)
        costly = sorted(load, key=lambda i: (-load[i], i))[:count]
        types = sorted({o.sharding_type for i in costly for o in self._options(i)})
        if not types:
            return None
        joined, move = self.rng.choice(types), dict[int, Choice]()
        for index in costly:
            options = [o for o in self._options(index) if o.sharding_type is joined]
            if options:
                option = self._drawn(index, options)
                move[index] = Choice(option, self._places(option, order))
        return move

    def _options(self, index: int, but: ShardingType | None = None) -> list[TableOption]:
        options = self.state.problem.options[self.state.tables[index].name]
        return [option for option in options if option.sharding_type is not but]

    def _load(self, index: int) -> float:
        table, choice = self.state.tables[index], self.state.choices[index]
        return self.costs.cost(table, choice.option).shard_load

    def _drawn(self, index: int, options: Sequence[TableOption]) -> TableOption:
        """Draw an option, cheap ones more often: one of three by its cost, or any."""
        drawn = [self.rng.choice(options) for _ in range(3)]
        if self.rng.random() < 0.3:
            return drawn[0]
        table = self.state.tables[index]
        return min(drawn, key=lambda option: self.costs.cost(table, option).total_load)

    def _light(self, order: Sequence[int]) -> int:
        """Draw a rank, less loaded ones more often."""
        return order[int(len(order) * self.rng.random() ** 2)]

    def _places(self, option: TableOption, order: Sequence[int]) -> tuple[int, ...]:
        """Draw distinct ranks for an option, as its sharding type allows."""
        local, kind = self.state.problem.topology.local_world_size, option.sharding_type
        if not option.num_ranks:
            return ()
        ranked = sorted(range(len(order)), key=lambda place: (place + 1) * self.rng.random())
        ranks = [order[place] for place in ranked]
        if kind.within_node:
            nodes = dict.fromkeys(rank - rank % local for rank in ranks)
            return tuple(nodes)[: option.num_ranks]
        if kind is ShardingType.TABLE_COLUMN_WISE:
            ranks = [rank for rank in ranks if rank // local == ranks[0] // local]
        return tuple(ranks[: option.num_ranks])

    def _legal(self, choice: Choice) -> bool:
        """Return whether an option's ranks are as its sharding type wants them."""
        local, kind = self.state.problem.topology.local_world_size, choice.option.sharding_type
        nodes = {rank // local for rank in choice.ranks}
        if kind.within_node:
            return len(nodes) == len(choice.ranks)
        distinct = len(set(choice.ranks)) == len(choice.ranks)
        return distinct and (kind is not ShardingType.TABLE_COLUMN_WISE or len(nodes) == 1)
