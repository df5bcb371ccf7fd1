"""What every sharder must do, as tests: inherit ``SharderContract`` and name your sharder.

    from planner.testing import SharderContract
    from my_package import MySharder


    class TestMySharder(SharderContract):
        def make_sharder(self):
            return MySharder()

Needs pytest; no GPU, no network.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from random import Random

import pytest

from costmodel.base.errors import InfeasibleError
from costmodel.base.units import Seconds
from costmodel.domain.plan import ShardingType
from costmodel.domain.validity import check_plan
from costmodel.domain.workload import EmbeddingTable, Pipeline, Workload
from costmodel.memory.rank_memory import check_memory
from planner.examples import example_problem, example_workload
from sharders.problem.options import TableOption, make_plan, make_sharding
from sharders.problem.sharding_problem import (
    Budget,
    Progress,
    SearchResult,
    SearchStatus,
    Sharder,
    ShardingProblem,
)

_PROBLEMS: dict[str, Callable[[], ShardingProblem]] = {
    "4 ranks": lambda: example_problem(example_workload()),
    "1 rank": lambda: example_problem(example_workload(5), world_size=1),
    "2 nodes": lambda: example_problem(example_workload(40, seed=1), world_size=8, num_nodes=2),
    "tight memory": lambda: example_problem(example_workload(40, seed=2), fill=0.9),
    "a table larger than a rank": lambda: example_problem(_with_a_giant(), world_size=8, fill=0.6),
    "plain DLRM": lambda: example_problem(
        example_workload(30, seed=3, pipeline=Pipeline.DLRM), fill=0.3
    ),
    "fewer tables than ranks": lambda: example_problem(example_workload(3), world_size=8),
}


@cache
def _problem(name: str) -> ShardingProblem:
    """Return the example problem of a name; tests share it."""
    return _PROBLEMS[name]()


def _with_a_giant() -> Workload:
    giant = EmbeddingTable(name="giant", num_embeddings=40_000_000, embedding_dim=64)
    return Workload(tables=(giant, *example_workload(10, seed=4).tables), local_batch_size=512)


def _with_fixed_tables() -> Workload:
    """Return tables, some of them fixed to one rank, two ranks, a node, and all ranks."""
    fixed = ((5,), (1, 6), (4, 5, 6, 7), tuple(range(8)), (0,))
    tables = example_workload(12, seed=6).tables
    placed = [replace(table, ranks=ranks) for table, ranks in zip(tables, fixed, strict=False)]
    return Workload(tables=(*placed, *tables[len(placed) :]), local_batch_size=512)


class SharderContract:
    """Tests that a sharder must pass; override ``make_sharder``."""

    def make_sharder(self) -> Sharder:
        """Return the sharder under test."""
        raise NotImplementedError

    @pytest.fixture(params=sorted(_PROBLEMS))
    def problem(self, request: pytest.FixtureRequest) -> ShardingProblem:
        """Return each of the example problems in turn."""
        return _problem(request.param)

    def _result(self, problem: ShardingProblem, seed: int = 0) -> SearchResult:
        budget = Budget(max_evaluations=_EVALUATIONS)
        return self.make_sharder().shard(problem, budget, Random(seed))

    def test_result_is_true_and_found_again(self, problem: ShardingProblem) -> None:
        """Every table is sharded exactly, legally and in memory; the step time is the plan's.

        The same random state gives the same plan.
        """
        result = self._result(problem, seed=7)
        check_plan(problem.workload, problem.topology, result.plan)
        check_memory(problem.workload, problem.topology, result.plan)
        assert result.step_time == pytest.approx(problem.objective.step_time(result.plan))
        assert result.bound is None or result.bound <= result.step_time * (1 + 1e-9)
        assert result.evaluated >= 1
        assert self._result(problem, seed=7).plan == result.plan

    def test_no_worse_than_an_unlucky_random_placement(self) -> None:
        """The plan is no worse than the worst of 40 random table-wise placements."""
        problem = example_problem(example_workload(40, seed=5), fill=0.05)
        times = [_random_step_time(problem, seed) for seed in range(40)]
        assert self._result(problem).step_time <= max(times)

    def test_leaves_tables_where_the_user_wants_them(self) -> None:
        """A table with ``ranks`` has shards there and nowhere else."""
        problem = example_problem(_with_fixed_tables(), world_size=8, num_nodes=2)
        result = self._result(problem)
        check_plan(problem.workload, problem.topology, result.plan)
        check_memory(problem.workload, problem.topology, result.plan)
        for table in problem.workload.tables:
            ranks = result.plan.table(table.name).ranks
            assert not table.ranks or ranks == table.ranks

    def test_stops_when_told(self) -> None:
        """A spent budget still gives a plan, and only a handful of plans are looked at."""
        problem = _problem("4 ranks")
        budget = Budget(should_stop=lambda: True)
        result = self.make_sharder().shard(problem, budget, Random(0))
        check_plan(problem.workload, problem.topology, result.plan)
        assert result.evaluated <= _HANDFUL

    def test_respects_the_number_of_evaluations(self) -> None:
        """No more plans are looked at than the budget allows.

        If that ends the search, it says so.
        """
        problem = _problem("4 ranks")
        result = self.make_sharder().shard(problem, Budget(max_evaluations=50), Random(0))
        assert result.evaluated <= 50
        assert result.status is not SearchStatus.LIMIT or result.evaluated >= 1

    def test_reports_progress(self) -> None:
        """Reports are in order, and none has a better step than the result."""
        seen: list[Progress] = []
        problem = _problem("4 ranks")
        budget = Budget(max_evaluations=50, report=seen.append)
        result = self.make_sharder().shard(problem, budget, Random(0))
        assert [p.evaluated for p in seen] == sorted(p.evaluated for p in seen)
        assert all(progress.best >= result.step_time * (1 - 1e-9) for progress in seen)

    def test_says_so_when_nothing_fits(self) -> None:
        """Tables beyond the sum of all memory are refused."""
        problem = example_problem(example_workload(), fill=1.5)
        with pytest.raises(InfeasibleError):
            self._result(problem)


_HANDFUL = 10
_EVALUATIONS = 50
"""Plans that every search of the contract may look at."""


def _random_step_time(problem: ShardingProblem, seed: int) -> Seconds:
    """Return the step time of all tables, whole, on random ranks."""
    rng = Random(seed)
    option = TableOption(sharding_type=ShardingType.TABLE_WISE)
    plan = make_plan(
        problem.topology,
        [
            make_sharding(
                table, problem.topology, option, (rng.randrange(problem.topology.world_size),)
            )
            for table in problem.workload.tables
        ],
    )
    return problem.objective.step_time(plan)
