from dataclasses import replace
from itertools import combinations, product
from math import inf
from random import Random
from typing import cast

import pytest
from machines import machine, topology

from costmodel.base.units import GIB
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ComputeKernel, ShardingPlan, ShardingType
from costmodel.domain.validity import plan_problems
from costmodel.domain.workload import DenseModel, EmbeddingTable, Workload
from costmodel.inputs.distribution import Zipf
from costmodel.memory.rank_memory import check_memory, fits
from planner.examples import example_problem, example_workload
from sharders.baselines import ilp
from sharders.baselines.ilp import Ilp
from sharders.baselines.ilp_model import IlpModel
from sharders.baselines.solvers import Limits
from sharders.greedy.cost_greedy import CostGreedy
from sharders.problem.options import make_plan, make_sharding
from sharders.problem.sharding_problem import Budget, SearchStatus, ShardingProblem

TYPES = (
    ShardingType.TABLE_WISE,
    ShardingType.ROW_WISE,
    ShardingType.COLUMN_WISE,
    ShardingType.DATA_PARALLEL,
)


WITHIN_NODES = (
    ShardingType.TABLE_WISE,
    ShardingType.TABLE_ROW_WISE,
    ShardingType.TABLE_COLUMN_WISE,
    ShardingType.GRID_SHARD,
)


def _problem(
    seed: int,
    *,
    memory: float = 80.0,
    num_tables: int = 4,
    ranks: Topology | None = None,
    types: tuple[ShardingType, ...] = TYPES,
) -> ShardingProblem:
    rng = Random(seed)
    tables = tuple(
        EmbeddingTable(
            name=f"t{i}",
            num_embeddings=rng.choice([1000, 100_000, 3_000_000]),
            embedding_dim=8,
            pooling_factor=rng.choice([1.0, 10.0, 50.0]),
            sharding_types=types,
            inputs=Zipf(exponent=0.8),
        )
        for i in range(num_tables)
    )
    workload = Workload(tables=tables, dense=DenseModel(bottom_mlp=(16,), top_mlp=(16, 1)))
    return ShardingProblem.of(workload, ranks or topology(2, 2, machine(memory=memory * GIB)))


def _every_plan(problem: ShardingProblem) -> list[ShardingPlan]:
    candidates = [
        [
            make_sharding(table, problem.topology, option, ranks)
            for option in problem.options[table.name]
            for ranks in combinations(range(problem.topology.world_size), option.num_ranks)
        ]
        for table in problem.workload.tables
    ]
    every = (make_plan(problem.topology, choice) for choice in product(*candidates))
    return [p for p in every if not plan_problems(problem.workload, problem.topology, p)]


def _check_optimum(problem: ShardingProblem) -> None:
    model = IlpModel(problem)
    best = min(
        model.makespan(p)
        for p in _every_plan(problem)
        if fits(problem.workload, problem.topology, p)
    )
    start = CostGreedy().shard(problem, Budget(), Random(0)).plan
    solution = model.solve(start, Limits(gap=1e-6))
    assert solution is not None
    assert solution.optimal
    assert not plan_problems(problem.workload, problem.topology, solution.plan)
    assert solution.makespan == pytest.approx(best, rel=1e-4)
    assert solution.bound == pytest.approx(best, rel=1e-4)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("memory", [80.0, 0.6])
def test_finds_the_optimum_of_its_objective(seed: int, memory: float) -> None:
    _check_optimum(_problem(seed, memory=memory))


@pytest.mark.parametrize("seed", range(3))
def test_finds_the_optimum_where_shards_must_stay_within_a_node(seed: int) -> None:
    _check_optimum(_problem(seed, num_tables=2, ranks=topology(4, 2), types=WITHIN_NODES))


def test_ranks_are_not_alike_where_the_user_put_a_table() -> None:
    drawn = _problem(0, num_tables=2, types=TYPES[:1])
    first, second = drawn.workload.tables
    tables = (replace(first, ranks=(0,)), second)
    _check_optimum(ShardingProblem.of(replace(drawn.workload, tables=tables), drawn.topology))


def test_a_small_problem_is_solved_for_every_set_of_types_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[frozenset[ShardingType]] = []

    def noted(*given: object) -> None:
        asked.append(cast("frozenset[ShardingType]", given[-1]))

    monkeypatch.setattr(Ilp, "solve", noted)
    start = Ilp().shard(_problem(0), Budget(), Random(0)).plan
    every = frozenset(ShardingType)
    some = {frozenset(each) for size in (1, 2, 3) for each in combinations(TYPES, size)}
    assert frozenset(each.sharding_type for each in start.tables) in some
    assert asked[1] == every
    assert set(asked) == {every, *some}
    assert len(asked) == len(set(asked))


@pytest.mark.parametrize(
    ("left", "limits"),
    [
        (inf, Limits(gap=0.01, max_nodes=ilp.MAX_NODES)),
        (10.0, Limits(gap=0.01, time=10.0 * ilp.SHARE_OF_TIME)),
        (1e6, Limits(gap=0.01, time=ilp.TIME_LIMIT)),
        (0.0, Limits(gap=0.01, time=0.1)),
    ],
)
def test_a_program_has_a_share_of_the_time_left_or_few_nodes(
    left: float, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Limits] = []
    monkeypatch.setattr(IlpModel, "solve", lambda *each: given.append(each[-1]))
    problem = _problem(0)
    start = CostGreedy().shard(problem, Budget(), Random(0)).plan
    Ilp(gap=0.01).solve(problem, Budget(time_left=lambda: left), start)
    assert given == [limits]
    assert left in {0.0, inf} or (limits.time or inf) < left


def test_column_shards_of_a_node_stay_there_though_others_have_less_to_do() -> None:
    """Ranks 0 and 2, one of each node, have a table each, and the third has two column blocks."""
    ranks = topology(4, 2)
    drawn = _problem(0, num_tables=3, ranks=ranks).workload
    kinds = ((TYPES[0], (0,)), (TYPES[0], (2,)), (ShardingType.TABLE_COLUMN_WISE, ()))
    tables = tuple(
        replace(
            table, sharding_types=(kind,), ranks=where, pooling_factor=50.0, num_embeddings=1000
        )
        for table, (kind, where) in zip(drawn.tables, kinds, strict=True)
    )
    _check_optimum(ShardingProblem.of(replace(drawn, tables=tables), ranks))


@pytest.mark.slow
def test_never_worse_than_the_greedy_it_starts_from() -> None:
    problem = example_problem(example_workload(30), world_size=4)
    greedy = CostGreedy().shard(problem, Budget(), Random(0))
    assert Ilp().shard(problem, Budget(), Random(0)).step_time <= greedy.step_time


def test_says_when_its_own_objective_is_at_its_best() -> None:
    problem = _problem(0)
    assert Ilp().shard(problem, Budget(), Random(0)).status is SearchStatus.OPTIMAL


def test_never_claims_a_bound_on_the_step() -> None:
    assert Ilp().shard(_problem(1), Budget(), Random(0)).bound is None


def test_puts_tables_behind_a_cache_when_hbm_is_short() -> None:
    # three tables of 3 M x 32 x 4 bytes = 0.36 GiB, and two ranks that have room for one each
    problem = _problem(0, num_tables=1)
    table = replace(
        problem.workload.tables[0],
        num_embeddings=3_000_000,
        embedding_dim=32,
        sharding_types=(ShardingType.TABLE_WISE,),
        compute_kernels=(ComputeKernel.FUSED, ComputeKernel.FUSED_UVM_CACHING),
    )
    tables = tuple(replace(table, name=f"t{i}") for i in range(3))
    workload = replace(problem.workload, tables=tables, local_batch_size=256)
    ranks = topology(2, 2, machine(memory=0.75 * GIB))
    tight = ShardingProblem.of(workload, ranks)
    start = CostGreedy().shard(tight, Budget(), Random(0)).plan
    solution = Ilp().solve(tight, Budget(), start)
    assert solution is not None
    check_memory(workload, ranks, solution.plan)
    # one rank has a table behind a cache, and another one beside it; what the other rank has,
    # one in HBM or one behind a cache, takes less, and is a tie to this program
    costs = tight.groundwork.costs
    fused, cached = (costs.cost(tables[0], option).shard_load for option in tight.options["t0"])
    assert fused < cached
    assert solution.optimal
    assert solution.makespan == pytest.approx(fused + cached)


def test_large_instances_are_rounded_from_the_relaxation() -> None:
    problem = example_problem(example_workload(40), world_size=8)
    result = Ilp(max_variables=10).shard(problem, Budget(max_evaluations=100), Random(0))
    check_memory(problem.workload, problem.topology, result.plan)
    assert result.status is SearchStatus.LIMIT


def test_a_clock_limits_the_solver() -> None:
    problem = example_problem(example_workload(40), world_size=8)
    result = Ilp().shard(problem, Budget(max_evaluations=100, time_left=lambda: 0.5), Random(0))
    check_memory(problem.workload, problem.topology, result.plan)


def test_tells_its_own_value_bound_and_gap() -> None:
    proof = Ilp().shard(_problem(0), Budget(), Random(0)).proof
    assert proof is not None
    assert proof.bound is not None
    assert proof.bound <= proof.value * (1 + 1e-6)
    assert proof.gap is not None
    assert proof.gap <= 2 * Ilp().gap
