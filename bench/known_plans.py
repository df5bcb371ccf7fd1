"""The best plans known of drawn problems, so that today's model times them again.

A step that an earlier run wrote is by the model of its day; a plan is timed by that of today, and
what later searches are compared with gets harder, not easier. Plans are kept as choices, a line of
JSON for every table: sharding type, compute kernel, share cached, ranks of the column blocks.
"""

import gzip
import json
from math import inf
from pathlib import Path
from typing import Any

from costmodel.base.errors import PlannerError
from costmodel.base.units import Seconds
from costmodel.domain.plan import ComputeKernel, ShardingPlan, ShardingType
from costmodel.domain.validity import check_plan
from costmodel.memory.rank_memory import check_memory
from planner.files.disk import write_bytes
from planner.files.json_text import dump_json
from sharders.problem.options import TableOption, make_plan, make_sharding
from sharders.problem.sharding_problem import ShardingProblem

PLANS = Path(__file__).parent / "results" / "search_population_plans.json.gz"
Choices = list[list[Any]]
"""One for every table, in the workload's order."""


def read_plans(path: Path = PLANS) -> dict[str, Choices]:
    """Return the plans kept, by instance."""
    if not path.exists():
        return {}
    found: dict[str, Choices] = json.loads(gzip.decompress(path.read_bytes()))
    return found


def write_plans(plans: dict[str, Choices], path: Path = PLANS) -> None:
    """Keep plans; the same ones are the same bytes."""
    lines = (f"{dump_json(name)}: {dump_json(plans[name])}" for name in sorted(plans))
    text = "{" + ",\n".join(lines) + "}"
    write_bytes(path, gzip.compress(text.encode(), mtime=0))


def choices_of(problem: ShardingProblem, plan: ShardingPlan) -> Choices:
    """Return a plan of a problem as choices."""
    found = []
    for table in problem.workload.tables:
        own = plan.table(table.name)
        ranks = () if own.sharding_type.everywhere else own.block_ranks
        kinds = own.sharding_type.value, own.compute_kernel.value
        found.append([*kinds, own.cache_load_factor, *ranks])
    return found


def plan_of(problem: ShardingProblem, choices: Choices) -> ShardingPlan:
    """Return the plan that choices say."""
    shardings = []
    for table, (kind, kernel, cached, *ranks) in zip(problem.workload.tables, choices, strict=True):
        option = TableOption(
            sharding_type=ShardingType(kind),
            compute_kernel=ComputeKernel(kernel),
            num_column_shards=max(1, len(ranks)),
            cache_load_factor=cached,
        )
        shardings.append(make_sharding(table, problem.topology, option, ranks))
    return make_plan(problem.topology, shardings)


def step_today(problem: ShardingProblem, choices: Choices | None) -> Seconds:
    """Return the step of a plan by the model of today; inf: there is none, or it does not fit."""
    if choices is None:
        return inf
    try:
        plan = plan_of(problem, choices)
        check_plan(problem.workload, problem.topology, plan)
        check_memory(problem.workload, problem.topology, plan)
    except (PlannerError, ValueError):
        return inf
    return problem.objective.step_time(plan)
