from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

import torch
import torchrec_cases
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import (
    CustomTopologyData,
    ParameterConstraints,
    Topology,
)
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import CacheParams
from torchrec_cases import (
    Model,
    bags,
    beside_fused,
    cases,
    embedding_bags,
    on_ranks,
    solved,
    table,
    too_wide,
)

import planner
from costmodel.base.errors import PlanMismatchError
from costmodel.domain.workload import DenseModel
from planner.torchrec import (
    IterationTimePlanner,
    export_plan,
    import_plan,
    load_torchrec_plan,
    read_factory,
    save_plan,
)
from planner.verbs.loading import judge

SHARDERS = [EmbeddingBagCollectionSharder()]
UNEVEN = CustomTopologyData(
    data={"ddr_cap": [64 * 2**30] * 2, "hbm_cap": [40 * 2**30, 60 * 2**30]}, world_size=2
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = IterationTimePlanner(on_ranks(2, 2, "cuda"), 64, timeout_seconds=0.1)
    made.plan(embedding_bags(), SHARDERS)
    assert made.solution is not None
    save_plan(tmp_path / "plan.json", made.solution)
    return tmp_path / "plan.json"


def test_a_plan_survives_its_file(tmp_path: Path) -> None:
    from torchrec_cases import AnySharder

    for _, constraints in cases():
        made = IterationTimePlanner(
            on_ranks(2, 2, "cuda"), 64, constraints=constraints, timeout_seconds=0.1
        )
        plan = made.plan(Model("meta"), [AnySharder()])
        assert made.solution is not None
        save_plan(tmp_path / "plan.json", made.solution)
        back = load_torchrec_plan(tmp_path / "plan.json", Model("meta"), [AnySharder()])
        assert {p: dict(m) for p, m in back.plan.items()} == {
            p: dict(m) for p, m in plan.plan.items()
        }


@pytest.mark.parametrize("by_sharder", [False, True])
def test_caches_in_a_file_are_as_large_as_they_were_predicted(
    tmp_path: Path, *, by_sharder: bool
) -> None:
    # the table's own share, which the plan need not repeat
    params = None if by_sharder else CacheParams(load_factor=0.05)
    sharder = EmbeddingBagCollectionSharder(
        fused_params={"cache_load_factor": 0.05} if by_sharder else None
    )
    cached = ParameterConstraints(compute_kernels=["fused_uvm_caching"], cache_params=params)
    module = bags(table("a"))
    made = IterationTimePlanner(
        on_ranks(2, 2, "cuda"), 64, constraints={"a": cached}, timeout_seconds=0.1
    )
    made.plan(module, [sharder])
    assert made.solution is not None
    assert made.solution.workload.table("a").cache_load_factor == 0.05
    save_plan(tmp_path / "plan.json", made.solution)
    exported = export_plan(tmp_path / "plan.json", tmp_path / "plan.pt")
    loaded = load_torchrec_plan(tmp_path / "plan.json", module, [sharder])
    assert [plan.plan[""]["a"].cache_params.load_factor for plan in (exported, loaded)] == [
        0.05
    ] * 2


@pytest.mark.parametrize(("share", "kept"), [(0.05, 0.05), (0.0, None)])
def test_cache_parameters_of_tables_without_a_cache_survive_the_file(
    tmp_path: Path, share: float, kept: float | None
) -> None:
    params = CacheParams(load_factor=share)
    fused = ParameterConstraints(compute_kernels=["fused"], cache_params=params)
    made = IterationTimePlanner(
        on_ranks(2, 2, "cuda"), 64, constraints={"a": fused}, sharder="cost_greedy"
    )
    plan = made.plan(bags(table("a")), SHARDERS)
    assert plan.plan[""]["a"].cache_params == params
    save_plan(tmp_path / "plan.json", solved(made))
    exported = export_plan(tmp_path / "plan.json", tmp_path / "plan.pt").plan[""]["a"]
    assert exported.cache_params == CacheParams(load_factor=kept)


@pytest.mark.parametrize(
    ("factory", "kind", "kernel"),
    [
        ("embedding_bags", "grid_shard", "fused"),
        ("embedding_bags", "row_wise", "fused_uvm"),
        ("Wrapped", "row_wise", "fused"),
    ],
)
def test_what_only_a_constraint_may_ask_for_is_judged(
    tmp_path: Path, factory: str, kind: str, kernel: str
) -> None:
    workload, _ = read_factory(f"torchrec_cases:{factory}", 64)
    first = ("t0", "t1", "t2")
    asked = ParameterConstraints(sharding_types=[kind], compute_kernels=[kernel], min_partition=4)
    made = IterationTimePlanner(
        on_ranks(4, 2, "cuda"), 64, constraints=dict.fromkeys(first, asked), sharder="cost_greedy"
    )
    plan = made.plan(getattr(torchrec_cases, factory)(), get_default_sharders())
    torch.save(plan, tmp_path / "plan.pt")
    file = import_plan(tmp_path / "plan.pt", workload, solved(made).topology, "h100-sxm")
    judged = judge(file).plan
    assert [judged.table(name).sharding_type for name in first] == [kind] * 3
    assert [judged.table(name).compute_kernel for name in first] == [kernel] * 3


def test_tables_that_only_torchrec_planned_are_missed_where_all_are_wanted(tmp_path: Path) -> None:
    file, module, sharders = tmp_path / "plan.json", beside_fused(), get_default_sharders()
    made = IterationTimePlanner(on_ranks(2, 2, "cuda"), 64, timeout_seconds=0.1)
    assert set(made.plan(module, sharders).plan) == {"plain", "fused"}
    assert made.solution is not None
    save_plan(file, made.solution)
    assert planner.load_plan(file).report.step_time > 0
    for loading in (
        lambda: export_plan(file, tmp_path / "plan.pt"),
        lambda: export_plan(file, tmp_path / "plan.pt", factory="torchrec_cases:beside_fused"),
        lambda: load_torchrec_plan(file, module, sharders),
    ):
        with pytest.raises(PlanMismatchError, match=r"that no plan file keeps: `fused\.b`"):
            loading()
    assert not (tmp_path / "plan.pt").exists()


def test_layers_of_the_model_are_not_read_where_the_file_has_some(tmp_path: Path) -> None:
    made = IterationTimePlanner(
        on_ranks(2, 2, "cuda"), 64, dense=DenseModel(top_mlp=(1,)), sharder="cost_greedy"
    )
    plan = made.plan(too_wide(), SHARDERS)
    file = tmp_path / "plan.json"
    save_plan(file, solved(made))
    assert load_torchrec_plan(file, too_wide(), SHARDERS) == plan
    exported = export_plan(file, tmp_path / "plan.pt", factory="torchrec_cases:too_wide")
    assert exported == plan


def test_the_command_line_tools_read_it(file: Path) -> None:
    assert planner.load_plan(file).report.step_time > 0


def test_another_models_tables_are_refused(file: Path) -> None:
    module = embedding_bags()
    module.embedding_bag_configs()[0].num_embeddings = 99
    with pytest.raises(PlanMismatchError, match="table `t0` is 99 x 8 in the model, 13 x 8 in"):
        load_torchrec_plan(file, module, SHARDERS)


@pytest.mark.parametrize(
    ("topology", "settings"),
    [
        (Topology(world_size=2, compute_device="cuda", hbm_cap=120 * 2**30), {}),
        (Topology(world_size=2, compute_device="cuda", hbm_cap=20 * 2**30), {}),
        (
            Topology(world_size=2, compute_device="cuda", hbm_cap=80 * 2**30),
            {"storage_reservation": FixedPercentageStorageReservation(0.9)},
        ),
        (Topology(world_size=2, compute_device="cuda", custom_topology_data=UNEVEN), {}),
    ],
    ids=["above the profile's", "below it", "a reservation", "uneven ranks"],
)
def test_a_file_is_judged_by_the_memory_that_its_plan_was_made_under(
    tmp_path: Path, topology: Topology, settings: dict[str, Any]
) -> None:
    made = IterationTimePlanner(
        topology, 64, hardware="a100-sxm-80gb", timeout_seconds=0.1, **settings
    )
    made.plan(embedding_bags(), SHARDERS)
    assert made.solution is not None
    save_plan(tmp_path / "plan.json", made.solution)
    loaded = planner.load_plan(tmp_path / "plan.json")
    assert loaded.topology == made.solution.topology
    assert loaded.report.step_time == pytest.approx(made.solution.step_time)
