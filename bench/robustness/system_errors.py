"""What a machine may say at any moment: an error of the system, to a command with ``--json``.

Calls that open, look at, replace or sync a file fail, one of them, with any of its reasons; or
standard output takes no more. The command then prints one JSON object all the same, or where it
cannot, a line on stderr.
"""

import builtins
import errno
import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from bench.robustness.attack_files import CORPUS
from bench.robustness.commands import ran

REASONS = (
    "ENAMETOOLONG", "ENOSPC", "EACCES", "EPERM", "EIO", "EROFS", "EMFILE", "ELOOP", "EDQUOT",
    "ENOTDIR", "EISDIR", "EFBIG", "ESTALE", "memory",
)  # fmt: skip
STDOUT = "stdout"
_LATEST = 12
"""Calls of a command on its files; after them nothing fails."""
_CALLS = (
    (builtins, "open"), (io, "open"), (os, "open"), (os, "stat"), (os, "mkdir"), (os, "scandir"),
    (os, "listdir"), (os, "replace"), (os, "fsync"), (os, "access"), (os, "chmod"),
)  # fmt: skip


def drawn(commands: bytes, rng: Random) -> bytes:
    """Return a command of several, one in a line, and before it what fails when."""
    command = rng.choice(commands.decode().splitlines())
    when = STDOUT if rng.random() < 0.15 else str(rng.randrange(_LATEST))
    return f"{rng.choice(REASONS)} {when} {command}".encode()


def failing(path: Path) -> object:
    """Run the command in a file with what fails, and look at what it says.

    Raises
    ------
    ValueError
        It printed something else than one JSON object.

    """
    reason, when, *words = path.read_text().split()
    words.append("--json")
    if when == STDOUT:
        done = ran(words, path.parent, _Full(reason))
        if done.code not in {2, 3} or "error: " not in done.err:
            raise ValueError(f"with a full standard output: {done.code} {done.err[:60]}")
        return done
    with _after(int(when), reason, (path.parent, CORPUS)):
        done = ran(words, path.parent)
    if set(json.loads(done.out)) == {"error"} or "Traceback" in done.err:
        raise ValueError(f"{done.out[:60]} {done.err[:60]}")
    return done


class _Full(io.StringIO):
    """A standard output that takes nothing."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = "ENOSPC" if reason == "memory" else reason

    def write(self, text: str) -> int:
        del text
        raise OSError(getattr(errno, self.reason), "No space left on device")


@contextmanager
def _after(calls: int, reason: str, folders: Sequence[Path]) -> Iterator[None]:
    """Let one call on files in these folders fail, after so many that do not."""
    left = [calls]

    def wrapped(call: Callable[..., Any]) -> Callable[..., Any]:
        def tried(path: Any = ".", *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as it is called
            if _is_in(path, folders):
                left[0] -= 1
                if left[0] == -1:
                    raise _error(reason, path)
            return call(path, *args, **kwargs)

        return tried

    with ExitStack() as patches:
        for owner, name in _CALLS:
            patches.enter_context(mock.patch.object(owner, name, wrapped(getattr(owner, name))))
        yield


def _is_in(path: object, folders: Sequence[Path]) -> bool:
    if not isinstance(path, str | os.PathLike):
        return False
    name = os.path.abspath(os.fspath(path))  # noqa: PTH100 - looks at no file
    return isinstance(name, str) and any(name.startswith(str(folder)) for folder in folders)


def _error(reason: str, path: object) -> BaseException:
    if reason == "memory":
        return MemoryError()
    number = getattr(errno, reason)
    return OSError(number, os.strerror(number), path)
