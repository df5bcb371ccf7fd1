from pathlib import Path

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import CacheParams
from torchrec_cases import Model, bags, beside_fused, cases, embedding_bags, on_ranks, table

import planner
from costmodel.base.errors import PlanMismatchError
from planner.torchrec import IterationTimePlanner, export_plan, load_torchrec_plan, save_plan

SHARDERS = [EmbeddingBagCollectionSharder()]


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


def test_the_command_line_tools_read_it(file: Path) -> None:
    assert planner.load_plan(file).report.step_time > 0


def test_another_models_tables_are_refused(file: Path) -> None:
    module = embedding_bags()
    module.embedding_bag_configs()[0].num_embeddings = 99
    with pytest.raises(PlanMismatchError, match="table `t0` is 99 x 8 in the model, 13 x 8 in"):
        load_torchrec_plan(file, module, SHARDERS)
