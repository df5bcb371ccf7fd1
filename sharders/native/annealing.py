"""Annealing in compiled code: some thousands of moves a call."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodel.execution.native import compiled
from sharders.native.chance import begin, uniform
from sharders.native.moves import draw, look_around
from sharders.native.places import copy_row
from sharders.native.room import fullest, make_way
from sharders.native.state import FITS, FULL, SLOW, UNKNOWN, find_cycle, keep, try_move, undo
from sharders.search_state import IMPROVED

LOOK_AROUND = 64
"""Moves between two looks at what the step waits for."""


class Best(NamedTuple):
    """The best plan of a burst."""

    option: NDArray[np.int64]
    ranks: NDArray[np.int16]
    changed: NDArray[np.int64]
    """Tables whose choice is not the best plan's; the last number counts them."""
    is_changed: NDArray[np.int64]


class Standing(NamedTuple):
    """Where a burst stands."""

    moves: int
    """Drawn so far."""
    decided: int
    """Timed, or known to be too slow without."""
    timed: int
    guide: float
    best: float
    best_guide: float
    last_gain: int
    """Moves drawn when the best plan was found."""


@compiled
def anneal(search, aids, move, best, standing, count, schedule, placing, seed):
    """Draw that many moves; return where the burst stands, sooner if a program is missing.

    ``schedule``: temperatures at its begin and end, as shares of the step time, and its moves.
    ``placing``: whether options stay as they are.
    """
    begin(aids.state, seed)
    moves, decided, timed_moves, guide, shortest, best_guide, last_gain = standing
    hot, cold, length = schedule
    again = False
    for number in range(count):
        if number % LOOK_AROUND == 0:
            find_cycle(search)
            look_around(search, aids)
        moves += 1
        if not again:
            draw(search, aids, move, placing)
            if move.length[0] == 0:
                continue
        temperature = hot * (cold / hot) ** min(1.0, moves / length) * guide
        limit = guide - temperature * np.log(uniform(aids.state))  # Metropolis, for the guide
        timed = try_move(search, move, limit)
        decided += timed.outcome == FITS or timed.outcome == SLOW
        timed_moves += timed.outcome == FITS
        if timed.outcome == FITS and timed.guide <= limit:
            again = False
            _note(move, best)
            keep(search, timed)
            guide = timed.guide
            if timed.step_time < shortest * (1 - IMPROVED):
                shortest, best_guide, last_gain = timed.step_time, guide, moves
                _remember(search, best)
        else:
            rank, lack = fullest(search) if timed.outcome == FULL else (0, 0.0)
            undo(search, move)
            again = lack > 0 and not again and make_way(search, aids, move, rank, lack)
            if timed.outcome == UNKNOWN:
                break
    return Standing(moves, decided, timed_moves, guide, shortest, best_guide, last_gain)


@compiled
def _note(move, best):
    for index in range(move.length[0]):
        table = move.table[index]
        if not best.is_changed[table]:
            best.is_changed[table] = 1
            best.changed[best.changed[-1]] = table
            best.changed[-1] += 1


@compiled
def _remember(search, best):
    """Make the present plan the best one."""
    for index in range(best.changed[-1]):
        table = best.changed[index]
        best.is_changed[table] = 0
        best.option[table] = search.choices.option[table]
        copy_row(search.choices.ranks, table, best.ranks, table)
    best.changed[-1] = 0
