"""The port of TorchRec's planner, held to the planner itself, shard by shard."""

from dataclasses import replace
from random import Random

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

from bench.torchrec_port import CASES, drawn
from costmodel.base.errors import InfeasibleError
from planner.examples import example_problem, example_workload
from planner.torchrec.torchrec_sharder import TorchRecPlanner
from sharders.problem.sharding_problem import Budget, SearchResult, Sharder, ShardingProblem
from sharders.torchrec.port import TorchRecPort

FEW = Budget(max_evaluations=60)
"""Enough for greedy proposals of both kinds, or a part of all combinations."""


def result(sharder: Sharder, problem: ShardingProblem, budget: Budget) -> SearchResult | None:
    try:
        return sharder.shard(problem, budget, Random(0))
    except InfeasibleError:
        return None


@pytest.mark.parametrize("seed", range(12))
def test_drawn_problems_get_the_same_plan(seed: int) -> None:
    problem = drawn(seed)
    theirs = result(TorchRecPlanner(), problem, FEW)
    ours = result(TorchRecPort(), problem, FEW)
    if theirs is not None:  # the port goes on to its first plan
        assert ours == theirs


def test_to_the_end_it_is_the_same_plan() -> None:
    problem = example_problem(example_workload(12, seed=6), world_size=4, fill=0.5)
    theirs = TorchRecPlanner().shard(problem, Budget(), Random(0))
    assert TorchRecPort().shard(problem, Budget(), Random(0)) == theirs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "budget"),
    [("mlperf 8", Budget()), ("constraints", Budget()), ("sequences", FEW), ("uvm", Budget())],
)
def test_cases_of_the_bench_get_the_same_plan(name: str, budget: Budget) -> None:
    problem = CASES[name]()
    theirs = TorchRecPlanner().shard(problem, budget, Random(0))
    assert TorchRecPort().shard(problem, budget, Random(0)) == theirs


def test_tables_with_ranks_are_moved_alike() -> None:
    workload = example_workload(6)
    first, *others = workload.tables
    fixed = replace(workload, tables=(replace(first, ranks=(1,)), *others))
    problem = example_problem(fixed, world_size=4, fill=0.05)
    theirs = TorchRecPlanner().shard(problem, Budget(), Random(0))
    assert TorchRecPort().shard(problem, Budget(), Random(0)).plan == theirs.plan
    assert theirs.plan.table(first.name).ranks == (1,)
