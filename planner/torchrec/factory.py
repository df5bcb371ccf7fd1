"""A workload read off the TorchRec model that a user's function makes."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

from torch import nn
from torchrec.distributed.planner.constants import BATCH_SIZE
from torchrec.distributed.planner.types import PlannerError as TorchRecError
from torchrec.distributed.sharding_plan import get_default_sharders

from costmodel.base.errors import InputError, Problem
from costmodel.domain.workload import DenseModel, EmbeddingTable, Workload
from planner.torchrec.exchange import DEVICE, placed
from planner.torchrec.model_reading import ModelTables, read_model
from planner.torchrec.modules import ModelReading
from planner.torchrec.replication import frozen_tables, unreplicated


def read_factory(
    spec: str, local_batch_size: int | None = None, dense: DenseModel | None = None
) -> tuple[Workload, dict[str, Any]]:
    """Return the workload of the model that ``module:function`` returns, and its tables' places.

    The module is looked for in the working directory, too. Read for CUDA; kernels in host memory
    are left out, as in a workload file that names none. The places are as a plan file has them.
    Without a dense model the model's linear layers are read.

    Raises
    ------
    InputError
        There is no such function, it needs arguments or returns no module, or one that cannot be
        planned.

    """
    batch = local_batch_size or BATCH_SIZE
    model = _factory(spec)()
    if not isinstance(model, nn.Module):
        raise _refused(spec, f"it returns a {type(model).__name__}, not a torch.nn.Module")
    reading = ModelReading(compute_device=DEVICE, local_batch_size=batch, dense=dense)
    try:
        read = read_model(model, get_default_sharders(), reading)
    except TorchRecError as error:
        raise _refused(spec, str(error)) from error
    if read is None or not read.tables:
        raise _refused(spec, "it has no embedding tables that a cost model knows")
    workload = Workload(
        name=spec,
        tables=tuple(replace(table, compute_kernels=()) for table in _allowed(read)),
        dense=read.dense,
        local_batch_size=batch,
        optimizer=read.optimizer,
    )
    places: dict[str, Any] = {"device": DEVICE, "tables": placed(read.locations, {})}
    if read.others:
        places["left_out"] = [each.fqn for each in read.others]
    return workload, places


def _allowed(model: ModelTables) -> Iterator[EmbeddingTable]:
    """Yield the tables, without the choice of replicating those that are frozen."""
    frozen = frozen_tables(model)
    for table in model.tables:
        yield unreplicated(table) if table.name in frozen else table


def _factory(spec: str) -> Callable[[], object]:
    module, _, function = spec.partition(":")
    if not (module and function):
        raise _refused(spec, "it must be written `module:function`")
    with _working_directory_importable():
        try:
            found = getattr(import_module(module), function, None)
        except ModuleNotFoundError as error:
            raise _refused(spec, f"no module `{error.name}` is found") from error
    if not callable(found):
        raise _refused(spec, f"`{module}` has no function `{function}`")
    try:
        signature(found).bind()
    except TypeError as error:
        raise _refused(spec, f"it is called without arguments: {error}") from error
    factory: Callable[[], object] = found
    return factory


def _refused(spec: str, reason: str) -> InputError:
    return InputError(spec, (Problem(message=f"no model can be read from `{spec}`: {reason}"),))


@contextmanager
def _working_directory_importable() -> Iterator[None]:
    directory = str(Path.cwd())
    sys.path.insert(0, directory)
    try:
        yield
    finally:
        sys.path.remove(directory)
