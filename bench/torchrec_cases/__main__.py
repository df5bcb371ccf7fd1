"""Runs every case with this planner, and with another version's.

python -m bench.torchrec_cases [CASE ...] [--write]

What is kept of cases that are not named stays, and what commit 5fefb5c made of them. Two minutes;
needs torchrec.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.kept import parser_of, provenance, read, write
from bench.torchrec_tables import cases

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results" / "torchrec_cases.json"


def main() -> None:
    """Run, print, and with --write keep the results."""
    parser = parser_of(__doc__, RESULTS)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="a row, as it is written")
    args = parser.parse_args()
    kept = read(RESULTS)
    found = outcomes(args.cases)
    now = kept.get("now", {}) | found if args.cases else found
    results: dict[str, Any] = {
        **provenance(),
        "torchrec": version("torchrec"),
        "before_commit": kept["before_commit"],
        "before": {name: kept["before"].get(name, "") for name in now},
        "now": now,
    }
    print(cases(results))
    if args.write:
        write(RESULTS, results)


def outcomes(named: Sequence[str]) -> dict[str, str]:
    """Return what comes of some cases, or all, in a process of their own."""
    with TemporaryDirectory() as folder:
        done = subprocess.run(  # noqa: S603 - our own command
            [sys.executable, "-W", "ignore", "-m", "bench.torchrec_cases.cases", *named],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=True,
        )
    found: dict[str, str] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    main()
