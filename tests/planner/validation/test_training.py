"""Models, batches and runs with torch and TorchRec: real processes, gloo, on CPU."""

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

import torch
from machines import machine

from bench import forked_python
from costmodel.domain.hardware import Device
from costmodel.domain.plan import (
    ComputeKernel,
    ShardingPlan,
    ShardingType,
    TableSharding,
    make_shards,
)
from costmodel.domain.workload import DenseModel, EmbeddingTable, Interaction, Pipeline, Workload
from costmodel.inputs.distribution import ReuseHistogram, UniqueFraction, Zipf, unique_curve
from planner.cli import main
from planner.files.plans import PlanFile, dump_plan_file, plan_text
from planner.files.profiles import dump_profile
from planner.validation import launch
from planner.validation.batches import draw_ids, draw_lengths, make_batch
from planner.validation.job import Job
from planner.validation.launch import RankFailedError, run_job
from planner.validation.trained_model import build_model

needs_two_cores = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="two ranks need a core each",
)


def workload(
    pipeline: Pipeline = Pipeline.NONE, interaction: Interaction = Interaction.CAT
) -> Workload:
    widths = (8, 8, 8) if interaction is Interaction.DOT else (8, 16, 8)
    return Workload(
        tables=tuple(
            EmbeddingTable(
                name=f"table.{i}",
                num_embeddings=50 + i,
                embedding_dim=width,
                pooling_factor=2.5,
                feature_names=("x", "y") if i == 1 else (),
            )
            for i, width in enumerate(widths)
        ),
        dense=DenseModel(
            num_dense_features=4,
            bottom_mlp=(16, 8),
            interaction=interaction,
            cross_layers=1,
            cross_rank=4,
            top_mlp=(16, 1),
        ),
        local_batch_size=16,
        pipeline=pipeline,
    )


def plan_file(kinds: tuple[ShardingType, ...], made: Workload) -> PlanFile:
    def sharding(index: int, table: EmbeddingTable) -> TableSharding:
        kind = kinds[index % len(kinds)]
        ranks = {ShardingType.TABLE_WISE: (index % 2,), ShardingType.COLUMN_WISE: (0, 1)}
        replicated = kind is ShardingType.DATA_PARALLEL
        return TableSharding(
            table=table.name,
            sharding_type=kind,
            compute_kernel=ComputeKernel.DENSE if replicated else ComputeKernel.FUSED,
            shards=make_shards(
                kind, table.num_embeddings, table.embedding_dim,
                ranks=ranks.get(kind, ()), world_size=2, local_world_size=2,
            ),
        )  # fmt: skip

    shardings = tuple(sharding(i, table) for i, table in enumerate(made.tables))
    plan = ShardingPlan(tables=shardings, world_size=2, local_world_size=2)
    return PlanFile(plan=plan, workload=made, hardware="cpu.yaml")


def write(file: PlanFile, path: Path) -> str:
    path.write_text(plan_text(dump_plan_file(file)))
    return str(path)


SOURCES = {"gpu.gemm.fp32": "made up", "gpu.gemm.bf16": "made up"}
MIXED = (ShardingType.ROW_WISE, ShardingType.COLUMN_WISE, ShardingType.DATA_PARALLEL)


@pytest.fixture
def forked_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ranks forked from a process that has imported TorchRec, instead of Python started."""

    def forked(module: str, *arguments: str) -> list[str]:
        return [*forked_python.python_command(), "-m", module, *arguments]

    monkeypatch.setattr(launch, "python_command", forked)


@pytest.mark.slow
@needs_two_cores
@pytest.mark.usefixtures("forked_ranks")
def test_plans_are_trained_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_training(tmp_path, capsys)


@pytest.mark.nightly
@needs_two_cores
def test_they_are_by_processes_with_an_environment_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_training(tmp_path, capsys)  # glibc reads it when a process starts


def check_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = replace(workload(Pipeline.SPARSE_DIST), gradient_accumulation_steps=2)
    plans = [
        write(plan_file((ShardingType.TABLE_WISE,), made), tmp_path / "whole.json"),
        write(plan_file(MIXED, made), tmp_path / "mixed.json"),
    ]
    profile = tmp_path / "cpu.yaml"
    hardware = replace(machine(device=Device.CPU), sources=SOURCES)
    profile.write_text(dump_profile(hardware))
    arguments = ["--hardware", str(profile), "--repeats", "2", "--steps", "2", "--json"]
    with pytest.raises(SystemExit) as done:
        main(["validate", *plans, *arguments])
    assert done.value.code == 0
    said = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in said["plans"]] == ["whole", "mixed"]
    for each in said["plans"]:
        assert len(each["rounds_s"]) == 2
        assert 0 < each["measured_s"] < 10
        measured = each["phases"][0]["measured_s"]
        assert measured["dense_forward"] > 0
        assert measured["lookup_backward"] > 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_plan_for_gpus_is_refused_on_a_machine_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = write(plan_file((ShardingType.TABLE_WISE,), workload()), tmp_path / "plan.json")
    with pytest.raises(SystemExit) as done:
        main(["validate", plan, "--hardware", "h100-sxm"])
    assert done.value.code == 4
    said = capsys.readouterr().err
    assert "the plan is for 2 GPUs (h100-sxm), and this machine has 0" in said
    assert "planner calibrate -o cpu.yaml" in said


def test_a_plan_that_cannot_be_trained_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = workload(Pipeline.DLRM)
    plan = write(plan_file((ShardingType.TABLE_WISE,), made), tmp_path / "plan.json")
    profile = tmp_path / "cpu.yaml"
    profile.write_text(
        dump_profile(replace(machine(device=Device.CPU), sources=SOURCES)), encoding="utf-8"
    )
    with pytest.raises(SystemExit) as done:
        main(["validate", plan, "--hardware", str(profile)])
    assert done.value.code == 3
    assert "pipeline `dlrm` is plain DLRM" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("forked_ranks")
def test_a_rank_that_fails_is_reported_with_its_last_words(tmp_path: Path) -> None:
    del tmp_path
    made = plan_file((ShardingType.TABLE_WISE,), workload())
    shards = made.plan.tables[0].shards
    broken = replace(made.plan.tables[0], shards=(replace(shards[0], rank=7),))
    plan = replace(made.plan, tables=(broken, *made.plan.tables[1:]))
    job = Job(num_plans=1, world_size=1, local_world_size=1, device="cpu", repeats=1)
    with pytest.raises(RankFailedError, match="rank 0 ended with exit code 1"):
        run_job([replace(made, plan=plan)], job, print)


@pytest.mark.parametrize("interaction", Interaction)
def test_every_interaction_has_a_model_that_trains(interaction: Interaction) -> None:
    made = workload(interaction=interaction)
    model = build_model(made)
    for module in model.modules():
        if isinstance(module, torch.nn.EmbeddingBag):
            module.to_empty(device="cpu")
            torch.nn.init.constant_(module.weight, 0.01)
    loss, _ = model(make_batch(made, np.random.default_rng(0)))
    loss.backward()
    assert loss.item() == pytest.approx(0.69, abs=0.05)  # log 2: it knows nothing yet


def test_lengths_have_the_pooling_factor_as_their_mean() -> None:
    lengths = draw_lengths(10_000, 2.25, np.random.default_rng(0))
    assert set(lengths.tolist()) == {2, 3}
    assert lengths.mean() == pytest.approx(2.25, abs=0.02)


@pytest.mark.parametrize(
    "inputs",
    [
        Zipf(exponent=0.0),
        Zipf(exponent=1.05),
        Zipf(exponent=0.8, hot_rows_first=True),
        ReuseHistogram(row_shares=(0.5, 0.3, 0.2), num_lookups=20_000),
        UniqueFraction(fraction=0.3, num_lookups=20_000),
    ],
)
def test_drawn_ids_hit_as_many_distinct_rows_as_the_law_says(
    inputs: Zipf | ReuseHistogram | UniqueFraction,
) -> None:
    table = EmbeddingTable(name="t", num_embeddings=30_011, embedding_dim=4, inputs=inputs)
    ids = draw_ids(table, 20_000, np.random.default_rng(1))
    assert 0 <= ids.min() <= ids.max() < 30_011
    expected = unique_curve(inputs, 30_011).unique_rows(20_000)
    assert len(np.unique(ids)) == pytest.approx(expected, rel=0.06)
