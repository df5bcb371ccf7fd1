"""Where no plan fits: the smallest change of each kind with which a plan is found."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from costmodel.base.errors import InfeasibleError, PlannerError
from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingPlan
from costmodel.memory.rank_memory import (
    RankMemory,
    could_hold,
    fits,
    host_bytes_usable,
    memory_per_rank,
    rank_rooms,
)
from planner.search.search import Search
from planner.show.format import percent
from planner.verbs.changes import KINDS, TABLE_KINDS, WORKLOAD_KINDS, Case, Kind, Scale, Variant
from sharders.problem.first_fit import place_by_bytes
from sharders.problem.groundwork import Groundwork
from sharders.problem.packing import ROUND, WAY, PackingSearch, on_hosts
from sharders.problem.room import check_room

MOST_TIME: Seconds = 1.5
"""Seconds for finding one change, if the limit leaves as many for all; usually it takes a
hundredth."""
LEAST_TIME: Seconds = 1.5
"""Seconds for finding all changes, whatever the limit leaves."""
MOST_SHARE = 1 / 3
"""Largest share of the time left for finding one change."""
MOST_PAIRS = 3
"""Largest number of pairs of changes that are returned."""
PACKING_EFFORT = 1000 * ROUND
"""Effort of packing for each try, in moves of annealing, where placing tables by size fails."""
NUM_WAYS = 48
"""Largest number of ways in which packing places all tables by size."""

Watch: TypeAlias = Callable[[], bool]
"""Returns whether the time is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The smallest change, or pair of changes, with which a plan was found."""

    changes: tuple[Variant, ...]
    case: Case
    """The case with the changes."""
    plan: ShardingPlan
    is_smallest: bool
    """Whether the next smaller change was tried and has no plan."""

    @property
    def name(self) -> str:
        """The text of the change."""
        return ", ".join(change.name for change in self.changes)

    @property
    def label(self) -> str:
        """What the change does, in a few words."""
        return ", ".join(change.label or change.name for change in self.changes)

    @property
    def setting(self) -> str:
        """The text of the change, and its tables."""
        return ", ".join(f"{each.name} {each.tables}".strip() for each in self.changes)

    @property
    def effect(self) -> str:
        """Text: tables of the change, and how full the fullest GPU is, or the host if fuller."""
        case = self.case
        memory = memory_per_rank(case.workload, case.topology, self.plan)
        rooms = rank_rooms(case.workload, case.topology)
        full = max(rank.tables / room for rank, room in zip(memory, rooms, strict=True) if room)
        parts = [change for change in self.changes if change.tables]
        fields = [f"{each.name.partition(':')[0]} " if len(parts) > 1 else "" for each in parts]
        tables = [f"{field}{each.tables}" for field, each in zip(fields, parts, strict=True)]
        told = f"{', '.join(tables)}: " if tables else ""
        untried = "" if self.is_smallest else "; less may do, which was not tried"
        unit = case.topology.hardware.device.unit
        host = _fullest_host(case, memory)
        hosts = f" and the fullest host to {percent(host)}" if host > full else ""
        return f"{told}a plan that fills the fullest {unit} to {percent(full)}{hosts}{untried}"


def _fullest_host(case: Case, per_rank: Sequence[RankMemory]) -> float:
    """Return the share of a node's host memory for tables that they take where it is most."""
    local = case.topology.local_world_size
    nodes = (per_rank[first : first + local] for first in range(0, len(per_rank), local))
    most = max(sum(memory.host for memory in node) for node in nodes)
    return most / host_bytes_usable(case.topology) if most else 0.0


def with_searched(error: InfeasibleError, case: Case, search: Search) -> InfeasibleError:
    """Return an error with the smallest change of each kind for which a plan was found.

    Where no single change does, pairs are tried; where no pair does, the error's hint says so.
    """
    now = search.clock()
    began = now if search.began is None else search.began
    until = max(began + search.time_limit, now + LEAST_TIME)
    turns = _Turns(search, until)
    tried = _Attempts(case)
    found = list(tried.singles(turns)) or list(_pairs(case, turns))
    remedies = tuple((each.name, each.effect) for each in found)
    return replace(error, remedies=remedies, hint=tried.hint(found, turns) or error.hint)


def ways_out(case: Case, search: Search) -> Iterator[Found]:
    """Yield the smallest change of each kind for which a plan is found, machine and batch kept."""
    turns = _Turns(search, search.clock() + LEAST_TIME)
    names = set[str]()
    for number, kind in enumerate(TABLE_KINDS):
        found = smallest(case, kind(case), turns.next_of(len(TABLE_KINDS) - number))
        if found is not None and found.setting not in names:
            names.add(found.setting)
            yield found


class _Turns:
    """Divides the time among the changes that are looked for."""

    def __init__(self, search: Search, until: Seconds) -> None:
        self._search, self._until = search, until
        self.is_over = False
        """Whether the time was over before all had a turn."""

    def next_of(self, number: int) -> Watch:
        """Return a function that tells whether the next of ``number`` turns is over."""
        now, search = self._search.clock(), self._search
        is_over = search.interrupted() or (search.max_plans is None and now > self._until)
        self.is_over = self.is_over or is_over
        share = max(MOST_SHARE, 1 / number)
        until = now + min(MOST_TIME, share * (self._until - now))
        if is_over:
            return lambda: True
        return lambda: search.max_plans is None and search.clock() > until


class _Attempts:
    """Tries the changes of every kind, and knows which had their turn."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._failed: dict[str, None] = {}
        """The largest change of each kind that was tried and does not do."""
        self._untried: dict[str, None] = {}

    def singles(self, turns: _Turns) -> Iterator[Found]:
        """Yield the smallest change of every kind; kinds may have the same one."""
        names = set[str]()
        for number, kind in enumerate(KINDS):
            is_spent = turns.next_of(len(KINDS) + 1 - number)
            scale = kind(self._case)
            steps: list[int] = []
            found = smallest(self._case, _noted(scale, steps), is_spent)
            if found is None and is_spent():
                del steps[-1:]  # which may have been cut short
            if found is not None and found.name not in names:
                names.add(found.name)
                yield found
            elif found is None and steps:
                self._failed[scale.make(max(steps)).name] = None
            last, largest = scale.steps - 1, max(steps, default=-1)
            if found is None and largest < last:
                upward = last if scale.grows else largest + 1
                more = " and more" if upward < last else ""
                self._untried[scale.make(upward).name + more] = None

    def hint(self, found: list[Found], turns: _Turns) -> str | None:
        """Return that no change does, and which were tried; and which there was no time to try."""
        untried = "; ".join(self._untried)
        if found:
            enough = "any one of these is enough" if len(found) > 1 else "this is enough"
            return f"{enough}; there was no time to try {untried}" if untried else None
        pairs = "" if turns.is_over else ", nor two of them"
        failed = f"none of these was found to be enough{pairs}: {'; '.join(self._failed)}"
        late = f"there was no time to try {untried or 'two of them'}; a longer limit leaves more"
        parts = [failed] if self._failed else []
        return "; ".join([*parts, late] if untried or turns.is_over else parts)


def _noted(scale: Scale, steps: list[int]) -> Scale:
    """Return a scale that notes the steps that are asked for."""

    def make(step: int) -> Variant:
        steps.append(step)
        return scale.make(step)

    return replace(scale, make=make)


def _pairs(case: Case, turns: _Turns) -> Iterator[Found]:
    """Yield a few pairs of changes with which a plan was found.

    The last one keeps the machine, if any such is found.
    """
    machines = KINDS[: -len(WORKLOAD_KINDS)]
    both = [(first, second) for second in machines for first in WORKLOAD_KINDS]
    both += [
        (first, second)
        for number, first in enumerate(WORKLOAD_KINDS)
        for second in WORKLOAD_KINDS[number + 1 :]
    ]
    names: set[str] = set()
    for first, second in both:
        if len(names) == MOST_PAIRS - 1 and second in machines:
            continue
        is_spent = turns.next_of(MOST_PAIRS + 1 - len(names))
        found = None if turns.is_over else smallest_pair(case, first, second, is_spent)
        if found is not None and found.name not in names:
            names.add(found.name)
            yield found
        if turns.is_over or len(names) == MOST_PAIRS:
            return


def smallest(case: Case, scale: Scale, is_spent: Watch) -> Found | None:
    """Return the smallest change with which a plan is found; None: there is none, or no time.

    Changes are tried ever further apart until one has a plan, then halfway between it and the last
    one without: if time allows, the next smaller change has no plan. Finer changes are tried in the
    same way.
    """
    if not scale.steps or is_spent():
        return None
    first = _first(case, scale, is_spent)
    if first is None:
        return None
    fails, does, plan = first
    is_smallest = True
    finer: Scale | None = scale
    while finer is not None:
        scale = finer
        while does - fails > 1 and not is_spent():
            halfway = (does + fails) // 2
            smaller = _quick_plan(scale.make(halfway).apply(case), is_spent)
            if smaller is None:
                fails = halfway
            else:
                does, plan = halfway, smaller
        is_smallest = is_smallest and does - fails == 1
        finer, change = scale.finer(does), scale.make(does)
        fails, does = -1, finer.steps - 1 if finer else 0
    return Found(changes=(change,), case=change.apply(case), plan=plan, is_smallest=is_smallest)


def _first(case: Case, scale: Scale, is_spent: Watch) -> tuple[int, int, ShardingPlan] | None:
    """Return the last change tried that has no plan, the first that has one, and that plan."""
    last, largest = scale.steps - 1, None
    if scale.grows and last:
        largest = _quick_plan(scale.make(last).apply(case), is_spent)
        if largest is None:
            return None
    fails, tried = -1, 0
    plan = _quick_plan(scale.make(0).apply(case), is_spent)
    while plan is None:
        if tried == last or is_spent():
            return None if largest is None else (tried, last, largest)
        fails, tried = tried, min(2 * tried + 1, last)
        known = largest if tried == last else None
        plan = known or _quick_plan(scale.make(tried).apply(case), is_spent)
    return fails, tried, plan


def smallest_pair(case: Case, first: Kind, second: Kind, is_spent: Watch) -> Found | None:
    """Return two changes with which together a plan is found; None: there are none.

    It is the smallest change of the second kind beside the largest of the first, and then the
    smallest of the first kind beside that.
    """
    scale = first(case)
    if not scale.steps:
        return None
    most = scale.make(scale.steps - 1).apply(case)
    beside = smallest(most, second(most), is_spent)
    if beside is None:
        return None
    (other,) = beside.changes
    own = smallest(other.apply(case), scale, is_spent)
    if own is None:
        whole = scale.make(scale.steps - 1)
        return replace(beside, changes=(whole, other), is_smallest=False)
    is_smallest = own.is_smallest and beside.is_smallest
    return replace(own, changes=(*own.changes, other), is_smallest=is_smallest)


def _quick_plan(case: Case, is_spent: Watch) -> ShardingPlan | None:
    """Return a plan that fits; None if little effort finds none."""
    if not could_hold(case.workload, case.topology):
        return None
    try:
        ground = Groundwork(case.workload, case.topology)
        check_room(ground)
    except (PlannerError, ValueError):
        return None
    hosted = on_hosts(ground)
    packing = PackingSearch(ground, np.zeros_like(hosted))
    by_size = NUM_WAYS * WAY * len(case.workload.tables)
    plan = packing.go_on(by_size, is_spent)
    if plan is None and not is_spent():
        plan = place_by_bytes(ground)
    if plan is None and hosted.any() and not is_spent():
        plan = PackingSearch(ground, hosted).go_on(by_size, is_spent)
    if plan is None and not is_spent():
        plan = packing.go_on(PACKING_EFFORT, is_spent)
    fitting = plan is not None and fits(case.workload, case.topology, plan)
    return plan if fitting else None
