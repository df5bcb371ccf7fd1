"""Running sharders in several processes of one machine, each from its own seed.

This process does what a search without others would do, so more processes never give a worse plan
in the same time (on as many idle cores). The others search from other seeds, a second or two later.
A script that plans with ``jobs`` needs the usual ``if __name__ == "__main__":``.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from threading import Lock, Thread

from costmodel.base.errors import PlannerError
from costmodel.base.units import Seconds
from costmodel.domain.hardware import Topology
from costmodel.domain.workload import Workload
from planner.environment.processes import Workers, started
from planner.search.in_turn import run_in_turn
from planner.search.search import Attempt, Search
from sharders.problem.sharding_problem import Progress, ShardingProblem

SEEDS_APART = 1_000_003
"""Difference between the seeds of two processes, so large that two searches of a user share no
seed."""
LOOK_EVERY: Seconds = 0.1
"""Seconds between looks for an interrupt, and the least between two reports of a process."""
GRACE: Seconds = 60.0
"""Seconds after the time limit at which a process that has not ended is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProcessTask:
    """What to search, sent to a process."""

    names: tuple[str, ...]
    workload: Workload
    topology: Topology
    search: Search
    """How to search; the process adds its own deadline and watcher."""
    deadline: Seconds
    """Time of the monotonic clock, which all processes share."""


@dataclass(slots=True)
class _Reported:
    """Progress and attempts that the processes have sent."""

    search: Search
    latest: dict[int, Progress] = field(default_factory=dict)
    found: dict[int, tuple[Attempt, ...]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    """A thread receives reports while this process searches."""

    def note(self, number: int, message: object) -> None:
        """Keep a message of a process: its progress, or its attempts."""
        if isinstance(message, tuple) and message and isinstance(message[0], str):
            self.watch(number, *message)
        elif isinstance(message, tuple):
            self.found[number] = message

    def watch(self, number: int, name: str, progress: Progress) -> None:
        """Keep a process's progress, and tell the watcher the best step and number of plans."""
        with self._lock:
            self.latest[number] = progress
            best = min(each.best for each in self.latest.values())
            evaluated = sum(each.evaluated for each in self.latest.values())
            self.search.watch(name, replace(progress, best=best, evaluated=evaluated))

    def attempts(self) -> tuple[Attempt, ...]:
        """Return the attempts of all processes, in the order of the processes."""
        return tuple(attempt for number in sorted(self.found) for attempt in self.found[number])


def run_in_parallel(
    names: Sequence[str], problem: ShardingProblem, search: Search
) -> tuple[Attempt, ...]:
    """Run the sharders in this and ``search.jobs - 1`` others; return what all of them found.

    Interrupts are passed on, and each process returns the best plan it has.

    Raises
    ------
    MachineError
        This machine starts no more processes.
    PlannerError
        As ``run_in_turn``.

    """
    if search.max_plans is not None:  # a process looks at one at least
        search = replace(search, jobs=min(search.jobs, search.max_plans))
    task = _ProcessTask(
        names=tuple(names),
        workload=problem.workload,
        topology=problem.topology,
        search=_sent(search),
        deadline=time.monotonic() + search.seconds,
    )
    reported = _Reported(search)
    with started(range(1, search.jobs), _work, "search with fewer --jobs") as workers:
        leading = Thread(target=_lead, args=(workers, task, reported), daemon=True)
        leading.start()
        try:
            reported.found[0] = _found_here(names, problem, task, reported)
        except PlannerError:
            leading.join()
            if not reported.attempts():
                raise
        leading.join()
    return reported.attempts()


def _sent(search: Search) -> Search:
    """Return a search as it is sent to a process, without callables of this process."""
    plain = Search()
    return replace(
        search,
        jobs=1,
        max_plans=None if search.max_plans is None else search.max_plans // search.jobs,
        interrupted=plain.interrupted,
        watch=plain.watch,
        clock=plain.clock,
        deadline=plain.deadline,
        began=None,
    )


def _found_here(
    names: Sequence[str], problem: ShardingProblem, task: _ProcessTask, reported: _Reported
) -> tuple[Attempt, ...]:
    """Return the attempts of a search in this process alone."""
    search, theirs = reported.search, task.search.max_plans
    own = replace(
        search,
        jobs=1,
        time_limit=max(0.0, min(search.time_limit, task.deadline - time.monotonic())),
        max_plans=theirs and theirs + (search.max_plans or 0) % search.jobs,  # and what is left
        watch=lambda name, progress: reported.watch(0, name, progress),
    )
    return tuple(attempt for attempt in run_in_turn(names, problem, own) if attempt.plan)


def _lead(workers: Workers, task: _ProcessTask, reported: _Reported) -> None:
    """Send the task to the processes, and receive until all have sent their attempts.

    A thread does so: many tables are more than a pipe holds, and sending waits for a process to
    start.
    """
    for number in workers.numbers:
        with suppress(OSError):  # it has ended
            workers.send(number, task)
    _listen(workers, reported, task.deadline)


def _listen(workers: Workers, reported: _Reported, deadline: Seconds) -> None:
    """Receive from all processes until each has sent its attempts or ended without.

    A process that has no plan when the time is over is not waited for if this process has one.
    """
    heeded, told = set(workers.numbers), False
    while heeded and time.monotonic() < deadline + GRACE:
        if reported.search.interrupted() and not told:
            told = True
            workers.tell_to_end()
        if 0 in reported.found and time.monotonic() > deadline:
            heeded &= reported.latest.keys()
        for number, message in workers.heard(heeded, LOOK_EVERY):
            reported.note(number, message)
            if number in reported.found or isinstance(message, EOFError | OSError):
                heeded.discard(number)


def _work(number: int, leader: Connection, interrupted: Callable[[], bool]) -> None:
    """Run the task the parent sends, report now and then, and send the attempts, if any."""
    task: _ProcessTask = leader.recv()
    if interrupted():
        return
    reported = 0.0

    def watch(name: str, progress: Progress) -> None:
        nonlocal reported
        if time.monotonic() - reported > LOOK_EVERY:
            reported = time.monotonic()
            leader.send((name, progress))

    problem = ShardingProblem.of(task.workload, task.topology)
    search = replace(
        task.search,
        seed=task.search.seed + SEEDS_APART * number,
        time_limit=max(0.0, task.deadline - time.monotonic()),
        interrupted=interrupted,
        watch=watch,
    )
    found: tuple[Attempt, ...] = ()
    with suppress(PlannerError):
        found = run_in_turn(task.names, problem, search)
    leader.send(tuple(replace(attempt, error=None) for attempt in found if attempt.plan))
