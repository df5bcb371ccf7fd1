"""A real step of a model's dense part on a CPU, as torch's profiler sees it, beside its list."""

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from costmodel.operators.held_bytes import held_bytes
from costmodel.operators.operator_list import BatchSize
from planner.operators.made_batches import MadeSize, made_batches
from planner.operators.reading import read_operators
from planner.operators.stand_ins import DenseCopy, Given, dense_copy

BATCH = MadeSize(512, 50, 512 * 30)
"""Samples, longest history, and ids of each feature of histories."""
BACKWARD, LOOKUP = "backward", "lookup"
"""What profiles have the two as."""


class _Lookup(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    """Gives embeddings, and keeps their gradients, contiguous as TorchRec sends them."""

    @staticmethod
    def forward(ctx: Any, _: torch.Tensor, kept: "_FreedEmbeddings", shape: tuple[int, ...]) -> Any:  # noqa: ANN401 - torch's
        ctx.kept = kept
        return torch.rand(*shape)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, None, None]:  # noqa: ANN401 - torch's
        ctx.kept.gradients.append(gradient.contiguous())
        if len(ctx.kept.gradients) == ctx.kept.number:
            ctx.kept.gradients.clear()  # they are sent
        return None, None, None


class _FreedEmbeddings(Given):
    """Embeddings that, unlike those of stand-ins, are freed when nothing reads them any more."""

    def __init__(self) -> None:
        super().__init__()
        self.number, self.gradients = 0, list[torch.Tensor]()
        self.anchor = torch.zeros((), requires_grad=True)

    def made(self, _: str, *shape: int, device: torch.device | None = None) -> torch.Tensor:
        """Return a tensor of random numbers."""
        del device
        self.number += 1
        made: torch.Tensor = _Lookup.apply(self.anchor, self, shape)
        return made


def beside_the_profiler(model: nn.Module) -> dict[str, Any]:
    """Return the operators and bytes of a step, in the list and profiled."""
    copy = dense_copy(model)
    (batch,) = made_batches(model, copy, [BATCH])
    lookups = _prepare(copy)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        loss = copy.module(*batch.arguments)
        with record_function(BACKWARD):
            loss.backward()
    operators = read_operators(model)
    sequences = tuple(lookups.sequences[feature] for (feature,) in operators.groups)
    listed = operators.at(BatchSize(batch.samples, sequences))
    names = Counter(_plain(each.name) for each in listed.operators)
    seen, others = _counted(profiler, set(names))
    held, traced = held_bytes(listed), _traced_bytes(profiler)
    return {
        "operators": names.total(),
        "differences": {
            name: [names[name], seen[name]]
            for name in sorted(names | seen)
            if names[name] != seen[name]
        },
        "unlisted": sorted(others),
        "peak": [held.peak, traced[0]],
        "at_loss": [held.at_loss, traced[1]],
    }


def _prepare(copy: DenseCopy) -> Given:
    """Have lookups marked, and gradients of parameters freed, which no list holds."""
    lookups = _FreedEmbeddings()
    for module in copy.module.modules():
        if hasattr(module, "given"):
            module.given, own = lookups, module.forward
            module.forward = record_function(LOOKUP)(own)
    for parameter in copy.module.parameters():
        parameter.register_post_accumulate_grad_hook(_free)
    return lookups


def _free(parameter: nn.Parameter) -> None:
    parameter.grad = None


def _plain(name: str) -> str:
    """Return an operator's name, the same whether it writes in place or anew."""
    return name.removesuffix("_")


def _counted(profiler: profile, listed: Collection[str]) -> tuple[Counter[str], set[str]]:
    """Return how often a step ran each operator of a list, and what else it ran.

    What operators of the list run themselves, and what lookups do, is neither.
    """
    seen, others = Counter[str](), set[str]()
    for event in profiler.events():
        name, above = _plain(event.name), {_plain(each.name) for each in _callers(event)}
        if LOOKUP in above or not above.isdisjoint(listed):
            continue
        if name in listed:
            seen[name] += 1
        elif name.startswith("aten::") and not event.cpu_children:
            others.add(name)
    return seen, others


def _callers(event: Any) -> Iterator[Any]:  # noqa: ANN401 - torch's
    while event.cpu_parent is not None:
        event = event.cpu_parent
        yield event


def _traced_bytes(profiler: profile) -> tuple[int, int]:
    """Return the most bytes that a step's allocations hold, and those when its backward begins."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    (begin,) = (each["ts"] for each in events if each["name"] == BACKWARD and each["ph"] == "X")
    changes = sorted((e["ts"], e["args"]["Bytes"]) for e in events if e["name"] == "[memory]")
    held = list(accumulate(change for _, change in changes))
    return max(held), held[bisect_left(changes, (begin, 0)) - 1]
