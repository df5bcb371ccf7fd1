"""One forward and backward of a model, as the operators that torch dispatches."""

import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from costmodel.operators.operator_families import OperatorFamily, family_of
from costmodel.operators.operator_list import ElementType, Pass, SequenceSize
from planner.operators.batches import BatchArguments, leaves
from planner.operators.collectives import PASS_ON, communicates, num_ranks, result_alone
from planner.operators.refusals import GIVE_A_BATCH, ReadingError, refused
from planner.operators.stand_ins import DenseCopy, memory_of

if TYPE_CHECKING:
    from types import FrameType

_ALLOCATES = frozenset(
    f"aten::{name}"
    for name in ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
)
"""Operators that launch no kernel, besides views."""
_LIBRARY = str(Path(torch.__file__).parent)
_OWN = str(Path(__file__).parent)
_IN_PLACE = {"aten::index_put": "aten::_index_put_impl_"}
"""What runs in place of an operator, if not the one with ``_`` after its name."""


class RecordedTensor(NamedTuple):
    """A tensor of one run (see ``OperatorTensor``)."""

    sizes: tuple[int, ...]
    data_type: ElementType
    storage: int
    expanded: tuple[int, ...]


@dataclass(slots=True)
class RecordedOperator:
    """An operator of one run (see ``DenseOperator``)."""

    name: str
    direction: Pass
    inputs: list[RecordedTensor]
    outputs: list[RecordedTensor]
    reads: list[str]
    line: str
    """Where in the model's code it was called; empty in the backward."""
    transposed: bool = False
    causal: bool = False
    ranks: int = 1
    parameters: list[str] = field(default_factory=list)
    embeddings: list[str] = field(default_factory=list)

    @property
    def form(self) -> tuple[object, ...]:
        """What is the same in all runs."""
        counts = len(self.inputs), len(self.outputs)
        dimensions = [len(each.sizes) for each in (*self.inputs, *self.outputs)]
        return (self.name, self.direction, self.reads, self.ranks, *counts, *dimensions)


class Recording(NamedTuple):
    """One run."""

    samples: int
    sequences: Mapping[str, SequenceSize]
    """By feature that is not pooled."""
    operators: list[RecordedOperator]
    embeddings: Mapping[str, RecordedTensor]
    """What stand-ins gave."""
    made_loss: bool
    """Whether the model returned no loss, so that the sum of its outputs was taken."""


class _StorageNumbers:
    """Numbers of memory: negative where it was there before the run."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._kept: list[torch.UntypedStorage] = []
        """So that none is freed, and its place in memory given to another."""
        self._made = self._given = 0

    def number(self, tensor: torch.Tensor, *, given: bool = False) -> int:
        """Return the number of a tensor's storage; those of given tensors are negative."""
        key = memory_of(tensor)
        if key not in self._numbers:
            self._kept.append(tensor.untyped_storage())
            self._given += given
            self._numbers[key] = -self._given if given else self._made
            self._made += not given
        return self._numbers[key]


class Recorder(TorchDispatchMode):  # type: ignore[misc]  # torch has no types here
    """Keeps every operator that launches kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[RecordedOperator] = []
        self.direction = Pass.FORWARD
        self.storages = _StorageNumbers()
        self.embedding_of: dict[int, str] = {}
        """What stand-in gave a memory, by its number."""
        self.originals: frozenset[int] = frozenset()
        """Memory of the model that a copy runs in place of (``memory_of``)."""
        self.called: str = ""
        """The operator that was called last, and from where."""

    def __torch_dispatch__(
        self,
        operator: Any,  # noqa: ANN401 - torch's
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever it returns
        """Run an operator, and keep what it read and made."""
        del types
        kwargs = kwargs or {}
        name = operator._schema.name  # noqa: SLF001 - torch has no other way
        line = _line() if self.direction is Pass.FORWARD else ""
        self.called = f"`{name}`" + (f" ({line})" if line else "")
        tensors = list(_tensors((args, kwargs)))
        if self.originals and any(memory_of(each) in self.originals for each in tensors):
            raise refused(
                f"{self.called} reads a parameter of the model itself, not of its copy",
                "a lambda, a bound method or a compiled one that is kept as an attribute does",
            )
        inputs = [self._tensor(each, given=True) for each in tensors]
        if communicates(name):
            return self._join(name, args, inputs, line)
        if self._fills_zeros(name, inputs):
            name = _IN_PLACE.get(name, f"{name}_")
            packet = getattr(torch.ops.aten, name.removeprefix("aten::"))
            operator = getattr(packet, operator._overloadname)  # noqa: SLF001 - as above
        result = operator(*args, **kwargs)
        outputs = [self._tensor(each) for each in _tensors(result)]
        if self._launches(operator, name, inputs, outputs):
            self._keep(name, inputs, outputs, line)
            kept = self.operators[-1]
            kept.transposed = bool(_argument(operator, "transposed", args, kwargs))
            kept.causal = bool(_argument(operator, "is_causal", args, kwargs))
        return result

    def _join(
        self, name: str, args: tuple[Any, ...], inputs: list[RecordedTensor], line: str
    ) -> Any:  # noqa: ANN401 - whatever it returns
        """Keep a collective, and return what it gives where all ranks have the same."""
        if name in PASS_ON:
            return args[0]
        if family_of(name) is not OperatorFamily.COLLECTIVE:
            raise refused(f"it communicates between ranks by {self.called}")
        result = result_alone(name, args)
        self._keep(name, inputs, [self._tensor(each) for each in _tensors(result)], line)
        self.operators[-1].ranks = num_ranks(args)
        return result

    def _keep(
        self, name: str, inputs: list[RecordedTensor], outputs: list[RecordedTensor], line: str
    ) -> None:
        """Add an operator to those that were called."""
        reads = dict.fromkeys(self.embedding_of.get(each.storage, "") for each in inputs)
        self.operators.append(
            RecordedOperator(
                name, self.direction, inputs, outputs, [each for each in reads if each], line
            )
        )

    def _fills_zeros(self, name: str, inputs: Sequence[RecordedTensor]) -> bool:
        """Return whether an operator of the backward writes into zeros that were just made.

        Gradients of gathers do so in place, and leave the zeros alone only where a mode watches.
        """
        if self.direction is Pass.FORWARD or family_of(f"{name}_") is not OperatorFamily.SCATTER:
            return False
        last = self.operators[-1]
        made = last.outputs if family_of(last.name) is OperatorFamily.FILL else []
        return any(each.storage == inputs[0].storage for each in made)

    def _launches(
        self,
        operator: Any,  # noqa: ANN401 - torch's
        name: str,
        inputs: Iterable[RecordedTensor],
        outputs: list[RecordedTensor],
    ) -> bool:
        """Return whether an operator runs a kernel: views and allocations do not."""
        if name in _ALLOCATES or name.startswith("prim::"):
            return False
        if operator._schema.is_mutable or not outputs:  # noqa: SLF001 - as above
            return True
        read = {each.storage for each in inputs}
        return not all(each.storage in read for each in outputs)

    def _tensor(self, tensor: torch.Tensor, *, given: bool = False) -> RecordedTensor:
        return recorded(tensor, self.storages.number(tensor, given=given))


def _argument(
    operator: Any,  # noqa: ANN401 - torch's
    name: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Any:  # noqa: ANN401 - whatever it is
    """Return an argument that an operator is called with; None: it has none of that name."""
    for place, each in enumerate(operator._schema.arguments):  # noqa: SLF001 - as above
        if each.name == name:
            given = kwargs.get(name, each.default_value)
            return args[place] if place < len(args) else given
    return None


def recorded(tensor: torch.Tensor, storage: int) -> RecordedTensor:
    """Return what is kept of a tensor."""
    sizes, strides = tuple(map(int, tensor.shape)), tensor.stride()
    return RecordedTensor(
        sizes=sizes,
        data_type=element_type(tensor.dtype),
        storage=storage,
        expanded=tuple(
            i for i, (n, step) in enumerate(zip(sizes, strides, strict=True)) if n > 1 and not step
        ),
    )


def element_type(data_type: torch.dtype) -> ElementType:
    """Return a type of torch's.

    Raises
    ------
    ReadingError
        It is none of those that are known.

    """
    name = str(data_type).removeprefix("torch.")
    if name not in set(ElementType):
        raise refused(f"it has tensors of type {data_type}")
    return ElementType(name)


def _tensors(values: object) -> Iterator[torch.Tensor]:
    for each in tree_leaves(values):
        if isinstance(each, torch.Tensor) and each.layout is torch.strided:
            yield each


def _line() -> str:
    """Return the innermost line that is neither torch's nor of this package."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - as inspect, without reading files
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_LIBRARY, _OWN, "<")):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


class _Marks:
    """Notes in a recorder when gradients are there, and what stand-ins gave."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.embeddings: dict[str, RecordedTensor] = {}
        self._hooks: list[Any] = []

    def parameters(self, module: nn.Module) -> None:
        for name, each in module.named_parameters():
            self.recorder.storages.number(each, given=True)
            if each.requires_grad:
                mark = partial(self._parameter, name)
                self._hooks.append(each.register_post_accumulate_grad_hook(mark))

    def embedding(self, name: str, tensor: torch.Tensor) -> None:
        """Mark a tensor as a table's output, which gets a gradient."""
        number = self.recorder.storages.number(tensor, given=True)
        self.recorder.embedding_of[number] = name
        self.embeddings[name] = recorded(tensor, number)
        tensor.register_post_accumulate_grad_hook(partial(self._embedding, name))

    def remove(self) -> None:
        for each in self._hooks:
            each.remove()

    def _parameter(self, name: str, _: torch.Tensor) -> None:
        self.recorder.operators[-1].parameters.append(name)

    def _embedding(self, name: str, _: torch.Tensor) -> None:
        self.recorder.operators[-1].embeddings.append(name)


def record(
    copy: DenseCopy, batch: BatchArguments, autocast: torch.dtype | None = None
) -> Recording:
    """Run a model forward and backward once; return its operators.

    ``autocast`` is the type of one around forward.

    Raises
    ------
    ReadingError
        The model raised, or gives nothing that has a gradient.

    """
    module, given, recorder = copy.module, copy.given, Recorder()
    recorder.originals = copy.originals
    batch = (batch.on("meta") if copy.on_meta else batch).anew()
    marks = _Marks(recorder)
    given.clear()
    given.watch = marks.embedding
    marks.parameters(module)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(0)
        try:
            with recorder:
                with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
                    result = batch.run(module)
                loss, made_loss = _loss(result)
                recorder.direction = Pass.BACKWARD
                loss.backward()
        except Exception as error:  # whatever it is, the model raised it
            raise _raised(error, recorder, copy, batch) from error
        finally:
            marks.remove()
            module.zero_grad(set_to_none=True)
    samples = given.samples or batch.samples
    return Recording(
        samples, dict(given.sequences), recorder.operators, marks.embeddings, made_loss
    )


def _loss(result: object) -> tuple[torch.Tensor, bool]:
    """Return the loss, and whether it is made up.

    What a model returns as `loss`, or the first scalar, or else the sum of all that it returns.
    """
    if isinstance(result, Mapping) and isinstance(result.get("loss"), torch.Tensor):
        result = result["loss"]
    found = [each for each in leaves(result) if each.requires_grad]
    if not found:
        raise refused("its forward returns nothing that has a gradient")
    scalar = next((each for each in found if each.numel() == 1), None)
    if scalar is not None:
        return scalar.sum() if scalar.dim() else scalar, False
    total = found[0].sum()
    for each in found[1:]:
        total = total + each.sum()
    return total, True


def _raised(
    error: Exception, recorder: Recorder, copy: DenseCopy, batch: BatchArguments
) -> ReadingError:
    """Return the error of a model that raised one while it ran, with the line of its code."""
    if isinstance(error, ReadingError):
        return error
    said = str(error).strip().partition("\n")[0]
    frames = [
        f"{frame.filename}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_LIBRARY, _OWN, "<"))
    ]
    place = f" ({frames[-1]})" if frames else ""
    reason = f"it raised {type(error).__name__}: {said}{place}"
    if copy.on_meta:
        hint = (
            f"it has too many dense parameters for memory, and without data it cannot run "
            f"{recorder.called or 'at all'}"
        )
        return refused(reason, hint)
    return refused(reason, GIVE_A_BATCH if batch.made_up else None)
