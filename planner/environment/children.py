"""Processes that this one starts: they import nothing from the working directory, nor outlive it.

``python -m planner.environment.children PARENT MODULE ARGUMENT...`` runs a module as ``python -m``
does, and ends when the process PARENT does, however that ends. It is to be run with ``-P``:
without, Python looks for modules in the working directory first, and a ``hashlib.py`` there would
be run.
"""

import ctypes
import os
import runpy
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import NoReturn

_SAFE_PATH = "PYTHONSAFEPATH"
"""Has Python leave the working directory out, as ``-P`` does."""
_PR_SET_PDEATHSIG = 1
"""Linux, include/uapi/linux/prctl.h: a signal to get when the parent ends."""
_LOOK_EVERY = 1.0


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
    """End this process at once, its work done: nothing is run at exit, nothing is torn down.

    A thread of gloo's that still holds a tensor when the interpreter is torn down aborts the
    process (torch 2.13, now and then on a loaded machine).
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _asked_of_linux() -> bool:
    if sys.platform != "linux":
        return False
    try:
        done: int = ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        return False
    return done == 0


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY)
    os._exit(1)


def main() -> None:
    """Run the module that the arguments name, as long as the process lives that asked for it."""
    parent, module, *arguments = sys.argv[1:]
    end_with(int(parent))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
