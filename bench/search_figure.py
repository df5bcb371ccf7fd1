"""One search of ``auto``, drawn: `python -m bench.search_figure [--write]`.

Plans `workloads/open_856.yaml` on 64 GPUs for ten CPU seconds, and notes when which sharder, or
which part of annealing, finds a better plan. ``--write`` keeps that in ``results/search.json`` and
draws ``results/figures/search.svg`` from it; without it, only what is kept is drawn anew.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import matplotlib as mpl
from matplotlib.figure import Figure

from bench.plan_quality import provenance
from costmodel.base.units import MS, Seconds
from costmodel.bounds.lower_bound import step_time_bound
from costmodel.domain.hardware import Topology
from costmodel.engine.objective import Objective
from planner.files.disk import write_text
from planner.files.profiles import load_profile
from planner.files.workload import load_workload
from planner.planning import search as searching
from planner.planning.plugins import AUTO
from sharders.annealing.schedule import AnnealingSearch
from sharders.annealing.type_sets import Programs
from sharders.greedy.tuning import Tuning
from sharders.problem.sharding_problem import Progress, ShardingProblem

BENCH = Path(__file__).parent
RESULTS = BENCH / "results" / "search.json"
FIGURE = BENCH / "results" / "figures" / "search.svg"
WORKLOAD, GPUS, HARDWARE = "open_856.yaml", 64, "h100-sxm"
SECONDS: Seconds = 10.0
PARTS: Mapping[str, tuple[type, str]] = {
    "... tune a greedy": (Tuning, "evolve"),
    "... linear programs": (Programs, "solve"),
    "... balance": (AnnealingSearch, "balanced"),
    "... anneal": (AnnealingSearch, "run_next"),
}
"""Parts of annealing: what each is called, and the method that does it."""
COLORS = ("#bbbbbb", "#4477aa", "#ccbb44", "#228833", "#66ccee", "#aa3377", "#555555")
X_TICKS, Y_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10), (1, 2, 3, 5, 10, 20, 50, 100, 200)
STYLE = {"svg.hashsalt": "bench.search_figure", "font.size": 8.0, "svg.fonttype": "none"}


class Log:
    """When a search did what, in CPU seconds from its beginning."""

    def __init__(self) -> None:
        self.begin = time.process_time()
        self.parts: list[tuple[Seconds, str]] = []
        """When another sharder, or part of one, was at work first."""
        self.steps: list[tuple[Seconds, Seconds]] = []
        """When a better plan was found, and its step time."""

    def note(self, part: str) -> None:
        """Note who is at work."""
        if not self.parts or self.parts[-1][1] != part:
            self.parts.append((round(time.process_time() - self.begin, 4), part))

    def watch(self, sharder: str, progress: Progress) -> None:
        """Note a better plan."""
        del sharder
        if not self.steps or progress.best < self.steps[-1][1]:
            self.steps.append((round(time.process_time() - self.begin, 4), progress.best))

    @contextmanager
    def parts_noted(self) -> Iterator[None]:
        """Note sharders, and the parts of annealing, when they begin."""
        with ExitStack() as stack:
            for part, (owner, name) in PARTS.items():
                stack.enter_context(patch.object(owner, name, self._noting(owner, name, part)))
            runs = self._noting(searching, "run_sharder", None)
            stack.enter_context(patch.object(searching, "run_sharder", runs))
            yield

    def _noting(self, owner: object, name: str, part: str | None) -> Callable[..., Any]:
        """Return a function that notes the part, or its first argument, and does the same."""
        function = getattr(owner, name)

        def noting(*arguments: Any) -> Any:  # noqa: ANN401 - the function's
            self.note(part or arguments[0])
            return function(*arguments)

        return noting


def search() -> dict[str, Any]:
    """Search once; return what was found when, and by whom."""
    workload = load_workload(BENCH / "workloads" / WORKLOAD)
    topology = Topology(hardware=load_profile(HARDWARE), world_size=GPUS, local_world_size=8)
    objective = Objective(workload, topology)
    problem = ShardingProblem(workload=workload, topology=topology, objective=objective)
    asked = searching.Search(time_limit=SECONDS, clock=time.process_time, patience=float("inf"))
    found = watched(problem, asked)
    bound = step_time_bound(workload, topology)
    return {**provenance(), "workload": WORKLOAD, "gpus": GPUS, "bound_s": bound, **found}


def watched(problem: ShardingProblem, asked: searching.Search) -> dict[str, Any]:
    """Let ``auto`` search; return how that went."""
    log = Log()
    with log.parts_noted():
        attempts = searching.run_sharders(
            searching.sharders_for(AUTO), problem, replace(asked, watch=log.watch)
        )
    return {
        "cpu_s": round(time.process_time() - log.begin, 2),
        "step_s": min(attempt.step_time for attempt in attempts),
        "plans": sum(attempt.evaluated for attempt in attempts),
        "parts": log.parts,
        "steps": log.steps,
    }


def figure(found: Mapping[str, Any]) -> Figure:
    """Draw the best step over time, and who was at work."""
    drawn = Figure(figsize=(8.0, 3.6), layout="constrained")
    axes = drawn.add_subplot()
    ends = [*(at for at, _ in found["parts"][1:]), found["cpu_s"]]
    colors: dict[str, str] = {}
    for (begin, part), end in zip(found["parts"], ends, strict=True):
        first = part not in colors
        color = colors.setdefault(part, COLORS[len(colors) % len(COLORS)])
        label = part if first else None
        axes.axvspan(begin, end, color=color, alpha=0.3, lw=0, label=label)
    at = [*(at for at, _ in found["steps"]), found["cpu_s"]]
    steps = [*(step for _, step in found["steps"]), found["step_s"]]
    gaps = [100 * (step / found["bound_s"] - 1) for step in steps]
    axes.step(at, gaps, where="post", color="black", lw=1.2)
    axes.set(xscale="log", yscale="log", xlabel="CPU seconds", ylabel="best step over bound, %")
    for axis, values, most in ((axes.xaxis, X_TICKS, at[-1]), (axes.yaxis, Y_TICKS, gaps[0])):
        shown = [each for each in values if each <= most]
        axis.set_ticks(shown, [f"{each:g}" for each in shown])
    axes.set_xlim(found["parts"][0][0], at[-1])
    axes.minorticks_off()
    drawn.legend(frameon=False, ncols=4, fontsize=7.5, loc="outside upper center")
    return drawn


def main() -> None:
    """Search if asked to, draw, and say how the search went."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="search, and keep what was found")
    if parser.parse_args().write:
        write_text(RESULTS, json.dumps(search(), indent=1) + "\n")
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    with mpl.rc_context(STYLE):  # type: ignore[arg-type] # keys are names that matplotlib knows
        figure(found).savefig(FIGURE, metadata={"Date": None})
    print(f"{found['plans']:,} plans in {found['cpu_s']} CPU seconds, code of {found['commit']}")
    for at, part in found["parts"]:
        before = [step for when, step in found["steps"] if when <= at]
        best = f"{before[-1] / MS:.1f} ms" if before else "no plan"
        print(f"{at:7.2f} s  {part:<20} begins with {best}")
    print(f"{found['cpu_s']:7.2f} s  {'ends with':<20} {found['step_s'] / MS:.1f} ms")


if __name__ == "__main__":
    main()
