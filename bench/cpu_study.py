"""Real steps on two CPU cores beside the predictions: `python -m bench.cpu_study [--measure]`.

Three workloads (embedding-dominated, communication-heavy, dense-heavy), plans of all kinds, the
planner's own pick and TorchRec's. Without options, the committed measurements are held against
today's predictions, made with the committed profile of the same machine (`planner calibrate`); no
torch needed. `--measure` trains every plan with DistributedModelParallel, two gloo ranks on a
pinned core each, in turns; it wants an idle machine and torchrec. The profile is of kernels and
collectives alone: nothing in it or in the model was fitted to these steps. But which copies the
model lacked was found by profiling steps of the communication workload. So there are three more
(`--blind`): tried once, after model and calibration were frozen, with a fresh profile of that day;
and four of other optimizers, widths and types (`--again`), likewise.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.cpu_plans import study_plans
from bench.kept import markdown, parser_of, read
from costmodel.base.units import MS, Seconds
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingPlan
from costmodel.domain.workload import Workload
from planner.calibration.records import Record, read_measurements
from planner.files.json_text import dump_json
from planner.files.plans import PlanFile, plan_from_tables, table_data
from planner.files.profiles import load_profile
from planner.files.workload_reading import load_workload
from planner.validation.job import Job, rank_result
from planner.validation.judge import (
    Outcome,
    are_told_apart,
    cpu_error,
    geomean_error,
    kendall_tau,
    success_rate,
)
from planner.validation.machine_speed import probe_data, probes
from planner.validation.validate import Validation, compared, modelled
from planner.validation.validation_text import validation_text

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "cpu_study.json"
PROFILE = HERE / "results" / "cpu_profile.yaml"
WORKLOADS = ("embedding", "communication", "dense")
BLIND_RESULTS = HERE / "results" / "cpu_blind.json"
BLIND_PROFILE = HERE / "results" / "cpu_blind_profile.yaml"
BLIND = ("wide", "narrow", "interaction")
AGAIN_RESULTS = HERE / "results" / "cpu_again.json"
AGAIN_PROFILE = HERE / "results" / "cpu_again.yaml"
AGAIN = ("hot", "elements", "half", "single")
OURS, THEIRS = "our pick", "TorchRec's pick"
CANDIDATES = 5
"""Plans to choose from in one trial of the success rate; the paper's tasks have about as many."""
SEARCH_TIME: Seconds = 5.0
NO_JOB: Mapping[str, Any] = {}
WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """One workload's plans, what was measured, and what both predict."""

    name: str
    validation: Validation
    scores: Mapping[str, float]
    """TorchRec's rating of every plan, in seconds."""

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The plans, predicted and measured."""
        return self.validation.outcomes


def workload(name: str) -> Workload:
    """Return one of the study's workloads."""
    return load_workload(HERE / "workloads" / "cpu" / f"{name}.yaml")


def measure(name: str, topology: Topology, job: Mapping[str, Any]) -> dict[str, Any]:
    """Train under every plan of a workload; return plans, measurements and TorchRec's ratings."""
    import planner
    from bench.torchrec_score import torchrec_plan, torchrec_scores
    from planner.validation.launch import run_job

    made = workload(name)
    found = planner.plan(made, gpus=2, hardware=topology.hardware, time_limit=SEARCH_TIME)
    plans = {
        **study_plans(made, topology),
        OURS: found.plan,
        THEIRS: torchrec_plan(made, topology),
    }
    files = [_file(made, plan) for plan in plans.values()]
    asked = Job(num_plans=len(files), world_size=2, local_world_size=2, device="cpu", **job)
    total = asked.num_blocks
    ranks = run_job(files, asked, lambda done: print(f"\r{name} {done}/{total}", end=""))
    print()
    scores = torchrec_scores(made, topology, plans)
    return {
        each: {
            "tables": [table_data(table) for table in plan.tables],
            "torchrec_score_s": scores[each],
            "ranks": [asdict(rank[index]) for rank in ranks],
        }
        for index, (each, plan) in enumerate(plans.items())
    }


def studied(
    name: str,
    record: Mapping[str, Any],
    topology: Topology,
    probed: Sequence[Record] = (),
    job: Mapping[str, Any] = NO_JOB,
) -> Study:
    """Return a workload's measurements with today's predictions.

    ``probed`` are the kernels of the calibration that every round measured again.
    """
    made = workload(name)
    files = [_file(made, plan_from_tables(entry["tables"], topology)) for entry in record.values()]
    by_plan = ([rank_result(rank) for rank in entry["ranks"]] for entry in record.values())
    return Study(
        name=name,
        validation=compared(
            files,
            list(record),
            topology.hardware,
            job=Job(num_plans=len(files), world_size=2, local_world_size=2, device="cpu", **job),
            ranks=list(zip(*by_plan, strict=True)),
            probed=probed,
            predict=modelled,
        ),
        scores={each: entry["torchrec_score_s"] for each, entry in record.items()},
    )


def _file(made: Workload, plan: ShardingPlan) -> PlanFile:
    return PlanFile(plan=plan, workload=made, hardware="cpu_profile.yaml")


def summary(study: Study) -> dict[str, Any]:
    """Return a workload's figures, ours beside TorchRec's rating."""
    outcomes, scores, found = study.outcomes, study.scores, study.validation
    verdict, at_speed = found.verdict, found.at_speed or outcomes
    ours = {each.name: each.predicted for each in outcomes}
    measured = {each.name: each.measured for each in outcomes}
    pairs = [(a, b) for i, a in enumerate(outcomes) for b in outcomes[i + 1 :]]
    sure = [pair for pair in pairs if are_told_apart(*pair)]
    return {
        "num_plans": len(outcomes),
        "fastest_s": min(measured.values()),
        "slowest_s": max(measured.values()),
        "noise": max(each.noise / each.measured for each in outcomes),
        "geomean_error": verdict.geomean_error,
        "cpu_error": verdict.cpu_error,
        "machine_slowdown": {family.value: factor for family, factor in found.slowdowns.items()},
        "median_machine_slowdown": found.slowdown,
        "geomean_error_at_speed": geomean_error(at_speed),
        "cpu_error_at_speed": cpu_error(at_speed),
        "largest_error": max(outcomes, key=lambda each: abs(each.error)).error,
        "pairs": len(pairs),
        "pairs_told_apart": len(sure),
        "tau": {"ours": verdict.tau, "torchrec": kendall_tau(pairs, scores.__getitem__)},
        "tau_told_apart": {
            "ours": verdict.tau_told_apart,
            "torchrec": kendall_tau(sure, scores.__getitem__),
        },
        "success_rate": {
            "ours": success_rate(outcomes, CANDIDATES, ours.__getitem__),
            "torchrec": success_rate(outcomes, CANDIDATES, scores.__getitem__),
        },
        "our_pick_over_theirs": measured[THEIRS] / measured[OURS],
        "our_pick_over_fastest": measured[OURS] / min(measured.values()),
        "open_pairs": [list(pair) for pair in verdict.open_pairs],
    }


def show(study: Study) -> None:
    """Print one workload's plans and figures, and TorchRec's rating beside them."""
    print(f"\n{study.name}")
    for line in validation_text(study.validation, WIDTH):
        print(line.plain)
    figures = summary(study)
    tau, sure, wins = (figures[key] for key in ("tau", "tau_told_apart", "success_rate"))
    print(
        f"  success of {CANDIDATES}    {wins['ours']:.1%}; by TorchRec's rating "
        f"{wins['torchrec']:.1%}, whose tau is {tau['torchrec']:.2f}, told apart "
        f"{sure['torchrec']:.2f}\n"
        f"  our pick is {figures['our_pick_over_theirs']:.2f}x as fast as TorchRec's, "
        f"{figures['our_pick_over_fastest'] - 1:.1%} behind the fastest measured"
    )


def keep(results: Mapping[str, Any], path: Path) -> None:
    """Write the results, one plan's measurements to a line."""
    lines = []
    for name, record in results.get("workloads", {}).items():
        plans = ",\n".join(f"   {dump_json(k)}: {dump_json(v)}" for k, v in record.items())
        lines.append(f"  {dump_json(name)}: {{\n{plans}\n  }}")
    head = "".join(
        f" {dump_json(key)}: {dump_json(results.get(key, {}))},\n"
        for key in ("machine", "jobs", "figures")
    )
    body = ",\n".join(lines)
    text = f'{{\n{head} "workloads": {{\n{body}\n }}\n}}\n'
    path.write_text(text, encoding="utf-8")


def table() -> str:
    """Return the table of predicted beside measured steps, from the committed figures."""
    figures = json.loads(RESULTS.read_text(encoding="utf-8"))["figures"]
    head = (
        "workload",
        "plans",
        "steps",
        "error",
        "tau, told apart",
        "success",
        "over TorchRec's pick",
    )
    rows = []
    for name, row in figures.items():
        tau, wins = row["tau_told_apart"], row["success_rate"]
        pairs = f"{row['pairs_told_apart']} of {row['pairs']} pairs"
        rows.append((
            name,
            row["num_plans"],
            f"{row['fastest_s'] / MS:.0f}-{row['slowest_s'] / MS:.0f} ms",
            f"{row['geomean_error']:.1%}",
            f"{tau['ours']:.2f} ({tau['torchrec']:.2f}), {pairs}",
            f"{wins['ours']:.0%} ({wins['torchrec']:.0%})",
            f"{row['our_pick_over_theirs']:.2f}x",
        ))
    return markdown(head, rows)


def main() -> None:
    """Measure where asked to, then print predictions beside measurements."""
    parser = parser_of(__doc__, RESULTS)
    parser.add_argument("--measure", action="store_true", help=f"rewrite {RESULTS.name}")
    parser.add_argument("--blind", action="store_true", help="the workloads that were tried once")
    parser.add_argument("--again", action="store_true", help="those of other optimizers and types")
    every = (*WORKLOADS, *BLIND, *AGAIN)
    parser.add_argument("--only", choices=every, action="append", help="of them")
    parser.add_argument("--repeats", type=int, default=5, help="rounds over all plans")
    parser.add_argument("--steps", type=int, default=3, help="timed steps in a round")
    parser.add_argument("--warmup", type=int, default=4, help="steps before them")
    parser.add_argument("--profiled", type=int, default=2, help="steps under the profiler")
    parser.add_argument("--conditions", default="idle", help="what else the machine did")
    parser.add_argument("--profile", type=Path, help="of the measured machine")
    parser.add_argument("--results", type=Path, help="measurements")
    args = parser.parse_args()
    profile, kept, named = PROFILE, RESULTS, tuple[str, ...](WORKLOADS)
    if args.blind:
        profile, kept, named = BLIND_PROFILE, BLIND_RESULTS, BLIND
    if args.again:
        profile, kept, named = AGAIN_PROFILE, AGAIN_RESULTS, AGAIN
    args.profile, args.results = args.profile or profile, args.results or kept
    hardware = load_profile(args.profile)
    topology = Topology(hardware=hardware, world_size=2, local_world_size=2)
    names = args.only or named
    calibrated = read_measurements(args.profile.with_suffix(".measurements.jsonl"))
    probed = probes(calibrated.records) if calibrated else ()
    results = read(args.results)
    if args.measure:
        from planner.calibration.machine import machine_facts

        for name in names:
            job = {each: getattr(args, each) for each in ("repeats", "steps", "warmup", "profiled")}
            taken = measure(name, topology, {**job, "probes": probe_data(probed)})
            results.setdefault("workloads", {})[name] = taken
            results.setdefault("jobs", {})[name] = job
            results["machine"] = {
                **machine_facts("cpu", 2, 1),
                "threads_per_rank": 1,
                "keeps_memory": True,  # planner.validation.launch.RANK_ENVIRONMENT
                "conditions": args.conditions,
            }
            keep(results, args.results)
    print(", ".join(f"{key} {value}" for key, value in results["machine"].items()))
    for name in names:
        study = studied(name, results["workloads"][name], topology, probed, results["jobs"][name])
        results.setdefault("figures", {})[name] = summary(study)
        show(study)
    if args.measure or args.write:
        keep(results, args.results)


if __name__ == "__main__":
    main()
