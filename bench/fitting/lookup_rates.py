"""The ``embedding`` section of a profile: what ``bench.lookup_fit`` found, or a study of an H200.

Lookups of Hopper and Blackwell GPUs are those measured on an H200 (``bench.gpu_study``). What its
multiprocessors bound goes by their number, what its memory bounds by its bandwidth. The public
lookup on an H100, whose multiprocessors are the same, is then predicted 7% too long forward, and
1% backward. Other GPUs keep what public launches say of them, and have the time of bags by the
cycles that a bag takes a multiprocessor: 58 on a V100, 71 on an H200.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from bench.fitting.sources import REPOSITORY
from costmodel.base.units import GB, US, Seconds
from costmodel.domain.hardware import Gpu, HardwareProfile
from planner.calibration.curves import rounded
from planner.files.profiles import load_profile

RESULTS = REPOSITORY / "bench" / "results" / "lookup_fit.json"
STUDY = REPOSITORY / "bench" / "results" / "gpu_study_h200_2026-11-26" / "refitted.yaml"
"""What was fitted to the lookups of an H200."""
LIKE_THE_STUDY = ("h200-sxm", "h100-sxm", "h100-hbm2e", "b200-sxm", "gb200-nvl72")
"""Profiles of GPUs whose multiprocessors are taken to be as those of an H200."""
MEASURED = LIKE_THE_STUDY[0]
FORWARD_KERNELS = 4
"""Kernels of one lookup: a fill, the check of the ids, an addition, the lookup (FBGEMM 1.6 on an
H200, gpu_study_h200_2026-11-26/lookup_kernels.json)."""
BAG_CYCLES = 63.0
"""Cycles of one multiprocessor that checking a bag's ids takes: 0.473 ns a bag on a V100 of 80 at
1.53 GHz (262,144 bags, torchrec4_v100 traces), 0.273 on an H200 of 132 at 1.98 GHz."""
TURN_CYCLES = (5.62, 17.7)
"""Cycles of one multiprocessor that a turn of a warp takes in which it has no row to read, forward
and backward, for every id: 21.5 and 67.8 ps on an H200. Public launches of other GPUs are of tables
of one width."""
WARPS_OF_64 = ("mi300x",)
"""GPUs whose warps take 256 columns at once."""
CLOCKS: Mapping[str, float] = {
    "v100-nvlink": 1.53e9,
    "a100-sxm-40gb": 1.41e9,
    "a100-sxm-80gb": 1.41e9,
    "l40s-pcie": 2.52e9,
    "mi300x": 2.1e9,
}
"""Highest clock of multiprocessors, in Hz, by their data sheets."""
COMMON = "common"
NANO: Seconds = 1e-9
PICO: Seconds = 1e-12


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
    values, source = _as_studied(name, gpu) if name in LIKE_THE_STUDY else _of_launches(name, gpu)
    return {field: f'{value}, source: "{source[field]}"' for field, value in values.items()}


@lru_cache(maxsize=1)
def studied() -> HardwareProfile:
    """Return the profile fitted to what was measured on an H200."""
    return load_profile(STUDY)


def _as_studied(name: str, gpu: Gpu) -> tuple[dict[str, str], Mapping[str, str]]:
    found = studied().gpu
    busy = gpu.num_sms / found.num_sms
    memory = found.memory_bandwidth / gpu.memory_bandwidth if name == MEASURED else 1.0
    lookups = studied().families["embedding_forward"].num_points
    source = f"fitted to {lookups} lookups on an H200 (bench.gpu_study, 2026-11-26)"
    if name != MEASURED:
        source += "; not measured on this GPU: its multiprocessors are taken to be as fast, each"
    values = {
        "lookup_efficiency": f"{found.lookup_efficiency * memory:.3g}",
        "update_efficiency": f"{found.update_efficiency * memory:.3g}",
        "sort_rate": f"{found.sort_rate * busy / 1e9:.3g}e9",
        "overlap": f"{found.overlap:.3g}",
        "row_update_time": f"{found.row_update_time / busy / NANO:.3g} ns",
        "gather_bandwidth": f"{rounded(found.l2_bandwidth * busy) / GB:g} GB/s",
        "gradient_time": f"{found.gradient_time / busy / NANO:.3g} ns",
        "backward_latency": f"{found.backward_latency / US:.3g} us",
        "sort_latency": f"{found.sort_latency / US:.3g} us",
        "forward_latency": f"{found.forward_latency / US:.3g} us",
        "bag_row_time": f"{found.bag_row_time / NANO:.3g} ns",
        "bag_time": f"{found.bag_time / busy / NANO:.3g} ns",
        "forward_turn_time": f"{found.forward_turn_time / busy / NANO:.3g} ns",
        "backward_turn_time": f"{found.backward_turn_time / busy / NANO:.3g} ns",
    }
    if found.gradient_time < PICO:  # hidden behind the sort of the ids
        del values["gradient_time"]
    return values, dict.fromkeys(values, source)


def _of_launches(name: str, gpu: Gpu) -> tuple[dict[str, str], Mapping[str, str]]:
    constants = fitted()["constants"]
    own = constants.get(name, constants[COMMON])
    launches = sum(row["gpu"] == name for row in fitted()["launches"])
    source = (
        f"fitted: bench.lookup_fit, with {launches} launches of this GPU"
        if launches
        else "fitted: bench.lookup_fit, to other GPUs, in proportion to memory_bandwidth; no "
        "launch of this one is public"
    )
    bandwidth, cycle = gpu.memory_bandwidth, 1.0 / (gpu.num_sms * CLOCKS[name])
    values = {
        "lookup_efficiency": f"{own['lookup_efficiency']:.3g}",
        "update_efficiency": f"{own['update_efficiency']:.3g}",
        "sort_rate": f"{bandwidth / own['sort_bytes'] / 1e9:.3g}e9",
        "gather_bandwidth": f"{own['gather_ratio'] * bandwidth / GB:.4g} GB/s",
        "gradient_time": f"{own['gradient_bytes'] / bandwidth / NANO:.3g} ns",
        "backward_latency": f"{own['backward_latencies'] * gpu.kernel_latency / US:.3g} us",
        "sort_latency": f"{own['sort_latencies'] * gpu.kernel_latency / US:.3g} us",
        "forward_latency": f"{FORWARD_KERNELS * gpu.kernel_latency / US:.3g} us",
        "bag_time": f"{BAG_CYCLES * cycle / NANO:.3g} ns",
    }
    if name not in WARPS_OF_64:
        for phase, cycles in zip(("forward", "backward"), TURN_CYCLES, strict=True):
            values[f"{phase}_turn_time"] = f"{cycles * cycle / NANO:.3g} ns"
    kernels = f"{FORWARD_KERNELS} kernels, each doing nothing"
    bags = f"{BAG_CYCLES:g} cycles of a multiprocessor, between a V100's and an H200's"
    turns = "cycles of a multiprocessor as on an H200; not measured on this GPU"
    known = {"forward_latency": kernels, "bag_time": bags}
    known |= dict.fromkeys(("forward_turn_time", "backward_turn_time"), turns)
    return values, {field: known.get(field, source) for field in values}
