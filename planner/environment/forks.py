"""A fork that may be ended by a library's fault, which the process that made it then tells of."""

import os
import signal
from typing import TYPE_CHECKING

from planner.environment.processes import end_with

if TYPE_CHECKING:
    from collections.abc import Iterable

CRASHES = tuple(
    number
    for name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL")
    if (number := getattr(signal, name, None)) is not None
)
"""Signals that end a process whose code has read or written where nothing is."""


def can_fork() -> bool:
    """Tell whether this system has what ``forked`` needs: Linux has."""
    return hasattr(os, "fork") and hasattr(signal, "sigwaitinfo")


def forked() -> int | None:
    """Fork; return None in the fork, and here, once it has ended, its exit code.

    The exit code is -N where signal N ended the fork. Call this before any thread is started. Until
    then signals that ask for the end go on to the fork. A terminal's Ctrl-C has reached it already,
    as a terminal tells both.
    """
    asking = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    waited = asking | {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    parent, fork = os.getpid(), os.fork()
    if fork:
        return _end_of(fork, waited)
    end_with(parent)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return None


def _end_of(fork: int, waited: "Iterable[signal.Signals]") -> int:
    """Pass signals on to a fork until it ends, and return its exit code."""
    while True:
        told = signal.sigwaitinfo(waited)
        if told.si_signo != signal.SIGCHLD:
            if told.si_pid:  # of a process; a terminal has none
                os.kill(fork, told.si_signo)
            continue
        ended, status = os.waitpid(fork, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
