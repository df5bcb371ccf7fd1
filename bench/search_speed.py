"""How many plans a search times per CPU second: `python -m bench.search_speed [--write]`.

Moves of annealing from the best greedy plan (drawn; decided, because the plan that they lead to was
timed or a bound on its step time was more than would be accepted; and timed), moves given one by
one as objects (as ``lns`` and the last descent try them), whole plans given as arrays of choices,
and given as objects to the objective; on the instances of ``plan_quality``. Whole plans are as a
run of annealing has them some 300 moves apart, each another one than that before: an objective
remembers the plan it timed last. Setting up is not counted, and printed beside.
"""

import time
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from bench.kept import parser_of, provenance, write
from bench.plan_quality import INSTANCES
from costmodel.engine.objective import Objective
from sharders.annealing.plan_editor import PlanEditor
from sharders.annealing.schedule import COLD
from sharders.engine.search_engine import Engine
from sharders.engine.tables import Choices
from sharders.greedy.cost_greedy import CostGreedy
from sharders.problem.sharding_problem import Budget

RESULTS = Path(__file__).parent / "results" / "search_speed.json"
MOVES = 20_000
PLANS = 64
HOT = 1e-4
"""Temperature at the begin, as of runs of some 300 moves a table."""


def measured(name: str) -> dict[str, Any]:
    """Return the speeds on one instance."""
    problem = INSTANCES[name].problem()
    plan = CostGreedy().shard(problem, Budget(), Random(0)).plan  # noqa: S311 - searching
    start = time.process_time()
    engine = Engine(problem, [plan])
    engine.start(engine.choices_of(plan), 0)
    setup = time.process_time() - start
    schedule = HOT, COLD, float(MOVES)
    run = engine.anneal(2000, schedule)  # makes the common programs
    decided, timed = run.decided, run.timed
    start = time.process_time()
    engine.anneal(MOVES, schedule)
    seconds = time.process_time() - start
    decided, timed = run.decided - decided, run.timed - timed
    objective = problem.objective
    if not isinstance(objective, Objective):
        raise TypeError("instances have our objective")
    editor = PlanEditor(problem)
    editor.start(plan)
    moves = [{index: choice} for index, choice in enumerate(editor.choices[:PLANS])]
    chosen = [_annealed(engine, schedule) for _ in range(PLANS)]
    options = np.stack([np.asarray(each.option) for each in chosen])
    ranks = np.stack([np.asarray(each.ranks) for each in chosen])
    plans = [engine.plan_of(each) for each in chosen]
    return {
        "setup_cpu_s": setup,
        "drawn_per_s": MOVES / seconds,
        "decided_per_s": decided / seconds,
        "timed_per_s": timed / seconds,
        "edits_per_s": len(moves) / _seconds(lambda: editor.times(moves)),
        "whole_per_s": PLANS / _seconds(lambda: engine.step_times(options, ranks)),
        "plans_per_s": PLANS / _seconds(lambda: objective.step_times(plans)),
    }


def _annealed(engine: Engine, schedule: tuple[float, float, float]) -> Choices:
    """Return the plan after some more moves."""
    engine.anneal(MOVES // PLANS, schedule)
    return engine.present()


def _seconds(work: Any) -> float:  # noqa: ANN401 - any callable
    """Return the CPU time of some work, the least of three times after one to warm up."""
    work()
    times = []
    for _ in range(3):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return max(min(times), 1e-9)


def main() -> None:
    """Measure, print, and with --write keep."""
    parser = parser_of(__doc__, RESULTS)
    parser.add_argument("--instances", nargs="+", choices=INSTANCES, default=list(INSTANCES))
    args = parser.parse_args()
    rows = {name: measured(name) for name in args.instances}
    kinds = ("drawn/s", "decided/s", "timed/s", "edits/s", "whole/s", "plans/s")
    print(f"{'':<9}{'set up':>9}" + "".join(f"{kind:>11}" for kind in kinds))
    for name, row in rows.items():
        speeds = "".join(f"{row[key]:>11,.0f}" for key in list(row)[1:])
        print(f"{name:<9}{row['setup_cpu_s']:>8.2f}s{speeds}")
    if args.write:
        write(RESULTS, {"rows": rows, **provenance()})


if __name__ == "__main__":
    main()
