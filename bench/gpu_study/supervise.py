"""Starts the processes that measure, and starts them again when a point has ended one.

A kernel may end its process (an illegal access spoils CUDA for all that follow), or never end. The
point is then written down as failed, and the next process goes on behind it.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.gpu_study.points import STUDY_KINDS
from costmodel.base.errors import PlannerError
from costmodel.base.units import Seconds
from planner.calibration.points import point_key, read_point
from planner.calibration.records import Failure, MeasurementJournal, keys, read_measurements
from planner.validation.launch import RANK_ENVIRONMENT

MEASUREMENTS = "measurements.jsonl"
COLLECTIVES = "collectives.jsonl"
MACHINE = "machine.json"
TRACES = "traces"
ATTEMPT = "attempt.json"
"""The point that is being measured, and since when."""
_ROOT = Path(__file__).parents[2]
PATIENCE: Seconds = 180.0
"""After which a single point counts as hanging, unless told otherwise."""
_MOST_STARTS = 50
_POLL: Seconds = 0.2
_LAST_CHARACTERS = 300


@dataclass(eq=False)
class WorkerFailedError(PlannerError):
    """A process that measures ended although no point is to blame."""

    part: str
    code: int
    said: str

    def __str__(self) -> str:
        return f"measuring {self.part} ended with exit code {self.code}: {self.said}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervisor:
    """Runs one part of the study in processes of its own."""

    folder: Path
    kind: str
    deadline: float
    """By the system's clock."""
    patience: Seconds
    """After which a single point counts as hanging."""

    def run(self, part: str, command: Sequence[str] | None = None) -> int:
        """Measure a part to its end, or until the time is up; returns how often it was started.

        Raises
        ------
        WorkerFailedError
            A process ended before it measured anything.

        """
        for start in range(1, _MOST_STARTS + 1):
            (self.folder / ATTEMPT).unlink(missing_ok=True)
            code, hangs = self._once(command or self._command(part), part)
            if code == 0:
                return start
            said = _last_words(self._log(part))
            if not self._blame("took too long" if hangs else f"exit code {code}: {said}"):
                raise WorkerFailedError(part, code, said)
        return _MOST_STARTS

    def _command(self, part: str) -> list[str]:
        return [
            sys.executable, "-m", "bench.gpu_study.worker", part, str(self.folder), self.kind,
            str(self.deadline),
        ]  # fmt: skip

    def _once(self, command: Sequence[str], part: str) -> tuple[int, bool]:
        """Return the exit code of one process, and whether it was ended because it hung."""
        with self._started(command, part) as process:
            while process.poll() is None:
                if self._hangs():
                    return -9, True
                time.sleep(_POLL)
            return process.returncode, False

    @contextmanager
    def _started(self, command: Sequence[str], part: str) -> Iterator["subprocess.Popen[Any]"]:
        path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
        environment |= RANK_ENVIRONMENT if self.kind == "cpu" else {}
        with self._log(part).open("ab") as log:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command, env=environment, stdout=log, stderr=subprocess.STDOUT
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def _hangs(self) -> bool:
        attempt = self._attempt()
        return attempt is not None and time.time() - float(attempt["since"]) > self.patience

    def _attempt(self) -> dict[str, Any] | None:
        """Return what is being measured; None between two points."""
        try:
            found: dict[str, Any] = json.loads((self.folder / ATTEMPT).read_text("utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            return None  # none, or it is being written
        return found

    def _blame(self, reason: str) -> bool:
        """Write down that the last point failed; tell whether there was one."""
        attempt = self._attempt()
        if attempt is None:
            return False
        point = read_point(attempt["family"], attempt["point"], STUDY_KINDS)
        path = self.folder / MEASUREMENTS
        measured = read_measurements(path, STUDY_KINDS)
        if measured is None:
            return False
        if point_key(point) not in keys([*measured.records, *measured.failures]):
            MeasurementJournal(path, measured.machine).append(Failure(point=point, reason=reason))
        return True

    def _log(self, part: str) -> Path:
        return self.folder / f"{part}.log"


def _last_words(log: Path) -> str:
    lines = log.read_text("utf-8", errors="replace").strip().splitlines()
    return lines[-1][-_LAST_CHARACTERS:] if lines else "it said nothing"
