"""Two ranks on this machine, each on a core of its own, joined by gloo."""

import os
import resource
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any, Self

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from planner.environment.processes import end_now

WORLD_SIZE = 2
ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
    "MALLOC_TOP_PAD_": str(64 * 2**20),
}
"""glibc keeps freed memory, as the allocators that training jobs preload do. Otherwise every step
returns its activations to the kernel and gets them back page by page."""


class OtherLoad:
    """How many cores other processes keep busy, on average over a ``with`` block."""

    cores: float = 0.0

    def __enter__(self) -> Self:
        self._begin = (_busy(), _own(), time.monotonic())
        return self

    def __exit__(self, *_: object) -> None:
        busy, own, begin = self._begin
        wall = time.monotonic() - begin
        self.cores = max(0.0, (_busy() - busy) - (_own() - own)) / wall


def session_nice() -> int:
    """Return the nice level of this session among all, where Linux shares cores by session."""
    file = Path("/proc/self/autogroup")
    return int(file.read_text(encoding="utf-8").split()[-1]) if file.is_file() else 0


def _busy() -> float:
    """Return CPU seconds of all cores since the machine started, without idling."""
    first = Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0]
    user, nice, system, _, _, *interrupts = map(int, first.split()[1:])
    return (user + nice + system + sum(interrupts[:2])) / os.sysconf("SC_CLK_TCK")


def _own() -> float:
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def run_ranks(work: Callable[..., Any], *arguments: object) -> list[Any]:
    """Run a function on every rank, and return what it returns by rank."""
    os.environ.update(ALLOCATOR)
    context = mp.get_context("spawn")
    results = context.SimpleQueue()
    port = _free_port()
    spawned = mp.spawn(_rank, (port, results, work, arguments), nprocs=WORLD_SIZE, join=False)
    found: dict[int, Any] = {}
    while len(found) < WORLD_SIZE:
        if not results.empty():
            rank, result = results.get()
            found[rank] = result
        elif spawned.join(timeout=0.1) and results.empty() and len(found) < WORLD_SIZE:
            raise RuntimeError("a rank ended without a result")
    with suppress(mp.ProcessExitedException):  # gloo's threads can abort a rank as it ends
        spawned.join()
    return [found[rank] for rank in range(WORLD_SIZE)]


def _rank(
    rank: int,
    port: int,
    results: SimpleQueue[Any],
    work: Callable[..., Any],
    arguments: tuple[object, ...],
) -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)
    torch.manual_seed(0)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group(
        "gloo", rank=rank, world_size=WORLD_SIZE, timeout=timedelta(seconds=300)
    )
    results.put((rank, work(rank, *arguments)))
    dist.barrier()
    dist.destroy_process_group()
    end_now()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
