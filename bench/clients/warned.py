"""What the planner warns of, as a TorchRec script's log has it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def warnings_kept() -> Iterator[list[str]]:
    """Give the lines of what the planner warns of."""
    lines: list[str] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.extend(record.getMessage().splitlines())

    logger, handler = logging.getLogger("planner"), Keeping(logging.WARNING)
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
