"""How a command ends that did not do what it was asked: in words on stderr, or in JSON on stdout.

Whatever goes wrong, ``--json`` prints one object. Where the command has printed its own already, or
standard output takes no more, words say what went wrong.
"""

import errno
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
"""Exit codes beyond are those of signals."""
_UNWRITTEN = {errno.ENOSPC, errno.EIO, errno.EBADF, errno.EFBIG, errno.EAGAIN, errno.EDQUOT}
"""Why a stream takes no more, which then does not say its name."""
_OUT_OF_MEMORY = "out of memory: a smaller workload, fewer GPUs or a higher `ulimit -v`"


class Endings:
    """Says how one command ended; entered around it, what is a bug of ours, too."""

    def __init__(self, arguments: Sequence[str]) -> None:
        STDOUT_USED.set(False)
        self._as_json = _JSON in takewhile(lambda word: word != "--", arguments)
        if self._as_json:
            import planner.files.json_text  # noqa: F401 - later there may be no memory for it

    def say(self, body: Mapping[str, Any], show: Callable[[], object]) -> int:
        """Say what was wrong: ``body`` as JSON, or ``show`` it; return the exit code it has."""
        if not self._as_json or not _printed(body):
            show()
        code: int = body["exit_code"]
        return code

    def left(self, code: int) -> int:
        """Return the code of a command that said in words why it ended; nothing else is to come."""
        if code and self._as_json:
            kind = "Interrupted" if code > _SIGNALLED else "Error"
            _printed(_body(kind, f"ended with exit code {code}: stderr says why", code))
        return code

    def interrupted(self, text: str, code: int) -> int:
        """Say that the command was told to end."""
        return self.say(_body("Interrupted", text, code), lambda: _write(text))

    def system_said(self, error: OSError) -> int:
        """Say why the machine does not go on: what was read or written by name says so itself."""
        if error.filename is None and error.errno in _UNWRITTEN:
            write_no_more(sys.stdout)
            STDOUT_USED.set(True)
            return self._ended("OSError", f"standard output: {_reason(error)}")
        name = "" if error.filename is None else f"{error.filename}: "
        return self._ended("OSError", f"{name}{_reason(error)}")

    def out_of_memory(self) -> int:
        """Say that there is too little of it."""
        return self._ended("MemoryError", _OUT_OF_MEMORY)

    def _ended(self, kind: str, message: str) -> int:
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
        """Let a bug have its JSON; its traceback comes from Python."""
        if kind is not None and issubclass(kind, Exception) and self._as_json:
            hint = "a traceback is on stderr: if it is not in code of yours, it is a bug"
            _printed({**_body("InternalError", f"{kind.__name__}: {error}", _BUG), "hint": hint})


def _body(kind: str, message: str, code: int) -> dict[str, Any]:
    """Return what is no error of the planner's own as ``error_json`` returns those."""
    return {"kind": kind, "message": message, "hint": None, "exit_code": code}


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _printed(body: Mapping[str, Any]) -> bool:
    """Print the one JSON object that was asked for, if there is none yet; return whether it was."""
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
