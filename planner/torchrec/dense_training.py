"""The optimizer and precision of the dense part, as far as a script gives them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import nn

from costmodel.domain.workload import (
    TORCH_TYPES,
    DataType,
    DenseModel,
    Optimizer,
    OptimizerImplementation,
)
from planner.torchrec.arguments import named, unknown

ASSUMED_OPTIMIZER = Optimizer.ADAGRAD
"""The optimizer assumed where none is given: its work lies between SGD's and Adam's.

It updates all rows of replicated tables, so it decides whether these are worth it. A plan made for
it takes at most 1.18 times as long as one made for the true optimizer (SGD, Adagrad or Adam); SGD
assumed 1.63 times, Adam 1.68."""
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
"""Our optimizer with as much state per parameter, by class name of torch and TorchRec."""
HALF = {torch.float16: DataType.FP16, torch.bfloat16: DataType.BF16}
"""Our half precisions, by torch's."""

_OPTIMIZER_NAMES = {each.value: each for each in Optimizer} | {
    f"torch.optim.{name}": each for name, each in _OPTIMIZERS.items() if hasattr(torch.optim, name)
}
_PRECISIONS = {each.value: each for each in DataType} | TORCH_TYPES

OptimizerGiven: TypeAlias = Optimizer | str | type[torch.optim.Optimizer] | torch.optim.Optimizer
"""A workload file's name, or torch's optimizer, its class, or the name of that."""
PrecisionGiven: TypeAlias = DataType | str | torch.dtype
"""A workload file's name, or torch's type or its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseTraining:
    """How the dense part is trained; None: not given."""

    optimizer: Optimizer | None = None
    implementation: OptimizerImplementation | None = None
    precision: DataType | None = None

    @classmethod
    def told(
        cls, optimizer: OptimizerGiven | None, precision: PrecisionGiven | None
    ) -> "DenseTraining":
        """Return the training that a script gives.

        Raises
        ------
        torchrec.distributed.planner.types.PlannerError
            There is no such optimizer or precision.

        """
        name, implementation = None, None
        if optimizer is not None:
            name, implementation = _optimizer(optimizer), _implementation(optimizer)
        return cls(
            optimizer=name,
            implementation=implementation,
            precision=None if precision is None else named("precision", precision, _PRECISIONS),
        )

    def on(self, dense: DenseModel) -> DenseModel:
        """Return a dense model trained as given; where nothing is given, as it says itself."""
        return replace(
            dense,
            optimizer=self.optimizer or dense.optimizer,
            optimizer_implementation=self.implementation or dense.optimizer_implementation,
            precision=self.precision or dense.precision,
        )

    def applied(self, dense: DenseModel, layers: Iterable[nn.Linear]) -> DenseModel:
        """Return a dense model trained as given, else as assumed (``assumed``)."""
        assumed = replace(dense, optimizer=ASSUMED_OPTIMIZER, precision=assumed_precision(layers))
        return self.on(assumed)

    def text(self, dense: DenseModel) -> str:
        """Return the assumptions made where nothing is given; empty: there are none."""
        said = []
        if self.optimizer is None:
            said.append(f"dense_optimizer {dense.optimizer} (between SGD and Adam)")
        if self.precision is None:
            said.append(f"precision {dense.precision}")
        return _assumed(said)

    def beside(self, dense: DenseModel) -> str:
        """Return how this differs from a given dense model; empty: it does not."""
        default = DenseModel()
        settings = (
            ("dense_optimizer", self.optimizer, dense.optimizer, default.optimizer),
            ("precision", self.precision, dense.precision, default.precision),
        )
        said = [
            f"{name} {own} (default of `dense`)"
            for name, told, own, usual in settings
            if told is None and own == usual
        ]
        overruled = [
            f"{name} {told}, where `dense` says {own}"
            for name, told, own, usual in settings
            if told is not None and own not in {told, usual}
        ]
        taken = [f"taken of the dense part's training: {'; '.join(overruled)}"] if overruled else []
        return "\n".join([*taken, *filter(None, [_assumed(said)])])


def _assumed(said: Sequence[str]) -> str:
    return f"the dense part's training is not told, so assumed: {', '.join(said)}" if said else ""


def assumed_precision(layers: Iterable[nn.Linear]) -> DataType:
    """Return the layers' data type if it is half, else the type in which torch multiplies FP32."""
    types = {HALF.get(each.weight.dtype) for each in layers}
    half = types.pop() if len(types) == 1 else None
    if half is not None:
        return half
    return DataType.FP32 if torch.get_float32_matmul_precision() == "highest" else DataType.TF32


def _optimizer(given: OptimizerGiven) -> Optimizer:
    """Return the optimizer of a name, of torch's class, or of an instance of it."""
    if isinstance(given, str):
        return named("dense_optimizer", given, _OPTIMIZER_NAMES)
    kind = given if isinstance(given, type) else type(given)
    name = next((each.__name__ for each in kind.__mro__ if each.__name__ in _OPTIMIZERS), None)
    if name is None:
        raise unknown("dense_optimizer", kind.__name__, _OPTIMIZER_NAMES)
    if name == "SGD" and _setting(given, "momentum"):
        return Optimizer.ADAGRAD  # one number of state for a parameter, as momentum is
    return _OPTIMIZERS[name]


def _implementation(given: OptimizerGiven) -> OptimizerImplementation | None:
    """Return how a given optimizer object runs (foreach, fused); None: unknown."""
    for each in (OptimizerImplementation.FUSED, OptimizerImplementation.FOREACH):
        if _setting(given, each.value):
            return each
    return OptimizerImplementation.FOR_LOOP if _setting(given, "foreach") is False else None


def _setting(given: OptimizerGiven, name: str) -> object:
    defaults = given.defaults if isinstance(given, torch.optim.Optimizer) else {}
    return defaults.get(name)
