"""Signals: a command that is told to end keeps what it found and ends what it started."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import current_thread, main_thread
from types import FrameType
from typing import NoReturn

INTERRUPTED = "interrupted; nothing more was written"
_FAILED_BY = 128
"""Exit code of a process ended by a signal, less the signal's number, as in shells."""
_ENDING = tuple(
    number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None
)
"""Signals that ask for the end: Slurm, Kubernetes, ``timeout`` or a closing terminal send them."""
_ASKING = (signal.SIGINT, *_ENDING)


class Terminated(KeyboardInterrupt):
    """Raised by a signal that asks the process to end; like Ctrl-C, it is not an error."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def interrupted_code(interrupt: BaseException) -> int:
    """Return the exit code of an interrupted command: 130 for Ctrl-C, 143 for SIGTERM."""
    number = interrupt.number if isinstance(interrupt, Terminated) else int(signal.SIGINT)
    return _FAILED_BY + number


@dataclass(slots=True)
class Interrupt:
    """Notes whether Ctrl-C was pressed or another signal asked for the end."""

    number: int | None = None

    @property
    def happened(self) -> bool:
        """Whether a signal came."""
        return self.number is not None

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return _FAILED_BY + (self.number or 0)


@contextmanager
def raising() -> Iterator[None]:
    """Raise ``Terminated`` at signals that ask for the end, so that everything is cleaned up."""
    # what is ignored stays so: nohup ignores SIGHUP
    ours = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL]
    with _handled(_raise, ours):
        yield


@contextmanager
def interruptible(*, ending: bool = False, at_once: bool = False) -> Iterator[Interrupt]:
    """Note the first Ctrl-C instead of raising, so that the best plan is kept.

    Raise at the second; ``at_once``, where what is done is kept elsewhere, at the first, too.

    Where Ctrl-C is handled already, or ignored as in a shell's background, nothing changes for it.
    With ``ending``, signals that ask for the end are noted, too: for commands, not for programs
    that call us.
    """
    interrupt = Interrupt()

    def note(number: int, frame: FrameType | None) -> None:
        is_again, interrupt.number = interrupt.happened, number
        if at_once or is_again:
            _raise(number, frame)

    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    heeded = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    with _handled(note, [*([signal.SIGINT] if usual else ()), *(heeded if ending else ())]):
        yield interrupt


@contextmanager
def held_back() -> Iterator[None]:
    """Hold back signals that ask for the end, while processes are started that must note them.

    A started process holds them back, too, until ``told_by_another``.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ASKING)
    try:
        from multiprocessing import resource_tracker

        resource_tracker.ensure_running()  # once for all: it lets some of them through again
        signal.pthread_sigmask(signal.SIG_BLOCK, _ASKING)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def told_by_another() -> Callable[[], bool]:
    """Note signals, in a process that another one started; return a function: whether one came.

    Ctrl-C, which a terminal sends to both processes, is ignored: the parent handles it.
    """
    asked: list[int] = []
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as by nohup
            signal.signal(number, lambda number, _: asked.append(number))
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKING)
    return lambda: bool(asked)


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    raise KeyboardInterrupt if number == signal.SIGINT else Terminated(number)


@contextmanager
def _handled(
    handler: Callable[[int, FrameType | None], object], numbers: list[signal.Signals]
) -> Iterator[None]:
    """Handle signals inside with a function, in a process's main thread."""
    if current_thread() is not main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
