"""Inputs tried, crashes and hangs by parser, attacks and faults: `python -m bench.robustness`.

Inputs are the files of ``tests/fuzz/corpus``, mutated with the seeds 0, 1, 2, ...: the same ones
every time. A crash is anything but a ``PlannerError``, a hang more than 20 s. Attacks, faults are
what somebody who knows the planner would try, and what happens to machines. ``--of CHECKOUT`` has
another version attacked, with its own ``.venv``.
"""

import argparse
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from bench.robustness.attack_list import ATTACKS
from bench.robustness.attacks import WITHSTOOD, outcome
from bench.robustness.faults import FAULTS, survived
from bench.robustness.fuzzing import fuzz
from bench.robustness.parsers import PARSERS

_OTHERS = ("attacks", "faults")


def main() -> None:
    """Fuzz, inject faults, and print what happened."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--inputs", type=int, default=20_000, help="over all parsers")
    arguments.add_argument("--only", choices=[*PARSERS, *_OTHERS], help="one part")
    arguments.add_argument("--first", type=int, default=0, help="the first seed")
    arguments.add_argument("--of", type=Path, help="attack the planner of this checkout")
    given = arguments.parse_args()
    now = datetime.now(tz=UTC)
    print(f"{now:%Y-%m-%d}, {os.cpu_count()} cores, Python {sys.version.split()[0]}, {_commit()}\n")
    if given.only not in _OTHERS:
        names = [given.only] if given.only else list(PARSERS)
        _fuzz(names, -(-given.inputs // len(names)), given.first)
    if given.only in {None, "attacks"}:
        _attack(given.of)
    if given.only in {None, "faults"}:
        print("\nFault                                              Survived")
        for name in FAULTS:
            print(f"{name:50} {survived(name)}", flush=True)


def _commit() -> str:
    command = ("git", "log", "-1", "--format=commit %h")
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return done.stdout.strip() or "no commit"


def _attack(checkout: Path | None) -> None:
    print("\nAttack                                                What came of it")
    through = 0
    for name, attack in ATTACKS.items():
        came = outcome(attack, checkout)
        through += came != WITHSTOOD
        print(f"{name:53} {came}", flush=True)
    print(f"{len(ATTACKS)} attacks, {through} got through")


def _fuzz(names: list[str], each: int, first: int) -> None:
    print("Parser            Inputs   Crashes   Hangs   Slowest")
    total = crashes = hangs = 0
    for name in names:
        score = fuzz(name, each, first)
        count = score.crashes.total()
        print(
            f"{name:16} {score.tried:7,} {count:9,} {score.hangs:7,} {score.slowest:7.1f} s",
            flush=True,
        )
        for wrong, times in score.crashes.most_common():
            print(f"    {times:5} x  {wrong} (seed {score.seeds[wrong]})")
        if score.hangs:
            print(f"    hangs at seed {score.seeds['hang']}")
        total, crashes, hangs = total + score.tried, crashes + count, hangs + score.hangs
    print(f"{'all':16} {total:7,} {crashes:9,} {hangs:7,}")


if __name__ == "__main__":
    main()
