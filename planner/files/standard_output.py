"""The state of standard output that commands and files share."""

import os
from contextlib import suppress
from contextvars import ContextVar
from typing import TextIO

STDOUT_USED: ContextVar[bool] = ContextVar("stdout_used", default=False)
"""Whether this command has printed its JSON object or a file: no second one may follow."""


def write_no_more(stream: TextIO) -> None:
    """Discard what is still to be written to a stream: Python would write it at its end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
