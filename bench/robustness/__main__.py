"""Inputs tried, crashes and hangs by parser, and the faults survived: `python -m bench.robustness`.

Inputs are the files of ``tests/fuzz/corpus``, mutated with the seeds 0, 1, 2, ...: the same ones
every time. A crash is anything but a ``PlannerError``, a hang more than 20 s.
"""

import argparse

from bench.robustness.faults import FAULTS, survived
from bench.robustness.fuzzing import fuzz
from bench.robustness.parsers import PARSERS


def main() -> None:
    """Fuzz, inject faults, and print what happened."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--inputs", type=int, default=20_000, help="over all parsers")
    arguments.add_argument("--only", choices=[*PARSERS, "faults"], help="one parser, or faults")
    arguments.add_argument("--first", type=int, default=0, help="the first seed")
    given = arguments.parse_args()
    if given.only != "faults":
        names = [given.only] if given.only else list(PARSERS)
        _fuzz(names, -(-given.inputs // len(names)), given.first)
    if given.only in {None, "faults"}:
        print("\nFault                                              Survived")
        for name in FAULTS:
            print(f"{name:50} {survived(name)}", flush=True)


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
