"""What the choice among plans is worth: `python -m bench.choice [--write]`.

Ten workloads of 5 to 100 tables, batches of 256 to 16,384, on one node (in
``bench/workloads/choice``). For each: the plan that `planner plan` chooses in ten seconds, how even
it is, how sure, and the sentence; and its regret beside that of the plan with the shortest
predicted step, found in the same time, and of TorchRec's planner, ported.

Regret: host, lookup, collective and other times are off 200 times by their own error models
(``costmodel.uncertainty``, with draws that the choice did not see); each time, how much longer a
plan's step is than the shortest of all plans known. These are the plans of all sharders, what the
choice was among, and what a short search finds on each of eight machines that are off likewise.
No choice can do without: ``best_expected`` is the known plan with the shortest mean step
under these very draws, the least that one who does not know the errors could regret. The errors
are those that the choice assumes: this says what it gains if they are as large as
thought, not whether they are.
"""

import time
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from bench.kept import parser_of, row_by_row
from costmodel.base.units import MS, Seconds
from costmodel.domain.plan import ShardingPlan
from costmodel.uncertainty.sampling import Draws
from costmodel.uncertainty.scenarios import scenarios
from costmodel.uncertainty.step_samples import sample_steps
from planner.files.profiles import load_profile
from planner.files.workload_reading import load_workload
from planner.planned.planned import Planned
from planner.planned.verdict import kinds_text
from planner.search.baseline import DEFAULT_BASELINE
from planner.search.one_sharder import run_sharder
from planner.search.plugins import AUTO
from planner.search.running import run_sharders
from planner.search.search import Search, sharders_for
from planner.verbs.planning import plan
from planner.verbs.topologies import make_topology
from planner.views.verdict_text import choice_sentences
from sharders.problem.sharding_problem import ShardingProblem

FOLDER = Path(__file__).parent / "workloads" / "choice"
RESULTS = Path(__file__).parent / "results" / "choice.json"
HARDWARE = "h100-sxm"
SECONDS: Seconds = 10.0
SHORT: Seconds = 0.5
"""CPU seconds of the search on each machine that is off."""
PERTURBATIONS, SEED = 200, 2026
MACHINES = 8


GPUS: Mapping[str, int] = {
    "shop_05": 8,
    "ads_08": 4,
    "video_12": 8,
    "news_20": 2,
    "clicks_26": 4,
    "feed_30": 8,
    "retail_40": 4,
    "music_50": 8,
    "market_70": 4,
    "social_100": 8,
}
"""Workloads, and the GPUs of the node they are trained on."""


def measured(name: str) -> dict[str, Any]:
    """Return one workload's plan, how even and how sure it is, and what it and others regret."""
    gpus = GPUS[name]
    workload = load_workload(FOLDER / f"{name}.yaml")
    topology = make_topology(load_profile(HARDWARE), gpus)
    problem = ShardingProblem.of(workload, topology)
    step_time = problem.objective.step_time
    found = run_sharders(
        sharders_for(AUTO),
        problem,
        Search(time_limit=SECONDS, clock=time.process_time, patience=inf),
    )
    point = min(found, key=lambda attempt: attempt.step_time)
    if point.plan is None:
        raise ValueError(f"{name}: no plan")
    start = time.process_time()
    ours = plan(workload, gpus=gpus, hardware=HARDWARE, time_limit=SECONDS, clock=time.process_time)
    taken = time.process_time() - start
    chosen = {"ours": ours.plan, "point_optimal": point.plan, **torchrecs(problem)}
    known = [*chosen.values(), *(each for attempt in found for each in attempt.plans)]
    known += on_other_machines(problem, tuple(dict.fromkeys(known)))
    return {
        "gpus": gpus,
        **shown(ours),
        "cpu_s": round(taken, 2),
        "step_ms": {key: round(step_time(each) / MS, 3) for key, each in chosen.items()},
        "regret": regrets(problem, chosen, tuple(dict.fromkeys(known))),
    }


def torchrecs(problem: ShardingProblem) -> dict[str, ShardingPlan]:
    """Return the plan of TorchRec's planner, if it finds one."""
    found = run_sharder(DEFAULT_BASELINE, problem, Search(), inf)
    return {} if found.plan is None else {"torchrec": found.plan}


def on_other_machines(
    problem: ShardingProblem, known: tuple[ShardingPlan, ...]
) -> list[ShardingPlan]:
    """Return what a short search finds on machines that are off as models may be."""
    workload = problem.workload
    plans: list[ShardingPlan] = []
    for number, topology in enumerate(
        scenarios(problem.topology, workload.dense.precision, MACHINES)
    ):
        other = ShardingProblem.of(workload, topology, known=known)
        search = Search(time_limit=SHORT, clock=time.process_time, seed=number, patience=inf)
        found = run_sharder("annealing", other, search, time.process_time() + SHORT)
        plans += found.plans[:1]
    return plans


def regrets(
    problem: ShardingProblem,
    chosen: Mapping[str, ShardingPlan],
    known: tuple[ShardingPlan, ...],
) -> dict[str, dict[str, float]]:
    """Return by what share chosen plans' steps are longer than the shortest known: mean and p95."""
    draws = Draws(num_samples=PERTURBATIONS, seed=SEED)
    samples = sample_steps(problem.workload, problem.topology, known, draws=draws)
    shortest = samples.times.min(axis=1)
    result = {}
    hindsight = known[int(samples.times.mean(axis=0).argmin())]
    for key, each in {**chosen, "best_expected": hindsight}.items():
        lost = samples.times[:, known.index(each)] / shortest - 1
        result[key] = {
            "mean": round(float(lost.mean()), 4),
            "p95": round(float(np.quantile(lost, 0.95)), 4),
        }
    return result


def shown(planned: Planned) -> dict[str, Any]:
    """Return what a plan is, how even, and what is said of it."""
    report, verdict = planned.report, planned.report.verdict
    if verdict is None:
        raise ValueError("the plan was not chosen")
    lookups = [rank.lookup for rank in report.ranks]
    memory = [rank.memory.tables for rank in report.ranks]
    return {
        "plan": kinds_text(planned.plan),
        "expected_ms": round(report.step_time / MS, 3),
        "lookups_max_over_mean": round(_evenness(lookups), 2),
        "memory_max_over_mean": round(_evenness(memory), 2),
        "fullest_rank": round(max(memory) / report.usable_bytes, 3),
        "runner_up": verdict.rival and verdict.rival.sharder,
        "probability_faster": verdict.rival and verdict.rival.probability_slower,
        "sentences": list(choice_sentences(report)),
    }


def _evenness(values: list[float]) -> float:
    mean = sum(values) / len(values)
    return max(values) / mean if mean else 1.0


def show(name: str, record: Mapping[str, Any]) -> None:
    """Print one workload's results."""
    print(f"{name} on {record['gpus']}: {record['plan']}")
    print(
        f"  expected {record['expected_ms']:.2f} ms, {record['cpu_s']:.1f} CPU s; max over mean: "
        f"lookups {record['lookups_max_over_mean']:.2f}, memory "
        f"{record['memory_max_over_mean']:.2f} ({record['fullest_rank']:.1%} of the fullest rank)"
    )
    for sentence in record["sentences"]:
        print(f"  {sentence}")
    for key, lost in record["regret"].items():
        print(f"  regret {key:<14}{lost['mean']:7.2%} mean{lost['p95']:8.2%} p95")


def mean_regrets(records: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return the mean regret of every choice over the workloads that have it."""
    keys = ("ours", "point_optimal", "torchrec", "best_expected")
    means = {
        key: [
            record["regret"][key]["mean"] for record in records.values() if key in record["regret"]
        ]
        for key in keys
    }
    return {key: round(float(np.mean(each)), 4) for key, each in means.items() if each}


def main() -> None:
    """Plan, perturb, print, and with --write keep the results."""
    parser = parser_of(__doc__, RESULTS)
    parser.add_argument("--workloads", nargs="+", default=list(GPUS), choices=GPUS)
    args = parser.parse_args()
    records = row_by_row(RESULTS, args.workloads, measured, show, keep=args.write)
    print(f"mean regret over {len(records)}: {mean_regrets(records)}")


if __name__ == "__main__":
    main()
