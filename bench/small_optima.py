"""Plan and bound beside the optimum, where all plans can be timed: `python -m bench.small_optima`.

Uneven tables on two nodes of two GPUs, the batch so large that GPUs bound the step. Every plan is
timed but those that differ from another in the names of nodes or GPUs alone. A gap of the plan to
the optimum is the search's fault, one of the bound the bound's.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from random import Random
from typing import Any

from bench.kept import SEED, markdown, print_and_keep, provenance
from bench.plan_quality import attempt_on
from costmodel.base.units import MS, Seconds
from costmodel.bounds.lower_bound import step_time_bound
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingType, TableSharding
from costmodel.domain.workload import DenseModel, EmbeddingTable, Workload
from planner.files.profiles import load_profile
from sharders.problem.options import TableOption, make_plan, make_sharding
from sharders.problem.sharding_problem import ShardingProblem

RESULTS = Path(__file__).parent / "results" / "small_optima.json"
SECONDS: Seconds = 3.0
RANKS, LOCAL = 4, 2
RENAMED = ((0, 1, 2, 3), (1, 0, 2, 3), (0, 1, 3, 2), (1, 0, 3, 2))
SAME = tuple(
    names
    for within in RENAMED
    for names in (within, tuple(within[(rank + LOCAL) % RANKS] for rank in range(RANKS)))
)
"""What ranks may be called in a plan that takes as long: GPUs of a node, and nodes, are alike."""
BY_ROWS = (ShardingType.TABLE_WISE, ShardingType.ROW_WISE, ShardingType.TABLE_ROW_WISE)
BY_COLUMNS = (ShardingType.TABLE_WISE, ShardingType.COLUMN_WISE, ShardingType.TABLE_ROW_WISE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Small:
    """An instance."""

    pooling_factors: Sequence[float]
    embedding_dims: Sequence[int]
    types: Sequence[ShardingType] = BY_ROWS
    local_batch_size: int = 32_768

    def problem(self) -> ShardingProblem:
        """Return the tables on two nodes of two GPUs; columns split in two at most."""
        rows = Random(SEED)  # noqa: S311 - a drawing
        tables = tuple(
            EmbeddingTable(
                name=f"t{number}",
                num_embeddings=int(10 ** rows.uniform(5, 7)),
                embedding_dim=columns,
                min_shard_dim=columns // 2,
                pooling_factor=ids,
                sharding_types=tuple(self.types),
            )
            for number, (ids, columns) in enumerate(
                zip(self.pooling_factors, self.embedding_dims, strict=True)
            )
        )
        dense = DenseModel(bottom_mlp=(128,), top_mlp=(256, 1))
        workload = Workload(tables=tables, dense=dense, local_batch_size=self.local_batch_size)
        hardware = load_profile("h100-sxm")
        topology = Topology(hardware=hardware, world_size=RANKS, local_world_size=LOCAL)
        return ShardingProblem.of(workload, topology)


INSTANCES: Mapping[str, Small] = {
    "one hot": Small(
        pooling_factors=(100, 10, 8, 5, 3, 2, 1), embedding_dims=(128, 64, 64, 64, 64, 32, 32)
    ),
    "two wide": Small(
        pooling_factors=(2, 3, 20, 30, 10, 5, 1), embedding_dims=(512, 256, 64, 32, 64, 128, 128)
    ),
    "geometric": Small(pooling_factors=(64, 32, 16, 8, 4, 2, 1), embedding_dims=(64,) * 7),
    "columns": Small(
        pooling_factors=(80, 25, 12, 4, 1), embedding_dims=(128, 128, 64, 256, 64), types=BY_COLUMNS
    ),
}


def optimum(problem: ShardingProblem) -> tuple[Seconds, int]:
    """Return the shortest step of all plans, and how many were timed."""
    topology, tables = problem.topology, problem.workload.tables
    ways = [list(_ways(problem, table)) for table in tables]
    shardings: list[list[TableSharding]] = [
        [make_sharding(table, topology, option, ranks) for option, ranks in own]
        for table, own in zip(tables, ways, strict=True)
    ]
    same = [[[own.index(_renamed(way, names)) for way in own] for own in ways] for names in SAME]
    best, timed = float("inf"), 0
    for chosen in product(*(range(len(own)) for own in ways)):
        if any(
            tuple(own[way] for own, way in zip(names, chosen, strict=True)) < chosen
            for names in same
        ):
            continue
        picked = [own[way] for own, way in zip(shardings, chosen, strict=True)]
        best = min(best, problem.objective.step_time(make_plan(topology, picked)))
        timed += 1
    return best, timed


_Way = tuple[TableOption, tuple[int, ...]]


def _ways(problem: ShardingProblem, table: EmbeddingTable) -> Iterator[_Way]:
    """Yield every option of a table on all ranks that it may be on."""
    for option in problem.options[table.name]:
        step = LOCAL if option.sharding_type.within_node else 1
        for ranks in combinations(range(0, RANKS, step), option.num_ranks):
            yield option, ranks


def _renamed(way: _Way, names: Sequence[int]) -> _Way:
    option, ranks = way
    if option.sharding_type.within_node:
        return option, tuple(sorted(names[rank] // LOCAL * LOCAL for rank in ranks))
    return option, tuple(sorted(names[rank] for rank in ranks))


def measured(instance: Small) -> dict[str, Any]:
    """Return the optimum of an instance, and what plan and bound are off by."""
    problem = instance.problem()
    best, timed = optimum(problem)
    ours, _ = attempt_on(problem, "auto", SECONDS, SEED)
    bound = step_time_bound(problem.workload, problem.topology)
    return {
        "tables": len(problem.workload.tables),
        "timed": timed,
        "optimum_s": best,
        "ours_s": ours["step_s"],
        "bound_s": bound,
    }


def made() -> dict[str, Any]:
    """Return all results."""
    rows = {name: measured(instance) for name, instance in INSTANCES.items()}
    return {**provenance(), "rows": rows}


def table(results: Mapping[str, Any]) -> str:
    """Return the table of the README."""
    head = "instance", "tables", "plans timed", "optimum", "our plan above it", "bound below it"
    rows = [
        (
            name,
            row["tables"],
            f"{row['timed']:,}",
            f"{row['optimum_s'] / MS:.3f} ms",
            f"{row['ours_s'] / row['optimum_s'] - 1:.2%}",
            f"{1 - row['bound_s'] / row['optimum_s']:.2%}",
        )
        for name, row in results["rows"].items()
    ]
    return markdown(head, rows)


if __name__ == "__main__":
    print_and_keep(__doc__, RESULTS, made, lambda results: print(table(results)))
