"""Linear programs that options join when they pay."""

from collections.abc import Sequence

import numpy as np
import pytest
from scipy.optimize import linprog

from costmodel.base.arrays import Array
from costmodel.bounds.option_program import (
    DUAL,
    EVERY,
    PRIMAL,
    BestShares,
    OptionProgram,
    OptionRow,
)

TABLES, EACH, ROWS = 12, 9, 4
TABLE = np.repeat(np.arange(TABLES), EACH)
FREE = np.ones(TABLES * EACH, dtype=bool)
FEW = np.arange(0, TABLES * EACH, EACH)
"""One option of every table."""
MOST = 0.6 * TABLES


def drawn(seed: int) -> tuple[Array, Array]:
    """Return the memory of options, least that of ``FEW``, and what rows multiply them by."""
    rng = np.random.default_rng(seed)
    memory = rng.uniform(0.2, 1.0, TABLES * EACH)
    memory[FEW] = 0.1
    return memory, rng.uniform(0.0, 1.0, (ROWS, TABLES * EACH))


def bound_by(amounts: Array) -> OptionRow:
    """Return: the first column is at least the sum of amounts times shares."""
    return OptionRow(0.0, EVERY, -amounts, np.zeros(1, dtype=int), np.ones(1))


def begun(memory: Array, rows: Sequence[Array] | Array, most: float = MOST) -> OptionProgram:
    """Return a program with the options of ``FEW``, whose first column is at least every row."""
    program = OptionProgram(TABLE, memory, most, num_others=0)
    program.add_rows(list(map(bound_by, rows)))
    program.join(FEW)
    return program


def solved(program: OptionProgram) -> BestShares:
    """Let options join until none pays."""
    found = program.run(DUAL)
    assert found is not None
    while len(paying := program.paying(found, 1e-9)):
        program.join(paying)
        found = program.run(PRIMAL)
        assert found is not None
    return found


@pytest.mark.parametrize("seed", range(6))
def test_a_few_options_lead_to_what_all_do(seed: int) -> None:
    memory, rows = drawn(seed)
    found = solved(begun(memory, rows))
    whole = linprog(
        np.append(np.zeros(len(TABLE)), 1.0),
        A_ub=np.vstack((np.column_stack((rows, -np.ones(ROWS))), np.append(memory, 0.0))),
        b_ub=np.append(np.zeros(ROWS), MOST),
        A_eq=np.column_stack((np.arange(TABLES)[:, None] == TABLE, np.zeros(TABLES))),
        b_eq=np.ones(TABLES),
    )
    assert found.value == pytest.approx(whole.fun)
    assert found.value == pytest.approx((rows @ found.shares).max())
    assert np.bincount(TABLE, found.shares) == pytest.approx(np.ones(TABLES))
    assert memory @ found.shares <= MOST + 1e-9
    assert found.reduced_costs.min() > -1e-7
    assert found.reduced_costs[found.shares > 1e-9] == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize("seed", range(6))
def test_prices_of_few_options_bound_what_all_reach(seed: int) -> None:
    memory, rows = drawn(seed)
    program = begun(memory, rows)
    few = program.run(DUAL)
    assert few is not None
    early = program.bound()
    least = solved(program).value
    assert early < least < few.value
    assert (of_all := program.bound()) == pytest.approx(least)
    program.allow(np.isin(np.arange(len(TABLE)), FEW), MOST)
    assert program.bound() >= of_all


def test_another_program_begins_from_a_basis() -> None:
    memory, rows = drawn(3)
    program = begun(memory, rows)
    least = solved(program).value
    kept = np.flatnonzero(np.arange(len(TABLE)) % EACH != 4)
    other = OptionProgram(TABLE[kept], memory[kept], MOST, num_others=0)
    other.add_rows([bound_by(row[kept]) for row in rows])
    other.join(np.arange(len(kept)))
    other.begin_from(program.basis(np.arange(len(TABLE)), len(TABLE)), kept)
    found = other.run(DUAL)
    assert found is not None
    assert found.value >= least * (1 - 1e-9)
    assert other.bound() == pytest.approx(found.value)


def test_a_row_that_comes_later_binds_all_options() -> None:
    memory, rows = drawn(7)
    program = begun(memory, rows[:-1])
    before = solved(program).value
    program.add_rows([bound_by(10 * rows[-1])])
    after = solved(program)
    assert after.value > before
    assert after.value == pytest.approx(solved(begun(memory, [*rows[:-1], 10 * rows[-1]])).value)


def test_options_that_are_not_free_never_join() -> None:
    memory, rows = drawn(8)
    program = begun(memory, rows)
    found = program.run(DUAL)
    assert found is not None
    assert len(program.paying(found, 1e-9)) > 0
    program.allow(np.isin(np.arange(len(TABLE)), FEW), MOST)
    assert len(program.paying(found, 1e-9)) == 0


@pytest.mark.parametrize("seed", range(6))
def test_a_program_solved_for_others_is_as_one_of_their_own(seed: int) -> None:
    memory, rows = drawn(seed)
    rng = np.random.default_rng(seed)
    program = begun(memory, rows)
    expected = solved(program).value
    for _ in range(4):
        free = (rng.random(len(TABLE)) < 0.6) | np.isin(np.arange(len(TABLE)), FEW)
        most = float(rng.uniform(0.3, 1.0)) * TABLES
        program.allow(free, most)
        found = solved(program)
        own = begun(memory, rows, most)
        own.allow(free, most)
        assert found.value == pytest.approx(solved(own).value)
        assert found.shares[~free].max() == 0.0
        assert memory @ found.shares <= most + 1e-9
    program.allow(FREE, MOST)
    assert solved(program).value == pytest.approx(expected)


def test_a_basis_to_begin_with_leads_to_the_same_solution() -> None:
    memory, rows = drawn(9)
    program = begun(memory, rows)
    program.begin_with(FEW, [False, True, *[False] * (ROWS - 1)])
    assert solved(program).value == pytest.approx(solved(begun(memory, rows)).value)


def test_there_may_be_no_room() -> None:
    memory, rows = drawn(10)
    assert begun(memory, rows, most=0.05 * TABLES).run(DUAL) is None
