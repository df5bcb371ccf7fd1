"""What a plan is compared with: TorchRec's own planner, in a process of its own, or a stand-in.

Importing torch takes seconds. A process started when the search starts imports it, and plans,
while the search runs; it is heard if it is done within the search's time limit.
"""

import os
import pickle
import subprocess
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from tempfile import TemporaryFile
from typing import IO, TypeAlias

from costmodel.base.errors import PlannerError
from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingPlan
from planner.environment.children import python_command
from planner.environment.torchrec_presence import require_torchrec, torchrec_installed
from planner.planning.one_sharder import run_sharder
from planner.planning.plugins import TORCHREC, load_sharder
from planner.planning.report import Baseline
from planner.planning.search import Attempt, Search, first_plan_time
from sharders.problem.sharding_problem import Progress, ShardingProblem

STAND_IN = "torchrec_greedy"
"""Our re-implementation of TorchRec's planner: what is compared with where the real one is not."""
NONE = "none"
WAIT_FOR_IT = "--baseline torchrec waits for it"
_STAND_IN_SHARE = 0.1
"""Share of the search's time limit that a baseline in this process may take."""
_STAND_IN_PASSES = 4
"""Its first plan takes this many times as long as the search's: 1 at 300 tables on 128 GPUs, 2 at
2,000 on 256, 4 at 5,000 on 1,024. Where less time is left nothing is compared with."""
_PROPOSAL_SHARE = 0.8
"""Share of the time limit after which TorchRec's planner proposes no more."""
_IMPORT_TIME: Seconds = 3.0
"""Importing torchrec takes 4.2 CPU seconds here. Where a search has less it is not even started,
unless somebody asked to wait for it: it would take a core from the search for nothing."""
_POLL: Seconds = 0.05

TimeLeft: TypeAlias = Callable[[], Seconds]
Judge: TypeAlias = Callable[[Sequence[Attempt], TimeLeft], Baseline | None]
"""Returns the baseline, given what the search found, and the time that it may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    """TorchRec's planner at work, and where its answer goes."""

    running: subprocess.Popen[bytes]
    answer: IO[bytes]


def default_baseline() -> str:
    """Return TorchRec's planner where it is installed, else the stand-in."""
    return TORCHREC if torchrec_installed() else STAND_IN


@contextmanager
def baseline_beside(
    name: str,
    problem: ShardingProblem,
    search: Search,
    searched: Collection[str] = (),
) -> Iterator[Judge]:
    """Start the baseline; inside, search; the judge waits for it at most until the time limit.

    Parameters
    ----------
    name
        A sharder, or ``none``. ``torchrec`` runs in a process of its own while the search runs, and
        the stand-in takes its place where it has no plan in time; others run after the search.
    problem, search
        What is planned, and how.
    searched
        Sharders that the search may run; their plans are not made twice.

    Raises
    ------
    UnknownNameError, MissingDependencyError
        There is no such sharder, or its package is missing.

    """
    if name == NONE:
        yield lambda _attempts, _left: None
    elif name == TORCHREC and name not in searched:
        require_torchrec("the baseline `torchrec`")
        if not search.wait and search.seconds < _IMPORT_TIME:
            yield lambda attempts, left: _instead(
                f"takes longer to import than the search; {WAIT_FOR_IT}",
                problem, search, attempts, left,
            )  # fmt: skip
            return
        end = time.monotonic() + search.time_limit if search.wait else 0.0
        with _started(problem, search.time_limit) as process:
            yield lambda attempts, time_left: _torchrec(
                _Waiting(process, end, search, attempts), problem, time_left
            )
    else:
        load_sharder(name)
        yield lambda attempts, left: _run_here(name, problem, search, attempts, left)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """What is known while TorchRec's planner is waited for, until ``end``."""

    process: _Process | None
    end: Seconds
    search: Search
    attempts: Sequence[Attempt]


def _torchrec(waiting: _Waiting, problem: ShardingProblem, time_left: TimeLeft) -> Baseline | None:
    told = _answer(waiting)
    if isinstance(told, ShardingPlan):
        step_time = problem.objective.step_time(told)
        return Baseline(sharder=TORCHREC, step_time=step_time, plan=told)
    return _instead(told, problem, waiting.search, waiting.attempts, time_left)


def _instead(
    reason: str,
    problem: ShardingProblem,
    search: Search,
    attempts: Sequence[Attempt],
    time_left: TimeLeft,
) -> Baseline | None:
    stand_in = _run_here(STAND_IN, problem, search, attempts, time_left)
    return stand_in and replace(stand_in, reason=f"TorchRec's own planner {reason}")


@contextmanager
def _started(problem: ShardingProblem, time_limit: Seconds) -> Iterator[_Process | None]:
    """Start TorchRec's planner; it gets no Ctrl-C, and ends when the block does.

    It answers into a file: a pipe would hold a small plan, and keep the process until it is read.
    """
    with ExitStack() as files:
        try:
            question, answer = (files.enter_context(TemporaryFile()) for _ in range(2))
            pickle.dump((problem.workload, problem.topology, time_limit), question)
            question.seek(0)
            running = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                python_command("planner.planning.baseline"),
                stdin=question,
                stdout=answer,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            yield None
            return
        try:
            yield _Process(running=running, answer=answer)
        finally:
            running.kill()
            running.wait()


def _answer(waiting: _Waiting) -> ShardingPlan | str:
    """Return TorchRec's plan, or why there is none."""
    process, search, attempts = waiting.process, waiting.search, waiting.attempts
    if process is None:
        return "could not be started"
    progress = Progress(
        evaluated=sum(attempt.evaluated for attempt in attempts),
        best=min(attempt.step_time for attempt in attempts),
    )
    while process.running.poll() is None:
        if search.interrupted():
            return "was interrupted"
        if not waiting.end:
            return f"was not done when the search was; {WAIT_FOR_IT}"
        if time.monotonic() > waiting.end:
            return f"was not done in {search.time_limit:.3g} s"
        search.watch("waiting for TorchRec's planner", progress)
        with suppress(subprocess.TimeoutExpired):
            process.running.wait(_POLL)
    if process.running.returncode:
        return "failed"
    process.answer.seek(0)
    answer = b64decode(process.answer.read().splitlines()[-1])
    told: ShardingPlan | str = pickle.loads(answer)  # noqa: S301 - our child's
    return told


def _run_here(
    name: str,
    problem: ShardingProblem,
    search: Search,
    attempts: Sequence[Attempt],
    time_left: TimeLeft,
) -> Baseline | None:
    """Return the baseline's plan; None: it has none, or the stand-in would not be done in time."""
    found = next((attempt for attempt in attempts if attempt.sharder == name), None)
    if found is not None:
        return _baseline(found)
    if name == STAND_IN and time_left() < _STAND_IN_PASSES * first_plan_time(attempts):
        return None
    deadline = search.clock() + _STAND_IN_SHARE * search.time_limit
    return _baseline(run_sharder(name, problem, replace(search, watch=Search().watch), deadline))


def _baseline(attempt: Attempt) -> Baseline | None:
    if attempt.plan is None:
        return None
    return Baseline(sharder=attempt.sharder, step_time=attempt.step_time, plan=attempt.plan)


def _plan_or_reason(
    problem: ShardingProblem, time_limit: Seconds, start: Seconds
) -> ShardingPlan | str:
    try:
        attempt = run_sharder(TORCHREC, problem, Search(), start + _PROPOSAL_SHARE * time_limit)
    except PlannerError as error:
        return f"failed: {error}"
    return "found no plan that fits" if attempt.plan is None else attempt.plan


def main() -> None:
    """Let TorchRec plan what standard input has, at a lower priority than the search."""
    start = time.monotonic()
    if hasattr(os, "nice"):
        os.nice(10)
    workload, topology, time_limit = pickle.load(sys.stdin.buffer)  # noqa: S301 - our parent's
    problem = ShardingProblem.of(workload, topology)
    told = pickle.dumps(_plan_or_reason(problem, time_limit, start))
    sys.stdout.write(b64encode(told).decode())


if __name__ == "__main__":
    main()
