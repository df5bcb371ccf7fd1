"""Profiler traces of two ranks, small enough to time by hand (in microseconds)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planner.traces.kineto import RankTrace, rank_traces
from planner.traces.trace_files import read_documents

MAIN, AUTOGRAD = 1, 2
COMPUTE, COLLECTIVES = 7, 20


@dataclass
class TraceMaker:
    """Collects the events of one rank."""

    rank: int
    world_size: int = 2
    events: list[dict[str, Any]] = field(default_factory=list)

    def _add(
        self, category: str, name: str, tid: int, ts: float, dur: float, **args: object
    ) -> None:
        self.events.append({
            "ph": "X", "cat": category, "name": name, "pid": 100 + self.rank, "tid": tid,
            "ts": ts, "dur": dur, "args": args,
        })  # fmt: skip

    def scope(self, name: str, ts: float, dur: float, thread: int = MAIN) -> None:
        self._add("cpu_op", name, thread, ts, dur)

    def step(self, number: int, ts: float, dur: float) -> None:
        self._add("user_annotation", f"ProfilerStep#{number}", MAIN, ts, dur)

    def call(self, name: str, ts: float, dur: float, correlation: int, thread: int = MAIN) -> None:
        self._add("cuda_runtime", name, thread, ts, dur, correlation=correlation)

    def kernel(
        self,
        name: str,
        ts: float,
        dur: float,
        correlation: int,
        stream: int = COMPUTE,
        **args: object,
    ) -> None:
        args = {"stream": stream, "correlation": correlation, **args}
        self._add("kernel", name, stream, ts, dur, **args)

    def launch(
        self, name: str, at: float, ts: float, dur: float, number: int, stream: int = COMPUTE
    ) -> None:
        """Launch a kernel at a time by a call of 10 us."""
        self.call("cudaLaunchKernel", at, 10, number)
        self.kernel(name, ts, dur, number, stream)

    def document(self) -> dict[str, Any]:
        info = {"backend": "nccl", "rank": self.rank, "world_size": self.world_size}
        return {"schemaVersion": 1, "distributedInfo": info, "traceEvents": self.events}


def two_ranks() -> list[TraceMaker]:
    """Two ranks that compute, reduce, and compute what depends on it.

    Rank 1's first kernel takes 100 us longer, so the all-reduce of 50 us starts at 220 for all.
    """
    makers = []
    for rank, work in ((0, 100), (1, 200)):
        maker = TraceMaker(rank)
        maker.step(3, 0, 400)
        maker.launch("volta_sgemm", 10, 20, work, 1)
        maker.scope("c10d::allreduce_", 30, 30)
        maker.call("cudaStreamWaitEvent", 32, 1, 2)
        maker.call("cudaLaunchKernel", 40, 10, 3)
        start = 20 + work
        maker.kernel("ncclKernel_AllReduce", start, 270 - start, 3, COLLECTIVES)
        maker.call("cudaStreamWaitEvent", 70, 1, 4)
        maker.launch("elementwise_kernel", 80, 270, 30, 5)
        maker.call("cudaStreamSynchronize", 100, 205, 6)
        makers.append(maker)
    return makers


def write_folder(folder: Path, makers: list[TraceMaker]) -> Path:
    """Write a folder with one file per rank."""
    folder.mkdir(exist_ok=True)
    for maker in makers:
        write_json(folder / f"rank{maker.rank}.json", maker.document())
    return folder


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document))


def read_kineto(path: Path) -> list[RankTrace]:
    """Return the traces of all ranks in a file, folder or archive, by rank."""
    return rank_traces(read_documents(path), path)
