"""Running sharders: against the clock, until interrupted, and judged by one objective."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass, replace
from enum import StrEnum
from math import inf
from random import Random
from typing import Any, Protocol

from costmodel.base.errors import InfeasibleError, MissingDependencyError, PlannerError, PluginError
from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingPlan
from costmodel.domain.validity import check_plan
from costmodel.engine.objective import Objective
from costmodel.memory.rank_memory import check_memory
from planner.environment.interrupts import interruptible
from planner.planning.plugins import AUTO, load_sharder
from sharders import PORTFOLIO, SHARDERS, PortfolioParams
from sharders.problem.option_costs import OptionCosts
from sharders.problem.packing import check_room
from sharders.problem.sharding_problem import (
    Budget,
    Paced,
    Progress,
    Proof,
    SearchResult,
    SearchStatus,
    Sharder,
    ShardingProblem,
)

STORAGE = "storage"
"""Field of a sharder that can share its trials with others: the URL where they are kept."""
PATIENCE = 1.0
LEAST_QUIET: Seconds = 0.5
"""With these 26 tables on 8 GPUs end after 2 to 3 CPU seconds of 10 with the plan they would end
with (three seeds), 100 on 8 after 5 within 0.4%, 400 on 16 after 8 to 10 within 0.1%; half the
patience loses 2% there."""
QUIET_PASSES = 5.0
"""Times of the first plan that the quiet lasts at least: beside other processes half a second is
little work. On 300 tables and 128 GPUs, with a third of a core, a search ended after a quarter of
its time 14% above the step that it finds with a core of its own."""
PROBES = 3
"""Times that the cost of an option is measured: a busy machine may take twice as long for one."""
WORTH_WAITING = 1e-3
"""Share of the step time that counts as a gain."""


class SearchEnd(StrEnum):
    """Why sharders searched no longer."""

    BOUND = "near the bound"
    """A step within ``Search.gap`` of the bound was found, or one as short as was asked for."""
    QUIET = "no more gained"
    """Nothing was gained for as long as ``Search.patience`` says."""
    LIMIT = "limit"
    """The time or the number of plans was spent, or somebody interrupted."""
    CONVERGED = "nothing left to try"


Watch = Callable[[str, Progress], None]
"""Told the sharder's name and where it stands."""


def _never() -> bool:
    return False


def _without_end(first_plan: Seconds) -> Seconds:
    del first_plan
    return inf


def _unwatched(sharder: str, progress: Progress) -> None:
    del sharder, progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How to search: for how long, from which seed, and who is told."""

    seed: int = 0
    time_limit: Seconds = 10.0
    max_plans: int | None = None
    """Plans to look at, instead of a time limit: the same seed then gives the same plan on a
    machine, whatever its load."""
    interrupted: Callable[[], bool] = _never
    """Asked now and then; once true, the best plan so far is the answer."""
    watch: Watch = _unwatched
    clock: Callable[[], Seconds] = time.monotonic
    """What the time limit is measured by; benches use CPU time."""
    deadline: Callable[[Seconds], Seconds] = _without_end
    """When to end, by the clock, whatever the time limit: told what the first plan took, which says
    how long what follows the search takes on this machine, now."""
    began: Seconds | None = None
    """When the command began, by the clock: what it took since counts, too; None: it begins now."""
    gap: float = 0.01
    """Share of the bound within which a step is short enough: the search ends there."""
    enough: Seconds = 0.0
    """A step that is not worth shortening any more: the search ends there."""
    patience: float = PATIENCE
    """The search ends when nothing was gained for so many times as long as all gains took, and
    ``LEAST_QUIET`` or ``QUIET_PASSES``; ``inf``: never before its time is up."""
    wait: bool = True
    """Whether a baseline in a process of its own that is not done when the search is, is waited for
    until the time limit."""
    jobs: int = 1
    """Processes of this machine that search at once, each from a seed of its own."""
    storage: str | None = None
    """URL of an Optuna storage: searches that name the same one, on any machine, share a study."""
    portfolio: PortfolioParams = PORTFOLIO
    """How the sharders of ``auto`` share the time."""
    fields: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """By sharder, values of the dataclass's fields that are not the default ones."""

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise ValueError(f"jobs must be at least 1, got {self.jobs}")
        if self.max_plans is not None and self.max_plans < 1:
            raise ValueError(f"max_plans must be at least 1, got {self.max_plans}")
        if not self.time_limit >= 0:  # nor not a number
            raise ValueError(f"time_limit must be 0 or more seconds, got {self.time_limit}")

    @property
    def seconds(self) -> Seconds:
        """What sharders may take: all the time there is, where plans are counted instead."""
        return self.time_limit if self.max_plans is None else inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What one sharder found, or why it found nothing."""

    sharder: str
    plan: ShardingPlan | None
    step_time: Seconds = float("inf")
    """By our objective, whatever the sharder minimised."""
    status: SearchStatus = SearchStatus.CONVERGED
    bound: Seconds | None = None
    evaluated: int = 0
    time: Seconds = 0.0
    error: PlannerError | None = None
    proof: Proof | None = None
    """What a sharder proved that minimises something else than the step."""
    others: tuple[ShardingPlan, ...] = ()
    """Slower plans that later sharders may start from."""
    early: SearchEnd | None = None
    """Why no sharder was to search after it, though there was time."""

    @property
    def plans(self) -> tuple[ShardingPlan, ...]:
        """All plans found, the best one first."""
        return (*(() if self.plan is None else (self.plan,)), *self.others)


def sharders_for(name: str) -> tuple[str, ...]:
    """Return the sharders that a request stands for."""
    return tuple(PORTFOLIO.members) if name == AUTO else (name,)


def search_end(names: Sequence[str], attempts: Sequence[Attempt]) -> SearchEnd:
    """Return why a search with some sharders, which found these, went on no longer."""
    last = attempts[-1]
    if last.early is not None:
        return last.early
    cut = last.status is SearchStatus.LIMIT or len(attempts) < len(names)
    return SearchEnd.LIMIT if cut else SearchEnd.CONVERGED


def run_sharders(
    names: Sequence[str], problem: ShardingProblem, search: Search
) -> tuple[Attempt, ...]:
    """Run sharders one after the other; the time limit is for all of them together.

    With others to come, a sharder may take its fraction of the time left (``sharders.PORTFOLIO``),
    or rather of what those to come can do without; it is left out where it needs more. Where plans
    are counted (``Search.max_plans``), it may look at its fraction of those left.

    Whether or not time is left, the first one that finds a plan is heard. The first Ctrl-C ends the
    search as soon as there is a plan, and the best one so far is the answer; a second one
    (``KeyboardInterrupt``) is raised only if no sharder has returned a plan. With ``search.jobs``
    all of this happens in so many processes (``planner.planning.parallel``).

    Raises
    ------
    PlannerError
        What the first sharder raised, if none finds a plan.

    """
    check_room(problem)
    attempts: list[Attempt] = []
    with _until_interrupted(search) as heeding:
        if heeding.jobs > 1:
            from planner.planning.parallel import run_in_parallel

            return run_in_parallel(names, problem, heeding)
        try:
            for attempt in _in_turn(names, problem, heeding):
                attempts.append(attempt)
                if attempt.plan is not None:
                    _tell(heeding.watch, attempts)
        except KeyboardInterrupt:
            if not any(attempt.plan for attempt in attempts):
                raise
    if not any(attempt.plan for attempt in attempts):
        raise _first_error(attempts)
    return tuple(attempts)


def _tell(watch: Watch, attempts: Sequence[Attempt]) -> None:
    """Tell where the search stands after a sharder: not all of them report on the way."""
    evaluated = sum(attempt.evaluated for attempt in attempts)
    best = min(attempt.step_time for attempt in attempts)
    watch(attempts[-1].sharder, Progress(evaluated=evaluated, best=best))


@contextmanager
def _until_interrupted(search: Search) -> Iterator[Search]:
    """Yield a search that the first Ctrl-C ends, too."""
    with interruptible() as interrupt:
        yield replace(search, interrupted=lambda: interrupt.happened or search.interrupted())


def _in_turn(names: Sequence[str], problem: ShardingProblem, search: Search) -> Iterator[Attempt]:
    """Yield what each sharder finds, as soon as it has."""
    deadline = search.clock() + search.seconds
    gains = Gains(search)
    search = replace(search, watch=gains.watch)
    fractions = {name: search.portfolio.member(name).time_fraction for name in names}
    attempts: list[Attempt] = []
    known = problem.known
    option_time = 0.0
    for position, name in enumerate(names):
        found = any(attempt.plan for attempt in attempts)
        quickest = min((attempt.time for attempt in attempts), default=0.0)
        deadline = min(deadline, search.deadline(quickest))
        gains.least_quiet = max(LEAST_QUIET, QUIET_PASSES * quickest)
        now = search.clock()
        over = now + quickest > deadline  # none is quicker than the first
        if found and (search.interrupted() or over or gains.over()):
            break
        plans = tuple(plan for attempt in attempts for plan in attempt.plans)
        share, plans_left = 1.0, _plans_left(search, attempts)
        if plans_left is not None:
            if found and plans_left == 0:
                break
            share = search.portfolio.member(name).time_fraction if len(names) > 1 else 1.0
            plans_left = max(1, int(share * plans_left))
        elif len(names) > 1 and (attempts or fractions[name] < 1):
            option_time = option_time or _option_time(problem, search)
            left = deadline - now
            share = _share(names[position:], problem, left, option_time, search.portfolio)
        if found and share == 0:
            continue
        until = now + share * max(0.0, deadline - now) if plans_left is None else inf
        problem = problem.with_known((*known, *plans))  # with all that was computed of it so far
        own = replace(search, max_plans=plans_left)
        if fractions[name] == 1:
            own = replace(own, interrupted=_enough(search, gains, name))
        attempts.append(replace(run_sharder(name, problem, own, until), early=gains.early))
        yield attempts[-1]


def _plans_left(search: Search, attempts: Sequence[Attempt]) -> int | None:
    """Return how many plans may still be looked at; None: as many as there is time for."""
    if search.max_plans is None:
        return None
    return max(0, search.max_plans - sum(attempt.evaluated for attempt in attempts))


@dataclass(slots=True)
class Gains:
    """When the best plan of all sharders last became better: whether to go on searching."""

    search: Search
    best: Seconds = inf
    start: Seconds = field(init=False)
    last: Seconds = field(init=False)
    """When the last gain was, or the sharder that searches now had its first plan."""
    least_quiet: Seconds = field(default=LEAST_QUIET, init=False)
    sharder: str = field(default="", init=False)
    quiet: bool = field(default=False, init=False)
    """Whether nothing was gained for too long."""

    def __post_init__(self) -> None:
        self.start = self.last = self.search.clock()

    def watch(self, sharder: str, progress: Progress) -> None:
        """Note a sharder's progress, and tell of the best plan of all: each counts from its own."""
        if sharder != self.sharder or progress.best < self.best * (1 - WORTH_WAITING):
            self.sharder, self.last = sharder, self.search.clock()
        self.best = min(self.best, progress.best)
        self.search.watch(sharder, replace(progress, best=self.best))

    def over(self, sharder: str | None = None) -> bool:
        """Return whether it is not worth going on; a sharder without a plan may always go on."""
        if self.best <= self.search.enough:
            return True
        counted = self.search.max_plans is not None
        if sharder == self.sharder and not self.quiet and not counted:
            patience = self.search.patience * (self.last - self.start) + self.least_quiet
            self.quiet = self.search.clock() - self.last > patience
        return self.quiet

    @property
    def early(self) -> SearchEnd | None:
        """Why it is not worth going on; None: it is."""
        if self.best <= self.search.enough:
            return SearchEnd.BOUND
        return SearchEnd.QUIET if self.quiet else None


def _enough(search: Search, gains: Gains, sharder: str) -> Callable[[], bool]:
    return lambda: search.interrupted() or gains.over(sharder)


def _option_time(problem: ShardingProblem, search: Search) -> Seconds:
    """Measure what the cost of one option of a table takes to compute on this machine.

    No work is lost: costs are kept, and every search but the simplest needs them.
    """
    costs, tables = OptionCosts(problem), problem.workload.tables
    probed = search.portfolio.probed_tables
    costs.of(tables[:1])  # it fills caches
    seconds, now = [], search.clock()
    for first in range(1, 1 + PROBES * probed, probed):
        count, begin = costs.of(tables[first : first + probed]), now
        if count:
            now = search.clock()
            seconds.append((now - begin) / count)
    return sorted(seconds)[len(seconds) // 2] if seconds else 0.0


def _share(
    names: Sequence[str],
    problem: ShardingProblem,
    left: Seconds,
    option_time: Seconds,
    portfolio: PortfolioParams,
) -> float:
    """Return the share of the time left that the first of some sharders may take; 0: none.

    ``option_time``: what the cost of one option takes to compute.
    """
    own = option_time * _startup_options(names[0], problem)
    member = portfolio.member(names[0])
    main = [name for name in names[1:] if portfolio.member(name).time_fraction == 1]
    needed = [option_time * _startup_options(name, problem) for name in main]
    kept = max((each for each in needed if each <= left), default=0.0)
    time = member.time_fraction * (left - kept) if member.time_fraction < 1 else left
    if member.mandatory and (time < own or kept == 0):
        ample = portfolio.mandatory_factor * own
        time = ample if 0 < kept <= left - ample else left
    return time / left if time >= own and left > 0 else 0.0


def _startup_options(name: str, problem: ShardingProblem) -> float:
    sharder = load_sharder(name)
    return sharder.startup_options(problem) if isinstance(sharder, Paced) else 0.0


class Chooser(Protocol):
    """Chooses among what the sharders of ``auto`` found."""

    def time(self, limit: Seconds) -> Seconds:
        """Return how much of a time limit it wants to choose in."""
        ...

    def picked(self, attempts: Sequence[Attempt], time_left: Callable[[], Seconds]) -> Attempt:
        """Return the attempt to use, given what time is left."""
        ...


class Fastest:
    """Chooses the shortest predicted step, in no time."""

    def time(self, limit: Seconds) -> Seconds:
        """Return none."""
        del limit
        return 0.0

    def picked(self, attempts: Sequence[Attempt], time_left: Callable[[], Seconds]) -> Attempt:
        """Return the fastest."""
        del time_left
        return min(attempts, key=lambda attempt: attempt.step_time)


FASTEST = Fastest()


def run_apart(
    names: Sequence[str], problem: ShardingProblem, search: Search, chooser: Chooser = FASTEST
) -> tuple[Attempt, ...]:
    """Run sharders, or ``auto``, one after the other, none knowing what the others found.

    What the sharders of ``auto`` find is chosen among by ``chooser``, within the time of ``auto``.

    Each has the whole time limit, and ends sooner where it gains nothing for a while. Being
    interrupted ends it; the last one heard is then one that has a plan.
    """
    attempts: list[Attempt] = []
    with _until_interrupted(search) as heeding:
        try:
            for name in names:
                if heeding.interrupted() and any(attempt.plan for attempt in attempts):
                    break
                attempts.append(_alone(name, problem, heeding, chooser))
        except KeyboardInterrupt:
            if not any(attempt.plan for attempt in attempts):
                raise
    return tuple(attempts)


def _alone(name: str, problem: ShardingProblem, search: Search, chooser: Chooser) -> Attempt:
    start, own = search.clock(), chooser if name == AUTO else FASTEST
    choosing = own.time(search.time_limit) if search.max_plans is None else 0.0
    searching = replace(search, time_limit=search.time_limit - choosing)
    try:
        tried = run_sharders(sharders_for(name), problem, searching)
    except (InfeasibleError, MissingDependencyError) as error:
        return Attempt(sharder=name, plan=None, error=error, time=search.clock() - start)
    end = start + search.time_limit if search.max_plans is None else inf
    best = own.picked([each for each in tried if each.plan], lambda: end - search.clock())
    evaluated = sum(attempt.evaluated for attempt in tried)
    return replace(best, sharder=name, evaluated=evaluated, time=search.clock() - start)


def run_sharder(name: str, problem: ShardingProblem, search: Search, deadline: Seconds) -> Attempt:
    """Run one sharder until a moment of the clock, and check what it returns."""
    sharder = with_storage(configured(name, search), search.storage)
    budget = Budget(
        max_evaluations=search.max_plans,
        should_stop=lambda: search.interrupted() or search.clock() > deadline,
        time_left=lambda: deadline - search.clock(),
        report=lambda progress: search.watch(name, progress),
    )
    start = search.clock()
    try:
        rng = Random(search.seed)  # noqa: S311 - searching, not hiding
        result = _checked(name, sharder.shard(problem, budget, rng), problem)
    except (InfeasibleError, MissingDependencyError) as error:
        return Attempt(sharder=name, plan=None, error=error, time=search.clock() - start)
    known = name in SHARDERS and isinstance(problem.objective, Objective)
    return Attempt(
        sharder=name,
        plan=result.plan,
        step_time=result.step_time if known else _objective(problem).step_time(result.plan),
        status=result.status,
        bound=result.bound,
        evaluated=result.evaluated,
        time=search.clock() - start,
        proof=result.proof,
        others=result.others,
    )


def configured(name: str, search: Search) -> Sharder:
    """Return a sharder with the fields that the search sets."""
    sharder: Any = load_sharder(name)
    own: Sharder = replace(sharder, **search.fields[name]) if name in search.fields else sharder
    return own


def _objective(problem: ShardingProblem) -> Objective:
    """Return ours; a sharder may have been given another."""
    if isinstance(problem.objective, Objective):
        return problem.objective
    return Objective(problem.workload, problem.topology)


def with_storage(sharder: Sharder, storage: str | None) -> Sharder:
    """Return a sharder that keeps its trials in a storage, if it is one that can."""
    if storage is None or not (is_dataclass(type(sharder)) and hasattr(sharder, STORAGE)):
        return sharder
    made: Any = sharder
    changed: Sharder = replace(made, **{STORAGE: storage})
    return changed


def _checked(name: str, result: SearchResult, problem: ShardingProblem) -> SearchResult:
    """Return the result if its plan can be used; ours are tested, third parties' are not."""
    if name in SHARDERS:
        return result
    if not isinstance(result, SearchResult):
        raise PluginError(name, f"returned a {type(result).__name__}, not a SearchResult")
    try:
        check_plan(problem.workload, problem.topology, result.plan)
        check_memory(problem.workload, problem.topology, result.plan)
    except PlannerError as error:
        raise PluginError(name, f"returned a plan that cannot be used: {error}") from error
    return result


def _first_error(attempts: Sequence[Attempt]) -> PlannerError:
    errors = [attempt.error for attempt in attempts if attempt.error is not None]
    return errors[0]
