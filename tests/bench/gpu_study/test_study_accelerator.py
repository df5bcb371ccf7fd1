"""The few lines that only CUDA has, against a CUDA that notes every call."""

import inspect
from pathlib import Path

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


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is called of a GPU."""
    called: list[str] = []
    for name, value in {
        "synchronize": lambda: called.append("synchronize"),
        "empty_cache": lambda: called.append("empty"),
        "reset_peak_memory_stats": lambda: called.append("reset"),
        "max_memory_allocated": lambda: 3, "max_memory_reserved": lambda: 4,
    }.items():  # fmt: skip
        assert callable(getattr(torch.cuda, name))  # torch has it
        monkeypatch.setattr(torch.cuda, name, value)
    return called


def test_peaks_are_the_allocators_since_the_reset(log: list[str]) -> None:
    accelerator = CudaAccelerator(CudaDevice.__new__(CudaDevice))  # whose buffer would need a GPU
    accelerator.reset_memory()
    assert log == ["synchronize", "empty", "reset"]
    assert accelerator.peak_memory() == (3.0, 4.0)
    assert len(accelerator.activities()) == 2


def test_a_core_has_the_same_interface(tmp_path: Path) -> None:
    accelerator: Accelerator = open_accelerator("cpu", 0, MIB)
    assert isinstance(accelerator, CpuAccelerator)
    assert isinstance(accelerator.device, CpuDevice)
    accelerator.reset_memory()
    value = torch.ones(2**20)
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
