"""TorchRec's own planner with our seconds of shards: `python -m bench.torchrec_times [--write]`.

Its enumerator, proposers and partitioner plan with its own estimates, with ours of each shard
(``IterationTimeEstimator``), and with its proposals rated by the simulated step besides
(``IterationTimePerfModel``); our search plans in as many CPU seconds as it is given. All plans are
timed by our simulator. Needs torchrec.

    python -m bench.torchrec_times --cases "mlperf 16" uvm --write
"""

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bench.kept import SEED, markdown, parser_of, row_by_row
from bench.plan_quality import attempt_on, isolated
from bench.torchrec_port import CASES, Stop, run
from costmodel.base.units import MS, Seconds
from planner.search.plugins import AUTO, TORCHREC, load_sharder
from planner.search.search import sharders_for

RESULTS = Path(__file__).parent / "results" / "torchrec_times.json"
WORKLOADS = ("mlperf 16", "social_100", "uneven", "sequences", "uvm", "400x16")
OUR_SEARCH = "our search"
PLANNERS: Mapping[str, tuple[str, Mapping[str, bool]]] = {
    "our times and step": (
        "TorchRec's planner, our times and step",
        {"our_times": True, "our_step": True},
    ),
    "our times": ("TorchRec's planner, our times", {"our_times": True}),
    "theirs": ("TorchRec's planner", {}),
}
"""What tables call them, and how they are made."""
LIMIT: Seconds = 60.0
"""CPU seconds for TorchRec to propose; enumerating before, and the last proposal, come on top."""
OURS: Seconds = 10.0
"""CPU seconds of our search."""


def measured(name: str) -> dict[str, Any]:
    """Return the step of each planner's plan, and the CPU time that it took."""
    from planner.torchrec.torchrec_sharder import TorchRecPlanner

    problem = CASES[name]()
    _ = problem.options, problem.rooms  # not theirs to compute
    rows = {
        planner: run(
            TorchRecPlanner(**told), problem, Stop(end=time.process_time() + LIMIT)
        ).record()
        for planner, (_, told) in PLANNERS.items()
    }
    ours, _ = attempt_on(problem, AUTO, OURS, SEED)
    rows[OUR_SEARCH] = {
        "cpu_s": ours["cpu_s"], "step_s": ours["step_s"], "proposals": ours["evaluated"]
    }  # fmt: skip
    return {
        "tables": len(problem.workload.tables),
        "gpus": problem.topology.world_size,
        "hardware": problem.topology.hardware.name,
        "planners": rows,
    }


def table(results: Mapping[str, Any]) -> str:
    """Return the planners' steps, how much longer than our search's, and CPU time, as a table."""
    rows = []
    for workload, row in results.items():
        best = row["planners"][OUR_SEARCH]["step_s"]
        cells = (_planned(row["planners"][name], best) for name in (OUR_SEARCH, *PLANNERS))
        rows.append((workload, f"{row['gpus']} x {row['hardware']}", *cells))
    return markdown(
        ("workload", "GPUs", OUR_SEARCH, *(called for called, _ in PLANNERS.values())), rows
    )


def _planned(planner: Mapping[str, Any], best: Seconds) -> str:
    if "step_s" not in planner:
        return f"no plan, {planner['cpu_s']:.1f} s"
    step = planner["step_s"]
    lost = "" if step == best else f" ({step / best - 1:+.0%})"
    return f"{step / MS:.2f} ms{lost}, {planner['cpu_s']:.1f} s"


def show(name: str, row: Mapping[str, Any]) -> None:
    """Print one workload's line."""
    print(table({name: row}).splitlines()[-1], flush=True)


def main() -> None:
    """Run, print, and with --write keep the results, row by row."""
    parser = parser_of(__doc__, RESULTS)
    parser.add_argument("--cases", nargs="+", default=list(WORKLOADS), choices=CASES)
    args = parser.parse_args()
    for sharder in (TORCHREC, *sharders_for(AUTO)):
        load_sharder(sharder)  # importing is not timed
    row_by_row(RESULTS, args.cases, partial(isolated, measured), show, keep=args.write)


if __name__ == "__main__":
    main()
