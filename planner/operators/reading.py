"""A model's dense part as a list of operators, read from a few small runs on a CPU."""

from collections.abc import Collection, Sequence

from torch import nn

from costmodel.operators.operator_list import OperatorList, Size
from planner.operators.batches import GivenBatch, given_batches
from planner.operators.combining import combined
from planner.operators.made_batches import made_batches
from planner.operators.recording import Recording, record
from planner.operators.stand_ins import DenseCopy, dense_copy


def read_operators(
    model: nn.Module,
    batches: Sequence[GivenBatch] | None = None,
    *,
    tables: Collection[str] = (),
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

    Raises
    ------
    ReadingError
        It cannot be run, or what it runs depends on the data.

    """
    copy = dense_copy(model, tables)
    runs = made_batches(model, copy) if batches is None else given_batches(batches)
    recordings = [record(copy, each) for each in runs]
    return combined(
        recordings, copy.module, name=name, assumed=_assumed(copy, recordings[0], given=batches)
    )


def _assumed(
    copy: DenseCopy, recording: Recording, *, given: Sequence[GivenBatch] | None
) -> list[str]:
    said = ["an autocast around forward is not seen, and kernels are those that a CPU has"]
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
