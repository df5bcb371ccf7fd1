"""Finding and reading trace files: JSON, gzipped JSON, a folder of them, or a tar archive."""

import json
import lzma
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from costmodel.base.errors import InputError, Problem
from planner.files.archives import MOST_ENTRIES, BoundedStream, DamagedError, gunzipped
from planner.files.disk import file_error, os_reason
from planner.files.json_text import load_json

Document = Mapping[str, Any]

_DAMAGES = (
    tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, OSError, OverflowError
)  # fmt: skip
_TAR_ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.xz")
_RANKS = tuple(
    re.compile(rf"{word}[_-]?([0-9]{{1,9}})", re.IGNORECASE) for word in ("rank", "worker")
)
_ENDINGS = (".json", ".json.gz", *_TAR_ENDINGS)


def is_trace_path(path: str | Path) -> bool:
    """Return whether something is there, or the name is one of a trace."""
    return Path(path).exists() or str(path).endswith(_ENDINGS)


def read_documents(path: str | Path) -> list[tuple[str, Document]]:
    """Return the JSON objects of a file, folder or archive, with the names of their files.

    Raises
    ------
    InputError
        Nothing is there, or some of it cannot be read; says all that is wrong.

    """
    found: list[tuple[str, Document]] = []
    problems: list[Problem] = []
    for name, data in _contents(Path(path)):
        document = _parsed(name, data)
        if isinstance(document, Problem):
            problems.append(document)
        else:
            found.append((name, document))
    if problems:
        raise InputError(str(path), problems)
    if not found:
        hint = "give the folder or archive that holds one profiler trace per rank"
        raise file_error(path, "no trace files (.json, .json.gz) are in it", hint)
    return found


def named_rank(name: str) -> int | None:
    """Return the number after ``rank`` in a file's name, or else after ``worker``.

    None where neither.
    """
    found = (pattern.search(Path(name).name) for pattern in _RANKS)
    return next((int(match[1]) for match in found if match), None)


def numbered_rank(name: str) -> int | None:
    """Return the rank in a file's name, or else its last number, by custom the rank."""
    numbers = re.findall(r"[0-9]{1,18}", Path(name).name.split(".")[0])
    named = named_rank(name)
    return int(numbers[-1]) if named is None and numbers else named


def _contents(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            name = str(file.relative_to(path))
            if not file.is_file() or file.name.startswith("."):
                continue
            if file.name.endswith((".json", ".json.gz")):
                yield name, _bytes(file)
            elif file.name.endswith(_TAR_ENDINGS):
                yield from ((f"{name}/{inner}", data) for inner, data in _members(file))
    elif not path.exists():
        raise file_error(path, "no such file or folder")
    elif path.name.endswith(_TAR_ENDINGS):
        yield from _members(path)
    elif path.name.endswith(_ENDINGS):
        yield path.name, _bytes(path)
    else:
        hint = f"traces are {', '.join(_ENDINGS[:-1])}, or a folder of .json files"
        raise file_error(path, "this is not a trace file by its name", hint)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise file_error(path, f"cannot be read: {os_reason(error)}") from None


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the JSON files of an archive, by name, without unpacking to disk."""
    try:
        with BoundedStream(path) as content, tarfile.open(fileobj=content, mode="r|") as archive:
            found = sorted(_read_members(archive), key=lambda each: each[0])
    except _DAMAGES:
        hint = "copy it again; it is cut short or damaged"
        raise file_error(path, "this archive cannot be read to its end", hint) from None
    except ValueError as error:
        raise file_error(path, str(error)) from None
    yield from found


def _read_members(archive: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
    for number, member in enumerate(archive):
        if number >= MOST_ENTRIES:
            raise ValueError(f"it holds more than {MOST_ENTRIES:,} files")
        hidden = Path(member.name).name.startswith(".")  # archives of macOS hold `._x` twins
        if member.isfile() and not hidden and member.name.endswith((".json", ".json.gz")):
            file = archive.extractfile(member)
            if file is not None:
                yield member.name, file.read(member.size)


def _parsed(name: str, data: bytes) -> Document | Problem:
    cut = "a profiler that was stopped while writing leaves a file cut short"
    problem: str | None = None
    hint: str | None = None
    document: Any = None
    try:
        text = gunzipped(data) if name.endswith(".gz") else data
        document = load_json(text) if text else None
        problem = (
            None if isinstance(document, dict) else "is not a trace: a JSON object is expected"
        )
        problem = problem if text else "is empty"
    except UnicodeDecodeError:
        problem = "is not text"
    except json.JSONDecodeError as error:
        problem, hint = f"is not valid JSON (line {error.lineno}: {error.msg.lower()})", cut
    except DamagedError:
        problem, hint = "is not a whole gzip file", "copy it again"
    except MemoryError:
        problem = "does not fit in memory"
    except ValueError as error:
        problem = f"is not usable: {error}"
    return Problem(message=f"`{name}` {problem}", hint=hint) if problem else document
