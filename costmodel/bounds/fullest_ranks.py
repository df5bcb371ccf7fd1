"""Amounts that the fullest rank of every sharding group sends, in a linear program over options.

Collectives wait for the rank that sends most. That is at least what the mean rank sends, and at
least the largest shard, or those of all tables that are given to one rank: where a group has few
tables, many times the mean.

    for every group and what it sends:    F >= sum over its tables and options of mean x
    and for every table in the group:     F >= sum over the table's options of largest shard x

Rows of tables are added as solutions need them: a few of each group bind. At 79 tables on 128 GPUs,
where two or three tables are alone in their groups, the plan of a program over all types takes 149
ms after 50 moves a table; 291 ms where the program took every rank for the mean one.

Where all shards of a group have as many columns, or multiples of some, the fullest rank sends a
whole number of these blocks: at 2.2 whole tables a rank in the mean, three.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from costmodel.base.arrays import Array, Places
from costmodel.bounds.feature_index import FeatureIndex
from costmodel.bounds.option_features import EXCHANGED, GROUP_FEATURES, BoundOptions, is_first
from costmodel.bounds.option_program import BestShares, OptionProgram, OptionRow

SENT = len(EXCHANGED)
MOST_AT_ONCE = 20
"""Number of rows added at a time of a group and feature, for the tables that exceed F most."""
TOLERANCE = 1e-3
"""Share of F by which a table may exceed it."""
COLUMNS = EXCHANGED.index("columns")
PACKED = 0.95
"""Largest share of the blocks for which fullest ranks have room that can be there: memory and
lookups leave no place for the last ones."""


@dataclass(eq=False)
class FullestRanks:
    """One column F for every group and each of ``EXCHANGED``, group by group, and its rows."""

    index: FeatureIndex
    options: BoundOptions
    _found: dict[tuple[int, int], None] = field(default_factory=dict)
    """Rows of tables that solutions have needed, by pair and feature, in the order found."""

    @property
    def count(self) -> int:
        """Return the number of columns."""
        return len(self.index.fullest)

    @property
    def num_rows(self) -> tuple[int, int]:
        """Return how many rows ``begin`` adds, of means and of tables."""
        return self.count, len(self._found)

    def sent(self, shares: Array) -> Array:
        """Return the amounts that fullest ranks send at some shares of options, (columns,)."""
        sent: Array = np.maximum(*self._of_groups(shares)).ravel()
        return sent

    @property
    def known(self) -> frozenset[tuple[int, int, int]]:
        """Return the rows of tables that solutions have needed, as (holder, group, feature)."""
        groups = self.count // SENT
        keys = self._keys_of_pairs
        return frozenset(
            (int(keys[pair]) // groups, int(keys[pair]) % groups, feature)
            for pair, feature in self._found
        )

    def expect(self, known: Iterable[tuple[int, int, int]]) -> None:
        """Have ``begin`` add rows that solutions for other options of these groups have needed."""
        pairs = {int(key): pair for pair, key in enumerate(self._keys_of_pairs)}
        for holder, group, feature in sorted(known):
            pair = pairs.get(holder * (self.count // SENT) + group)
            if pair is not None:
                self._found[pair, feature] = None

    def whole(self, shares: Array) -> Array:
        """Return the amounts that fullest ranks send if they send whole blocks, (columns,)."""
        means, largest = (each.ravel() for each in self._of_groups(shares))
        sent, has_blocks = np.maximum(means, largest), self.blocks > 0
        count = np.ceil(means[has_blocks] / (PACKED * self.blocks[has_blocks]) - TOLERANCE)
        sent[has_blocks] = np.maximum(largest[has_blocks], count * self.blocks[has_blocks])
        return sent

    @cached_property
    def most(self) -> Array:
        """The largest amounts that fullest ranks send at any shares, shape (columns,)."""
        means, shards = (
            self.options.largest_of_tables(each, self.index.groups)
            for each in (self._means, self._shards)
        )
        held = np.zeros((self._holder.max() + 1, *shards.shape[1:]))
        np.add.at(held, self._holder, shards)
        most: Array = np.maximum(means.sum(axis=0), held.max(axis=0)).ravel()
        return most

    def evenly(self, weights: Array) -> Array:
        """Return what each option adds to a cycle's weight if ranks send the same, (options,)."""
        of_groups = weights[self.index.fullest].reshape(-1, SENT)
        added: Array = (self._means * of_groups[self._group]).sum(axis=1)
        return added

    def coefficients(self, weights: Array) -> Array:
        """Return a cycle's coefficients of the columns, shape (columns,)."""
        coefficients: Array = weights[self.index.fullest] * self._unit
        return coefficients

    def begin(self, program: OptionProgram) -> None:
        """Add the rows of means, and those of tables found so far."""
        means = []
        for column in range(self.count):
            own = np.flatnonzero(self._group == column // SENT)
            means.append(self._row(column, own, self._means[own, column % SENT], (column, None)))
        program.add_rows([*means, *(self._row_of_pair(*found) for found in self._found)])

    def extend(self, program: OptionProgram, found: BestShares) -> None:
        """Add rows of the tables that exceed a solution's columns most."""
        of_pairs = self._largest_of_pairs(found.shares).T
        limits = (found.others * self._unit).reshape(-1, SENT) * (1 + TOLERANCE)
        with np.errstate(over="ignore"):  # where nothing is sent, anything is over
            over = of_pairs / np.maximum(limits[self._group_of_pair], np.finfo(float).tiny)
        rows = []
        for feature in range(SENT):
            added = np.zeros(self.count // SENT, dtype=np.intp)
            for pair in np.argsort(-over[:, feature], kind="stable").tolist():
                group = self._group_of_pair[pair]
                if over[pair, feature] <= 1:
                    break
                if added[group] < MOST_AT_ONCE and (pair, feature) not in self._found:
                    added[group] += 1
                    self._found[pair, feature] = None
                    rows.append(self._row_of_pair(pair, feature))
        if rows:
            program.add_rows(rows)

    def one_less(self, program: OptionProgram, column: int, whole: float) -> None:
        """Limit all ranks to one block less than ``whole`` blocks."""
        self._limit(program, column, PACKED * (whole - self.blocks[column]))

    def send(self, program: OptionProgram, column: int, level: float) -> None:
        """Have fullest ranks send at least an amount, and the mean rank at most that."""
        self._limit(program, column, level)
        program.raise_other(1 + column, level / self._unit[column])

    def _limit(self, program: OptionProgram, column: int, most: float) -> None:
        """Limit the mean rank to an amount, in place of an earlier limit."""
        key, lower = _limit_key(column), -most / self._unit[column]
        if program.is_known(key):
            program.change_row(key, lower)
            return
        own = np.flatnonzero(self._group == column // SENT)
        amounts = -self._means[own, column % SENT] / self._unit[column]
        program.add_rows([OptionRow(lower, own, amounts, key=key)])

    def unlimit(self, program: OptionProgram) -> None:
        """Remove all limits of ranks."""
        for column in range(self.count):
            if program.is_known(_limit_key(column)):
                program.change_row(_limit_key(column), -np.inf)
                program.raise_other(1 + column, 0.0)

    @cached_property
    def uneven(self) -> Places:
        """The columns of groups with blocks whose ranks may send different numbers of them."""
        own = np.flatnonzero(self._shards[:, COLUMNS] > self._means[:, COLUMNS] * (1 + TOLERANCE))
        columns = np.unique(self._group[own]) * SENT + COLUMNS
        return columns[self.blocks[columns] > 0]

    def means(self, shares: Array) -> Array:
        """Return the amounts that mean ranks send at some shares of options, shape (columns,)."""
        return self._of_groups(shares)[0].ravel()

    def largest(self, shares: Array) -> Array:
        """Return the largest shard's amounts over options that have a share, shape (columns,)."""
        used, largest = np.flatnonzero(shares > TOLERANCE), np.zeros((self.count // SENT, SENT))
        np.maximum.at(largest, self._group[used], self._shards[used])
        return largest.ravel()

    @cached_property
    def blocks(self) -> Array:
        """Return the most columns of which every shard of a group has a multiple.

        Of shape (columns F,): 0 for ids and features, and where shards have no whole columns.
        """
        blocks = np.zeros((self.count // SENT, SENT))
        for group in range(len(blocks)):
            columns = self._shards[self._group == group, COLUMNS]
            if len(columns) and (columns == np.rint(columns)).all():
                blocks[group, COLUMNS] = np.gcd.reduce(columns.astype(np.int64))
        return blocks.ravel()

    @cached_property
    def _group(self) -> Places:
        """The group of every option."""
        places = {key: place for place, key in enumerate(self.index.groups)}
        of_kernels = np.array([places.get(group, -1) for group, _ in self.options.kernels])
        group: Places = of_kernels[self.options.kernel]
        return group

    @cached_property
    def _holder(self) -> Places:
        """A number for the holder of every table, the same for tables given to the same rank."""
        table = self.options.table
        holder, first = np.arange(table[-1] + 1), self.options.rank[is_first(table)]
        holder[first >= 0] = len(holder) + first[first >= 0]
        return holder

    @cached_property
    def _keys(self) -> Places:
        """One number for the holder and group of every option."""
        keys: Places = self._holder[self.options.table] * (self.count // SENT) + self._group
        return keys

    @cached_property
    def _keys_of_pairs(self) -> Places:
        """The (holder, group) keys of all pairs, in order."""
        return np.unique(self._keys)

    @cached_property
    def _pair(self) -> Places:
        """The place of every option's (holder, group) pair among the pairs."""
        pair: Places = np.searchsorted(self._keys_of_pairs, self._keys)
        return pair

    @cached_property
    def _group_of_pair(self) -> Places:
        """The group of every pair."""
        group = np.zeros(self._pair.max() + 1, dtype=np.intp)
        group[self._pair] = self._group
        return group

    @cached_property
    def _pairs_of_groups(self) -> tuple[Places, Places]:
        """Pairs in the order of their groups, and the place of each group's first pair."""
        order = np.argsort(self._group_of_pair, kind="stable")
        return order, np.flatnonzero(is_first(self._group_of_pair[order]))

    @cached_property
    def _means(self) -> Array:
        """Amounts that every option has the mean rank send, shape (options, SENT)."""
        columns = [GROUP_FEATURES.index(name) for name in EXCHANGED]
        means: Array = self.options.values[:, columns]
        return means

    @cached_property
    def _shards(self) -> Array:
        """Amounts that every option's largest shard sends, shape (options, SENT)."""
        return self.options.exchanged

    @cached_property
    def _unit(self) -> Array:
        """The amount that 1 in a column stands for."""
        return np.where(self.most > 0, self.most, 1.0)

    def _largest_of_pairs(self, shares: Array) -> Array:
        """Return sums over every pair's options of their largest shards' amounts, (SENT, pairs)."""
        return self._sums(shares, self._shards, self._pair, len(self._group_of_pair))

    def _of_groups(self, shares: Array) -> tuple[Array, Array]:
        """Return features, ids and columns of mean ranks, and of largest shards.

        Each is of shape (groups, SENT).
        """
        count = self.count // SENT
        means = self._sums(shares, self._means, self._group, count)
        largest, (order, first) = np.zeros((count, SENT)), self._pairs_of_groups
        of_pairs = self._largest_of_pairs(shares)[:, order]
        largest[self._group_of_pair[order[first]]] = np.maximum.reduceat(of_pairs, first, axis=1).T
        return means.T, largest

    @staticmethod
    def _sums(shares: Array, values: Array, of_option: Places, count: int) -> Array:
        """Return sums of shares of values, (options, SENT), over like options, (SENT, count)."""
        used = np.flatnonzero(shares)
        amounts, number = (shares[used, None] * values[used]).T, of_option[used]
        return np.array([np.bincount(number, each, count) for each in amounts])

    @cached_property
    def _options_of_pairs(self) -> tuple[Places, Places]:
        """Options in the order of their pairs, and where each pair's begin, shape (pairs + 1,)."""
        order = np.argsort(self._pair, kind="stable")
        return order, np.searchsorted(self._pair[order], np.arange(self._pair.max() + 2))

    def _row_of_pair(self, pair: int, feature: int) -> OptionRow:
        """Return the row: a column is at least a pair's largest shards of a feature."""
        order, begins = self._options_of_pairs
        own = order[begins[pair] : begins[pair + 1]]
        column = int(self._group_of_pair[pair]) * SENT + feature
        key = column, int(self._keys_of_pairs[pair])
        return self._row(column, own, self._shards[own, feature], key)

    def _row(
        self, column: int, own: Places, amounts: Array, key: tuple[int, int | None]
    ) -> OptionRow:
        """Return the row "a column is at least the sum of amounts times shares of options"."""
        of_unit = -amounts / self._unit[column]
        return OptionRow(0.0, own, of_unit, np.array([1 + column]), np.ones(1), key)


def _limit_key(column: int) -> tuple[str, int]:
    """Return the key of a column's limit in a program."""
    return "limit", column
