"""A model's dense part as a list of operators, read from a few small runs on a CPU."""

import logging
import random
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch
from torch import nn

from costmodel.operators.operator_list import OperatorList, Size
from planner.operators.batches import (
    BatchArguments,
    GivenBatch,
    given_batches,
    takes_keywords,
)
from planner.operators.combining import combined, grouped
from planner.operators.made_batches import (
    MOST_APART,
    made_batches,
    num_sequences,
    sizes_apart,
)
from planner.operators.recording import Recording, record
from planner.operators.refusals import ReadingError, refused
from planner.operators.stand_ins import DenseCopy, dense_copy

_ALIKE = "the sequences of a sample have one length in all features"


def read_operators(
    model: nn.Module,
    batches: Sequence[GivenBatch] | None = None,
    *,
    tables: Collection[str] = (),
    autocast: torch.dtype | None = None,
    name: str = "",
) -> OperatorList[Size]:
    """Return what a model's dense part runs in a step, at any size of a batch.

    Parameters
    ----------
    model
        On any device, the meta device too; it stays as it is.
    batches
        As forward takes them, a tuple being its arguments; None: they are made up, if forward
        takes a ``KeyedJaggedTensor``, dense numbers and labels, or TorchRec's ``Batch``.
    tables
        Paths of ``nn.Embedding`` and ``nn.EmbeddingBag`` modules that are planned as tables, as
        TorchRec's collections are.
    autocast
        The type of an autocast around forward; None: there is none but what is in it.

    Raises
    ------
    ReadingError
        It cannot be run, or what it runs depends on the data.

    """
    with quiet():
        return _read(model, batches, tables, autocast, name)


def _read(
    model: nn.Module,
    batches: Sequence[GivenBatch] | None,
    tables: Collection[str],
    autocast: torch.dtype | None,
    name: str,
) -> OperatorList[Size]:
    """Return what a model runs, as ``read_operators`` does."""
    copy, by_name = dense_copy(model, tables), takes_keywords(model)

    def recorded(runs: Sequence[BatchArguments]) -> list[Recording]:
        return [record(copy, each, autocast) for each in runs]

    def read(recordings: Sequence[Recording], *assumed: str) -> OperatorList[Size]:
        said = _assumed(copy, recordings[0], given=batches, autocast=autocast)
        try:
            return combined(recordings, copy.module, name=name, assumed=[*said, *assumed])
        except ValueError as error:
            raise refused(str(error)) from error

    if batches is not None:
        runs = recorded(given_batches(batches, by_name=by_name))
        needed = 3 + 3 * len(grouped(runs))  # terms, and a run to check
        if needed > len(runs):
            runs = recorded(given_batches(batches, needed, by_name=by_name))
        return read(runs)
    number, apart = num_sequences(model), None
    if 1 < number <= MOST_APART:
        with suppress(ReadingError):  # it may take sequences of one length only
            apart = read(recorded(made_batches(model, copy, sizes_apart(number))))
    if apart is not None and not apart.unexplained:
        return apart
    return read(recorded(made_batches(model, copy)), *([_ALIKE] if number > 1 else []))


@contextmanager
def quiet() -> Iterator[None]:
    """Keep random numbers as they were, and torch from warning those who trace by its FX.

    TorchRec's tensors set that warning off. An autocast for CUDA is one for the CPU meanwhile.
    """
    logger = logging.getLogger("torch.fx._symbolic_trace")
    before, logger.disabled = logger.disabled, True
    drawn, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - the global one
    try:
        with torch.random.fork_rng(devices=[]), _autocast_on_cpu():
            yield
    finally:
        logger.disabled = before
        random.setstate(drawn)
        np.random.set_state(of_numpy)  # noqa: NPY002 - as above


@contextmanager
def _autocast_on_cpu() -> Iterator[None]:
    """Have ``torch.autocast("cuda")`` cast on the CPU, where torch would turn it off."""
    begin = torch.autocast.__init__

    def on_cpu(self: Any, device_type: str, dtype: Any = None, *rest: Any, **more: Any) -> None:  # noqa: ANN401
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or torch.get_autocast_dtype("cuda")
        begin(self, device_type, dtype, *rest, **more)

    torch.autocast.__init__ = on_cpu
    try:
        yield
    finally:
        torch.autocast.__init__ = begin


def _assumed(
    copy: DenseCopy,
    recording: Recording,
    *,
    given: Sequence[GivenBatch] | None,
    autocast: torch.dtype | None,
) -> list[str]:
    """Return what was assumed while reading a model, as sentences."""
    around = "no autocast around forward"
    if autocast is not None:
        around = f"an autocast of {str(autocast).removeprefix('torch.')} around forward"
    said = [f"{around}, and kernels that a CPU has"]
    if given is None:
        said.append("batches are made up")
    if recording.made_loss:
        said.append("the model returns no loss: the sum of its outputs stands for it")
    if copy.on_meta:
        said.append("it has too many dense parameters for memory: it ran without data")
    if copy.materialized:
        said.append(f"{copy.materialized} parameters of the meta device have random values")
    if not copy.module.training:
        said.append("the model is in evaluation mode (`model.train()` changes that)")
    return said
