"""Ranks with memory of their own, NVLink domains of several hosts, tables around other tables."""

from inspect import signature
from pathlib import Path

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

import torch
from torchrec.distributed.planner.types import (
    CustomTopologyData,
    ParameterConstraints,
    PlannerError,
    Topology,
)
from torchrec_cases import GIB, QUIET, SHARDERS, bags, table

from costmodel.memory.rank_memory import check_memory, memory_per_rank, rank_rooms
from planner import load_plan
from planner.torchrec import IterationTimePlanner, Solution, load_torchrec_plan, save_plan

HAS_PODS = pytest.mark.skipif(
    "pod_size" not in signature(Topology.__init__).parameters,
    reason="the installed torchrec knows no pods",
)
WHOLE = ParameterConstraints(sharding_types=["table_wise"], compute_kernels=["fused"])


@HAS_PODS
@pytest.mark.parametrize(("hosts", "size"), [("2", 4), (None, 2)])
def test_the_jobs_environment_says_how_many_hosts_a_domain_has(
    monkeypatch: pytest.MonkeyPatch, hosts: str | None, size: int
) -> None:
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda *_: 8)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.delenv("TOPOLOGY_DOMAIN_MULTIPLE", raising=False)
    if hosts is not None:
        monkeypatch.setenv("TOPOLOGY_DOMAIN_MULTIPLE", hosts)
    made = IterationTimePlanner(batch_size=64, hardware="h100-sxm", sharder="cost_greedy")
    assert solved(made, bags(table("a"))).topology.local_world_size == size


def solved(planner: IterationTimePlanner, module: torch.nn.Module) -> Solution:
    planner.plan(module, SHARDERS)
    assert planner.solution is not None
    return planner.solution


def capped(*gib: float) -> Topology:
    caps = [int(each * GIB) for each in gib]
    return Topology(
        world_size=len(caps),
        compute_device="cuda",
        custom_topology_data=CustomTopologyData({"hbm_cap": caps}, len(caps)),
        **QUIET,
    )


@pytest.mark.parametrize(
    "sharder", ["auto", "cost_greedy", "ilp", "annealing", "size_greedy", "beam", "lp"]
)
def test_every_rank_holds_no_more_than_it_can(sharder: str) -> None:
    tables = [table(f"t{i}", rows=2_000_000) for i in range(6)]  # 0.5 GB each
    planner = IterationTimePlanner(
        capped(4, 1, 1, 1),
        64,
        constraints={each.name: WHOLE for each in tables},
        sharder=sharder,
        timeout_seconds=0.5,
        hardware="h100-sxm",
    )
    found = solved(planner, bags(*tables))
    check_memory(found.workload, found.topology, found.plan)
    held = memory_per_rank(found.workload, found.topology, found.plan)
    rooms = rank_rooms(found.workload, found.topology)
    assert [round(room / GIB, 1) for room in rooms] == [3.6, 0.9, 0.9, 0.9]
    # three ranks have room for one table each: the large one has the others
    assert held[0].tables > 2 * max(each.tables for each in held[1:])


@HAS_PODS
def test_hosts_of_one_nvlink_domain_are_a_node(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHREC_RESOLVED_POD_SIZE", raising=False)

    def pod(pod_size: int | None) -> Topology:
        return Topology(
            world_size=4,
            local_world_size=2,
            pod_size=pod_size,
            compute_device="cuda",
            **QUIET,
        )

    kinds = {"a": ParameterConstraints(sharding_types=["table_row_wise"])}
    planners = [
        IterationTimePlanner(
            pod(size), 4096, constraints=kinds, hardware="h100-sxm", sharder="cost_greedy"
        )
        for size in (None, 2)
    ]
    apart, together = (solved(each, bags(table("a", rows=100_000))) for each in planners)
    assert (apart.topology.num_nodes, together.topology.num_nodes) == (2, 1)
    sharding = together.torchrec_plan.plan[""]["a"]
    assert sharding.ranks == [0, 1, 2, 3]
    placed = [str(shard.placement) for shard in sharding.sharding_spec.shards]
    # devices are numbered in a host, not in the domain
    assert placed == ["rank:0/cuda:0", "rank:1/cuda:1", "rank:2/cuda:0", "rank:3/cuda:1"]
    assert caplog.text.count("TORCHREC_RESOLVED_POD_SIZE=2 in the environment of all ranks") == 1
    monkeypatch.setenv("TORCHREC_RESOLVED_POD_SIZE", "2")
    caplog.clear()
    solved(planners[1], bags(table("a", rows=100_000)))
    assert "TORCHREC_RESOLVED_POD_SIZE" not in caplog.text


@HAS_PODS
def test_a_domain_that_does_not_fit_is_told_by_its_pod_size() -> None:
    uneven = Topology(6, "cuda", local_world_size=2, pod_size=2, **QUIET)
    said = "the topology, whose pod_size 2 makes nodes of 4 ranks: world_size 6 is not a multiple"
    with pytest.raises(PlannerError, match=said):
        IterationTimePlanner(uneven, 64, hardware="h100-sxm").plan(bags(table("a")), SHARDERS)


@HAS_PODS
def test_a_plan_over_domains_goes_through_a_file(tmp_path: Path) -> None:
    topology = Topology(
        world_size=4,
        local_world_size=2,
        pod_size=2,
        compute_device="cuda",
        **QUIET,
    )
    planner = IterationTimePlanner(topology, 64, hardware="h100-sxm", sharder="cost_greedy")
    module = bags(table("a", rows=100_000), table("b"))
    found = solved(planner, module)
    save_plan(tmp_path / "plan.json", found)
    assert load_torchrec_plan(tmp_path / "plan.json", module, SHARDERS) == found.torchrec_plan


def test_more_ranks_bring_their_memory_of_hosts() -> None:
    """238 GiB that must be in host memory, of which a rank has 128: 3 ranks hold it, 2 do not."""
    constraints = {"a": ParameterConstraints(compute_kernels=["fused_uvm_caching"])}
    model = bags(table("a", rows=500_000_000, dim=128))

    def plan(world_size: int) -> None:
        topology = Topology(world_size=world_size, compute_device="cuda", **QUIET)
        IterationTimePlanner(
            topology, 64, hardware="a100-sxm-80gb", constraints=constraints, timeout_seconds=20.0
        ).plan(model, SHARDERS)

    with pytest.raises(PlannerError) as raised:
        plan(2)
    lines = str(raised.value).splitlines()
    assert "the host has 230.4 GiB for them (of 256.0 GiB, of which a tenth" in lines[0]
    assert any(line.startswith("world size 3: a plan that fills ") for line in lines), lines
    plan(3)


def of_groups(**settings: object) -> IterationTimePlanner:
    job = Topology(world_size=32, local_world_size=8, compute_device="cuda", **QUIET)
    return IterationTimePlanner(job, 64, hardware="h100-sxm", sharder="cost_greedy", **settings)


@pytest.mark.parametrize(("consecutive", "local"), [(False, 4), (True, 8)])
def test_a_plan_is_one_groups_of_a_dmp_collection(
    tmp_path: Path, *, consecutive: bool, local: int
) -> None:
    made = of_groups(sharding_group_size=16, use_inter_host_allreduce=consecutive, sync_interval=10)
    solution = solved(made, bags(table("a", rows=10_000_000)))
    topology = solution.topology
    assert (topology.world_size, topology.local_world_size, topology.num_ranks) == (16, local, 32)
    alone = solved(of_groups(), bags(table("a"))).topology
    assert topology.host_memory_bytes == pytest.approx(alone.host_memory_bytes * local / 8)
    assert topology.replicas is not None
    assert topology.replicas.sync_interval == 10
    assert max(shard.rank for each in solution.plan.tables for shard in each.shards) < 16
    save_plan(tmp_path / "plan.json", solution)
    assert load_plan(tmp_path / "plan.json").topology == topology


@pytest.mark.parametrize("size", [1, 3, 12, 64])
def test_a_group_size_that_does_not_divide_the_job_is_refused(size: int) -> None:
    with pytest.raises(PlannerError, match="sharding_group_size"):
        of_groups(sharding_group_size=size)


def test_all_ranks_may_be_the_only_group() -> None:
    assert solved(of_groups(sharding_group_size=32), bags(table("a"))).topology.replicas is None
