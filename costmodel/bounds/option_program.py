"""A linear program over options of tables, begun with few options: others join if they pay.

Options are columns: at 600 tables on 128 GPUs that may lie in host memory, too, 39,000 of them, and
hardly any table gets more than one. An option that is left out pays if its reduced cost is
negative. As the shares of each table's options add up to 1, all options left out gain together at
most the sum over tables of the most negative reduced cost (Dantzig and Wolfe, Decomposition
Principle for Linear Programs, Operations Research 8(1), 1960).
"""

from collections.abc import Hashable, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.base.arrays import Array, Mask, Places
from costmodel.base.solver import quiet_solver
from costmodel.base.units import Seconds

DUAL, PRIMAL = 1, 4
"""HiGHS's simplex strategies, for after rows were added and after columns were."""
DEVEX = 1
"""HiGHS's edge weights that need no time to begin from a basis (Forrest and Goldfarb, 1992)."""
LEAST_TIME: Seconds = 0.01
"""Seconds that a solution may take at least."""
PAYS = 0.5
"""An option joins if it gains at least this share of the best gain of its table's options."""
_NONE: Places = np.zeros(0, dtype=np.intp)


class BestShares(NamedTuple):
    """A solution over the options that have joined."""

    shares: Array
    """The share of every option, 0 for those left out."""
    value: float
    others: Array
    """Values of the columns other than the first one and those of options."""
    reduced_costs: Array
    """What a share of every option adds to the value, whether it has joined or not."""


class OptionRow(NamedTuple):
    """A row: a sum over shares of options and other columns is at least ``lower``."""

    lower: float
    """Smallest value of the sum."""
    options: Places | slice
    """Options in the sum, all of them as ``EVERY``."""
    amounts: Array
    """Factor of each of these options."""
    others: Places = _NONE
    """Other columns in the sum, 0 for the first one."""
    values: Array = np.zeros(0)
    """Factor of each of these columns."""
    key: Hashable = None
    """Name of the row for ``change_row``, and for programs that begin from this one's basis."""


EVERY = slice(None)


class ProgramBasis(NamedTuple):
    """HiGHS's status of columns and rows, from which other programs can begin."""

    options: NDArray[np.object_]
    """Status of options, by the numbers that all these programs use; None: the option is left
    out."""
    others: Sequence[Any]
    """Status of the first column and of those other than options."""
    tables: Sequence[Any]
    """Status of tables' rows."""
    rows: Mapping[Hashable, Any]
    """Status of other rows, by their keys."""


class OptionProgram:
    """A linear program that minimises the first column; columns are not negative.

    The shares of every table's options add up to 1, and all together use at most some memory.
    """

    def __init__(self, table: Places, memory: Array, most_memory: float, num_others: int) -> None:
        """Begin without options, any of which may join.

        Parameters
        ----------
        table, memory
            Of every option, tables in order.
        most_memory
            Most memory that shares of options may use in all.
        num_others
            Number of columns other than the first one and those of options.

        """
        import highspy

        self._table, self._num_tables = table, int(table[-1]) + 1
        self._first = 1 + num_others
        """Number of the first option's column."""
        self._free: Mask = np.ones(len(table), dtype=bool)
        """Options that may have shares."""
        self._joined: Places = np.zeros(0, dtype=np.intp)
        """Options that have joined, in the order of their columns."""
        self._rows = [OptionRow(-most_memory, EVERY, memory, key="memory")]
        """All rows but tables'; that of memory has its negative, so that it is at least
        something."""
        self._column = np.full(len(table), -1, dtype=np.int32)
        """The column of every option; -1: it is left out."""
        self._prices: Array = np.zeros(1)
        program: Any = highspy.HighsLp()
        program.num_col_, program.num_row_ = self._first, self._num_tables + 1
        program.col_cost_ = np.append([1.0], np.zeros(num_others))
        program.col_lower_ = np.zeros(self._first)
        program.col_upper_ = np.full(self._first, highspy.kHighsInf)
        program.row_lower_ = np.append(np.ones(self._num_tables), -highspy.kHighsInf)
        program.row_upper_ = np.append(np.ones(self._num_tables), most_memory)
        program.a_matrix_.start_ = np.zeros(self._first + 1, dtype=np.int32)
        self._solver = quiet_solver()
        self._solver.setOptionValue("simplex_dual_edge_weight_strategy", DEVEX)
        self._solver.setOptionValue("simplex_primal_edge_weight_strategy", DEVEX)
        self._solver.passModel(program)

    def add_rows(self, rows: Sequence[OptionRow]) -> None:
        """Add rows, all at once: each call copies the whole program."""
        indices, amounts = [], []
        for row in rows:
            columns = self._column[row.options]
            there = np.flatnonzero((columns >= 0) & (row.amounts != 0))
            indices.append(np.append(row.others, columns[there]).astype(np.int32))
            amounts.append(np.append(row.values, row.amounts[there]))
        starts = np.cumsum([0, *map(len, indices)])
        self._solver.addRows(
            len(rows), np.array([row.lower for row in rows]), np.full(len(rows), inf),
            int(starts[-1]), starts[:-1].astype(np.int32),
            np.concatenate(indices), np.concatenate(amounts),
        )  # fmt: skip
        self._rows += rows

    def is_known(self, key: Hashable) -> bool:
        """Return whether there is a row of a key."""
        return any(row.key == key for row in self._rows)

    def change_row(self, key: Hashable, lower: float) -> None:
        """Set the smallest value of a row's sum."""
        number = next(number for number, row in enumerate(self._rows) if row.key == key)
        self._rows[number] = self._rows[number]._replace(lower=lower)
        self._solver.changeRowBounds(self._num_tables + number, lower, inf)

    def raise_other(self, other: int, least: float) -> None:
        """Set the smallest value of a column other than the first one and those of options."""
        self._solver.changeColBounds(other, least, inf)

    def allow(self, free: Mask, most_memory: float) -> None:
        """Set which options may have shares, and the most memory."""
        self._free, self._rows[0] = free, self._rows[0]._replace(lower=-most_memory)
        count = len(self._joined)
        columns = np.arange(self._first, self._first + count, dtype=np.int32)
        upper = free[self._joined].astype(np.float64)
        self._solver.changeColsBounds(count, columns, np.zeros(count), upper)
        self._solver.changeRowBounds(self._num_tables, -inf, most_memory)

    @property
    def joined(self) -> Mask:
        """Return which options have joined."""
        joined: Mask = self._column >= 0
        return joined

    def join(self, options: Places) -> None:
        """Add a column for each option that has none yet: it may have a share then."""
        options = options[~self.joined[options]]
        if not len(options):
            return
        first = self._first + len(self._joined)
        self._column[options] = np.arange(first, first + len(options))
        self._joined = np.append(self._joined, options)
        own, of_all = np.zeros((len(options), len(self._rows))), np.zeros(len(self._table))
        for number, each in enumerate(self._rows):
            of_all[each.options] = each.amounts
            own[:, number] = of_all[options]
            of_all[each.options] = 0.0
        option, row = np.nonzero(own)
        counts = 1 + np.bincount(option, minlength=len(options))
        starts = np.cumsum(counts) - counts
        rows, amounts = self._table[options].repeat(counts), np.ones(counts.sum())
        is_other = np.ones(len(rows), dtype=bool)
        is_other[starts] = False
        rows[is_other], amounts[is_other] = self._num_tables + row, own[option, row]
        zeros, ones = np.zeros(len(options)), np.ones(len(options))
        self._solver.addCols(
            len(options), zeros, zeros, ones,
            len(rows), starts.astype(np.int32), rows.astype(np.int32), amounts,
        )  # fmt: skip

    def begin_with(self, options: Places, is_tight: Sequence[bool]) -> None:
        """Set the basis to begin the first solution from: options, and all other columns.

        Parameters
        ----------
        options
            One of every table, all having joined.
        is_tight
            Of memory's row and all added rows: whether it binds. As many do as there are other
            columns.

        """
        import highspy

        status = highspy.HighsBasisStatus
        is_basic = np.isin(self._joined, options).tolist()
        basis: Any = highspy.HighsBasis()
        basis.col_status = [status.kBasic] * self._first + [
            status.kBasic if basic else status.kLower for basic in is_basic
        ]
        basis.row_status = [status.kLower] * self._num_tables + [
            status.kLower if tight else status.kBasic for tight in is_tight
        ]
        basis.valid = True
        self._solver.setBasis(basis)

    def basis(self, numbers: Places, count: int) -> ProgramBasis:
        """Return the last solution's basis, with a column for each of ``count`` options.

        ``numbers`` says which of these the program's own options are.
        """
        found = self._solver.getBasis()
        options = np.full(count, None, dtype=object)
        options[numbers[self._joined]] = found.col_status[self._first :]
        keys = (row.key for row in self._rows)
        rows = dict(zip(keys, found.row_status[self._num_tables :], strict=True))
        tables = found.row_status[: self._num_tables]
        return ProgramBasis(options, found.col_status[: self._first], tables, rows)

    def begin_from(self, basis: ProgramBasis, numbers: Places) -> None:
        """Set another program's basis to begin the first solution from, as far as it applies."""
        import highspy

        status = highspy.HighsBasisStatus
        begin: Any = highspy.HighsBasis()
        own = basis.options[numbers[self._joined]].tolist()
        begin.col_status = [
            *basis.others,
            *(status.kLower if each is None else each for each in own),
        ]
        begin.row_status = [
            *basis.tables,
            *(basis.rows.get(row.key, status.kBasic) for row in self._rows),
        ]
        begin.valid = begin.alien = True
        self._solver.setBasis(begin)

    def run(self, strategy: int, time_limit: Seconds = inf) -> BestShares | None:
        """Return the solution over the options that have joined; None: no room, or no time.

        ``strategy`` is ``DUAL`` or ``PRIMAL``.
        """
        import highspy

        self._solver.setOptionValue("simplex_strategy", strategy)
        until = self._solver.getRunTime() + max(LEAST_TIME, time_limit)
        self._solver.setOptionValue("time_limit", until)
        self._solver.run()
        if self._solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        found = self._solver.getSolution()
        columns, prices = np.array(found.col_value), np.array(found.row_dual)
        shares, costs = np.zeros((2, len(self._table)))
        shares[self._joined] = columns[self._first :]
        for price, row in zip(prices[self._num_tables :].tolist(), self._rows, strict=True):
            if price != 0.0:
                costs[row.options] -= price * row.amounts
        # not the price of a table's row: where an option's share is 1, part of it is its bound's
        least, free = np.full(self._num_tables, np.inf), self._joined[self._free[self._joined]]
        np.minimum.at(least, self._table[free], costs[free])
        self._prices = prices[self._num_tables :]
        value = self._solver.getInfo().objective_function_value
        others = columns[1 : self._first]
        return BestShares(shares, value, others, costs - least[self._table])

    def bound(self) -> float:
        """Return a lower bound over all shares, from the prices of the last solution.

        Any prices that are not negative give a bound (Lagrangian relaxation), so that rounding of a
        solution only lowers it. No column other than the first one and those of options may need to
        be more than 1. Options that are left out count, too.
        """
        prices = np.maximum(self._prices * np.append(-1.0, np.ones(len(self._rows) - 1)), 0.0)
        gained = np.zeros(self._first)
        costs = np.zeros(len(self._table))
        value = 0.0
        for number in np.flatnonzero(prices).tolist():
            price, row = prices[number], self._rows[number]
            value += price * row.lower
            costs[row.options] += (price if number == 0 else -price) * row.amounts
            gained[row.others] += price * row.values
        scale = 1.0 / max(1.0, gained[0])
        least = np.full(self._num_tables, np.inf)
        np.minimum.at(least, self._table[self._free], costs[self._free])
        lost = np.maximum(gained[1:], 0.0).sum()
        return float(scale * (value + least.sum() - lost))

    def paying(self, found: BestShares, tolerance: float) -> Places:
        """Return the options that would pay and may join; empty if they gain hardly anything.

        Parameters
        ----------
        found
            The solution for those that are there.
        tolerance
            Share of the value that counts as hardly anything.

        """
        gains = np.where(self._free, np.maximum(0.0, -found.reduced_costs), 0.0)
        gains[self._joined] = 0.0
        most = np.zeros(self._num_tables)
        np.maximum.at(most, self._table, gains)
        if most.sum() <= tolerance * found.value:
            return np.zeros(0, dtype=np.intp)
        return np.flatnonzero((gains > 0) & (gains >= PAYS * most[self._table]))
