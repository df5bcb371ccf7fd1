import re
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_sizes import table_shard_bytes
from table_options import table_options

from costmodel.base.errors import InfeasibleError
from costmodel.base.units import GIB, size_text
from costmodel.domain.hardware import Device, Topology
from costmodel.domain.plan import ComputeKernel, ShardingPlan, ShardingType
from costmodel.domain.workload import EmbeddingTable, Workload
from costmodel.memory.rank_memory import (
    Place,
    RankMemory,
    check_memory,
    could_hold,
    dense_part_ratio,
    fits,
    host_reserve_text,
    infeasible,
    least_table_bytes,
    memory_per_rank,
    rank_rooms,
    usable_bytes,
)
from costmodel.memory.sort_buffers import most_at_hand_bytes
from costmodel.memory.storage import dense_peak_bytes, fixed_bytes
from planner.examples import example_hardware, example_workload
from sharders.problem.options import TableOption, make_plan, make_sharding, option_of
from sharders.problem.sharding_problem import ShardingProblem

TOPOLOGY = Topology(hardware=example_hardware(), world_size=4, local_world_size=2)


def random_plan(workload: Workload, seed: int, topology: Topology = TOPOLOGY) -> ShardingPlan:
    rng = Random(seed)
    shardings = []
    for table in workload.tables:
        option = rng.choice(table_options(workload, topology, table))
        node = rng.randrange(topology.num_nodes) * topology.local_world_size
        ranks = [node + rng.randrange(topology.local_world_size) for _ in range(option.num_ranks)]
        shardings.append(make_sharding(table, topology, option, ranks))
    return make_plan(topology, shardings)


def on_rank(workload: Workload, topology: Topology, rank: int = 0) -> ShardingPlan:
    option = TableOption(sharding_type=ShardingType.TABLE_WISE)
    return make_plan(
        topology,
        [make_sharding(table, topology, option, (rank,)) for table in workload.tables],
    )


@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_memory_of_a_plan_is_the_sum_of_its_shards_and_a_fixed_part(seed: int) -> None:
    workload = example_workload(12, seed=seed)
    plan = random_plan(workload, seed)
    sums, host = [0.0] * 4, [0.0] * 4
    for sharding in plan.tables:
        sizes = table_shard_bytes(workload, TOPOLOGY, sharding)
        for shard, size in zip(sharding.shards, sizes, strict=True):
            sums[shard.rank] += size.total
            host[shard.rank] += float(size.host)
    memory = memory_per_rank(workload, TOPOLOGY, plan)
    fixed = sum(fixed_bytes(workload, TOPOLOGY))
    assert [rank.total for rank in memory] == pytest.approx([fixed + size for size in sums])
    assert [rank.host for rank in memory] == pytest.approx(host)


@settings(max_examples=20)
@given(st.integers(0, 10**6))
def test_another_table_never_frees_memory(seed: int) -> None:
    workload = example_workload(6, seed=seed)
    fewer = replace(workload, tables=workload.tables[:-1])
    plan = random_plan(workload, seed)
    part = replace(plan, tables=plan.tables[:-1])
    more = memory_per_rank(workload, TOPOLOGY, plan)
    less = memory_per_rank(fewer, TOPOLOGY, part)
    assert all(a.total >= b.total for a, b in zip(more, less, strict=True))


def test_an_empty_rank_holds_only_the_fixed_part() -> None:
    workload = example_workload(3)
    memory = memory_per_rank(workload, TOPOLOGY, on_rank(workload, TOPOLOGY, rank=2))
    assert [rank.tables > 0 for rank in memory] == [False, False, True, False]
    assert memory[0].total == memory[0].dense_model + memory[0].activations


def test_a_cpu_rank_sorts_its_own_tables_and_keeps_room_for_any() -> None:
    cores = replace(TOPOLOGY, hardware=replace(TOPOLOGY.hardware, device=Device.CPU))
    tables = tuple(replace(each, pooling_factor=200.0) for each in example_workload(3).tables)
    workload = replace(example_workload(3), tables=tables)
    plan = on_rank(workload, cores, rank=2)
    kept = sum(fixed_bytes(workload, cores))
    at_hand = [
        float(size.at_hand)
        for sharding in plan.tables
        for size in table_shard_bytes(workload, cores, sharding)
    ]
    memory = memory_per_rank(workload, cores, plan)
    assert kept - memory[0].total == pytest.approx(most_at_hand_bytes(workload, cores))
    assert memory[2].activations - memory[0].activations == pytest.approx(max(at_hand))
    assert max(at_hand) > 0


def test_usable_is_what_the_reserve_and_the_fixed_part_leave() -> None:
    workload = example_workload(3)
    assert usable_bytes(workload, TOPOLOGY) == pytest.approx(
        0.9 * 80 * GIB - sum(fixed_bytes(workload, TOPOLOGY))
    )


BIG = Workload(
    tables=tuple(
        EmbeddingTable(name=name, num_embeddings=rows * 1_000_000, embedding_dim=128)
        for name, rows in (("items", 90), ("ads", 60), ("users", 30), ("pages", 2), ("days", 1))
    ),
)
GIANT = EmbeddingTable(
    name="giant",
    num_embeddings=200_000_000,
    embedding_dim=128,
    sharding_types=(ShardingType.TABLE_WISE,),
)


def topology(num_gpus: int) -> Topology:
    return Topology(hardware=example_hardware(), world_size=num_gpus, local_world_size=num_gpus)


def test_a_plan_that_does_not_fit_says_where_and_by_how_much() -> None:
    with pytest.raises(InfeasibleError, match=r"rank 1 needs 88.") as error:
        check_memory(BIG, topology(4), on_rank(BIG, topology(4), rank=1))
    assert "leaves 71." in str(error.value)


def test_the_fullest_rank_is_the_one_that_lacks_most() -> None:
    """Ranks 0 and 1 have 71 and 17 GiB; one needs 88 GiB, the other none, whichever it is."""
    unlike = replace(topology(2), withheld_bytes=(0.0, 60 * GIB))
    for rank, room in ((0, "71."), (1, "17.")):
        with pytest.raises(InfeasibleError, match=rf"rank {rank} needs 88.*leaves {room}"):
            check_memory(BIG, unlike, on_rank(BIG, unlike, rank))
    some = replace(BIG, tables=BIG.tables[1:2])  # 29 GiB
    assert fits(some, unlike, on_rank(some, unlike, 0))
    assert not fits(some, unlike, on_rank(some, unlike, 1))


@pytest.mark.parametrize(
    ("kind", "kernel", "ranks", "copies"),
    [
        (ShardingType.TABLE_WISE, ComputeKernel.FUSED, (0,), 1),
        (ShardingType.DATA_PARALLEL, ComputeKernel.DENSE, (), 4),
    ],
)
def test_the_least_of_a_table_is_one_piece_or_where_it_must_be_a_copy_on_every_rank(
    kind: ShardingType, kernel: ComputeKernel, ranks: tuple[int, ...], copies: int
) -> None:
    table = replace(BIG.tables[-1], sharding_types=(kind,))
    workload = replace(BIG, tables=(table,))
    option = TableOption(sharding_type=kind, compute_kernel=kernel)
    sizes = table_shard_bytes(workload, TOPOLOGY, make_sharding(table, TOPOLOGY, option, ranks))
    assert len(sizes) == copies
    assert least_table_bytes(workload, TOPOLOGY, table) == sum(float(s.total) for s in sizes)


def test_a_plan_that_fits_passes() -> None:
    workload = example_workload(3)
    check_memory(workload, TOPOLOGY, on_rank(workload, TOPOLOGY))


def test_infeasible_shows_the_sum_and_what_one_gpu_has() -> None:
    error = infeasible(BIG, topology(1))
    assert str(error).startswith("no plan fits: the tables need 88.")
    assert "1 × example leaves 71." in str(error)
    details = dict(error.details)
    assert details["per GPU"].startswith("80.0 GiB HBM  -  ")
    assert details["per GPU"].endswith(" GiB")
    assert details["largest"].startswith("items 43.")
    assert "2 more 1." in details["largest"]


def test_the_memory_that_is_short_is_the_one_that_is_told() -> None:
    table = replace(GIANT, compute_kernels=(ComputeKernel.FUSED_UVM,))
    workload = Workload(tables=(table, *BIG.tables))
    hosted = dict(infeasible(workload, topology(1), place=Place.HOST).details)
    assert "per GPU" not in hosted
    there = topology(1).hardware.host.memory_bytes
    assert hosted["per host"] == (
        f"{size_text(there)} host memory  -  {size_text(there / 10)} for the system (a tenth)"
        f"  =  {size_text(0.9 * there)}"
    )
    weights = size_text(table.weight_bytes)
    assert hosted["largest"] == f"{table.name} {weights}    (in host memory)"
    both = dict(infeasible(workload, topology(1), place=Place.BOTH).details)
    assert list(both) == ["per GPU", "per host", "largest"]
    assert both["largest"].startswith(f"{table.name} ")
    assert both["largest"].endswith("(in HBM and host memory, with buffers)")


def test_of_cpus_neither_gpus_nor_hbm_are_spoken_of() -> None:
    cores = replace(topology(4), hardware=replace(topology(4).hardware, device=Device.CPU))
    error = infeasible(Workload(tables=(GIANT,)), cores)
    assert dict(error.details)["per rank"].startswith("80.0 GiB memory  -  ")
    assert not [each for _, each in error.details if "GPU" in each or "HBM" in each]


def test_a_rank_without_anything_takes_nothing() -> None:
    assert RankMemory().total == RankMemory().tables == RankMemory().host == 0.0


def test_every_reserve_is_named() -> None:
    """A tenth of what is there, of 70 GiB where 10 are withheld from the rank that has most."""
    reserve = r"80.0 GiB HBM  -  .* dense  -  .* activations  -  8.0 GiB reserve \(a tenth\)  =  "
    assert re.match(reserve, dict(infeasible(BIG, topology(1)).details)["per GPU"])
    capped = replace(topology(2), withheld_bytes=(20 * GIB, 10 * GIB))
    line = dict(infeasible(BIG, capped).details)["per GPU"]
    assert line.startswith("80.0 GiB HBM  -  10.0 GiB withheld  -  ")
    assert "  -  7.0 GiB reserve (a tenth)  =  62." in line
    host = replace(capped.hardware.host, memory_bytes=256 * GIB)
    two = replace(capped, hardware=replace(capped.hardware, host=host))
    assert host_reserve_text(two) == " (of 256.0 GiB, of which a tenth is kept for the system)"
    assert host_reserve_text(two, 2).startswith(" (of 512.0 GiB, ")


def test_host_memory_can_run_out_too() -> None:
    huge = EmbeddingTable(
        name="huge",
        num_embeddings=3_000_000_000,
        embedding_dim=128,
        compute_kernels=(ComputeKernel.FUSED_UVM,),
    )
    option = TableOption(
        sharding_type=ShardingType.TABLE_WISE, compute_kernel=ComputeKernel.FUSED_UVM
    )
    half = replace(huge, name="half", num_embeddings=1_500_000_000)
    other = replace(half, name="other")
    for tables, ranks, short in (
        ((huge,), (0,), "node 0"), ((huge,), (3,), "node 1"),
        ((half, other), (0, 1), "node 0"), ((half, other), (1, 2), None),
    ):  # fmt: skip
        workload = Workload(tables=tables)
        shardings = [
            make_sharding(table, TOPOLOGY, option, (rank,))
            for table, rank in zip(tables, ranks, strict=True)
        ]
        plan = make_plan(TOPOLOGY, shardings)
        assert fits(workload, TOPOLOGY, plan) == (short is None)
        if short:
            with pytest.raises(InfeasibleError, match=rf"{short} needs .* of host memory"):
                check_memory(workload, TOPOLOGY, plan)


STASHED = replace(
    example_workload(4),
    tables=tuple(replace(table, stash_weights=True) for table in example_workload(4).tables),
    local_batch_size=32768,
)
"""Weights of some GiB a rank, and activations of the dense part as large."""


def test_stashed_weights_and_the_activations_of_the_dense_part_share_their_place() -> None:
    kept = replace(
        STASHED, tables=tuple(replace(table, stash_weights=False) for table in STASHED.tables)
    )
    plan = on_rank(STASHED, TOPOLOGY)
    for work in (STASHED, replace(STASHED, restore_site=1)):
        peak = dense_peak_bytes(work, TOPOLOGY)
        before, after = (memory_per_rank(each, TOPOLOGY, plan) for each in (kept, work))
        assert 0 < peak < after[0].stashed == after[0].weights == after[0].host
        assert before[0].total - after[0].total == pytest.approx(peak)
        assert after[1].total == pytest.approx(before[1].total)  # it has nothing to stash
    late, early = (dense_peak_bytes(replace(STASHED, restore_site=at), TOPOLOGY) for at in (0, 4))
    assert early < late


def with_room(work: Workload, room: float) -> Topology:
    """Return ranks that have so many bytes for tables."""
    memory = (room + sum(fixed_bytes(work, TOPOLOGY))) / 0.9
    hardware = TOPOLOGY.hardware
    small = replace(hardware, gpu=replace(hardware.gpu, memory_bytes=memory))
    return replace(TOPOLOGY, hardware=small)


@pytest.mark.parametrize("stashed", [4, 2])
@settings(max_examples=30)
@given(st.integers(0, 10**6), st.floats(1.01, 8.0))
def test_a_plan_that_fits_as_a_search_counts_fits_at_lookups_and_in_the_dense_part(
    stashed: int, seed: int, times: float
) -> None:
    tables = (replace(one, stash_weights=i < stashed) for i, one in enumerate(STASHED.tables))
    work = replace(STASHED, tables=tuple(tables))
    ranks = with_room(work, times * dense_peak_bytes(work, TOPOLOGY))
    problem = ShardingProblem.of(work, ranks)
    plan, held = random_plan(work, seed), [0.0] * 4
    for sharding in plan.tables:
        table = work.table(sharding.table)
        sizes = problem.groundwork.option_bytes(table, option_of(sharding, table))
        for shard, size in zip(sharding.shards, sizes, strict=True):
            held[shard.rank] += size.total
    has_room = fits(work, ranks, plan)
    assert has_room or max(held) > rank_rooms(work, ranks)[0]
    if has_room and not any("data_parallel" in str(one.sharding_type) for one in plan.tables):
        assert stashed < 4 or max(held) <= rank_rooms(work, ranks)[0] * (1 + 1e-9)


def test_tables_that_take_all_there_is_could_be_held() -> None:
    """In HBM, or in hosts' memory, of which a tenth is the system's; a byte more could not."""
    needed = least_table_bytes(BIG, TOPOLOGY, BIG.tables[0])
    work = replace(BIG, tables=BIG.tables[:1])
    hosted = replace(
        work, tables=(replace(BIG.tables[0], compute_kernels=(ComputeKernel.FUSED_UVM,)),)
    )
    for missing in (0.0, 1.0):
        ranks = with_room(work, (needed - missing) / 4)
        assert sum(rank_rooms(work, ranks)) == pytest.approx(needed - missing, abs=1e-3)
        assert could_hold(work, with_room(work, (needed + 1e-3 - missing) / 4)) == (not missing)
        host = replace(
            TOPOLOGY.hardware.host,
            memory_bytes=(work.tables[0].weight_bytes + 1e-3 - missing) / 0.9 / 2,
        )
        nodes = replace(TOPOLOGY, hardware=replace(TOPOLOGY.hardware, host=host))
        assert could_hold(hosted, nodes) == (not missing)


def test_tables_may_take_the_room_of_activations_only_as_far_as_they_leave_it() -> None:
    peak = dense_peak_bytes(STASHED, TOPOLOGY)
    assert rank_rooms(STASHED, with_room(STASHED, 0.9 * peak)) == (0.0,) * 4
    ranks = with_room(STASHED, 2 * peak)
    assert dense_part_ratio(STASHED, ranks) == pytest.approx(2.0)
    unlike = replace(ranks, withheld_bytes=(0.0, peak / 0.9 / 2, 0.0, 0.0))
    assert dense_part_ratio(STASHED, unlike) == pytest.approx(1.5 / (1.5 - 1.0))
    unstashed = replace(STASHED, tables=(replace(STASHED.tables[0], stash_weights=False),))
    assert dense_part_ratio(unstashed, ranks) == 1.0
