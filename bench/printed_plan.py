"""A real plan against ours: `python -m bench.printed_plan [--write]`.

``bench/workloads/production_96.json.gz`` is the plan of a production job, 1,935 tables on 96 ranks,
that `planner torchrec read-stats` made of TorchRec's printed statistics, with the memory that they
print (``torchrec/docs/wiki/sharding_stats_example.txt`` of meta-pytorch/torchrec@376cac6, BSD-3).
No step of the job is published, and neither are its dense part, its ids or its machine: all that is
compared are predictions of the embeddings' step, on the profile whose memory is nearest to the
printed one. A search begins with the printed plan, as `planner plan --from`.
"""

import gzip
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.kept import print_and_keep, provenance
from bench.plan_quality import WORKLOADS
from planner.files.plans import PlanFile, parse_plan_file, planned_topology
from planner.planned.planned import Planned
from planner.search.baseline import START
from planner.search.search import Search
from planner.verbs.loading import judge
from planner.verbs.planning import plan_from

PLAN = WORKLOADS / "production_96.json.gz"
RESULTS = Path(__file__).parent / "results" / "printed_plan.json"
LIMITS = (10.0, 30.0, 60.0)


def printed() -> PlanFile:
    """Return the job's plan as it was printed."""
    return parse_plan_file(gzip.decompress(PLAN.read_bytes()).decode(), PLAN.name)


def searched(file: PlanFile, limit: float) -> dict[str, Any]:
    """Return what a search that begins with the printed plan finds in so many seconds."""
    wall, processor = time.monotonic(), time.process_time()
    search = Search(time_limit=limit)
    made = plan_from(file.plan, file.workload, planned_topology(file), search, baseline=START)
    return {
        "limit": limit,
        "wall": round(time.monotonic() - wall, 1),
        "processor": round(time.process_time() - processor, 1),
        **_outcome(made),
    }


def _outcome(made: Planned) -> dict[str, Any]:
    report = made.report
    base, search = report.baseline, report.search
    if base is None or search is None:
        raise RuntimeError(f"nothing to compare with: {report.notes}")
    return {
        "step_time": report.modelled.seconds,
        "expected": report.step_time,
        "printed_expected": base.step_time,
        "probability_beaten": base.probability_beaten,
        "bound": None if search.bound is None else search.bound.seconds,
        "plans": search.evaluated,
        "first_better": next(
            (each.time for each in search.history if each.modelled.seconds < base.modelled.seconds),
            None,
        ),
        "ended": search.end,
    }


def compared() -> dict[str, Any]:
    """Return the printed plan's prediction, and that of what each search finds."""
    file = printed()
    report = judge(file).report
    return {
        **provenance(),
        "hardware": file.hardware,
        "num_tables": len(file.workload.tables),
        "world_size": file.plan.world_size,
        "printed": {"step_time": report.modelled.seconds},
        "searches": [searched(file, limit) for limit in LIMITS],
    }


def show(results: Mapping[str, Any]) -> None:
    """Print the results."""
    print(f"{results['num_tables']:,} tables on {results['world_size']} x {results['hardware']}")
    printed_time = results["printed"]["step_time"]
    print(f"printed plan {printed_time * 1e3:.1f} ms")
    for row in results["searches"]:
        print(
            f"limit {row['limit']:g} s: {row['step_time'] * 1e3:.1f} ms, "
            f"{printed_time / row['step_time']:.2f}x as fast, P {row['probability_beaten']}, "
            f"in {row['wall']} s ({row['processor']} of the processor), {row['plans']:,} plans, "
            f"bound {row['bound'] * 1e3:.1f} ms, ended {row['ended']}"
        )


if __name__ == "__main__":
    print_and_keep(__doc__, RESULTS, compared, show)
