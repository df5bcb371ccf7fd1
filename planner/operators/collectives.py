"""Collectives of a model that is read: what a rank has of them where all have the same.

Nothing is sent, as no other rank runs the model meanwhile.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

_PREFIXES = ("c10d::", "_c10d_functional::")
PASS_ON = frozenset(("_c10d_functional::wait_tensor", "_c10d_functional::_wrap_tensor_autograd"))
"""Operators that wait for a collective, or will where its result is read."""


def communicates(name: str) -> bool:
    """Return whether ranks do something together in an operator."""
    return name.startswith(_PREFIXES)


def process_groups(model: nn.Module) -> Iterator[object]:
    """Yield the process groups that modules keep: no copy can be made of one."""
    if torch.distributed.is_available():
        for module in model.modules():
            for each in vars(module).values():
                if isinstance(each, torch.distributed.ProcessGroup):
                    yield each


def num_ranks(args: tuple[Any, ...]) -> int:
    """Return the number of ranks of the process group among an operator's arguments."""
    from torch._C._distributed_c10d import ProcessGroup, _resolve_process_group

    for each in args:
        if isinstance(each, torch.ScriptObject) and "ProcessGroup" in str(each._type()):  # noqa: SLF001 - torch has no other way
            return int(ProcessGroup.unbox(each).size())
    group = args[-1]
    return int((_resolve_process_group(group) if isinstance(group, str) else group).size())


def result_alone(name: str, args: tuple[Any, ...]) -> Any:  # noqa: ANN401 - whatever it returns
    """Return what a collective gives, its tensors in place written as if all ranks had the same."""
    library, _, operator = name.partition("::")
    given = args[0]
    if library == "c10d":
        if not operator.startswith("allreduce"):
            _fill(list(_tensors(given)), list(_tensors(args[1])))
        from torch._C._distributed_c10d import FakeWork

        return given, FakeWork().boxed()
    if operator.startswith("all_reduce"):
        return given if operator.endswith("_") else given.clone()
    ranks = num_ranks(args)
    if operator.startswith("all_gather"):
        return torch.cat([given] * ranks)
    return given[: len(given) // ranks].clone()


def _fill(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    """Write sources into targets as often as they fit: each rank's slice, or one slice of all."""
    source = torch.cat([each.flatten() for each in sources])
    needed = sum(each.numel() for each in targets)
    filled = source.repeat(-(-needed // max(1, source.numel())))[:needed]
    for target, part in zip(targets, filled.split([t.numel() for t in targets]), strict=True):
        target.copy_(part.view_as(target))


def _tensors(values: object) -> Iterator[torch.Tensor]:
    return (each for each in tree_leaves(values) if isinstance(each, torch.Tensor))
