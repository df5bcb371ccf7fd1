"""How a failed command says so: in words on stderr, or in JSON on stdout.

Whatever goes wrong, ``--json`` prints one object. Where the command has printed its own already, or
standard output is closed, words on stderr say what went wrong.
"""

import errno
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from types import TracebackType
from typing import Any, Self

from planner.files.standard_output import STDOUT_USED, write_no_more

_JSON = "--json"
_BUG, _BAD_INPUT = 1, 3
_SIGNALLED = 128
"""Exit codes above are those of signals."""
_UNWRITTEN = {errno.ENOSPC, errno.EIO, errno.EBADF, errno.EFBIG, errno.EAGAIN, errno.EDQUOT}
"""Errors of a stream that takes no more, which do not have its name."""
_CRASHED = (
    "a file is damaged in a way that ends the library that reads it: read it and write it again "
    "with the program that made it"
)
_OUT_OF_MEMORY = "out of memory: a smaller workload, fewer GPUs or a higher `ulimit -v`"


class Endings:
    """Says why one command failed; as a context manager, also of a bug of ours."""

    def __init__(self, arguments: Sequence[str]) -> None:
        STDOUT_USED.set(False)
        self._as_json = _JSON in takewhile(lambda word: word != "--", arguments)
        if self._as_json:
            import planner.files.json_text  # noqa: F401 - later there may be no memory for it

    def say(self, body: Mapping[str, Any], show: Callable[[], object]) -> int:
        """Print an error, ``body`` as JSON or by calling ``show``, and return its exit code."""
        if not self._as_json or not _printed(body):
            show()
        code: int = body["exit_code"]
        return code

    def left(self, code: int) -> int:
        """Return the exit code of a command that has said why it ended; nothing more is printed."""
        if code and self._as_json:
            kind = "Interrupted" if code > _SIGNALLED else "Error"
            _printed(_body(kind, f"ended with exit code {code}: stderr says why", code))
        return code

    def interrupted(self, text: str, code: int) -> int:
        """Print that the command was told to end, and return its exit code."""
        return self.say(_body("Interrupted", text, code), lambda: _write(text))

    def system_said(self, error: OSError) -> int:
        """Print the operating system's error, and return the exit code.

        Such errors name their file.
        """
        if error.filename is None and error.errno in _UNWRITTEN:
            write_no_more(sys.stdout)
            STDOUT_USED.set(True)
            return self._ended("OSError", f"standard output: {_reason(error)}")
        name = "" if error.filename is None else f"{error.filename}: "
        return self._ended("OSError", f"{name}{_reason(error)}")

    def out_of_memory(self) -> int:
        """Print that there is too little memory, and return the exit code."""
        return self._ended("MemoryError", _OUT_OF_MEMORY)

    def of_process(self, code: int, *, crashed: bool) -> int:
        """Return the exit code of a process that did the command, after saying what ended it.

        ``code`` is -N where signal N did; ``crashed``: it was a signal of the processor's.
        """
        if code == -signal.SIGKILL:
            return self.out_of_memory()
        if crashed:
            return self._ended("InputError", _CRASHED)
        return code if code >= 0 else _SIGNALLED - code

    def _ended(self, kind: str, message: str) -> int:
        """Say an error in a line, close the output, and return the exit code."""
        code = self.say(_body(kind, message, _BAD_INPUT), lambda: _write(f"error: {message}"))
        write_no_more(sys.stdout)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Print a bug as JSON; Python prints its traceback."""
        if kind is not None and issubclass(kind, Exception) and self._as_json:
            hint = "a traceback is on stderr: if it is not in code of yours, it is a bug"
            _printed({**_body("InternalError", f"{kind.__name__}: {error}", _BUG), "hint": hint})


def _body(kind: str, message: str, code: int) -> dict[str, Any]:
    """Return the JSON of an ending that is no ``PlannerError``, as ``error_json`` has it."""
    return {"kind": kind, "message": message, "hint": None, "exit_code": code}


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _printed(body: Mapping[str, Any]) -> bool:
    """Print the one JSON object if none was printed yet, and return whether it was."""
    from planner.files.json_text import dump_json

    if STDOUT_USED.get():
        return False
    STDOUT_USED.set(True)
    try:
        text = dump_json({"schema_version": 1, "error": body}, indent=2)
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except (OSError, ValueError, MemoryError):  # it is full, or closed
        write_no_more(sys.stdout)
        return False
    return True


def _write(line: str) -> None:
    with suppress(OSError, ValueError, MemoryError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
