"""Zip archives and gzip streams of unknown origin, read within bounds.

A few kilobytes can say that they hold terabytes, in one entry or in many that share the same bytes.
"""

import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

MOST_ENTRIES = 100_000
"""Files in an archive; torch writes one per tensor."""
LEAST_BOUND = 2**28
"""Bytes that any file may expand to."""
MOST_TIMES = 100
"""How many times its size a file may expand to beyond that; ids seldom pack better."""


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive whose entries together are of a bounded size."""

    zipped: zipfile.ZipFile

    @property
    def names(self) -> list[str]:
        """Names of the entries, in order."""
        return self.zipped.namelist()

    def size(self, name: str) -> int:
        """Return the bytes of an entry."""
        return self.zipped.getinfo(name).file_size

    def read(self, name: str) -> bytes:
        """Return an entry, never more of it than the archive says there is.

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
"""What the standard library raises at archives that are cut off, spoilt, encrypted, or unusual."""


@contextmanager
def open_archive(data: bytes) -> Iterator[Archive]:
    """Open a zip archive and check what it says about itself.

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
    """Raise ValueError where so many packed bytes would expand to too many."""
    if size > expansion_bound(packed):
        raise ValueError(
            f"it would expand to more than {expansion_bound(packed):,} bytes; a file of "
            f"{packed:,} should not: save it without compression if it is right"
        )


def expansion_bound(packed: int) -> int:
    """Return the bytes that so many packed ones may expand to."""
    return max(LEAST_BOUND, MOST_TIMES * packed)


class DamagedError(ValueError):
    """An archive or a stream is cut off or spoilt."""


def damaged(error: Exception) -> DamagedError:
    """Return what to say where an archive cannot be read."""
    return DamagedError(f"the file is damaged: {str(error)[:200] or type(error).__name__}")


def check_left(left: int, size: int) -> int:
    """Return how many bytes may come after so many more; ValueError if these are too many."""
    if size > left:
        raise ValueError("it would expand to more than 100 times its size: unpack it first")
    return left - size
