"""Reading and writing files as a whole, with errors in words."""

import errno
import os
import shlex
import stat
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from costmodel.base.errors import InputError, Problem, suggestion
from planner.files.standard_output import STDOUT_USED

MOST_TEXT, MOST_BYTES = 2**28, 2**36
"""Most bytes of a text file (20,000 tables on 4,096 ranks take some 100 MB) and of any other."""
MOST_STREAMED = 2**30
"""Most bytes of a pipe or a device, which may be endless."""
_PIECE = 2**20
"""Bytes read at once from a pipe or a device."""
_TOO_LARGE = "this file is larger than {:,} bytes"
STANDARD_STREAM = "-"
"""The name of standard input or output."""


def source_name(path: str | Path) -> str:
    """Return the name of a file in messages."""
    return "<stdin>" if str(path) == STANDARD_STREAM else str(path)


def read_text(path: str | Path) -> str:
    """Return the text of a file, or of standard input for ``-``.

    Raises
    ------
    InputError
        There is no such file, it cannot be read, or it is not text.

    """
    return decoded(read_bytes(path, most=MOST_TEXT), path)


def decoded(data: bytes, path: str | Path) -> str:
    """Return the text of a file's bytes.

    Raises
    ------
    InputError
        They are not text.

    """
    if b"\0" in data[:4096]:
        raise file_error(path, "this is a binary file, not text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"byte {error.start} is not UTF-8"
        raise file_error(path, f"this is not a text file ({where})", "save it as UTF-8") from None


def read_bytes(path: str | Path, *, most: int = MOST_BYTES) -> bytes:
    """Return the content of a file, or of standard input for ``-``, of at most ``most`` bytes.

    Raises
    ------
    InputError
        There is no such file, or it cannot be read.

    """
    try:
        if str(path) == STANDARD_STREAM:
            return _streamed(sys.stdin.buffer, path, most)
        with Path(path).open("rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return _streamed(file, path, most)
            if status.st_size > most:
                raise file_error(path, f"{_TOO_LARGE.format(most)}, as no file of its kind is")
            return file.read()
    except FileNotFoundError:
        raise missing_file(path) from None
    except ValueError:  # a name with a null byte
        raise file_error(path, "this is no name of a file") from None
    except IsADirectoryError:
        raise file_error(path, "this is a directory, not a file") from None
    except OSError as error:
        raise file_error(path, f"cannot be read: {os_reason(error)}") from None


def _streamed(file: BinaryIO, path: str | Path, most: int) -> bytes:
    """Return the bytes of a pipe or a device, which may be endless as /dev/zero is.

    It is read in pieces, so that no memory is needed for more than it has.
    """
    data, most = bytearray(), min(most, MOST_STREAMED)
    while piece := file.read(_PIECE):
        data += piece
        if len(data) > most:
            raise file_error(path, _TOO_LARGE.format(most), "save it as a file, if it ends")
    return bytes(data)


def check_writable(path: str | Path) -> None:
    """Raise the InputError that writing this file would raise, before any work is done."""
    if str(path) == STANDARD_STREAM:
        return
    if "\0" in str(path):
        raise file_error(path, "this is no name of a file")
    try:
        target = _real(path)
        is_folder, has_folder = target.is_dir(), target.parent.is_dir()
    except OSError as error:  # the name is too long, or its folder is another user's
        raise file_error(path, f"cannot be written: {os_reason(error)}") from None
    if is_folder:
        raise file_error(path, "cannot be written: it is a directory", "name a file in it")
    if not has_folder:
        raise file_error(
            path,
            "cannot be written: there is no such directory",
            f"mkdir -p {shlex.quote(str(target.parent))}",
        )
    changed = target if target.exists() else target.parent
    if not os.access(changed, os.W_OK):
        raise file_error(path, f"cannot be written: {_obstacle(changed)}")


def version_of(path: str | Path) -> tuple[int, int, int] | None:
    """Return what changes whenever a file is written; None: there is none."""
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _real(path: str | Path) -> Path:
    """Return the path that links lead to.

    That of a pipe, such as ``/dev/stdout``, leads to no name.
    """
    given = Path(path)
    is_named = not given.exists() or given.is_file() or given.is_dir()
    return Path(os.path.realpath(path)) if is_named else given


def _obstacle(path: Path) -> str:
    """Return why a file or folder cannot be changed."""
    if hasattr(os, "statvfs") and os.statvfs(path).f_flag & os.ST_RDONLY:
        return os.strerror(errno.EROFS).lower()
    return os.strerror(errno.EACCES).lower()


def user_path(environment: Mapping[str, str], variable: str, usual: str) -> Path | None:
    """Return the user's folder that a variable names, or else a usual one in the home.

    None where there is no home, as in some containers.
    """
    base, home = environment.get(variable), environment.get("HOME")
    if not base and not home:
        return None
    return Path(base or Path(home or "", usual))


def make_folder(path: str | Path) -> None:
    """Make a folder and those it is in, unless it is there.

    Raises
    ------
    InputError
        A file has that name, or the folder cannot be made.

    """
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise file_error(path, "this is a file, not a folder", "name a folder") from None
    except OSError as error:
        raise file_error(path, f"cannot be made: {os_reason(error)}") from None


def write_text(path: str | Path, text: str) -> None:
    """Write a file as a whole: readers see the old content or the new, never a part.

    ``-`` writes to standard output; a device such as ``/dev/null`` is written directly.

    Raises
    ------
    InputError
        The file cannot be written; what was there before still is.

    """
    if str(path) == STANDARD_STREAM:
        STDOUT_USED.set(True)
        sys.stdout.write(text)
    else:
        write_bytes(path, text.encode())


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a file that is not text, as ``write_text`` does."""
    if str(path) == STANDARD_STREAM:
        STDOUT_USED.set(True)
        sys.stdout.buffer.write(data)
        return
    check_writable(path)
    target = _real(path)
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(data)
        else:
            _replace(target, data)
    except OSError as error:
        raise file_error(path, f"cannot be written: {os_reason(error)}") from None


def _replace(target: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # or a power failure leaves the new name with no content
        temporary.chmod(_mode(target))
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _mode(target: Path) -> int:
    """Return the permissions of the old file, or those a new file would get."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def missing_file(path: str | Path) -> InputError:
    """Return the error that there is no such file, with the name of one like it."""
    return file_error(path, "no such file", _neighbour(Path(path)))


def _neighbour(path: Path) -> str | None:
    """Return a similar name of a file in the same folder; None: there is none."""
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return None
    return suggestion(path.name, names)


def os_reason(error: OSError) -> str:
    """Return the system's text for an error, as messages have it."""
    return (error.strerror or str(error)).lower()


def file_error(path: str | Path, message: str, hint: str | None = None) -> InputError:
    """Return an error about a file or folder as a whole."""
    return InputError(source_name(path), (Problem(message=message, hint=hint),))
