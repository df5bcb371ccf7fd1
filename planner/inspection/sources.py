"""Files of recorded ids: names, folders, globs and pipes, and what their first bytes say."""

import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from typing import BinaryIO

from planner.files.disk import STANDARD_STREAM, file_error, missing_file, os_reason
from planner.files.torch_files import is_legacy

HEAD_BYTES = 2**20
"""Bytes that tell what a text is: separator, names and types of its columns."""
MOST_PIPED = 2**34
"""Bytes of a pipe that are kept in a temporary file: it may be endless."""
MOST_FILES = 100_000
_PIECE = 2**20
_ENOUGH = 64
"""Bytes that tell the format."""
_MAGIC: Mapping[bytes, str] = {
    b"PAR1": "parquet", b"ARROW1": "feather", b"ORC": "orc", b"PK": "arrays",
    b"\x93NUMPY": "arrays", b"\x89HDF": "hdf5", b"FEA1": "feather of version 1",
    b"\xfd7zXZ": "xz", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16",
}  # fmt: skip
_PACKED: Mapping[bytes, str] = {
    b"\x1f\x8b": "gz", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zst", b"\x04\x22\x4d\x18": "lz4",
}  # fmt: skip
"""Endings of compressed texts, which pyarrow unpacks, by their first bytes."""
_UNPACKED_FIRST = ("zst", "lz4")
"""Those that its datasets do not unpack, so that they are unpacked to a temporary file."""
_UNREAD: Mapping[str, tuple[str, str]] = {
    "hdf5": (
        "an HDF5 file, which is not read",
        (
            "convert it: `pandas.read_hdf(FILE, KEY).to_parquet('log.parquet')`, or arrays by "
            "`numpy.savez('log.npz', **{name: f[name][:] for name in f})` of `f = h5py.File(FILE)`"
        ),
    ),
    "feather of version 1": (
        "a Feather file of version 1, which is not read",
        "convert it: `pandas.read_feather(FILE).to_parquet('log.parquet')`",
    ),
    "xz": ("compressed by xz, which is not read", "pipe it: `xz -dc FILE | planner inspect -`"),
    "utf-16": (
        "text in UTF-16, which is not read",
        "pipe it: `iconv -f utf-16 -t utf-8 FILE | planner inspect -`",
    ),
    "empty": ("the file is empty", ""),
}
"""What is wrong with formats that are known and not read, and what helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSource:
    """A file, and what its first bytes say it is."""

    path: Path
    name: str
    """Its name in messages."""
    format: str
    """``parquet``, ``feather``, ``orc``, ``json``, ``text`` or ``arrays``."""
    packed: str = ""
    """The ending of a compressed text's name; empty: it is not compressed."""


@contextmanager
def found_sources(names: Sequence[str | Path]) -> Iterator[tuple[LogSource, ...]]:
    """Find the files that names, folders, globs or ``-`` stand for, all of one format.

    What comes through a pipe is kept in a temporary file meanwhile.

    Raises
    ------
    InputError
        There is no such file, or it is of no format that is read.

    """
    with tempfile.TemporaryDirectory(prefix="planner-inspect-") as folder:
        paths = [each for name in names for each in _paths(str(name), Path(folder))]
        sources = tuple(_source(path, name, Path(folder)) for path, name in paths)
        first = sources[0]
        for other in sources:
            if other.format != first.format:
                message = f"this is {other.format}, and `{first.name}` is {first.format}"
                raise file_error(other.name, message, "inspect files of one format at a time")
        yield sources


def _paths(name: str, folder: Path) -> list[tuple[Path, str]]:
    """Return the files that a name stands for, and their names in messages."""
    if name == STANDARD_STREAM:
        return [(_kept(sys.stdin.buffer, folder / "stdin", name), "<stdin>")]
    path = Path(name)
    try:
        if path.is_dir():
            files = [each for each in sorted(path.rglob("*")) if _is_data(each, path)]
        elif path.exists() or not has_magic(name):
            files = [path]
        else:
            found = sorted(glob(name, recursive=True))  # noqa: PTH207 - it may be absolute
            files = [Path(each) for each in found if Path(each).is_file()]
        if not files:
            raise file_error(name, "there is no file here")
        if len(files) > MOST_FILES:
            raise file_error(name, f"{len(files):,} files; up to {MOST_FILES:,} can be")
        if files == [path] and not path.is_file() and path.exists():  # a pipe or a device
            with path.open("rb") as stream:
                return [(_kept(stream, folder / "pipe", name), name)]
    except ValueError:  # a name with a null byte
        raise file_error(name, "this is no name of a file") from None
    except OSError as error:
        raise file_error(name, f"cannot be read: {os_reason(error)}") from None
    return [(each, str(each)) for each in files]


def _is_data(path: Path, folder: Path) -> bool:
    """Return whether a file in a folder is data, not a note such as ``_SUCCESS``."""
    inside = path.relative_to(folder).parts
    return path.is_file() and not any(part.startswith(("_", ".")) for part in inside)


def _kept(stream: BinaryIO, target: Path, name: str) -> Path:
    """Keep what comes through a pipe in a file, no more than fits beside as much again."""
    most = min(MOST_PIPED, shutil.disk_usage(target.parent).free // 2)
    size = 0
    with target.open("wb") as file:
        while piece := stream.read(_PIECE):
            size += len(piece)
            if size > most:
                raise file_error(name, f"more than {most:,} bytes", "save it as a file, if it ends")
            file.write(piece)
    return target


def _source(path: Path, name: str, folder: Path) -> LogSource:
    """Return a file with its format; compressed texts get a name that says so."""
    try:
        with path.open("rb") as file:
            begin = file.read(_ENOUGH)
    except FileNotFoundError:
        raise missing_file(path) from None
    except OSError as error:
        raise file_error(name, f"cannot be read: {os_reason(error)}") from None
    packed = next((ending for magic, ending in _PACKED.items() if begin.startswith(magic)), "")
    inside = unpacked_head(path, packed, name, most=4096)[0] if packed else begin
    format_ = _format(inside)
    if format_ in _UNREAD:
        message, hint = _UNREAD[format_]
        raise file_error(name, message, hint or None)
    is_text = format_ in {"text", "json"}
    if packed and not is_text and (format_ != "arrays" or packed != "gz"):
        raise file_error(name, f"{format_} compressed as a whole", "unpack it first")
    if is_text and packed in _UNPACKED_FIRST:
        path, packed = _unpacked(path, packed, name, folder), ""
    ending = path.suffix.lstrip(".").lower()
    if is_text and ending != packed and (packed or ending in _PACKED.values()):
        link = folder / f"{len(list(folder.iterdir()))}.{packed or 'txt'}"
        link.symlink_to(path.absolute())
        path = link
    return LogSource(path=path, name=name, format=format_, packed=packed if is_text else "")


def _unpacked(path: Path, packed: str, name: str, folder: Path) -> Path:
    """Return a file with what a compressed one has."""
    import pyarrow as pa

    target = folder / f"{len(list(folder.iterdir()))}.txt"
    try:
        with pa.input_stream(str(path), compression=_CODECS[packed]) as stream:
            return _kept(stream, target, name)
    except (OSError, pa.ArrowException) as error:
        raise file_error(name, f"the file is damaged: {str(error)[:200]}") from None


def _format(begin: bytes) -> str:
    if not begin:
        return "empty"
    for magic, format_ in _MAGIC.items():
        if begin.startswith(magic):
            return format_
    if is_legacy(begin):
        return "arrays"
    return "json" if begin.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") else "text"


def unpacked_head(path: Path, packed: str, name: str, most: int = HEAD_BYTES) -> tuple[bytes, int]:
    """Return the first bytes of a text, unpacked, and how many bytes of the file they take."""
    import pyarrow as pa

    try:
        with path.open("rb") as file:
            if not packed:
                data = file.read(most)
                return data, len(data)
            with pa.input_stream(file, compression=_CODECS[packed]) as unpacked:
                data = unpacked.read(most)
                return data, max(1, file.tell())
    except (OSError, pa.ArrowException) as error:
        raise file_error(name, f"the file is damaged: {str(error)[:200]}") from None


_CODECS = {"gz": "gzip", "bz2": "bz2", "zst": "zstd", "lz4": "lz4"}
