"""Our planner's CPU time beside TorchRec's, in one run: `python -m bench.torchrec_speed [--write]`.

Both plan the same tables, drawn from the open dataset's statistics, for the same GPUs; both plans
are timed by our simulator, which TorchRec's planner does not know of. Needs torchrec. Each run is
a process of its own, one at a time; importing torch and our own packages is not counted. TorchRec
chooses among the workload's kernels, ``fused`` and ``dense``: fewer options than its enumerator
makes unasked. It is given a minute to propose (its ``timeout_seconds``): by default it knows no
limit, and its last two sizes here would take hours.

    python -m bench.torchrec_speed --instances 26x4 100x8 --seconds 1 10 --write
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.kept import parser_of, row_by_row
from bench.plan_quality import Instance, attempt, bound, isolated
from costmodel.base.units import MS, Seconds
from planner.search.baseline import DEFAULT_BASELINE
from planner.search.plugins import AUTO, TORCHREC, load_sharder
from planner.search.search import sharders_for

RESULTS = Path(__file__).parent / "results" / "torchrec_speed.json"
INSTANCES = {
    "26x4": Instance(26, 4),
    "100x8": Instance(100, 8),
    "400x16": Instance(400, 16),
    "800x64": Instance(800, 64),
}
THEIR_LIMIT: Seconds = 60.0
"""For TorchRec to propose; enumerating before, and the last proposal, come on top."""
BUDGETS: tuple[Seconds, ...] = (1.0, 10.0, 60.0)


def measured(name: str, budgets: Sequence[Seconds]) -> dict[str, Any]:
    """Return every run's CPU time and step time, and when it was ahead of TorchRec's plan."""
    instance = INSTANCES[name]
    theirs = isolated(attempt, instance, TORCHREC, THEIR_LIMIT)
    rows = [isolated(attempt, instance, DEFAULT_BASELINE, min(THEIR_LIMIT, max(budgets)))]
    rows += [isolated(attempt, instance, AUTO, seconds) for seconds in budgets]
    for row in rows:
        row["better_after_s"] = better_after(row, theirs)
    for row in (theirs, *rows):
        row.pop("trace", None)
    return {**isolated(bound, instance), "runs": [theirs, *rows]}


def better_after(row: Mapping[str, Any], theirs: Mapping[str, Any]) -> Seconds | None:
    """Return the CPU time after which a run had a better plan than TorchRec's final one."""
    aim = theirs.get("step_s", float("inf"))
    if row.get("step_s", float("inf")) >= aim:
        return None
    seen = (at for at, step in row["trace"] if step < aim)
    return float(next(seen, row["cpu_s"]))


def show(name: str, record: Mapping[str, Any]) -> None:
    """Print one instance's table."""
    print(f"{name}: no plan is faster than {record['bound_s'] / MS:.3f} ms")
    for row in record["runs"]:
        step = f"{row['step_s'] / MS:8.3f} ms" if "step_s" in row else "    no plan"
        print(
            f"  {row['sharder']:<16}{step}{row['cpu_s']:8.2f} CPU s of {row['seconds']:g}"
            f"{row.get('evaluated', 0):9,} plans{_ahead(row)}"
        )


def _ahead(row: Mapping[str, Any]) -> str:
    after = row.get("better_after_s")
    return "" if after is None else f"  ahead of TorchRec's plan after {after:.2f} CPU s"


def prepare() -> None:
    """Import torch and our packages, once and before the runs."""
    for sharder in (TORCHREC, *sharders_for(AUTO)):
        load_sharder(sharder)


def main() -> None:
    """Run, print, and with --write keep the results."""
    parser = parser_of(__doc__, RESULTS)
    parser.add_argument("--instances", nargs="+", default=list(INSTANCES), choices=INSTANCES)
    parser.add_argument("--seconds", nargs="+", type=float, default=list(BUDGETS))
    args = parser.parse_args()
    prepare()
    make = partial(measured, budgets=args.seconds)
    row_by_row(RESULTS, args.instances, make, show, keep=args.write)


if __name__ == "__main__":
    main()
