"""Starting the ranks of a validation run, waiting for them, and reporting their errors."""

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from costmodel.base.errors import PlannerError
from planner.environment.processes import python_command
from planner.files.plans import PlanFile, dump_plan_file, plan_text
from planner.validation.job import Job, RankResult, read_results

RANK_ENVIRONMENT = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(10**12),
    "MALLOC_TOP_PAD_": str(64 * 2**20),
    "OMP_NUM_THREADS": "1",
}
"""Environment of ranks on a CPU, with which glibc keeps freed memory. By default it maps tensors of
32 MB and more afresh every time, and the kernel fills their pages with zeros (at 1 GB/s where this
was written). All threads share one arena: in the others, whatever is above 64 MB
(``HEAP_MAX_SIZE``) is mapped anew all the same."""
_ONE_ARENA = "MALLOC_ARENA_MAX"
_POLL_TIME = 0.1
_LAST_LINES = 4
Progress = Callable[[int], None]


@dataclass(eq=False)
class RankFailedError(PlannerError):
    """A rank of a validation run failed."""

    rank: int
    code: int
    said: Sequence[str]
    """The last lines that it wrote."""

    def __post_init__(self) -> None:
        self.hint = " | ".join(self.said[-_LAST_LINES:-1]) or None

    def __str__(self) -> str:
        last = self.said[-1] if self.said else "it said nothing"
        return f"rank {self.rank} ended with exit code {self.code}: {last}"


def run_job(files: Sequence[PlanFile], job: Job, progress: Progress) -> list[list[RankResult]]:
    """Return the results of every rank: by rank, then by plan.

    On a CPU phases come from processes of their own after the timed ones, which share one arena
    (``RANK_ENVIRONMENT``): with torch's profiler (2.13) and one arena together, ranks ended with a
    spoilt heap in three of four runs.

    Raises
    ------
    RankFailedError
        A rank failed; with the last lines it wrote.

    """
    if not job.phases_apart:
        return _results(files, job, progress)
    timed = _results(files, replace(job, profiled=0), progress)
    before = job.repeats * job.num_plans
    watched = _results(
        files,
        replace(job, repeats=1, steps=1, warmup=min(2, job.warmup), probes=()),
        lambda done: progress(before + done),
    )
    return [
        [replace(one, phases=other.phases) for one, other in zip(*rank, strict=True)]
        for rank in zip(timed, watched, strict=True)
    ]


def _results(files: Sequence[PlanFile], job: Job, progress: Progress) -> list[list[RankResult]]:
    """Start the ranks, wait for them, and return their results."""
    with TemporaryDirectory(prefix="planner-validate-") as name:
        folder = Path(name)
        for index, file in enumerate(files):
            text = plan_text(dump_plan_file(file))
            (folder / f"plan_{index}.json").write_text(text, encoding="utf-8")
        job.write(folder)
        ranks = [_start(job, folder, rank) for rank in range(job.world_size)]
        try:
            _wait(ranks, folder, progress)
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
        return [read_results(folder, rank) for rank in range(job.world_size)]


def _start(job: Job, folder: Path, rank: int) -> subprocess.Popen[bytes]:
    local = job.local_world_size
    place = {
        "RANK": rank,
        "WORLD_SIZE": job.world_size,
        "LOCAL_RANK": rank % local,
        "LOCAL_WORLD_SIZE": local,
    }
    environment = {**os.environ, **{name: str(value) for name, value in place.items()}}
    environment |= RANK_ENVIRONMENT if job.device == "cpu" else {}
    if job.profiled:
        environment.pop(_ONE_ARENA, None)
    with (folder / f"rank_{rank}.log").open("wb") as log:
        return subprocess.Popen(  # noqa: S603 - our own interpreter and module
            python_command("planner.validation.worker", str(folder)),
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _wait(ranks: Sequence[subprocess.Popen[bytes]], folder: Path, progress: Progress) -> None:
    """Wait until all ranks have ended, and report progress; raise if one fails."""
    told = 0
    while any(rank.poll() is None for rank in ranks):
        _check(ranks, folder)
        done = _done(folder)
        if done > told:
            progress(done)
            told = done
        time.sleep(_POLL_TIME)
    _check(ranks, folder)
    progress(_done(folder))


def _done(folder: Path) -> int:
    """Return how many blocks of steps the first rank has done."""
    try:
        return int((folder / "progress").read_text(encoding="ascii") or 0)
    except FileNotFoundError:
        return 0


def _check(ranks: Sequence[subprocess.Popen[bytes]], folder: Path) -> None:
    """Raise RankFailedError if a rank has failed."""
    for number, rank in enumerate(ranks):
        if rank.poll():
            log = (folder / f"rank_{number}.log").read_text(encoding="utf-8", errors="replace")
            raise RankFailedError(number, rank.returncode, log.strip().splitlines())
