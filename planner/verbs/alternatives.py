"""Why a table is sharded as it is: what the step would be were it sharded otherwise.

The other tables stay where they are. Every option of a table is tried on the ranks that look up
least, by the engine that searches: 21,000 ways for 856 tables on 64 GPUs take 1.6 CPU seconds,
compiled.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

from costmodel.base.units import Seconds
from costmodel.domain.plan import TableSharding
from planner.environment.compiled import interpreted_modules
from planner.show.format import count
from sharders.annealing.plan_editor import Move, PlacedOption, PlanEditor
from sharders.problem.options import TableOption, make_sharding, places
from sharders.problem.sharding_problem import ShardingProblem

if TYPE_CHECKING:
    from planner.planned.planned import Planned

ELSEWHERE = "elsewhere"
MOST_PLACES = 8
"""Other ranks looked at for a table as it is sharded: those that look up least, of which one may
have no lookups of its kernel, and so be the worst."""
MOST_WAYS, MOST_WAYS_INTERPRETED = 100_000, 1_000
"""Ways looked at in all: a page is not worth more than some 10 CPU seconds. Tables that are looked
up most come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternatives:
    """What the step would be with one table sharded otherwise."""

    step_times: Mapping[str, Seconds]
    """Predicted, by sharding type; of the present type by what is not as it is (its kernel, number
    of blocks or cache), or ``elsewhere`` on other ranks. The shortest first, and infinite where it
    does not fit in memory."""
    fixed: bool
    """Whether the user said which ranks it is to be on."""
    nearest: TableSharding | None = None
    """The way with the shortest step of those of another sharding type; None: none fits."""


def alternatives(planned: "Planned") -> Mapping[str, Alternatives]:
    """Return the alternatives of every table, by name, as far as ``MOST_WAYS`` allows."""
    workload, topology = planned.workload, planned.topology
    problem = ShardingProblem.of(workload, topology)
    editor = PlanEditor(problem)
    editor.start(planned.plan)
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
        found[table.name] = _of_table(editor, index, ways)
    return found


def best_change(others: Alternatives, step_time: Seconds) -> float | None:
    """Return by what share the step is longer in the best other way; None: there is none."""
    shortest = min(others.step_times.values(), default=inf)
    return shortest / step_time - 1 if shortest < inf else None


def _ways(editor: PlanEditor, index: int, order: Sequence[int]) -> Iterator[PlacedOption]:
    """Yield each option of a table on the first ranks of an order, the present one on others."""
    problem, present = editor.problem, editor.choices[index]
    for option in problem.options[editor.tables[index].name]:
        most = MOST_PLACES if option == present.option else 1
        ways = (PlacedOption(option, ranks) for ranks in places(problem.topology, option, order))
        yield from islice((way for way in ways if way != present), most)


def _name(option: TableOption, present: TableOption) -> str:
    """Return a sharding type; of the present one, what is not as it is."""
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


def _of_table(editor: PlanEditor, index: int, ways: Sequence[PlacedOption]) -> Alternatives:
    table, present = editor.tables[index], editor.choices[index].option
    moves: list[Move] = [{index: way} for way in ways]
    shortest: dict[str, Seconds] = {}
    nearest: PlacedOption | None = None
    least = inf
    for way, seconds in zip(ways, editor.times(moves)[0].tolist(), strict=True):
        name = _name(way.option, present)
        shortest[name] = min(seconds, shortest.get(name, inf))
        if seconds < least and way.option.sharding_type is not present.sharding_type:
            nearest, least = way, seconds
    found = Alternatives(
        step_times=dict(sorted(shortest.items(), key=lambda item: item[1])),
        fixed=bool(table.ranks),
    )
    if nearest is None:
        return found
    topology = editor.problem.topology
    return replace(found, nearest=make_sharding(table, topology, nearest.option, nearest.ranks))
