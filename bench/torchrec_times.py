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

from bench import torchrec_tables
from bench.kept import SEED, parser_of, row_by_row
from bench.plan_quality import attempt_on, isolated
from bench.torchrec_port import CASES, Stop, run
from costmodel.base.units import Seconds
from planner.search.plugins import AUTO, load_sharder
from planner.search.search import sharders_for
from planner.torchrec.torchrec_sharder import TorchRecPlanner

RESULTS = Path(__file__).parent / "results" / "torchrec_times.json"
WORKLOADS = ("mlperf 16", "social_100", "uneven", "sequences", "uvm", "400x16")
PLANNERS = {
    "theirs": TorchRecPlanner(),
    "our times": TorchRecPlanner(our_times=True),
    "our times and step": TorchRecPlanner(our_times=True, our_step=True),
}
LIMIT: Seconds = 60.0
"""CPU seconds for TorchRec to propose; enumerating before, and the last proposal, come on top."""
OURS: Seconds = 10.0
"""CPU seconds of our search."""


def measured(name: str) -> dict[str, Any]:
    """Return the step of each planner's plan, and the CPU time that it took."""
    problem = CASES[name]()
    _ = problem.options, problem.rooms  # not theirs to compute
    rows = {
        planner: run(made, problem, Stop(end=time.process_time() + LIMIT)).record()
        for planner, made in PLANNERS.items()
    }
    ours, _ = attempt_on(problem, AUTO, OURS, SEED)
    rows["our search"] = {
        "cpu_s": ours["cpu_s"], "step_s": ours["step_s"], "proposals": ours["evaluated"]
    }  # fmt: skip
    return {
        "tables": len(problem.workload.tables),
        "gpus": problem.topology.world_size,
        "hardware": problem.topology.hardware.name,
        "planners": rows,
    }


def show(name: str, row: Mapping[str, Any]) -> None:
    """Print one workload's line."""
    print(torchrec_tables.times({name: row}).splitlines()[-1], flush=True)


def main() -> None:
    """Run, print, and with --write keep the results, row by row."""
    parser = parser_of(__doc__, RESULTS)
    parser.add_argument("--cases", nargs="+", default=list(WORKLOADS), choices=CASES)
    args = parser.parse_args()
    for sharder in sharders_for(AUTO):
        load_sharder(sharder)  # importing is not timed
    row_by_row(RESULTS, args.cases, partial(isolated, measured), show, keep=args.write)


if __name__ == "__main__":
    main()
