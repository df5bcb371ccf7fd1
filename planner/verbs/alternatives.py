"""What the step would be with one table sharded otherwise, the others staying where they are.

Every option of a table is tried on the ranks with least lookup time, by the engine that searches:
21,000 ways for 856 tables on 64 GPUs take 1.6 CPU seconds, compiled.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from costmodel.base.units import Seconds
from costmodel.domain.plan import TableSharding
from planner.environment.compiled import interpreted_modules
from planner.show.format import count
from sharders.annealing.plan_editor import Move, PlacedOption, PlanEditor
from sharders.problem.options import TableOption, make_sharding, places
from sharders.problem.sharding_problem import ShardingProblem

if TYPE_CHECKING:
    from planner.planned.planned import Planned

ELSEWHERE = "on other ranks"
MOST_PLACES = 8
"""Number of other ranks tried for a table's present option, those with least lookup time first.
With one alone, that might have no lookups of its kernel and be the worst."""
MOST_WAYS, MOST_WAYS_INTERPRETED = 100_000, 1_000
"""Number of ways tried for all tables, compiled and interpreted: some 10 CPU seconds. Tables with
most lookups come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternatives:
    """What the step would be with one table sharded otherwise."""

    ratios: Mapping[str, float]
    """The step over the plan's own, both by the models, by the name of a way, the shortest first;
    infinite where it does not fit in memory. A name is a sharding type; for the present type, it is
    the kernel, number of blocks or cache that differs, or ``ELSEWHERE``."""
    fixed: bool
    """Whether the user gave the table's ranks."""
    nearest: TableSharding | None = None
    """The sharding of another type with the shortest step; None: none fits."""


def alternatives(planned: "Planned") -> Mapping[str, Alternatives]:
    """Return the alternatives of tables by name, as many tables as ``MOST_WAYS`` allows."""
    workload, topology = planned.workload, planned.topology
    problem = ShardingProblem.of(workload, topology)
    editor = PlanEditor(problem)
    now = editor.start(planned.plan)
    lookups = editor.rank_times().tolist()
    order = sorted(range(topology.world_size), key=lambda rank: (lookups[rank], rank))
    left = MOST_WAYS_INTERPRETED if interpreted_modules() else MOST_WAYS
    work = [-table.pooling_factor * table.embedding_dim for table in workload.tables]
    found = {}
    for index in sorted(range(len(work)), key=work.__getitem__):
        ways = list(_ways(editor, index, order))
        left -= len(ways)
        if left < 0:
            break
        table = workload.tables[index]
        found[table.name] = _timed_ways(editor, index, ways, now)
    return found


def best_change(others: Alternatives) -> float | None:
    """Return the share by which the step is longer in the best other way; None: there is none."""
    shortest = min(others.ratios.values(), default=inf)
    return shortest - 1 if shortest < inf else None


def _ways(editor: PlanEditor, index: int, order: Sequence[int]) -> Iterator[PlacedOption]:
    """Yield a table's options on the first ranks of an order and those with most room but for it.

    Its present option has more places, on other ranks.
    """
    problem, present = editor.problem, editor.choices[index]
    room, table = editor.free(), editor.tables[index]
    own = make_sharding(table, problem.topology, present.option, present.ranks)
    held = problem.groundwork.option_bytes(table, present.option)
    np.add.at(room, list(own.ranks), [each.total for each in held])
    roomy = sorted(order, key=lambda rank: -room[rank])
    for option in problem.options[table.name]:
        most = MOST_PLACES if option == present.option else 1
        near = islice(places(problem.topology, option, order), most + 1)
        free = islice(places(problem.topology, option, roomy), 1)
        ways = (PlacedOption(option, ranks) for ranks in dict.fromkeys((*near, *free)))
        yield from (way for way in ways if way != present)


def _way_name(option: TableOption, present: TableOption) -> str:
    """Return an option's sharding type; if that is the present one, what differs from it."""
    kind = option.sharding_type.value
    if option == present:
        return ELSEWHERE
    if option.sharding_type is not present.sharding_type:
        return kind
    if option.compute_kernel is not present.compute_kernel:
        return f"{kind} by {option.compute_kernel}"
    if option.num_column_shards != present.num_column_shards:
        return f"{kind} in {count(option.num_column_shards, 'block')}"
    return f"{kind} with another cache"


def _timed_ways(
    editor: PlanEditor, index: int, ways: Sequence[PlacedOption], now: Seconds
) -> Alternatives:
    """Return the alternatives of one table, each way's step over the present one, ``now``."""
    table, present = editor.tables[index], editor.choices[index].option
    moves: list[Move] = [{index: way} for way in ways]
    shortest: dict[str, Seconds] = {}
    nearest: PlacedOption | None = None
    least = inf
    for way, seconds in zip(ways, editor.times(moves)[0].tolist(), strict=True):
        name = _way_name(way.option, present)
        shortest[name] = min(seconds, shortest.get(name, inf))
        if seconds < least and way.option.sharding_type is not present.sharding_type:
            nearest, least = way, seconds
    found = Alternatives(
        ratios={
            name: seconds / now for name, seconds in sorted(shortest.items(), key=lambda i: i[1])
        },
        fixed=bool(table.ranks),
    )
    if nearest is None:
        return found
    topology = editor.problem.topology
    return replace(found, nearest=make_sharding(table, topology, nearest.option, nearest.ranks))
