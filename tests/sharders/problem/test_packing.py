from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from load_objective import with_room, with_tables

from bench.population import Nature, PopulationInstance
from costmodel.base.errors import InfeasibleError
from costmodel.base.units import GB
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.validity import check_plan
from costmodel.domain.workload import EmbeddingTable, Optimizer, Workload
from costmodel.engine.objective import Objective
from costmodel.memory.rank_memory import (
    check_memory,
    host_bytes_needed,
    host_bytes_usable,
    whole_table_bytes,
)
from costmodel.memory.storage import RESERVE_SHARE
from planner.examples import example_hardware
from planner.search.plugins import load_sharder
from sharders import PORTFOLIO
from sharders.problem import packing
from sharders.problem.groundwork import Groundwork
from sharders.problem.packing import PackingSearch, packed
from sharders.problem.room import check_room
from sharders.problem.sharding_problem import Budget, ShardingProblem

WHOLE = (ShardingType.TABLE_WISE,)
FULL = 0.99
ROWS = 40_000_000
"""Of all tables of a rank: 10 GB in rows of 64 fp32."""


def hidden(
    counts: Sequence[int], *, types: tuple[ShardingType, ...] = WHOLE, seed: int = 0
) -> ShardingProblem:
    """Return tables that fill every rank to 99%: so many per rank, in random sizes, shuffled."""
    rng = Random(seed)
    tables = []
    for rank, count in enumerate(counts):
        parts = [rng.uniform(0.1, 1.0) for _ in range(count)]
        rows = [int(ROWS * part / sum(parts)) for part in parts]
        tables += [
            EmbeddingTable(
                name=f"t{rank}_{index}",
                num_embeddings=number,
                embedding_dim=64,
                pooling_factor=round(rng.uniform(1, 30), 1),
                sharding_types=types,
            )
            for index, number in enumerate(rows)
        ]
    rng.shuffle(tables)
    workload = Workload(tables=tuple(tables), local_batch_size=4, optimizer=Optimizer.SGD)
    return _full(workload, len(counts))


def _full(workload: Workload, ranks: int) -> ShardingProblem:
    local = min(8, ranks)
    topology = Topology(hardware=example_hardware(), world_size=ranks, local_world_size=local)
    size = {t.name: whole_table_bytes(workload, topology, t) for t in workload.tables}
    fullest = max(
        sum(size[name] for name in size if name.startswith(f"t{rank}_")) for rank in range(ranks)
    )
    return with_room(workload, topology, fullest / FULL)


@pytest.mark.parametrize(
    "counts",
    [[3] * 4, [4] * 8, [12, 13] * 4, [25] * 16],
    ids=["12x4", "32x8", "100x8", "400x16"],
)
@pytest.mark.parametrize("seed", range(3))
def test_what_just_fits_is_packed(counts: list[int], seed: int) -> None:
    problem = hidden(counts, seed=seed)
    plan = packed(problem.groundwork)
    assert plan is not None
    check_plan(problem.workload, problem.topology, plan)
    check_memory(problem.workload, problem.topology, plan)
    check_room(problem.groundwork)  # proves nothing of the kind


@pytest.mark.parametrize("count", [10, 14, 20])
@pytest.mark.parametrize("full", [0.985, 0.995])
@pytest.mark.parametrize("seed", range(3))
def test_tables_too_large_to_stay_whole_beside_each_other_are_split(
    count: int, full: float, seed: int
) -> None:
    rng, room = Random(seed), 10 * GB
    parts = [rng.uniform(0.02, 1.0) for _ in range(count)]
    tables = tuple(
        EmbeddingTable(
            name=f"t{number}",
            num_embeddings=int(full * 8 * room * part / sum(parts) / 256),
            embedding_dim=64,
        )
        for number, part in enumerate(parts)
    )
    workload = Workload(tables=tables, local_batch_size=4, optimizer=Optimizer.SGD)
    topology = Topology(hardware=example_hardware(), world_size=8, local_world_size=4)
    problem = with_room(workload, topology, room)
    plan = packed(problem.groundwork)
    assert plan is not None
    check_plan(workload, problem.topology, plan)
    check_memory(workload, problem.topology, plan)
    check_room(problem.groundwork)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PORTFOLIO if name != "torchrec_port"])
@pytest.mark.parametrize("counts", [[3] * 4, [12, 13] * 4], ids=["12x4", "100x8"])
def test_every_member_of_the_portfolio_finds_a_plan(name: str, counts: list[int]) -> None:
    # but TorchRec's planner, which finds none in memory as full as this, and so does its port
    posed = hidden(counts)
    problem = replace(posed, objective=Objective(posed.workload, posed.topology))
    result = load_sharder(name).shard(problem, Budget(max_evaluations=30), Random(0))
    check_memory(problem.workload, problem.topology, result.plan)


def test_a_table_larger_than_a_rank_is_split_among_the_others() -> None:
    posed = hidden([12, 13] * 4, types=())
    giant, *rest = posed.workload.tables
    giant = replace(giant, num_embeddings=2 * ROWS)
    tables = (giant, *rest[:70])
    problem = with_tables(posed, tables)
    plan = packed(problem.groundwork)
    assert plan is not None
    check_memory(problem.workload, problem.topology, plan)


def test_host_memory_is_for_the_fewest_tables_that_make_room() -> None:
    posed = hidden([4] * 4)
    kernels = (ComputeKernel.FUSED, ComputeKernel.FUSED_UVM)
    tables = [replace(table, compute_kernels=kernels) for table in posed.workload.tables]
    tables.append(replace(tables[0], name="more"))
    problem = with_tables(posed, tables)
    plan = packed(problem.groundwork)
    assert plan is not None
    check_memory(problem.workload, problem.topology, plan)
    check_room(problem.groundwork)
    on_host = [each for each in plan.tables if each.compute_kernel is ComputeKernel.FUSED_UVM]
    assert 1 <= len(on_host) <= 5


def test_tables_read_least_for_their_size_go_to_host_memory() -> None:
    posed = hidden([4] * 4)
    kernels = (ComputeKernel.FUSED, ComputeKernel.FUSED_UVM)
    tables = [replace(table, compute_kernels=kernels) for table in posed.workload.tables]
    largest = max(tables, key=lambda table: table.num_embeddings)
    tables += [replace(largest, name="hot", pooling_factor=300.0)]
    problem = with_tables(posed, tables)
    plan = packed(problem.groundwork)
    assert plan is not None
    on_host = {t.table for t in plan.tables if t.compute_kernel is ComputeKernel.FUSED_UVM}
    assert on_host
    assert "hot" not in on_host


def test_what_fits_balanced_by_bytes_is_not_mended_first(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = PopulationInstance("tuning-3064", Nature.BARELY, num_nodes=16).problem()

    def no_time(_: object) -> bool:
        raise AssertionError

    monkeypatch.setattr(packing._Packing, "mend", no_time)
    plan = packed(problem.groundwork)
    assert plan is not None
    check_memory(problem.workload, problem.topology, plan)


@pytest.mark.parametrize("effort", [1.0, 1e9])
def test_tables_are_packed_by_some_options_a_portion_at_a_time(effort: float) -> None:
    posed = PopulationInstance("tuning-5827").problem()
    wanted = posed.groundwork.arrays.of_types([ShardingType.COLUMN_WISE])
    search, plan, portions = PackingSearch(posed.groundwork, wanted), None, 0
    while not search.is_over:
        assert plan is None
        plan, portions = search.go_on(effort, lambda: False), portions + 1
    assert plan is not None
    assert {table.sharding_type for table in plan.tables} == {ShardingType.COLUMN_WISE}
    check_memory(posed.workload, posed.topology, plan)
    assert (portions == 1) == (effort > 1e6)
    assert search.go_on(effort, lambda: False) is None


def test_packing_ends_when_the_budget_is_spent_and_when_nothing_is_left_to_try() -> None:
    posed = PopulationInstance("tuning-5827").problem()
    columns = posed.groundwork.arrays.of_types([ShardingType.COLUMN_WISE])
    search = PackingSearch(posed.groundwork, columns)
    assert search.go_on(1e9, lambda: True) is None
    assert not search.is_over
    rows = posed.groundwork.arrays.of_types([ShardingType.TABLE_ROW_WISE])  # there is no room
    search = PackingSearch(posed.groundwork, rows)
    assert search.go_on(1e9, lambda: False) is None
    assert search.is_over


def test_what_cannot_fit_is_not_packed() -> None:
    posed = hidden([3] * 4)
    tables = (*posed.workload.tables, replace(posed.workload.tables[0], name="more"))
    problem = with_tables(posed, tables)
    assert packed(problem.groundwork) is None
    with pytest.raises(InfeasibleError):
        load_sharder("cost_greedy").shard(problem, Budget(), Random(0))


@pytest.mark.slow
def test_tables_that_the_user_put_on_ranks_are_packed_around() -> None:
    problem = hidden([4] * 8)
    tables = tuple(
        replace(table, ranks=(int(table.name[1]),)) if table.name.endswith("_2") else table
        for table in problem.workload.tables
    )
    put = with_tables(problem, tables)
    plan = packed(put.groundwork)
    assert plan is not None
    check_plan(put.workload, put.topology, plan)
    check_memory(put.workload, put.topology, plan)


def test_nothing_is_packed_where_the_user_leaves_no_room() -> None:
    posed = hidden([4] * 8)
    tables = tuple(replace(table, ranks=(3,)) for table in posed.workload.tables)
    problem = with_tables(posed, tables)
    with pytest.raises(InfeasibleError, match=r"can be nowhere else take .* on rank 3"):
        check_room(problem.groundwork)


def test_no_search_where_a_full_rank_has_no_room_for_one_block_of_each() -> None:
    posed = hidden([1] * 3)
    full = replace(posed.workload.tables[0], ranks=(2,))
    thirds = replace(
        full,
        name="thirds",
        ranks=(),
        embedding_dim=36,
        min_shard_dim=12,
        sharding_types=(ShardingType.COLUMN_WISE,),
    )
    problem = with_tables(posed, (full, thirds))
    with pytest.raises(InfeasibleError, match=r"can be nowhere else take .* on rank 2"):
        check_room(problem.groundwork)


def test_no_search_where_hosts_have_no_room_for_what_must_be_there() -> None:
    posed = hidden([1] * 2)
    host = host_bytes_usable(posed.topology)
    kernels = (ComputeKernel.FUSED_UVM, ComputeKernel.FUSED_UVM_CACHING)
    large = replace(
        posed.workload.tables[0], num_embeddings=int(1.5 * host / 256), compute_kernels=kernels
    )
    problem = with_tables(posed, [large])
    with pytest.raises(InfeasibleError, match=r"in host memory take .* and the host has"):
        check_room(problem.groundwork)
    two = Topology(hardware=posed.topology.hardware, world_size=16, local_world_size=8)
    check_room(Groundwork(problem.workload, two))
    either = replace(large, compute_kernels=(ComputeKernel.FUSED, *kernels))
    assert host_bytes_needed(replace(posed.workload, tables=(either,))) == 0


def giants(count: int, size: float) -> ShardingProblem:
    """Return so many tables of that share of a host's memory, which is 20 times that of 2 ranks.

    They may be in HBM or there.
    """
    kernels = (ComputeKernel.FUSED, ComputeKernel.FUSED_UVM)
    posed = hidden([1] * 2)
    hardware = posed.topology.hardware
    host = replace(hardware.host, memory_bytes=20 * 2 * hardware.gpu.memory_bytes)
    topology = replace(posed.topology, hardware=replace(hardware, host=host))
    rows = int(size * host_bytes_usable(topology) / 256)
    table = replace(
        posed.workload.tables[0], num_embeddings=rows, compute_kernels=kernels, sharding_types=()
    )
    tables = tuple(replace(table, name=f"t{number}") for number in range(count))
    return ShardingProblem.of(replace(posed.workload, tables=tables), topology)


def test_what_is_too_large_for_hbm_must_be_in_host_memory_whichever_kernels_it_may_have() -> None:
    with pytest.raises(InfeasibleError, match=r"nowhere but in host memory take .* the host has"):
        check_room(giants(1, 1.1).groundwork)


def test_no_search_where_hbm_and_host_memory_together_have_no_room() -> None:
    # each fits in HBM: 45 times 2.5% of the host, and HBM is 5% of it
    with pytest.raises(InfeasibleError, match="HBM and host memory, and GPUs and host together"):
        check_room(giants(45, 0.025).groundwork)


def test_where_host_memory_is_what_lacks_the_message_says_how_much_of_it() -> None:
    # two there leave a tenth of it for the third; HBM is a twentieth
    posed = giants(3, 0.45)
    with pytest.raises(InfeasibleError, match="in host memory it needs"):
        load_sharder("naive").shard(posed, Budget(), Random(0))


def like(size: float, count: int) -> ShardingProblem:
    """Return so many tables of that share of a rank, for two ranks."""
    posed = hidden([1] * 2)
    one = replace(posed.workload.tables[0], num_embeddings=int(size * ROWS / FULL))
    tables = tuple(replace(one, name=f"t{number}") for number in range(count))
    return with_tables(posed, tables)


def test_what_is_not_found_is_not_called_impossible() -> None:
    problem = like(0.39, 5)
    check_room(problem.groundwork)
    with pytest.raises(InfeasibleError, match="no plan was found that fits"):
        load_sharder("naive").shard(problem, Budget(), Random(0))


@pytest.mark.parametrize(("size", "count"), [(0.51, 3), (0.66, 3)])
def test_large_shards_need_ranks_of_their_own(size: float, count: int) -> None:
    with pytest.raises(InfeasibleError, match="at least 3 GPUs"):
        check_room(like(size, count).groundwork)


def test_a_cache_too_large_for_a_rank_is_split() -> None:
    kernels = (ComputeKernel.FUSED_UVM_CACHING,)
    table = EmbeddingTable(
        name="t", num_embeddings=100_000_000, embedding_dim=64, compute_kernels=kernels
    )
    workload = Workload(tables=(table,), local_batch_size=4)
    # a fifth of 25.6 GB is cached: 5.1 GB, and each of three ranks has 4 GB
    hardware = example_hardware(4 * GB / (1 - RESERVE_SHARE))
    topology = Topology(hardware=hardware, world_size=3, local_world_size=3)
    plan = packed(Groundwork(workload, topology))
    assert plan is not None
    check_memory(workload, topology, plan)


def beside_a_giant(types: tuple[ShardingType, ...]) -> ShardingProblem:
    """Return a table of 1.2 ranks, whose outputs take 0.5 on each rank, and 16 of 0.25 ranks."""
    room = 10 * GB
    giant = EmbeddingTable(
        name="giant", num_embeddings=int(1.2 * room / 256), embedding_dim=64, sharding_types=types
    )
    small = EmbeddingTable(
        name="t", num_embeddings=int(0.25 * room / 16), embedding_dim=4, sharding_types=WHOLE
    )
    tables = (giant, *(replace(small, name=f"t{number}") for number in range(16)))
    batch = int(0.5 * room / (16 * 256))
    workload = Workload(tables=tables, local_batch_size=batch, optimizer=Optimizer.SGD)
    topology = Topology(hardware=example_hardware(), world_size=16, local_world_size=8)
    return with_room(workload, topology, room)


def test_no_search_where_all_shards_that_fit_alone_are_too_much_together() -> None:
    # row_wise: 1.2, and outputs and gradients on all ranks; with the others more than 16 ranks have
    problem = beside_a_giant((ShardingType.TABLE_WISE, ShardingType.ROW_WISE))
    with pytest.raises(InfeasibleError, match="every shard fits on a rank"):
        check_room(problem.groundwork)


def test_a_table_is_packed_within_a_node_where_all_ranks_are_too_many() -> None:
    types = ShardingType.TABLE_WISE, ShardingType.ROW_WISE, ShardingType.TABLE_ROW_WISE
    problem = beside_a_giant(types)
    check_room(problem.groundwork)
    plan = packed(problem.groundwork)
    assert plan is not None
    assert plan.table("giant").sharding_type is ShardingType.TABLE_ROW_WISE
    check_memory(problem.workload, problem.topology, plan)


def test_where_one_rank_alone_is_full_all_that_may_be_in_host_memory_is() -> None:
    """Four of 0.4 of a rank, all on one of two: caches of two of them leave it room."""
    either = (ComputeKernel.FUSED, ComputeKernel.FUSED_UVM_CACHING)
    posed = like(0.4, 4)
    tables = tuple(
        replace(table, ranks=(0,), compute_kernels=either if at < 2 else ())
        for at, table in enumerate(posed.workload.tables)
    )
    problem = ShardingProblem.of(replace(posed.workload, tables=tables), posed.topology)
    anything = np.zeros_like(packing.on_hosts(problem.groundwork))
    plan = PackingSearch(problem.groundwork, anything).go_on(1e5, lambda: False)
    assert plan is not None
    check_memory(problem.workload, problem.topology, plan)
    hosted = [each.compute_kernel is ComputeKernel.FUSED_UVM_CACHING for each in plan.tables]
    assert hosted == [True, True, False, False]
