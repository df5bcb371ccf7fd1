"""Runs every case with this planner, and with another version's.

python -m bench.torchrec_cases [CASE ...] [--before CHECKOUT] [--write]

CHECKOUT is a clone of this repository at the version before, whose compiled modules are built; its
planner runs the same cases (what it cannot do is what they show). Without it, what is kept of it
stays, as does what is kept of cases that are not named. Two minutes; needs torchrec.
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
    parser.add_argument("--before", type=Path, metavar="CHECKOUT")
    args = parser.parse_args()
    kept = read(RESULTS)
    before, of = kept.get("before", {}), kept.get("before_commit", "")
    if args.before is not None:
        before = before | outcomes(args.before.resolve(), args.cases)
        of = _commit(args.before)
    found = outcomes(ROOT, args.cases)
    now = kept.get("now", {}) | found if args.cases else found
    results: dict[str, Any] = {
        **provenance(),
        "torchrec": version("torchrec"),
        "before_commit": of,
        "before": {name: before.get(name, "") for name in now},
        "now": now,
    }
    print(cases(results))
    if args.write:
        write(RESULTS, results)


def outcomes(checkout: Path, named: Sequence[str]) -> dict[str, str]:
    """Return what comes of some cases, or all, with a checkout's planner."""
    with TemporaryDirectory() as folder:
        done = subprocess.run(  # noqa: S603 - our own command
            [sys.executable, "-W", "ignore", "-m", "bench.torchrec_cases.cases", *named],
            cwd=folder,
            # `bench` has parts in both; all else of ours is the checkout's
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(checkout), str(ROOT)])},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=True,
        )
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _commit(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    return subprocess.run(  # noqa: S603 - our own command
        command, capture_output=True, text=True, check=True
    ).stdout.strip()


if __name__ == "__main__":
    main()
