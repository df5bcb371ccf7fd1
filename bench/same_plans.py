"""The plans of another checkout and of this one: `python -m bench.same_plans CHECKOUT PYTHON`.

``CHECKOUT`` is another version of this repository, its modules compiled as here, and ``PYTHON`` the
interpreter of its environment. Both run `planner plan` with ``--max-plans`` on the same workload
files, which are the other checkout's: every workload of ``bench/workloads``, on profiles in turn,
with a seed of its own. Such a search asks no clock, so that what it finds may be compared value
by value. The plans are the same if every table lies the same way and every time of the step has
the same digits. Fields that differ are listed by name, those that clocks write left out; CPU
seconds are those of the whole command, ours over theirs.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from statistics import geometric_mean
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from bench.kept import commit, parser_of, provenance, write

RESULTS = Path(__file__).parent / "results" / "same_plans.json"
HERE = Path(__file__).parents[1]
CLOCKED = {"search_time_s", "first_plan_s", "bound_time_s", "time_s"}
"""Fields of a plan file that are read off a clock."""
LAYOUT = {"tables", "step_time_s"}
"""Fields that a plan is: how tables are sharded, and what its step takes."""
MACHINES = (("h100-sxm", 8), ("a100-sxm-80gb", 16), ("v100-nvlink", 8), ("h200-sxm", 32))
PLANS = (2_000, 100_000)
"""What ``--max-plans`` is, in turn."""


class PlanCommand(NamedTuple):
    """One command: which workload on how many of which GPUs, and how long it searches."""

    workload: str
    hardware: str
    gpus: int
    seed: int
    plans: int


class PlanWritten(NamedTuple):
    """What a command wrote, field by field, and the CPU time that it took."""

    fields: Mapping[str, object]
    cpu_s: float


def cases(checkout: Path) -> Iterator[PlanCommand]:
    """Yield a command for each workload file of a checkout's benches."""
    machines, plans = cycle(MACHINES), cycle(PLANS)
    for seed, path in enumerate(sorted((checkout / "bench" / "workloads").rglob("*.yaml"))):
        hardware, gpus = ("cpu-gloo", 2) if path.parent.name == "cpu" else next(machines)
        yield PlanCommand(str(path.relative_to(checkout)), hardware, gpus, seed, next(plans))


def ran(case: PlanCommand, checkout: Path, python: str, files: Path) -> PlanWritten:
    """Run a command in a checkout, on a workload file of ``files``."""
    with TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.json"
        before = os.times()
        subprocess.run(  # noqa: S603 - our own command
            [
                python, "-m", "planner", "plan", str(files / case.workload), "--quiet",
                "--hardware", case.hardware, "--gpus", str(case.gpus), "--seed", str(case.seed),
                "--max-plans", str(case.plans), "--gap", "0%", "--output", str(plan),
            ],
            cwd=checkout, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        after = os.times()
        found = json.loads(plan.read_text(encoding="utf-8"))
    cpu = after.children_user + after.children_system
    fields = dict(fields_of(found))
    return PlanWritten(fields, cpu - before.children_user - before.children_system)


def fields_of(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    """Yield all that a JSON value holds, by path, but for what clocks write."""
    inside: Iterable[tuple[object, object]]
    if isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, list):
        inside = enumerate(value)
    else:
        yield name, value
        return
    for key, each in inside:
        if key not in CLOCKED:
            yield from fields_of(each, f"{name}.{key}" if name else str(key))


def compared(case: PlanCommand, before: PlanWritten, after: PlanWritten) -> dict[str, Any]:
    """Return in which fields the plans of two checkouts differ, and the CPU time of both."""
    names = sorted(
        name
        for name in before.fields.keys() | after.fields.keys()
        if before.fields.get(name, KeyError) != after.fields.get(name, KeyError)
    )
    tops = dict.fromkeys(name.partition(".")[0] for name in names)
    return {
        **case._asdict(),
        "same_plan": not LAYOUT & tops.keys(),
        "differ": {name: [before.fields.get(name), after.fields.get(name)] for name in names},
        "cpu_s": [round(before.cpu_s, 2), round(after.cpu_s, 2)],
    }


def summed_up(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return how many plans are the same, the fields that differ, and the ratio of CPU times."""
    ratios = [row["cpu_s"][1] / row["cpu_s"][0] for row in rows]
    return {
        "commands": len(rows),
        "same_plans": sum(row["same_plan"] for row in rows),
        "fields_that_differ": Counter(name for row in rows for name in row["differ"]),
        "cpu_ratio": round(geometric_mean(ratios), 3),
    }


def main() -> None:
    """Compare, print, and with --write keep."""
    parser = parser_of(__doc__, RESULTS)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("python")
    args = parser.parse_args()
    other = args.checkout.resolve()
    rows = []
    for case in cases(other):
        before = ran(case, other, args.python, other)
        rows.append(compared(case, before, ran(case, HERE, sys.executable, other)))
        print(json.dumps(rows[-1]), flush=True)
    found = {"before": commit(other), **provenance(), **summed_up(rows)}
    print(json.dumps(found, indent=1))
    if args.write:
        write(RESULTS, {**found, "rows": rows})


if __name__ == "__main__":
    main()
