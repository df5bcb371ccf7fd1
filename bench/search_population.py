"""How good plans get on problems that nothing was tuned on: `python -m bench.search_population`.

    python -m bench.search_population --set tuning --sample 12 --seconds 10 --seeds 0 1
    python -m bench.search_population --set held-out --seconds 10 --sharders auto torchrec_port
    python -m bench.search_population --set held-out --show

Problems are drawn by ``bench.population``. Every run is a process of its own, limited in CPU
seconds, and its result is written as soon as it ends, a line of ``search_population.jsonl``; what
is there for this commit is not done again, so a bench that was broken off goes on. The best plan
ever found of every instance, whoever found it, is kept in ``search_population_plans.json.gz``, and
timed again by every run: ``search_population_best.json`` has its step by the model of today.

Printed is the distribution over instances of how much longer the steps found are than the best
known, for every sharder and time: of the median seed, and how far seeds are apart. A run's trace
answers for all times up to its limit, but only those asked for (``--at``) are printed.
"""

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import ceil, inf, nan
from pathlib import Path
from statistics import median, median_high
from time import process_time
from typing import Any

from bench.kept import markdown, provenance, read, updated
from bench.known_plans import (
    PLANS,
    Choices,
    choices_of,
    read_plans,
    step_today,
    write_plans,
)
from bench.plan_quality import attempt_on, isolated
from bench.population import HELD_OUT, POPULATION, TUNING, UNEVEN
from costmodel.base.units import MS, Seconds
from costmodel.bounds.lower_bound import step_time_bound
from planner.files.json_text import dump_json
from planner.search.plugins import AUTO
from sharders import SHARDERS

RESULTS = Path(__file__).parent / "results" / "search_population.jsonl"
BEST = Path(__file__).parent / "results" / "search_population_best.json"
SETS = {"tuning": TUNING, "held-out": HELD_OUT, "uneven": UNEVEN}

AT: Sequence[Seconds] = (1.0, 3.0, 10.0)
"""CPU seconds at which steps are compared; the last one is the limit of a usual run."""
HEAD = (
    "sharder", "CPU s", "instances", "runs", "median", "p90", "worst", "seeds", "worst", "commit",
)  # fmt: skip
BOUND_TIME: Seconds = 12.0
"""CPU seconds that a bound may take."""

Run = dict[str, Any]
Timed = tuple[Choices | None, Seconds]
"""The best plan known of an instance, None if there is none, and its step."""


def known_runs(path: Path = RESULTS) -> list[Run]:
    """Return all runs that were written."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_run(run: Run, path: Path = RESULTS) -> None:
    """Add a run to the results."""
    with path.open("a", encoding="utf-8") as file:
        file.write(dump_json(run) + "\n")


def note_best(
    run: Run, choices: Choices | None, timed: Timed, path: Path = BEST, plans: Path = PLANS
) -> None:
    """Keep a run's plan as the best known of its instance, if it is.

    Parameters
    ----------
    run, choices
        The run, and its plan; None: it has none.
    timed
        The plan known when the run ended, and its step by the model of today. Another process may
        have kept a better one since.
    path, plans
        Where steps and plans are kept.

    """
    name = run["instance"]

    def change(best: dict[str, Any]) -> None:
        known, kept = best.get(name, {}), read_plans(plans)
        step = timed[1] if kept.get(name) == timed[0] else known.get("step_s", inf)
        if choices is not None and run["step_s"] < step:
            found = {key: run[key] for key in ("step_s", "sharder", "seconds", "seed", "commit")}
            best[name] = {**known, **found}
            write_plans({**kept, name: choices}, plans)
        elif step < inf:
            best[name] = {**known, "step_s": step}

    updated(path, change)


def note_bound(name: str, path: Path = BEST) -> None:
    """Compute the lower bound of an instance, and keep the largest one beside its best step.

    Nothing is kept of an instance that the bound shows to have no plan.
    """
    problem, began = POPULATION[name].problem(), process_time()
    bound = step_time_bound(
        problem.workload, problem.topology, lambda: BOUND_TIME - (process_time() - began)
    )

    def change(best: dict[str, Any]) -> None:
        known = best.get(name, {})
        best[name] = {**known, "bound_s": max(bound, known.get("bound_s", 0.0))}

    if bound < inf:
        updated(path, change)


def step_at(run: Run, seconds: Seconds) -> Seconds:
    """Return the best step that a run had found after so many CPU seconds; inf: none yet.

    What it returned at its end counts from then on: the last plan may come past the limit.
    """
    if seconds >= run["seconds"] and "step_s" in run:
        return float(run["step_s"])
    return float(min((step for at, step in run.get("trace", ()) if at <= seconds), default=inf))


def seed_ratios(
    runs: Iterable[Run], best: Mapping[str, Mapping[str, Any]], seconds: Seconds
) -> dict[str, list[float]]:
    """Return by instance what every seed's step is over the best known; none where none is."""
    ratios: dict[str, list[float]] = {}
    for run in runs:
        known = best.get(run["instance"], {}).get("step_s", inf)
        if run["seconds"] >= seconds and known < inf:
            ratios.setdefault(run["instance"], []).append(step_at(run, seconds) / known)
    return ratios


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that a share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, ceil(share * len(ordered)) - 1)] if ordered else nan


def rows(
    runs: Sequence[Run],
    best: Mapping[str, Mapping[str, Any]],
    at: Mapping[Seconds, Sequence[Seconds]],
) -> Iterator[Sequence[object]]:
    """Yield how steps of every sharder, limit and commit are distributed, a row of a table each.

    ``at`` has times within a limit that are of interest, too, of `auto`.
    """
    kinds = {
        (run["sharder"] != AUTO, run["sharder"], run["seconds"], run["commit"]) for run in runs
    }
    for other, *kind in sorted(kinds):
        sharder, limit, commit = kind
        own = [run for run in runs if [run["sharder"], run["seconds"], run["commit"]] == kind]
        for seconds in [*(() if other else at.get(limit, ())), limit]:
            ratios = seed_ratios(own, best, seconds)
            over = [median_high(each) - 1 for each in ratios.values()]
            apart = [max(each) / min(each) - 1 for each in ratios.values()
                     if len(each) > 1 and max(each) < inf]  # fmt: skip
            cells = [median(over), percentile(over, 0.9), max(over)] if over else []
            cells += [median(apart), max(apart)] if apart else []
            shown = ["no plan" if cell == inf else f"{cell:.2%}" for cell in cells]
            shown += [""] * (5 - len(shown))
            runs_made = sum(map(len, ratios.values()))
            yield sharder, f"{seconds:g}", len(ratios), runs_made, *shown, commit


def show(runs: Sequence[Run], best: Mapping[str, Mapping[str, Any]], at: Sequence[Seconds]) -> None:
    """Print the table of some runs, and the gaps of the best known steps to the bound."""
    limits = {run["seconds"] for run in runs}
    print(markdown(HEAD, rows(runs, best, {most: [s for s in at if s < most] for most in limits})))
    names = {run["instance"] for run in runs}
    gaps = [best[name]["step_s"] / best[name]["bound_s"] - 1
            for name in names
            if best.get(name, {}).get("step_s", inf) < inf and "bound_s" in best[name]]  # fmt: skip
    if gaps:
        print(f"best known over the bound: median {median(gaps):.1%}, "
              f"90th percentile {percentile(gaps, 0.9):.1%}, worst {max(gaps):.1%}")  # fmt: skip


def table(runs: Sequence[Run], best: Mapping[str, Mapping[str, Any]]) -> str:
    """Return how every sharder's last runs on held-out instances are distributed, as a table.

    Sharders that there were once are left out.
    """
    names = {instance.name for instance in HELD_OUT} & best.keys()
    there = {AUTO, *SHARDERS}
    own = [run for run in runs if run["instance"] in names and run["sharder"] in there]
    last = {(run["sharder"], run["seconds"]): run["commit"] for run in own}
    own = [run for run in own if last[run["sharder"], run["seconds"]] == run["commit"]]
    return markdown(HEAD, rows(own, best, {AT[-1]: AT[:-1]}))


def sample(names: Sequence[str], count: int | None) -> list[str]:
    """Return so many of the names, evenly spread over them; all of them for None."""
    if count is None or count >= len(names):
        return list(names)
    return [names[number * len(names) // count] for number in range(count)]


def run_one(
    name: str, sharder: str, seconds: Seconds, seed: int
) -> tuple[Run, Choices | None, Timed]:
    """Return one run's result, its plan, and the best plan known, timed by today's model."""
    problem = POPULATION[name].problem()
    run, plan = attempt_on(problem, sharder, seconds, seed)
    known = read_plans().get(name)
    choices = None if plan is None else choices_of(problem, plan)
    return {"instance": name, **run}, choices, (known, step_today(problem, known))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--set", choices=SETS, default="tuning", dest="kind")
    parser.add_argument("--sample", type=int, help="only so many of the set's instances")
    parser.add_argument(
        "--instances", nargs="+", choices=POPULATION, metavar="NAME", help="these instead"
    )
    parser.add_argument("--sharders", nargs="+", default=[AUTO])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--at", nargs="+", type=float, default=AT)
    parser.add_argument("--bounds", action="store_true", help="compute bounds, too")
    parser.add_argument("--label", help="written instead of the commit, of changes not committed")
    parser.add_argument("--show", action="store_true", help="only print what is there")
    return parser.parse_args()


def main() -> None:
    """Run what is asked for and is not there yet, and print it."""
    args = _arguments()
    names = args.instances or sample([each.name for each in SETS[args.kind]], args.sample)
    commit = args.label or provenance()["commit"]
    done = {(run["instance"], run["sharder"], run["seconds"], run["seed"], run["commit"])
            for run in known_runs()}  # fmt: skip
    jobs = list(product(args.seeds, names, args.sharders))
    for seed, name, sharder in [] if args.show else jobs:
        if (name, sharder, args.seconds, seed, commit) in done:
            continue
        run, choices, timed = isolated(run_one, name, sharder, args.seconds, seed)
        run["commit"] = commit
        write_run(run)
        note_best(run, choices, timed)
        step = f"{run['step_s'] / MS:.3f} ms" if "step_s" in run else "no plan"
        print(f"{name:<16}{args.seconds:>4g} s  {sharder:<18}seed {seed}  {step}", flush=True)
    for name in names if args.bounds else []:
        isolated(note_bound, name)
    show([run for run in known_runs() if run["instance"] in names], read(BEST), args.at)


if __name__ == "__main__":
    main()
