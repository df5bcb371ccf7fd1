"""Our planner's CPU time beside TorchRec's, in one run: `python -m bench.torchrec_speed [--write]`.

Both plan the same tables, drawn from the open dataset's statistics, for the same GPUs; both plans
are timed by our simulator, which TorchRec's planner does not know of. Needs torchrec. Each run is
a process of its own, one at a time; importing torch is not counted. TorchRec chooses among the
workload's kernels, ``fused`` and ``dense``: fewer options than its enumerator makes unasked.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from bench.plan_quality import Instance, attempt, bound, isolated, provenance
from costmodel.units import MS, Seconds
from planner.plugins import AUTO, TORCHREC, load_sharder

RESULTS = Path(__file__).parent / "results" / "torchrec_speed.json"
INSTANCES = {"26x4": Instance(26, 4), "100x8": Instance(100, 8)}
RUNS: tuple[tuple[str, Seconds], ...] = (
    (TORCHREC, 60.0),
    ("torchrec_greedy", 60.0),
    ("cost_greedy", 60.0),
    (AUTO, 2.0),
    (AUTO, 10.0),
)
"""Sharders and their limits in CPU seconds; a minute is as long as TorchRec is given to propose."""


def measured(instance: Instance) -> dict[str, Any]:
    """Return every run's CPU time and step time."""
    rows = [isolated(attempt, instance, sharder, seconds) for sharder, seconds in RUNS]
    for row in rows:
        row.pop("trace", None)
    return {**isolated(bound, instance), "runs": rows}


def show(name: str, record: dict[str, Any]) -> None:
    """Print one instance's table."""
    print(f"{name}: no plan is faster than {record['bound_s'] / MS:.3f} ms")
    for row in record["runs"]:
        step = f"{row['step_s'] / MS:8.3f} ms" if "step_s" in row else "    no plan"
        print(f"  {row['sharder']:<16}{step}{row['cpu_s']:8.2f} CPU s of {row['seconds']:g}")


def main() -> None:
    """Run, print, and with --write keep the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"rewrite {RESULTS.name}")
    args = parser.parse_args()
    load_sharder(TORCHREC)
    results: dict[str, Any] = provenance()
    for name, instance in INSTANCES.items():
        results[name] = measured(instance)
        show(name, results[name])
    if args.write:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
