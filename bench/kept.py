"""Results of benches as they are kept in ``bench/results``, and where and when they were made."""

import json
import os
import platform
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

from planner.files.disk import write_text

SEED = 0
"""What benches begin with that do not say another one."""


def read(path: Path) -> dict[str, Any]:
    """Return the results so far."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def write(path: Path, results: object) -> None:
    """Keep results as JSON, as a whole or not at all."""
    write_text(path, json.dumps(results, indent=1) + "\n")


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


def provenance() -> dict[str, str]:
    """Say where and when numbers were made."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short=7", "HEAD"],  # noqa: S607 - the developer's git
        capture_output=True, text=True, check=False, cwd=Path(__file__).parent,
    ).stdout.strip()  # fmt: skip
    machine = f"{platform.machine()}, Python {platform.python_version()}, one core"
    date = datetime.now(UTC).date().isoformat()
    return {"machine": machine, "date": date, "commit": commit, "seed": str(SEED)}
