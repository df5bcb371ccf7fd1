"""How the dense part is trained, as far as a script tells: its optimizer and its precision."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import nn
from torchrec.distributed.planner.types import PlannerError

from costmodel.domain.workload import DataType, DenseModel, Optimizer, OptimizerImplementation
from planner.torchrec.error_types import INPUT_VALIDATION

ASSUMED_OPTIMIZER = Optimizer.ADAGRAD
"""What is assumed where nothing is told: it lies between SGD and Adam.

It updates replicated tables on all of their rows, so it decides whether these are worth it. Of 16
tables of 16 columns, of 1.4 to 8 million rows in all, on 8 H100, A100 or V100 (21 cases), the plan
made for another optimizer than the true one of SGD, Adagrad and Adam takes at most 1.18 times as
long as that made for the true one if Adagrad is assumed, 1.63 times if SGD is, 1.68 if Adam is."""
_OPTIMIZERS = {
    "SGD": Optimizer.SGD,
    "Adagrad": Optimizer.ADAGRAD,
    "RowWiseAdagrad": Optimizer.ROWWISE_ADAGRAD,
    "RMSprop": Optimizer.ADAGRAD,
    "Adam": Optimizer.ADAM,
    "AdamW": Optimizer.ADAM,
    "NAdam": Optimizer.ADAM,
    "RAdam": Optimizer.ADAM,
    "Adamax": Optimizer.ADAM,
    "Adadelta": Optimizer.ADAM,
    "PartialRowWiseAdam": Optimizer.PARTIAL_ROWWISE_ADAM,
}
"""Classes of torch and TorchRec, each as one with as much state for a parameter."""
_HALF = {torch.float16: DataType.FP16, torch.bfloat16: DataType.BF16}

OptimizerGiven: TypeAlias = Optimizer | str | type[torch.optim.Optimizer] | torch.optim.Optimizer
"""A name of a workload file's, or an optimizer of torch's or its class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseTraining:
    """What is told of the dense part's training; None: it is not."""

    optimizer: Optimizer | None = None
    implementation: OptimizerImplementation | None = None
    precision: DataType | None = None

    @classmethod
    def told(
        cls, optimizer: OptimizerGiven | None, precision: DataType | str | None
    ) -> "DenseTraining":
        """Return what a script says.

        Raises
        ------
        torchrec.distributed.planner.types.PlannerError
            There is no such optimizer or precision.

        """
        name, implementation = None, None
        if optimizer is not None:
            name, implementation = _optimizer(optimizer), _implementation(optimizer)
        if precision is not None and precision not in set(DataType):
            raise _unknown("precision", precision, list(DataType))
        return cls(
            optimizer=name,
            implementation=implementation,
            precision=None if precision is None else DataType(precision),
        )

    def on(self, dense: DenseModel) -> DenseModel:
        """Return a dense model trained as is told, and as it is itself where nothing is."""
        return replace(
            dense,
            optimizer=self.optimizer or dense.optimizer,
            optimizer_implementation=self.implementation or dense.optimizer_implementation,
            precision=self.precision or dense.precision,
        )

    def applied(self, dense: DenseModel, layers: Iterable[nn.Linear]) -> DenseModel:
        """Return a dense model trained as is told, else as is assumed (``assumed``)."""
        assumed = replace(dense, optimizer=ASSUMED_OPTIMIZER, precision=assumed_precision(layers))
        return self.on(assumed)

    def text(self, dense: DenseModel) -> str:
        """Return what is assumed where nothing is told; empty: all is told."""
        said = []
        if self.optimizer is None:
            said.append(f"dense_optimizer {dense.optimizer} (between SGD and Adam)")
        if self.precision is None:
            said.append(f"precision {dense.precision}")
        if not said:
            return ""
        return f"the dense part's training is not told, so assumed: {', '.join(said)}"


def assumed_precision(layers: Iterable[nn.Linear]) -> DataType:
    """Return the type of the layers' weights if it is half, else what torch multiplies FP32 in."""
    types = {_HALF.get(each.weight.dtype) for each in layers}
    half = types.pop() if len(types) == 1 else None
    if half is not None:
        return half
    return DataType.FP32 if torch.get_float32_matmul_precision() == "highest" else DataType.TF32


def _optimizer(given: OptimizerGiven) -> Optimizer:
    if isinstance(given, str):
        if given not in set(Optimizer):
            raise _unknown("dense_optimizer", given, list(Optimizer))
        return Optimizer(given)
    kind = given if isinstance(given, type) else type(given)
    name = next((each.__name__ for each in kind.__mro__ if each.__name__ in _OPTIMIZERS), None)
    if name is None:
        classes = [f"torch.optim.{each}" for each in _OPTIMIZERS if hasattr(torch.optim, each)]
        raise _unknown("dense_optimizer", kind.__name__, [*Optimizer, *classes])
    if name == "SGD" and _setting(given, "momentum"):
        return Optimizer.ADAGRAD  # one number of state for a parameter, as momentum is
    return _OPTIMIZERS[name]


def _implementation(given: OptimizerGiven) -> OptimizerImplementation | None:
    """Return how an optimizer that was made runs, if it was told."""
    for each in (OptimizerImplementation.FUSED, OptimizerImplementation.FOREACH):
        if _setting(given, each.value):
            return each
    return OptimizerImplementation.FOR_LOOP if _setting(given, "foreach") is False else None


def _setting(given: OptimizerGiven, name: str) -> object:
    defaults = given.defaults if isinstance(given, torch.optim.Optimizer) else {}
    return defaults.get(name)


def _unknown(argument: str, given: object, accepted: Sequence[object]) -> PlannerError:
    there = ", ".join(map(str, accepted))
    return PlannerError(f"unknown {argument} `{given}`; accepted are {there}", INPUT_VALIDATION)
