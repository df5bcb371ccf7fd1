"""What commands and files share of standard output: whether it was written to, and takes more."""

import os
from contextlib import suppress
from contextvars import ContextVar
from typing import TextIO

STDOUT_USED: ContextVar[bool] = ContextVar("stdout_used", default=False)
"""Whether this command has printed its JSON object, or a file, there: no second one may follow."""


def write_no_more(stream: TextIO) -> None:
    """Let what is still to be written go nowhere: Python writes it as it ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
