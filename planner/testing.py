"""What every sharder must do, as tests: inherit ``SharderContract`` and name your sharder.

    from planner.testing import SharderContract
    from my_package import MySharder


    class TestMySharder(SharderContract):
        def make_sharder(self):
            return MySharder()

Needs pytest; no GPU, no network.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

import pytest

from costmodel.distribution import Zipf
from costmodel.errors import InfeasibleError
from costmodel.hardware import GemmEfficiency, Gpu, HardwareProfile, Host, Link, Topology
from costmodel.memory import check_memory, usable_bytes, whole_table_bytes
from costmodel.objective import Objective
from costmodel.plan import ShardingPlan, ShardingType
from costmodel.units import GB, GIB, MIB, TFLOP, US, Bytes, Seconds
from costmodel.validity import check_plan
from costmodel.workload import EmbeddingTable, Pipeline, Pooling, Workload
from sharders.options import TableOption, make_plan, make_sharding
from sharders.problem import (
    Budget,
    Progress,
    SearchResult,
    SearchStatus,
    Sharder,
    ShardingProblem,
)


@dataclass(frozen=True, slots=True)
class LoadObjective:
    """A stand-in for the step time: columns looked up on the most loaded rank, at 1 TB/s."""

    workload: Workload

    def step_time(self, plan: ShardingPlan) -> Seconds:
        """Return the time of the most loaded rank."""
        load = [0.0] * plan.world_size
        for sharding in plan.tables:
            table = self.workload.table(sharding.table)
            replicated = sharding.sharding_type is ShardingType.DATA_PARALLEL
            samples = self.workload.local_batch_size * (1 if replicated else plan.world_size)
            per_element = samples * table.pooling_factor * 4 / 1e12 / table.num_embeddings
            for shard in sharding.shards:
                load[shard.rank] += per_element * shard.num_rows * shard.num_columns
        return max(load)


def example_hardware(memory_bytes: Bytes = 80 * GIB) -> HardwareProfile:
    """Return a made-up machine of eight GPUs a node."""
    gpu = Gpu(
        name="example",
        memory_bytes=memory_bytes,
        memory_bandwidth=2000 * GB,
        l2_bytes=40 * MIB,
        l2_bandwidth=5000 * GB,
        num_sms=100,
        kernel_latency=3 * US,
        lookup_efficiency=0.8,
        update_efficiency=0.6,
        sort_rate=5e9,
        gemm={
            "fp32": GemmEfficiency(
                peak=20 * TFLOP,
                max_efficiency=0.8,
                tile_efficiency=(1.0, 0.9, 0.7, 0.4),
                prologue_depth=64,
                split_time=2 * US,
                l2_efficiency=0.8,
                memory_efficiency=0.8,
                latency=4 * US,
            )
        },
    )
    host = Host(
        memory_bytes=1024 * GIB,
        pcie_bandwidth=25 * GB,
        uvm_bandwidth=20 * GB,
        launch_time=5 * US,
        launch_latency=5 * US,
        op_time=10 * US,
        backward_op_time=10 * US,
        sync_time=10 * US,
    )
    return HardwareProfile(
        name="example",
        gpu=gpu,
        host=host,
        gpus_per_node=8,
        curves=(),
        intra_node=Link(latency=10 * US, bandwidth=200 * GB),
        inter_node=Link(latency=20 * US, bandwidth=20 * GB),
        sources={},
        errors={},
    )


def example_workload(
    num_tables: int = 20, *, seed: int = 0, pipeline: Pipeline = Pipeline.SPARSE_DIST
) -> Workload:
    """Return tables of widely different sizes, a few of them unpooled, weighted or shared."""
    rng = Random(seed)
    tables = tuple(
        EmbeddingTable(
            name=f"table_{index}",
            num_embeddings=round(10 ** rng.uniform(2, 6.7)),
            embedding_dim=rng.choice((16, 32, 64, 128)),
            pooling_factor=round(rng.lognormvariate(1, 1), 2) + 0.1,
            feature_names=("a", "b") if index % 7 == 5 else (),
            pooling=Pooling.NONE if index % 9 == 8 else Pooling.SUM,
            weighted=index % 5 == 4,
            inputs=Zipf(exponent=1.05),
        )
        for index in range(num_tables)
    )
    return Workload(tables=tables, local_batch_size=512, pipeline=pipeline)


def example_problem(
    workload: Workload, *, world_size: int = 4, num_nodes: int = 1, fill: float = 0.3
) -> ShardingProblem:
    """Return the problem of sharding a workload over GPUs that its tables fill to a share."""
    hardware = example_hardware()
    topology = Topology(
        hardware=hardware, world_size=world_size, local_world_size=world_size // num_nodes
    )
    needed = sum(whole_table_bytes(workload, topology, table) for table in workload.tables)
    taken = hardware.gpu.memory_bytes - usable_bytes(workload, topology) / (1 - _RESERVE)
    sized = example_hardware(needed / (world_size * fill) / (1 - _RESERVE) + taken)
    filled = Topology(
        hardware=sized, world_size=world_size, local_world_size=world_size // num_nodes
    )
    return ShardingProblem(
        workload=workload, topology=filled, objective=Objective(workload, filled)
    )


_RESERVE = 0.1

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


def _with_a_giant() -> Workload:
    giant = EmbeddingTable(name="giant", num_embeddings=40_000_000, embedding_dim=64)
    return Workload(tables=(giant, *example_workload(10, seed=4).tables), local_batch_size=512)


def _with_fixed_tables() -> Workload:
    """Return tables of which some are on one rank, two, a node, and all ranks."""
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
        return _PROBLEMS[request.param]()

    def _result(self, problem: ShardingProblem, seed: int = 0) -> SearchResult:
        budget = Budget(max_evaluations=_EVALUATIONS)
        return self.make_sharder().shard(problem, budget, Random(seed))

    def test_result_is_true(self, problem: ShardingProblem) -> None:
        """Every table is sharded exactly, legally, within memory; the step time is the plan's."""
        result = self._result(problem)
        check_plan(problem.workload, problem.topology, result.plan)
        check_memory(problem.workload, problem.topology, result.plan)
        assert result.step_time == pytest.approx(problem.objective.step_time(result.plan))
        assert result.bound is None or result.bound <= result.step_time * (1 + 1e-9)
        assert result.evaluated >= 1

    def test_same_seed_same_plan(self, problem: ShardingProblem) -> None:
        """The random state decides, and nothing else does."""
        assert self._result(problem, seed=7).plan == self._result(problem, seed=7).plan

    def test_no_worse_than_an_unlucky_random_placement(self) -> None:
        """The worst of 40 random table-wise placements is no better."""
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
        """A spent budget still gives a plan, and no more than a handful are looked at."""
        problem = _PROBLEMS["4 ranks"]()
        budget = Budget(should_stop=lambda: True)
        result = self.make_sharder().shard(problem, budget, Random(0))
        check_plan(problem.workload, problem.topology, result.plan)
        assert result.evaluated <= _HANDFUL

    def test_respects_the_number_of_evaluations(self) -> None:
        """No more plans are looked at than the budget allows; if that ends it, it says so."""
        problem = _PROBLEMS["4 ranks"]()
        result = self.make_sharder().shard(problem, Budget(max_evaluations=50), Random(0))
        assert result.evaluated <= 50
        assert result.status is not SearchStatus.LIMIT or result.evaluated >= 1

    def test_reports_progress(self) -> None:
        """Reports are in order, and none claims more than the result delivers."""
        seen: list[Progress] = []
        problem = _PROBLEMS["4 ranks"]()
        budget = Budget(max_evaluations=50, report=seen.append)
        result = self.make_sharder().shard(problem, budget, Random(0))
        assert [p.evaluated for p in seen] == sorted(p.evaluated for p in seen)
        assert all(progress.best >= result.step_time * (1 - 1e-9) for progress in seen)

    def test_says_so_when_nothing_fits(self) -> None:
        """Tables beyond the sum of all memory are refused, with a remedy."""
        problem = example_problem(example_workload(), fill=1.5)
        with pytest.raises(InfeasibleError) as error:
            self._result(problem)
        assert error.value.remedies


_HANDFUL = 10
_EVALUATIONS = 100
"""Plans that every search of the contract may look at."""


def _random_step_time(problem: ShardingProblem, seed: int) -> Seconds:
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
