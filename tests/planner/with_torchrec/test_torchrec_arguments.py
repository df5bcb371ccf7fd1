"""What the planner's arguments have to be, and how they may be spelled."""

import math
from collections.abc import Callable, Sequence

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

import torch
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.stats import EmbeddingStats
from torchrec.distributed.planner.types import ParameterConstraints, PlannerError, Topology
from torchrec.distributed.train_pipeline.train_pipelines import (
    TrainPipelineSemiSync,
    TrainPipelineSparseDist,
)
from torchrec_cases import GIB, QUIET, SHARDERS, TOLD, bags, gpus, table

from costmodel.domain.workload import DataType, Pipeline
from planner.torchrec import IterationTimePerfModel, IterationTimePlanner
from planner.torchrec.arguments import to_pipeline
from planner.torchrec.dense_training import DenseTraining
from planner.torchrec.error_types import INPUT_VALIDATION


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topology": 4}, "topology must be a Topology of TorchRec's, got 4"),
        ({"batch_size": "512"}, "batch_size must be a whole number, got '512'"),
        ({"batch_size": 512.0}, "batch_size must be a whole number, got 512.0"),
        ({"enumerator": EmbeddingEnumerator}, "got the class EmbeddingEnumerator"),
        ({"stats": [3]}, "stats must be Stats that were made, or a list of them, got [3]"),
        ({"constraints": [1]}, "constraints must be a dict of ParameterConstraints by table"),
        ({"callbacks": len}, "callbacks must be a list of functions"),
        ({"timeout_seconds": -1}, "timeout_seconds must be a number of seconds, 0 or more, got -1"),
        ({"timeout_seconds": "3"}, "timeout_seconds must be a number of seconds, 0 or more"),
        ({"timeout_seconds": math.nan}, "timeout_seconds must be a number of seconds, 0 or more"),
        ({"timeout_seconds": math.inf}, "timeout_seconds must be a number of seconds, 0 or more"),
        ({"pipeline": "semi"}, "unknown pipeline `semi`; accepted are none, sparse_d"),
        ({"plan_loader": object()}, "plan_loader must be a PlanLoader that was made"),
        ({"fixed_plan": {}}, "fixed_plan must be a ShardingPlan of TorchRec's, got {}"),
        ({"hardware": 3}, "hardware must be a HardwareProfile, its name or its path, got 3"),
        ({"dense": {"top_mlp": [1]}}, "dense must be a planner.DenseModel, got {"),
        ({"gradient_accumulation_steps": True}, "must be a whole number, got True"),
        ({"replicate": "yes"}, "replicate must be True, False or None, got 'yes'"),
        (
            {"constraints": {"t0": {"sharding_types": ["row_wise"]}}},
            "constraints of `t0` must be ParameterConstraints, got dict: ParameterConstraints(",
        ),
        (
            {"constraints": {"t0": ParameterConstraints(pooling_factors=["ten"])}},
            "pooling_factors of the constraints of `t0` must be a list of numbers, got ['ten']",
        ),
        (
            {"constraints": {"t0": ParameterConstraints(sharding_types="row_wise")}},
            "sharding_types of the constraints of `t0` must be a list, got 'row_wise'",
        ),
    ],
)
def test_another_type_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(PlannerError) as raised:
        IterationTimePlanner(**{"topology": gpus(), **given})
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("topology", "said"),
    [
        (lambda: gpus(0), "world_size of the topology must be from 1 to 4,096, got 0"),
        (lambda: gpus(10_000), "world_size of the topology must be from 1 to 4,096, got 10000"),
        (
            lambda: gpus(2, math.nan),
            "hbm_cap of the topology must be bytes from 0 to 1e+21, got nan",
        ),
        (lambda: gpus(2, -1), "got -1 on rank 0"),
        (
            lambda: Topology(world_size=2, compute_device="cuda", ddr_cap=math.inf, **QUIET),
            "ddr_cap of the topology must be bytes",
        ),
    ],
)
def test_a_topology_of_no_machine_is_refused(topology: Callable[[], Topology], said: str) -> None:
    for made in (IterationTimePlanner, IterationTimePerfModel):
        with pytest.raises(PlannerError) as raised:
            made(topology(), hardware="h100-sxm")
        assert said in str(raised.value)
        assert raised.value.error_type is INPUT_VALIDATION


def test_a_job_without_a_process_group_needs_a_topology() -> None:
    with pytest.raises(PlannerError, match="no topology is given") as raised:
        IterationTimePlanner()
    assert raised.value.error_type is INPUT_VALIDATION


@pytest.mark.parametrize(
    ("model", "sharders", "said"),
    [
        (None, SHARDERS, "the model must be a torch.nn.Module, got None"),
        (bags(table("a")), ["ebc"], "sharders must be ModuleSharders that were made, got 'ebc'"),
        (bags(table("a")), [type(SHARDERS[0])], "sharders must be ModuleSharders that were made"),
    ],
)
def test_what_is_no_model_or_sharder_is_refused(
    model: object, sharders: Sequence[object], said: str
) -> None:
    with pytest.raises(PlannerError) as raised:
        IterationTimePlanner(gpus(), hardware="h100-sxm").plan(model, sharders)
    assert said in str(raised.value)
    assert raised.value.error_type is INPUT_VALIDATION


def test_an_unknown_sharder_is_bad_input() -> None:
    planner = IterationTimePlanner(gpus(), hardware="h100-sxm", sharder="nope", **TOLD)
    with pytest.raises(PlannerError, match="unknown sharder `nope`") as raised:
        planner.plan(bags(table("a")), SHARDERS)
    assert raised.value.error_type is INPUT_VALIDATION


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(PlannerError) as raised:
        IterationTimePlanner(gpus(), "64", replicate=1, seed=0.5)  # type: ignore[arg-type]
    lines = str(raised.value).splitlines()
    assert [line.split()[0] for line in lines] == ["batch_size", "seed", "replicate"]


def test_the_performance_models_are_the_same() -> None:
    with pytest.raises(PlannerError, match="hardware must be a HardwareProfile"):
        IterationTimePerfModel(gpus(), hardware=3)  # type: ignore[arg-type]


def test_one_of_stats_or_several_are_taken() -> None:
    for stats in (EmbeddingStats(), [EmbeddingStats()], []):
        IterationTimePlanner(gpus(1, hbm_cap=GIB), 64, stats=stats, hardware="h100-sxm")


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("BF16", DataType.BF16),
        ("bfloat16", DataType.BF16),
        ("torch.bfloat16", DataType.BF16),
        (torch.bfloat16, DataType.BF16),
        (torch.float32, DataType.FP32),
        ("half", DataType.FP16),
        (DataType.TF32, DataType.TF32),
    ],
)
def test_precisions_go_by_torchs_names_too(
    given: DataType | str | torch.dtype, read: DataType
) -> None:
    assert DenseTraining.told(None, given).precision is read


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (Pipeline.SEMI_SYNC, Pipeline.SEMI_SYNC),
        ("semi_sync", Pipeline.SEMI_SYNC),
        ("semisync", Pipeline.SEMI_SYNC),
        ("TrainPipelineSparseDist", Pipeline.SPARSE_DIST),
        (TrainPipelineSparseDist, Pipeline.SPARSE_DIST),
        (TrainPipelineSemiSync, Pipeline.SEMI_SYNC),
        ("PrefetchTrainPipelineSparseDist", Pipeline.PREFETCH),
    ],
)
def test_pipelines_go_by_torchrecs_classes_too(given: str | type, read: Pipeline) -> None:
    assert to_pipeline(given) is read


def test_a_profile_that_is_not_there_has_a_suggestion() -> None:
    with pytest.raises(PlannerError, match=r"profile `h200`\nhint: did you mean `h200-sxm`\?"):
        IterationTimePlanner(gpus(), hardware="h200")
