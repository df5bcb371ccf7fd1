"""Reading a workload off the TorchRec model that a user's function returns."""

import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from inspect import iscoroutinefunction, signature
from pathlib import Path
from traceback import walk_tb
from typing import Any

from torch import nn
from torchrec.distributed.planner.constants import BATCH_SIZE
from torchrec.distributed.planner.types import PlannerError as TorchRecError
from torchrec.distributed.sharding_plan import get_default_sharders

from costmodel.base.errors import InputError, Problem
from costmodel.domain.workload import DenseModel, EmbeddingTable, Workload
from costmodel.operators.operator_list import OperatorList, Size
from planner.operators.reading import quiet, read_operators
from planner.torchrec.dense_reading import dense_messages
from planner.torchrec.dense_training import DenseTraining, OptimizerGiven, PrecisionGiven
from planner.torchrec.exchange import DEVICE, placed
from planner.torchrec.model_reading import ModelTables, read_model
from planner.torchrec.modules import ModelReading
from planner.torchrec.observed_inputs import to_batches
from planner.torchrec.replication import frozen_tables, unreplicated

_LOGGER = logging.getLogger(__name__)
_OWN_FRAMES = (__file__, importlib.__file__, "<frozen importlib")


def read_factory(
    spec: str,
    local_batch_size: int | None = None,
    *,
    dense: DenseModel | None = None,
    dense_optimizer: OptimizerGiven | None = None,
    precision: PrecisionGiven | None = None,
    batches: str | None = None,
    say: Callable[[str], None] = _LOGGER.warning,
) -> tuple[Workload, dict[str, Any]]:
    """Return the workload of the model that ``module:function`` returns, and its tables' places.

    The module is looked for in the working directory, too. The model is read for CUDA; kernels in
    host memory are left out, as in a workload file that names none. The places are as a plan file
    has them. Without a dense model the model's is read, with the batches that another function
    returns or made ones, and ``say`` is called with a text of how much that is and what is assumed;
    optimizer and precision as for ``IterationTimePlanner``.

    Raises
    ------
    InputError
        There is no such function, it needs arguments, raises or returns no module, or one that
        cannot be planned.

    """
    batch, model = local_batch_size or BATCH_SIZE, _model(spec)
    try:
        training = DenseTraining.told(dense_optimizer, precision)
        given = () if batches is None else _batches(batches)
        reading = ModelReading(
            compute_device=DEVICE,
            local_batch_size=batch,
            batches=to_batches(given),
            dense=dense,
            forward_batches=given,
            training=training,
        )
        with redirect_stdout(sys.stderr):  # the model runs
            read = read_model(model, get_default_sharders(), reading)
    except TorchRecError as error:
        raise _refused(spec, str(error)) from error
    if read is None or not read.tables:
        raise _refused(spec, "it has no embedding tables that a cost model knows")
    warned, known = dense_messages(read.dense_reading, training, dense)
    if warned:
        say(f"warning: {warned}")
    if known:
        _LOGGER.info("%s", known)
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


def read_factory_operators(spec: str, batches: str | None = None) -> OperatorList[Size]:
    """Return the operators of the dense part of the model that ``module:function`` returns.

    ``batches`` is another such function, which returns batches for ``read_operators``.

    Raises
    ------
    InputError
        As ``read_factory``.
    ReadingError
        The model cannot be run, or what it runs depends on the data.

    """
    with redirect_stdout(sys.stderr):  # as above
        model = _model(spec)
        given = None if batches is None else _batches(batches)
        return read_operators(model, given, name=spec)


def _batches(spec: str) -> list[Any]:
    with redirect_stdout(sys.stderr), quiet():  # as of a model
        given = _factory_model(spec, _factory(spec))
    if not isinstance(given, list):
        raise _refused(spec, f"it returns a {type(given).__name__}, not a list")
    return given


def _model(spec: str) -> nn.Module:
    with redirect_stdout(sys.stderr):  # what the user's code prints is not the command's output
        model = _factory_model(spec, _factory(spec))
    if not isinstance(model, nn.Module):
        raise _refused(spec, f"it returns a {type(model).__name__}, not a torch.nn.Module")
    return model


def _allowed(model: ModelTables) -> Iterator[EmbeddingTable]:
    """Yield the tables, with replication not allowed for frozen ones."""
    frozen = frozen_tables(model)
    for table in model.tables:
        yield unreplicated(table) if table.name in frozen else table


def _factory_model(spec: str, factory: Callable[[], object]) -> object:
    try:
        return factory()
    except (Exception, SystemExit) as error:  # whatever it is, the user's code raised it
        raise _refused(spec, f"it raised {_one_line(error)}") from error


def _one_line(error: BaseException) -> str:
    """Return an error's type and first line, and where in the user's code it was raised.

    That is the outermost frame that is neither in this file nor in Python's imports: the factory's
    own.
    """
    said = str(error).strip().splitlines()
    name = type(error).__name__ + (f": {said[0]}" if said else "")
    frames = ((frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__))
    place = next((each for each in frames if not each[0].startswith(_OWN_FRAMES)), None)
    return name if place is None else f"{name} ({place[0]}:{place[1]})"


def _factory(spec: str) -> Callable[[], object]:
    """Return the function that `module:function` names, which must need no arguments."""
    module, _, function = spec.partition(":")
    if not (module and function) or module.startswith("."):
        raise _refused(spec, "it must be written `module:function`")
    with _working_directory_importable():
        try:
            found = getattr(importlib.import_module(module), function, None)
        except ModuleNotFoundError as error:
            raise _refused(spec, f"no module `{error.name}` is found") from error
        except (Exception, SystemExit) as error:  # as when it is called
            raise _refused(spec, f"importing it raised {_one_line(error)}") from error
    if not callable(found):
        raise _refused(spec, f"`{module}` has no function `{function}`")
    if iscoroutinefunction(found):
        raise _refused(spec, "it is async: a function that is not can await it with asyncio.run")
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
