"""Placing all tables one after the other, or else packed, for all greedies."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from costmodel.domain.plan import ShardingPlan
from costmodel.domain.workload import EmbeddingTable
from sharders.problem.first_fit import (
    Candidates,
    Order,
    OutOfRoomError,
    by_size,
    least_intrusive,
    place,
    whole_bytes,
)
from sharders.problem.packing import packed
from sharders.problem.room import no_room
from sharders.problem.sharding_problem import ShardingProblem

Score: TypeAlias = Callable[[EmbeddingTable], float]


def place_tables(
    problem: ShardingProblem, score: Score, order: Order, *, sort: bool = True
) -> ShardingPlan:
    """Return a plan with tables whole where possible, each on the first rank with room.

    A table that fits on no rank whole, or must not be whole, is split: into as few shards as fit,
    columns before rows, HBM before host memory.

    Parameters
    ----------
    problem
        Gives tables, options and capacities.
    score
        What a table adds to its ranks' load; shards share it by their number of elements.
    order
        Which ranks to try first.
    sort
        Whether to place by decreasing score (ties: decreasing size, then later tables first, as in
        DreamShard) or in the workload's order. If that fails for lack of memory, tables are
        placed once more by decreasing size, and if that fails, packed (``packing``).

    Raises
    ------
    InfeasibleError
        A table fits nowhere, in either order, and no packing is found.

    """
    ground, tables = problem.groundwork, problem.workload.tables
    scores = [score(table) for table in tables]
    candidates = least_intrusive(ground, scores)
    indices = list(range(len(tables)))
    if sort:
        sizes = whole_bytes(ground)
        indices.sort(key=lambda i: (-scores[i], -sizes[i], -i))
    try:
        return place(ground, indices, candidates, order)
    except OutOfRoomError:
        return place_or_pack(problem, by_size(ground), candidates, order)


def place_or_pack(
    problem: ShardingProblem, indices: Sequence[int], candidates: Candidates, order: Order
) -> ShardingPlan:
    """Return a plan of tables placed as by ``place``; if there is no room, packed by size alone.

    Raises
    ------
    InfeasibleError
        A table fits nowhere, and no packing is found either.

    """
    ground = problem.groundwork
    try:
        return place(ground, indices, candidates, order)
    except OutOfRoomError as error:
        plan = packed(ground)
        if plan is None:
            raise no_room(ground, error.table, error.free, error.host_free) from None
        return plan
