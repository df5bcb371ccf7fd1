"""Optimizer and precision of the dense part: as told, else assumed, which is said."""

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

import torch
from torch import nn
from torchrec.distributed.planner.types import PlannerError
from torchrec.optim import RowWiseAdagrad
from torchrec_cases import META, SHARDERS, bags, gpus, table

from costmodel.domain.workload import DataType, DenseModel, Optimizer, OptimizerImplementation
from planner.torchrec import IterationTimePlanner
from planner.torchrec.dense_training import DenseTraining, OptimizerGiven

PARAMETERS = [nn.Parameter(torch.zeros(2))]


class Mine(torch.optim.AdamW):
    """A script's own."""


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("adam", Optimizer.ADAM),
        ("Adam", Optimizer.ADAM),
        ("adamw", Optimizer.ADAM),
        ("torch.optim.AdamW", Optimizer.ADAM),
        ("SGD", Optimizer.SGD),
        ("RMSprop", Optimizer.ADAGRAD),
        ("row_wise_adagrad", Optimizer.ROWWISE_ADAGRAD),
        (Optimizer.ROWWISE_ADAGRAD, Optimizer.ROWWISE_ADAGRAD),
        (torch.optim.SGD, Optimizer.SGD),
        (torch.optim.Adagrad, Optimizer.ADAGRAD),
        (RowWiseAdagrad, Optimizer.ROWWISE_ADAGRAD),
        (Mine, Optimizer.ADAM),
        (Mine(PARAMETERS), Optimizer.ADAM),
        (torch.optim.SGD(PARAMETERS), Optimizer.SGD),
        # momentum is one number for each parameter, as Adagrad's state is
        (torch.optim.SGD(PARAMETERS, momentum=0.9), Optimizer.ADAGRAD),
    ],
)
def test_an_optimizer_is_told_by_name_class_or_instance(
    given: OptimizerGiven, read: Optimizer
) -> None:
    assert DenseTraining.told(given, None).optimizer is read


@pytest.mark.parametrize(
    ("settings", "read"),
    [
        ({"fused": True}, OptimizerImplementation.FUSED),
        ({"foreach": True}, OptimizerImplementation.FOREACH),
        ({"foreach": False}, OptimizerImplementation.FOR_LOOP),
        ({}, None),
    ],
)
def test_how_an_instance_runs_is_read(
    settings: dict[str, bool], read: OptimizerImplementation | None
) -> None:
    made = torch.optim.Adam(PARAMETERS, **settings)  # type: ignore[arg-type]
    assert DenseTraining.told(made, None).implementation is read


@pytest.mark.parametrize(
    ("told", "message"),
    [
        (("lion", None), r"unknown dense_optimizer `lion`; accepted are sgd, rowwise_adagrad, "),
        ((torch.optim.LBFGS, None), r"`LBFGS`; accepted are sgd, .*torch\.optim\.AdamW"),
        ((3, None), r"unknown dense_optimizer `int`"),
        ((None, "float64"), r"unknown precision `float64`; accepted are fp32, tf32, fp16, bf16"),
    ],
)
def test_what_is_unknown_is_refused_with_what_there_is(
    told: tuple[OptimizerGiven, str], message: str
) -> None:
    with pytest.raises(PlannerError, match=message):
        IterationTimePlanner(gpus(), 64, dense_optimizer=told[0], precision=told[1])


def read(model: nn.Module, **given: object) -> DenseModel:
    planner = IterationTimePlanner(gpus(), 64, hardware="h100-sxm", sharder="cost_greedy", **given)
    planner.plan(model, SHARDERS)
    assert planner.solution is not None
    return planner.solution.workload.dense


def model(dtype: torch.dtype = torch.float32) -> nn.Module:
    layer = nn.Linear(64, 1, device=META, dtype=dtype)
    return nn.ModuleDict({"tables": bags(table("a")), "over": layer})


def test_what_is_not_told_is_assumed_and_said(caplog: pytest.LogCaptureFixture) -> None:
    dense = read(model())
    assert (dense.optimizer, dense.precision) == ("adagrad", "fp32")
    assert (
        "the dense part's training is not told, so assumed: dense_optimizer adagrad (between "
        "SGD and Adam), precision fp32"
    ) in caplog.text


def test_what_is_told_is_not_said(caplog: pytest.LogCaptureFixture) -> None:
    dense = read(model(), dense_optimizer="adam", precision="bf16")
    assert (dense.optimizer, dense.precision) == ("adam", "bf16")
    assert "assumed" not in caplog.text


def test_arguments_come_before_the_dense_models_own(caplog: pytest.LogCaptureFixture) -> None:
    dense = read(model(), dense=DenseModel(optimizer=Optimizer.ADAM), precision="bf16")
    assert (dense.optimizer, dense.precision) == ("adam", "bf16")
    assert "assumed" not in caplog.text


def test_a_dense_model_that_says_otherwise_is_named(caplog: pytest.LogCaptureFixture) -> None:
    given = DenseModel(optimizer=Optimizer.ADAM, precision=DataType.BF16)
    dense = read(model(), dense=given, dense_optimizer="sgd", precision="bf16")
    assert (dense.optimizer, dense.precision) == ("sgd", "bf16")
    assert "dense part's training: dense_optimizer sgd, where `dense` says adam\n" in caplog.text


def test_defaults_of_a_dense_model_are_assumed(caplog: pytest.LogCaptureFixture) -> None:
    read(model(), dense=DenseModel(precision=DataType.BF16))
    assert "assumed: dense_optimizer sgd (default of `dense`)\n" in caplog.text


def test_weights_of_half_precision_are_seen() -> None:
    assert read(model(torch.bfloat16)).precision == "bf16"
    assert read(model(torch.float16)).precision == "fp16"


def test_what_torch_multiplies_in_is_seen() -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        assert read(model()).precision == "tf32"
    finally:
        torch.set_float32_matmul_precision(before)
