"""The ranks that calibrate together: one process, or those that torchrun started."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist

_PATIENCE = timedelta(hours=2)
"""How long a rank waits for others, which measure points of different lengths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """The place of this process among the ranks."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1

    @property
    def num_nodes(self) -> int:
        """Nodes the ranks are on."""
        return self.world_size // self.local_world_size

    def join(self, kind: str) -> None:
        """Enter the process group."""
        if self.world_size > 1:
            backend = "gloo" if kind == "cpu" else "cpu:gloo,cuda:nccl"
            dist.init_process_group(backend, timeout=_PATIENCE)

    def leave(self) -> None:
        """Leave the process group."""
        if self.world_size > 1 and dist.is_initialized():
            dist.destroy_process_group()

    def meet(self) -> None:
        """Wait until every rank is here."""
        if self.world_size > 1:
            dist.barrier()

    def gathered(self, item: Any) -> list[Any]:  # noqa: ANN401 - anything that can be pickled
        """Return the item of every rank, in the order of the ranks."""
        if self.world_size == 1:
            return [item]
        items: list[Any] = [None] * self.world_size
        dist.all_gather_object(items, item)
        return items


def ranks_of(environment: Mapping[str, str] | None = None) -> Ranks:
    """Return this process's place from the variables that torchrun sets."""
    given = os.environ if environment is None else environment
    if "WORLD_SIZE" not in given:
        return Ranks()
    return Ranks(
        rank=int(given["RANK"]),
        world_size=int(given["WORLD_SIZE"]),
        local_rank=int(given["LOCAL_RANK"]),
        local_world_size=int(given["LOCAL_WORLD_SIZE"]),
    )
