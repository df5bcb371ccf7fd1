"""Plans as files for training scripts: nothing is lost, and nothing but a plan is read."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import topology
from strategies import Case, cases
from table_options import table_options
from torchrec.distributed.types import BoundsCheckMode, CacheAlgorithm, KeyValueParams
from torchrec.distributed.types import ShardingPlan as TorchRecPlan

from costmodel.base.errors import PlanMismatchError
from costmodel.domain.plan import ComputeKernel, ShardingPlan, ShardingType, TableSharding
from costmodel.domain.workload import DenseModel, EmbeddingTable, Pipeline, Workload
from planner.files.disk import write_text
from planner.files.plans import PlanFile, dump_plan_file, plan_text
from planner.torchrec import export_plan, import_plan
from planner.torchrec.exchange import (
    make_torchrec_plan,
    take_torchrec_plan,
    write_torchrec_file,
)
from sharders.problem.options import make_plan, make_sharding

MODULES = ("", "sparse", "model.sparse_arch.ebc")


@st.composite
def cases_with_kernels(draw: st.DrawFn) -> Case:
    """Draw a plan with any kernel, and with shares of rows to cache."""
    workload, topology, plan = draw(cases())
    shardings = []
    for sharding in plan.tables:
        kernel = draw(st.sampled_from(ComputeKernel))
        if sharding.sharding_type is ShardingType.DATA_PARALLEL:
            kernel = ComputeKernel.DENSE
        share = draw(st.sampled_from([None, 0.1, 0.25]))
        if kernel is not ComputeKernel.FUSED_UVM_CACHING:
            share = None
        shardings.append(replace(sharding, compute_kernel=kernel, cache_load_factor=share))
    tables = tuple(replace(t, compute_kernels=tuple(ComputeKernel)) for t in workload.tables)
    return replace(workload, tables=tables), topology, replace(plan, tables=tuple(shardings))


@st.composite
def places(draw: st.DrawFn, plan: ShardingPlan) -> dict[str, dict[str, Any]]:
    """Draw where tables live, and what else TorchRec is told about them."""
    return {sharding.table: draw(a_place(sharding)) for sharding in plan.tables}


@st.composite
def a_place(draw: st.DrawFn, sharding: TableSharding) -> dict[str, Any]:
    flag = st.sampled_from([None, True, False])
    cache = {
        "algorithm": draw(st.sampled_from([None, *(each.name for each in CacheAlgorithm)])),
        "precision": draw(st.sampled_from([None, "FP16"])),
        "reserved_memory": draw(st.sampled_from([None, 0.0, 2.5])),
        "prefetch_pipeline": draw(flag),
    }
    said = {
        "enforce_hbm": draw(flag),
        "stochastic_rounding": draw(flag),
        "bounds_check_mode": draw(st.sampled_from([None, *(m.name for m in BoundsCheckMode)])),
        "output_dtype": draw(st.sampled_from([None, "FP32", "BF16"])),
        "cache": draw(st.sampled_from([None, {k: v for k, v in cache.items() if v is not None}])),
    }
    if sharding.cache_load_factor is not None:
        said["cache"] = said["cache"] or {}
    return {
        "module": draw(st.sampled_from(MODULES)),
        "table": sharding.table,
        **{name: value for name, value in said.items() if value is not None},
    }


@pytest.mark.slow
def test_a_plan_file_comes_back_from_torchrec_as_it_was(tmp_path: Path) -> None:
    seen: set[str] = set()

    @given(st.data(), cases_with_kernels(), st.sampled_from(["cuda", "cpu"]))
    @settings(derandomize=True, max_examples=200)  # all types are drawn
    def there_and_back(data: st.DataObject, case: Case, device: str) -> None:
        workload, topology, plan = case
        if workload.pipeline is Pipeline.PREFETCH:  # its caches say so, which the file need not
            workload = replace(workload, pipeline=Pipeline.SPARSE_DIST)
        if all(each.sharding_type is ShardingType.DATA_PARALLEL for each in plan.tables):
            device = "cuda"  # such a plan has no placement to tell it by
        besides = {"device": device, "tables": data.draw(places(plan))}
        file = PlanFile(plan=plan, workload=workload, hardware="h100-sxm", torchrec=besides)
        write_text(tmp_path / "plan.json", plan_text(dump_plan_file(file)))
        made = export_plan(tmp_path / "plan.json", tmp_path / "plan.pt")
        loaded = torch.load(tmp_path / "plan.pt", weights_only=False)
        assert isinstance(loaded, TorchRecPlan)
        assert loaded == made
        assert import_plan(tmp_path / "plan.pt", workload, topology, "h100-sxm") == file
        seen.update(each.sharding_type for each in plan.tables)
        seen.update(each.compute_kernel for each in plan.tables)

    there_and_back()
    assert seen == {*ShardingType, *ComputeKernel}


@pytest.mark.slow
@given(st.data(), cases_with_kernels())
def test_a_torchrec_plan_comes_back_from_us_as_it_was(data: st.DataObject, case: Case) -> None:
    workload, topology, plan = case
    theirs = make_torchrec_plan(plan, data.draw(places(plan)))
    ours, besides = take_torchrec_plan(theirs, workload, topology)
    assert make_torchrec_plan(ours, besides["tables"], besides["device"]) == theirs


@pytest.fixture
def case() -> Case:
    dense = DenseModel(bottom_mlp=(8,), top_mlp=(1,))
    tables = tuple(
        EmbeddingTable(name=name, num_embeddings=99, embedding_dim=16) for name in ("a", "b")
    )
    workload, machine = Workload(tables=tables, dense=dense), topology(2)
    options = [table_options(workload, machine, table)[0] for table in tables]
    shardings = [
        make_sharding(table, machine, option, [0][: option.num_ranks])
        for table, option in zip(tables, options, strict=True)
    ]
    return workload, machine, make_plan(machine, shardings)


def in_torchrec(case: Case, *modules: str) -> TorchRecPlan:
    plan = case[2]
    where = {
        sharding.table: {"module": module, "table": sharding.table}
        for sharding, module in zip(plan.tables, modules, strict=True)
    }
    return make_torchrec_plan(plan, where)


def test_the_file_names_no_class_of_ours(case: Case, tmp_path: Path) -> None:
    write_torchrec_file(tmp_path / "plan.pt", in_torchrec(case, "m", "m"))
    named = torch.serialization.get_unsafe_globals_in_checkpoint(tmp_path / "plan.pt")
    assert {name.partition(".")[0] for name in named} <= {"torch", "torchrec", "fbgemm_gpu"}


def test_tables_of_one_name_are_told_apart_by_module(case: Case) -> None:
    workload, topology, _ = case
    renamed = tuple(
        replace(table, name=f"{module}.t")
        for table, module in zip(workload.tables, ("x", "y"), strict=True)
    )
    theirs = in_torchrec(case, "x", "y")
    for path, name in (("x", "a"), ("y", "b")):
        theirs.plan[path]["t"] = theirs.plan[path].pop(name)
    ours, besides = take_torchrec_plan(theirs, replace(workload, tables=renamed), topology)
    assert [each.table for each in ours.tables] == ["x.t", "y.t"]
    assert besides["tables"]["y.t"] == {"module": "y", "table": "t"}


def test_another_workloads_tables_are_refused(case: Case) -> None:
    workload, topology, _ = case
    one = replace(workload, tables=workload.tables[:1])
    with pytest.raises(PlanMismatchError, match="the plan has a table `b` that the workload lacks"):
        take_torchrec_plan(in_torchrec(case, "m", "m"), one, topology)


def test_what_a_plan_file_cannot_keep_is_refused(case: Case) -> None:
    workload, topology, _ = case
    theirs = in_torchrec(case, "m", "m")
    theirs.plan["m"]["a"].key_value_params = KeyValueParams()
    with pytest.raises(PlanMismatchError, match="table `a` has key_value_params"):
        take_torchrec_plan(theirs, workload, topology)
    theirs = in_torchrec(case, "m", "m")
    theirs.plan["m"]["a"].compute_kernel = "key_value"
    with pytest.raises(PlanMismatchError, match="table `a`: `key_value` is not a valid"):
        take_torchrec_plan(theirs, workload, topology)
    theirs = in_torchrec(case, "m", "m")
    theirs.plan["m"]["a"].ranks = [1]
    with pytest.raises(PlanMismatchError, match="table `a`: its ranks"):
        take_torchrec_plan(theirs, workload, topology)


def test_a_name_torchrec_lacks_is_refused(case: Case) -> None:
    place = {"module": "m", "output_dtype": "FP7"}
    where = {name: {**place, "table": name} for name in ("a", "b")}
    with pytest.raises(PlanMismatchError, match="table `a`: TorchRec knows no `FP7`"):
        make_torchrec_plan(case[2], where)
