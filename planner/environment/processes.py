"""Processes that this one starts.

Each imports nothing from the working directory, and ends when this process does, however that ends.
A *worker* (``started``) does work of ours and exchanges messages through a pipe. It is told to end
by a signal, which it only notes, so that it can still send what it has. A *module*
(``python_command``) runs as ``python -m`` runs it.

``python -m planner.environment.processes PARENT MODULE ARGUMENT...`` runs a module, and ends when
the process PARENT does. It is to be run with ``-P``: without, Python looks for modules in the
working directory first, and a ``hashlib.py`` there would be run.
"""

import ctypes
import multiprocessing
import os
import runpy
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from threading import Thread
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from costmodel.base.errors import MachineError
from costmodel.base.units import Seconds
from planner.environment.interrupts import held_back, told_by_another
from planner.files.disk import os_reason

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

Work: TypeAlias = Callable[[int, Connection, Callable[[], bool]], None]
"""A worker's function of its number, the pipe to this process, and a function: whether to end."""

_SAFE_PATH = "PYTHONSAFEPATH"
"""Environment variable with which Python leaves out the working directory, as with ``-P``."""
_PR_SET_PDEATHSIG = 1
"""Linux, include/uapi/linux/prctl.h: sets the signal that a process gets when its parent ends."""
_LOOK_EVERY: Seconds = 1.0


class Workers:
    """Started workers, by number."""

    def __init__(self) -> None:
        self._reached: dict[Connection, tuple[int, SpawnProcess]] = {}

    @property
    def numbers(self) -> list[int]:
        """Numbers of all workers, including those that have ended."""
        return [number for number, _ in self._reached.values()]

    def send(self, number: int, message: object) -> None:
        """Send a worker a message; OSError if it has ended.

        This waits until the worker takes it where the pipe is too small to hold it.
        """
        next(end for end, (own, _) in self._reached.items() if own == number).send(message)

    def heard(self, numbers: Iterable[int], timeout: Seconds) -> Iterator[tuple[int, object]]:
        """Yield (number, message) of workers that send within ``timeout`` seconds, one each.

        For a worker that has ended, the message is the ``EOFError`` or ``OSError`` that shows it.
        """
        some = set(numbers)
        ends = [end for end, (number, _) in self._reached.items() if number in some]
        for end in wait(ends, timeout=timeout):
            if not isinstance(end, Connection):
                continue
            number, message = self._reached[end][0], None
            try:
                message = end.recv()
            except (EOFError, OSError) as ended:
                message = ended
            yield number, message

    def tell_to_end(self) -> None:
        """Tell all workers to end; each may still send what it has."""
        for _, process in self._reached.values():
            process.terminate()

    def start(self, number: int, work: Work) -> None:
        """Start a worker."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_begin, args=(work, number, os.getpid(), theirs), daemon=True
        )
        process.start()
        theirs.close()
        self._reached[ours] = (number, process)

    def kill(self) -> None:
        """End all workers at once."""
        for _, process in self._reached.values():
            process.kill()
            process.join()


@contextmanager
def started(numbers: range, work: Work, otherwise: str) -> Iterator[Workers]:
    """Start a worker for each number, and kill those that are left at the end.

    They are spawned, as forks of a process with threads may hang: a script that calls this needs
    the usual ``if __name__ == "__main__":``.

    Raises
    ------
    MachineError
        This machine starts no more processes; ``otherwise`` says what to do.

    """
    workers = Workers()
    try:
        try:
            with safe_path(), held_back():
                for number in numbers:
                    workers.start(number, work)
        except OSError as error:
            reason = f"{numbers.stop} processes cannot be started here: {os_reason(error)}"
            raise MachineError(reason, otherwise) from error
        yield workers
    finally:
        workers.kill()


def _begin(work: Work, number: int, parent: int, leader: Connection) -> None:
    """Do a worker's work until it is done or the pipe is closed."""
    end_with(parent)
    with suppress(EOFError, BrokenPipeError):
        work(number, leader, told_by_another())


def python_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs one of our modules in a process of its own."""
    return [sys.executable, "-P", "-m", __name__, str(os.getpid()), module, *arguments]


@contextmanager
def safe_path() -> Iterator[None]:
    """Start processes of ``multiprocessing`` that import nothing from the working directory."""
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        del os.environ[_SAFE_PATH]
        if before is not None:
            os.environ[_SAFE_PATH] = before


def end_with(parent: int) -> None:
    """End this process when its parent ends, also where the parent is killed."""
    if not _asked_of_linux():
        Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # it ended before this was asked for
        os._exit(1)


def end_now() -> NoReturn:
    """End this process at once, running nothing at exit."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _asked_of_linux() -> bool:
    """Ask Linux to end this process with its parent, and return whether it will."""
    if sys.platform != "linux":
        return False
    try:
        done: int = ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        return False
    return done == 0


def _watch(parent: int) -> None:
    """End this process once its parent has ended."""
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY)
    os._exit(1)


def main() -> None:
    """Run the module that the arguments name, as long as the process that asked for it lives."""
    parent, module, *arguments = sys.argv[1:]
    end_with(int(parent))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
