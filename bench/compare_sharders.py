"""Whether `auto` is as good as every other sharder: `python -m bench.compare_sharders [--write]`.

Runs `planner compare` on the shipped workloads with equal CPU time for every sharder and for
``auto``, and keeps the expected steps of ``auto`` and of the best one besides it. ``worse`` is by
what share the step of ``auto`` is longer; up to 1% is a tie (``planner.planned.verdict``).
"""

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.choice import MODELS
from bench.draw_workloads import WORKLOADS
from bench.kept import provenance, read, write
from costmodel.base.units import MS
from planner.planned.verdict import SAME_STEP
from planner.search.plugins import AUTO
from planner.verbs.comparing import compare

RESULTS = Path(__file__).parent / "results" / "compare_sharders.json"
LIMITS = (1.0, 5.0, 10.0)
GPUS: Mapping[str, int] = {
    "dlrm_dcnv2": 8,
    "dlrm_mlperf": 8,
    "open_856": 64,
    "light_00": 4,
    **{f"heavy_{number:02}": 4 for number in range(10)},
    **{f"choice/{name}": model.gpus for name, model in MODELS.items()},
}
"""By workload; those in ``cpu`` are for two ranks and have nothing to choose."""


def compared(name: str, limit: float) -> dict[str, Any]:
    """Return the expected steps of ``auto`` and of the best other sharder, in milliseconds."""
    start = time.process_time()
    found = compare(
        WORKLOADS / f"{name}.yaml", gpus=GPUS[name], time_limit=limit, clock=time.process_time
    )
    steps = {
        each.report.search.sharder: each.report.expected for each in found if each.report.search
    }
    ours = steps.pop(AUTO)
    best = min(steps, key=steps.__getitem__)
    return {
        "auto_ms": round(ours / MS, 4),
        "best_other": best,
        "best_other_ms": round(steps[best] / MS, 4),
        "worse": round(max(0.0, ours / steps[best] - 1), 5),
        "sharders": 1 + len(steps),
        "cpu_s": round(time.process_time() - start, 1),
    }


def show(name: str, record: Mapping[str, Any]) -> None:
    """Print one comparison."""
    said = "tie or better" if record["worse"] <= SAME_STEP else "WORSE"
    print(
        f"{name:<24} auto {record['auto_ms']:9.3f} ms   best other {record['best_other_ms']:9.3f} "
        f"ms ({record['best_other']})  {record['worse']:6.2%} {said}",
        flush=True,
    )


def main() -> None:
    """Compare, print, and with --write keep the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", nargs="+", default=list(GPUS), choices=GPUS)
    parser.add_argument("--limits", nargs="+", type=float, default=LIMITS)
    parser.add_argument("--write", action="store_true", help=f"update {RESULTS.name}")
    args = parser.parse_args()
    kept = read(RESULTS)
    for limit in args.limits:
        for workload in args.workloads:
            name = f"{workload} {limit:g}s"
            kept[name] = {**compared(workload, limit), **provenance()}
            show(name, kept[name])
            if args.write:
                write(RESULTS, kept)


if __name__ == "__main__":
    main()
