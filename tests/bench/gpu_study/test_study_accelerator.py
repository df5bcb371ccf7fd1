"""The few lines that only CUDA has, against a CUDA that notes every call and knows its order.

Calls are held against the signatures of ``torch.cuda``, which torch has without a GPU, too.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from bench.gpu_study.accelerator import (  # noqa: E402
    Accelerator,
    CpuAccelerator,
    CudaAccelerator,
    open_accelerator,
    write_trace,
)
from costmodel.base.units import MIB  # noqa: E402
from planner.calibration.device import CpuDevice, CudaDevice  # noqa: E402

Stream, Event, graph = torch.cuda.Stream, torch.cuda.Event, torch.cuda.graph
"""Torch's own, whose place the fakes take."""


class FakeCuda:
    """A GPU whose clock goes on by a millisecond for every piece of work."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []
        self.streams = [FakeStream(self, "default")]
        self.synchronized = True

    def work(self) -> None:
        self.now += 1.0
        self.synchronized = False
        self.log.append(f"work on {self.current_stream().name}")

    def current_stream(self) -> "FakeStream":
        return self.streams[-1]

    def new_stream(self, *arguments: object, **more: object) -> "FakeStream":
        bound(Stream.__new__, object, *arguments, **more)
        self.log.append("new stream")
        return FakeStream(self, f"stream {sum(line == 'new stream' for line in self.log)}")

    @contextmanager
    def stream(self, stream: "FakeStream") -> Iterator[None]:
        self.streams.append(stream)
        yield
        assert self.streams.pop() is stream

    @contextmanager
    def graph(self, made: "FakeGraph", **more: object) -> Iterator[None]:
        bound(graph.__init__, None, made, **more)
        self.log.append("capture begins")
        yield
        self.log.append("capture ends")
        made.captured = True

    def synchronize(self) -> None:
        self.synchronized = True


class FakeStream:
    def __init__(self, cuda: FakeCuda, name: str) -> None:
        self.cuda, self.name = cuda, name

    def wait_stream(self, other: "FakeStream") -> None:
        bound(Stream.wait_stream, self, other)
        self.cuda.log.append(f"{self.name} waits for {other.name}")


class FakeGraph:
    def __init__(self) -> None:
        self.captured = False

    def replay(self) -> None:
        assert self.captured


class FakeEvent:
    cuda: FakeCuda

    def __init__(self, *, enable_timing: bool) -> None:
        bound(Event.__new__, object, enable_timing=enable_timing)
        self.at: float | None = None
        self.waited = False

    def record(self) -> None:
        self.at = self.cuda.now
        self.cuda.log.append(f"event on {self.cuda.current_stream().name}")

    def synchronize(self) -> None:
        self.waited = True

    def elapsed_time(self, end: "FakeEvent") -> float:
        assert end.waited
        assert self.at is not None
        assert end.at is not None
        return end.at - self.at


def bound(function: Callable[..., Any], *arguments: object, **more: object) -> None:
    """Raise TypeError unless the function takes these arguments."""
    inspect.signature(function).bind(*arguments, **more)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    made = FakeCuda()
    FakeEvent.cuda = made
    for name, value in {
        "Stream": made.new_stream, "stream": made.stream, "current_stream": made.current_stream,
        "Event": FakeEvent, "graph": made.graph, "CUDAGraph": FakeGraph,
        "synchronize": made.synchronize, "empty_cache": lambda: made.log.append("empty"),
        "reset_peak_memory_stats": lambda: made.log.append("reset"),
        "_sleep": lambda cycles: made.log.append(f"waits for {cycles} cycles"),
        "max_memory_allocated": lambda: 3, "max_memory_reserved": lambda: 4,
    }.items():  # fmt: skip
        assert callable(getattr(torch.cuda, name))  # torch has it
        monkeypatch.setattr(torch.cuda, name, value)
    return made


@pytest.fixture
def accelerator(cuda: FakeCuda) -> CudaAccelerator:
    device = CudaDevice.__new__(CudaDevice)  # whose buffer would need a GPU
    device.name, device._cycles = "cuda:0", 1000
    device._filler = FakeBuffer(cuda)
    return CudaAccelerator(device)


class FakeBuffer:
    def __init__(self, cuda: FakeCuda) -> None:
        self.sum = cuda.work


def test_two_works_start_on_their_streams_when_all_before_is_done(
    cuda: FakeCuda, accelerator: CudaAccelerator
) -> None:
    accelerator.device.flush()
    watches = accelerator.side_by_side([cuda.work, cuda.work])
    assert [watch.seconds() for watch in watches] == [1e-3, 1e-3]
    assert cuda.log == [
        "work on default", "waits for 1000 cycles", "new stream", "new stream",
        "stream 1 waits for default", "stream 2 waits for default",
        "event on stream 1", "work on stream 1", "event on stream 1",
        "event on stream 2", "work on stream 2", "event on stream 2",
        "default waits for stream 1", "default waits for stream 2",
    ]  # fmt: skip


def test_work_runs_on_a_side_stream_before_it_is_captured(
    cuda: FakeCuda, accelerator: CudaAccelerator
) -> None:
    replay = accelerator.captured(cuda.work)
    assert cuda.log == [
        "new stream", "stream 1 waits for default", *["work on stream 1"] * 3,
        "default waits for stream 1", "capture begins", "work on default", "capture ends",
    ]  # fmt: skip
    replay()


def test_peaks_are_the_allocators_since_the_reset(
    cuda: FakeCuda, accelerator: CudaAccelerator
) -> None:
    accelerator.reset_memory()
    assert cuda.log == ["empty", "reset"]
    assert accelerator.peak_memory() == (3.0, 4.0)
    assert len(accelerator.activities()) == 2


def test_a_core_has_the_same_interface(tmp_path: Path) -> None:
    accelerator: Accelerator = open_accelerator("cpu", 0, MIB)
    assert isinstance(accelerator, CpuAccelerator)
    assert isinstance(accelerator.device, CpuDevice)
    done: list[int] = []
    watches = accelerator.side_by_side([lambda: done.append(1), lambda: done.append(2)])
    accelerator.captured(lambda: done.append(3))()
    assert done == [1, 2, 3]
    assert all(watch.wall() >= 0 for watch in watches)
    accelerator.reset_memory()
    value = accelerator.host_buffer(2**20, pinned=True)
    assert value.nbytes == 2**20
    assert accelerator.peak_memory()[0] >= 0
    trace = write_trace(accelerator, lambda: value.add_(1), 2, tmp_path / "rank0.json")
    assert "ProfilerStep" in trace.read_text()


def test_both_have_every_method_of_the_interface_with_its_arguments() -> None:
    for name, method in inspect.getmembers(Accelerator, inspect.isfunction):
        if name.startswith("_"):
            continue
        for kind in (CpuAccelerator, CudaAccelerator):
            theirs = inspect.signature(getattr(kind, name)).parameters
            assert list(theirs) == list(inspect.signature(method).parameters)
