"""Zip archives and gzip streams of unknown origin, read within bounds.

A few kilobytes can say that they hold terabytes, in one entry or in many that share the same bytes.
"""

import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

MOST_ENTRIES = 100_000
"""Largest number of files in an archive; torch writes one per tensor."""
LEAST_BOUND = 2**28
"""Bytes that any file may expand to."""
MOST_TIMES = 100
"""Factor by which larger files may expand; ids seldom compress better."""


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive whose entries have a bounded size together."""

    zipped: zipfile.ZipFile

    @property
    def names(self) -> list[str]:
        """Names of the entries, in order."""
        return self.zipped.namelist()

    def size(self, name: str) -> int:
        """Return the bytes of an unpacked entry."""
        return self.zipped.getinfo(name).file_size

    def read(self, name: str) -> bytes:
        """Return an entry's content, no more than the archive's directory says.

        Raises
        ------
        ValueError
            There is no such entry, or it is damaged.

        """
        try:
            with self.zipped.open(name) as entry:
                return entry.read(self.size(name))
        except KeyError:
            raise ValueError(f"the archive has no `{name}`") from None
        except _DAMAGES as error:
            raise damaged(error) from None


_DAMAGES = (
    zipfile.BadZipFile, EOFError, OSError, zlib.error, lzma.LZMAError, NotImplementedError,
    RuntimeError, OverflowError, UnicodeError,
)  # fmt: skip
"""Exceptions of the standard library for archives that are cut off, damaged, encrypted or
unusual."""


@contextmanager
def open_archive(data: bytes) -> Iterator[Archive]:
    """Open a zip archive, and check the sizes in its directory.

    Raises
    ------
    ValueError
        It is damaged, or holds too much.

    """
    try:
        zipped = zipfile.ZipFile(io.BytesIO(data))
    except (*_DAMAGES, ValueError) as error:
        raise damaged(error) from None
    with zipped:
        entries = zipped.infolist()
        if len(entries) > MOST_ENTRIES:
            raise ValueError(f"an archive of {len(entries):,} files; up to {MOST_ENTRIES:,} can be")
        if len({entry.filename for entry in entries}) < len(entries):
            raise ValueError("an archive with two files of one name")
        check_expanded(sum(entry.file_size for entry in entries), len(data))
        yield Archive(zipped)


def gunzipped(data: bytes) -> bytes:
    """Return the content of a gzip stream.

    Raises
    ------
    ValueError
        It is damaged, or expands to too much.

    """
    bound = expansion_bound(len(data))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            content = stream.read(bound + 1)
    except _DAMAGES as error:
        raise damaged(error) from None
    check_expanded(len(content), len(data))
    return content


def check_expanded(size: int, packed: int) -> None:
    """Raise ValueError if ``packed`` bytes would expand to too many."""
    if size > expansion_bound(packed):
        raise ValueError(
            f"it would expand to more than {expansion_bound(packed):,} bytes; a file of "
            f"{packed:,} should not: save it without compression if it is right"
        )


def expansion_bound(packed: int) -> int:
    """Return the most bytes that ``packed`` bytes may expand to."""
    return max(LEAST_BOUND, MOST_TIMES * packed)


class BoundedStream(io.RawIOBase):
    """A file that is unpacked as it is read, up to a bound; its first bytes tell the format."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._packed = path.stat().st_size
        self._read = 0
        with path.open("rb") as file:
            begin = file.read(6)
        known = [opener for magic, opener in _OPENERS.items() if begin.startswith(magic)]
        self._stream: IO[bytes] = (known[0] if known else open)(path, "rb")

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - what can be written to
        """Read as ``io.RawIOBase`` does; ValueError if the file expands to too much."""
        data = self._stream.read(len(buffer))
        self._read += len(data)
        check_expanded(self._read, self._packed)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close the file."""
        self._stream.close()
        super().close()


_OPENERS: Mapping[bytes, Any] = {
    b"\x1f\x8b": gzip.open, b"\xfd7zXZ\x00": lzma.open, b"BZh": bz2.open,
}  # fmt: skip


class DamagedError(ValueError):
    """An archive or a stream is cut off or damaged."""


def damaged(error: Exception) -> DamagedError:
    """Return the error to raise where an archive cannot be read."""
    return DamagedError(f"the file is damaged: {str(error)[:200] or type(error).__name__}")
