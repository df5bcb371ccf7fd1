"""Ctrl-C as a wish to stop searching, which must not cost the plans that were found."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import current_thread, main_thread
from types import FrameType


@dataclass(slots=True)
class Interrupt:
    """Whether Ctrl-C was pressed."""

    happened: bool = field(default=False)


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Note the first Ctrl-C, so that the best plan so far is kept; raise at the second.

    Where Ctrl-C is handled already, or cannot be (outside the main thread), nothing changes.
    """
    interrupt = Interrupt()
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or current_thread() is not main_thread():
        yield interrupt
        return

    def note(number: int, frame: FrameType | None) -> None:
        del number, frame
        if interrupt.happened:
            raise KeyboardInterrupt
        interrupt.happened = True

    signal.signal(signal.SIGINT, note)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
