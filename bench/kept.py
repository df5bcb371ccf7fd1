"""Results of benches as they are kept in ``bench/results``, and where and when they were made."""

import os
import platform
import subprocess
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any, TypeVar

from planner.files.disk import write_text
from planner.files.json_text import dump_json, load_json

Made = TypeVar("Made")

SEED = 0
"""What benches begin with that do not say another one."""


def read(path: Path) -> dict[str, Any]:
    """Return the results so far."""
    found: dict[str, Any] = load_json(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def write(path: Path, results: object) -> None:
    """Keep results as JSON, as a whole or not at all."""
    write_text(path, dump_json(results, indent=1) + "\n")


def updated(path: Path, change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Change a file of results, no other process coming in between; return what it has then.

    The folder is locked, and the file replaced: who reads it meanwhile finds all of it.
    """
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        flock(folder, LOCK_EX)
        results = read(path)
        change(results)
        write(path, results)
    finally:
        os.close(folder)
    return results


def commit(checkout: Path) -> str:
    """Return the commit that a folder of a checkout is at; empty: it is none."""
    return subprocess.run(
        ["git", "rev-parse", "--short=7", "HEAD"],  # noqa: S607 - the developer's git
        capture_output=True, text=True, check=False, cwd=checkout,
    ).stdout.strip()  # fmt: skip


def provenance() -> dict[str, str]:
    """Say where and when numbers were made."""
    machine = f"{platform.machine()}, Python {platform.python_version()}, one core"
    date = datetime.now(UTC).date().isoformat()
    return {
        "machine": machine,
        "date": date,
        "commit": commit(Path(__file__).parent),
        "seed": str(SEED),
    }


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table of a page."""
    lines = [f"| {' | '.join(map(str, row))} |" for row in (head, *rows)]
    lines.insert(1, "|---" * len(head) + "|")
    return "\n".join(lines)


def parser_of(doc: str | None, results: Path) -> ArgumentParser:
    """Return the parser of a bench with this docstring, which knows ``--write``."""
    parser = ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"update {results.name}")
    return parser


def print_and_keep(
    doc: str | None, path: Path, make: Callable[[], Made], show: Callable[[Made], object]
) -> None:
    """Make results and print them; with ``--write`` keep them."""
    asked = parser_of(doc, path).parse_args()
    made = make()
    show(made)
    if asked.write:
        write(path, made)


def row_by_row(
    path: Path,
    names: Iterable[str],
    make: Callable[[str], dict[str, Any]],
    show: Callable[[str, dict[str, Any]], object],
    *,
    keep: bool,
) -> dict[str, Any]:
    """Make and print a row for each name; return them among those kept, and keep each at once."""
    results = read(path)
    for name in names:
        row = {**make(name), **provenance()}
        show(name, row)
        results[name] = row
        if keep:
            _put(path, name, row)
    return results


def _put(path: Path, name: str, row: dict[str, Any]) -> None:
    def change(results: dict[str, Any]) -> None:
        results[name] = row

    updated(path, change)
