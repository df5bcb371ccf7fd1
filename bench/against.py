"""Our search beside another checkout's, in one run: `python -m bench.against CHECKOUT PYTHON`.

``CHECKOUT`` is another version of this repository and ``PYTHON`` the interpreter of the environment
it is installed in. Each run of one is made at the same time as the same run of the other, so both
have the same machine at the same moment: the step that ``auto`` finds in so many CPU seconds, by
instance and seed (``bench.plan_quality``), and how many moves and plans are timed per CPU second
(``bench.search_speed``). With --write every pair is kept as soon as it ends.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from bench.kept import parser_of, provenance, read, write
from bench.plan_quality import INSTANCES
from costmodel.base.units import MS

RESULTS = Path(__file__).parent / "results" / "against.json"
HERE = Path(__file__).parents[1]
SPEEDS = ("drawn_per_s", "decided_per_s", "whole_per_s", "plans_per_s")
MOVES = 200_000
"""Moves whose speed is measured: so many that the first moves to other sharding types, which have
their step written, are few of them."""
_ATTEMPT = """
import json, sys
from bench.plan_quality import INSTANCES, attempt
name, seconds, seed = sys.argv[1], float(sys.argv[2]), int(sys.argv[2])
print(json.dumps(attempt(INSTANCES[name], "auto", seconds, seed)))
"""
_SPEED = """
import dataclasses, json, sys
from bench import search_speed
name, told = sys.argv[1], json.load(sys.stdin)

class Told(search_speed.CostGreedy):
    def shard(self, problem, budget, rng):
        found = super().shard(problem, budget, rng)
        if told is None:
            print(json.dumps([
                {**dataclasses.asdict(table), "shards": [*map(dataclasses.asdict, table.shards)]}
                for table in found.plan.tables
            ]))
            sys.exit()
        like = found.plan.tables[0]
        shard = type(like.shards[0])
        tables = [
            type(like)(**{
                **table,
                "sharding_type": type(like.sharding_type)(table["sharding_type"]),
                "compute_kernel": type(like.compute_kernel)(table["compute_kernel"]),
                "shards": tuple(shard(**each) for each in table["shards"]),
            })
            for table in told
        ]
        plan = dataclasses.replace(found.plan, tables=tuple(tables))
        return dataclasses.replace(found, plan=plan)

search_speed.CostGreedy, search_speed.MOVES = Told, int(sys.argv[2])
print(json.dumps(search_speed.measured(name)))
"""


def both(
    other: tuple[Path, str], code: str, arguments: Sequence[str], text: str = ""
) -> list[dict[str, Any]]:
    """Run some code in the other checkout and in this one at once; return what they print.

    ``text``: what both read from their standard input.
    """
    running = [_ran(place, code, arguments) for place in (other, (HERE, sys.executable))]
    for each in running:
        if each.stdin is not None:
            each.stdin.write(text)
            each.stdin.close()
    return [json.loads(each.stdout.read()) for each in running if each.stdout is not None]


def _ran(place: tuple[Path, str], code: str, arguments: Sequence[str]) -> "subprocess.Popen[str]":
    folder, python = place
    return subprocess.Popen(  # noqa: S603 - our own code
        [python, "-c", code, *arguments],
        cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def plans(
    other: tuple[Path, str], name: str, seconds: float, seeds: Sequence[int]
) -> dict[str, Any]:
    """Return the steps found before and after, by seed, and the CPU time that took."""
    pairs = [both(other, _ATTEMPT, (name, str(seconds), str(seed))) for seed in seeds]
    return {
        "instance": name,
        "seconds": seconds,
        "before_s": [before["step_s"] for before, _ in pairs],
        "after_s": [after["step_s"] for _, after in pairs],
        "before_cpu_s": [before["cpu_s"] for before, _ in pairs],
        "after_cpu_s": [after["cpu_s"] for _, after in pairs],
    }


def shown(row: dict[str, Any]) -> str:
    """Return a row of medians as a line."""
    before, after = median(row["before_s"]), median(row["after_s"])
    cpu = f"{median(row['before_cpu_s']):.1f} and {median(row['after_cpu_s']):.1f} CPU s"
    return (
        f"{row['instance']:<8}{row['seconds']:>4g} s  {before / MS:8.3f} -> {after / MS:8.3f} ms"
        f"  {after / before - 1:+.2%}  {cpu}"
    )


def speeds(other: tuple[Path, str], name: str, repeats: int) -> dict[str, Any]:
    """Return plans and moves timed per CPU second, before and after, medians.

    Both begin with the plan of the other checkout's greedy sharder: models differ in which plan
    they like, and plans in how many operations their step has.
    """
    arguments = name, str(MOVES)
    plan = _ran(other, _SPEED, arguments).communicate("null")[0]
    pairs = [both(other, _SPEED, arguments, plan) for _ in range(repeats)]
    found: dict[str, Any] = {"instance": name}
    for number, when in enumerate(("before", "after")):
        for key in SPEEDS:
            found[f"{key}_{when}"] = median(pair[number][key] for pair in pairs)
    return found


def main() -> None:
    """Measure, print, and with --write keep."""
    parser = parser_of(__doc__, RESULTS)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("python")
    parser.add_argument("--instances", nargs="+", choices=INSTANCES, default=list(INSTANCES))
    parser.add_argument("--seconds", nargs="*", type=float, default=[1.0, 10.0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--speeds", type=int, default=0, metavar="N", help="and speeds, N times")
    args = parser.parse_args()
    other = (args.checkout.resolve(), args.python)
    known = {"plans": [], "speeds": [], **read(RESULTS)}
    for seconds, name in product(args.seconds, args.instances):
        row = {**plans(other, name, seconds, args.seeds), **provenance()}
        print(shown(row), flush=True)
        same = [each for each in known["plans"] if _key(each) != _key(row)]
        known["plans"] = [*same, row]
        if args.write:
            write(RESULTS, known)
    for name in args.instances if args.speeds else ():
        row = {**speeds(other, name, args.speeds), **provenance()}
        ratios = (f"{key} {row[key + '_after'] / row[key + '_before']:.2f}" for key in SPEEDS)
        print(f"{name:<8} after over before: {', '.join(ratios)}", flush=True)
        same = [each for each in known["speeds"] if each["instance"] != name]
        known["speeds"] = [*same, row]
        if args.write:
            write(RESULTS, known)


def _key(row: dict[str, Any]) -> tuple[str, float]:
    return row["instance"], row["seconds"]


if __name__ == "__main__":
    main()
