"""The constants of ``bench.lookup_fit``, as the ``embedding`` section of a profile."""

import json
from collections.abc import Mapping
from typing import Any

from bench.fitting.sources import REPOSITORY
from costmodel.base.units import GB, US, Seconds
from costmodel.domain.hardware import Gpu

RESULTS = REPOSITORY / "bench" / "results" / "lookup_fit.json"
COMMON = "common"
NANO: Seconds = 1e-9


def fitted() -> Mapping[str, Any]:
    """Return what ``bench.lookup_fit`` found."""
    found: Mapping[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found


def with_embedding(head: str, name: str, gpu: Gpu) -> str:
    """Return the head of a profile with its ``embedding`` section written anew."""
    before, _, rest = head.partition("embedding:\n")
    _, _, after = rest.partition("host:\n")
    lines = [f"  {field}: {{value: {text}}}" for field, text in entries(name, gpu).items()]
    return before + "\n".join(["embedding:", *lines, "host:", after])


def entries(name: str, gpu: Gpu) -> dict[str, str]:
    """Return value and source of every field of the section."""
    constants = fitted()["constants"]
    own = constants.get(name, constants[COMMON])
    launches = sum(row["gpu"] == name for row in fitted()["launches"])
    source = (
        f"fitted: bench.lookup_fit, with {launches} launches of this GPU"
        if launches
        else "fitted: bench.lookup_fit, to other GPUs, in proportion to memory_bandwidth; no "
        "launch of this one is public"
    )
    bandwidth = gpu.memory_bandwidth
    values = {
        "lookup_efficiency": f"{own['lookup_efficiency']:.3g}",
        "update_efficiency": f"{own['update_efficiency']:.3g}",
        "sort_rate": f"{bandwidth / own['sort_bytes'] / 1e9:.3g}e9",
        "gather_bandwidth": f"{own['gather_ratio'] * bandwidth / GB:.4g} GB/s",
        "gradient_time": f"{own['gradient_bytes'] / bandwidth / NANO:.3g} ns",
        "backward_latency": f"{own['backward_latencies'] * gpu.kernel_latency / US:.3g} us",
        "sort_latency": f"{own['sort_latencies'] * gpu.kernel_latency / US:.3g} us",
    }
    return {field: f'{value}, source: "{source}"' for field, value in values.items()}
