"""Host time of an operator of a list, from traces: `python -m bench.fitting.listed_operators`.

``listed_operators.csv`` has medians, over all calls in the traces of a machine, of the time from an
operator that launches a kernel to the next one in the same pass, with the modules, views and
functions of autograd between them: of linear layers and their activations, which a list of a dense
part consists of. `--write` makes it again from ``../shared/data/traces`` and the traces of the H200
study. ``op_time`` and ``backward_op_time`` are what the operators that ``costmodel.step.issue``
counts take, which are fewer for the same time. A profile's operator of a list takes

    op_time * geometric mean over machines of ((median / PROFILED - launch_time) / op_time there)

the first of these being a geometric mean over operators.
"""

import csv
import re
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, NamedTuple

from costmodel.base.units import US, Seconds
from costmodel.domain.hardware import Device
from costmodel.operators.operator_list import Pass
from planner.files.profiles import load_profile, profile_names
from planner.traces.trace_files import Document, read_documents

TRACED = Path(__file__).parent / "listed_operators.csv"
ROOT = TRACED.parents[2]
STUDY = ROOT / "bench" / "results" / "gpu_study_h200_2026-11-26" / "traces.tar.xz"
SHARED = ROOT.parent / "shared" / "data" / "traces"
SOURCES: Mapping[str, tuple[str, Sequence[Path]]] = {
    "8 x V100, dlrm8_v100": ("v100-nvlink", [SHARED / "dlrm8_v100" / "kineto.tar.gz"]),
    "4 x V100, torchrec4_v100": ("v100-nvlink", sorted(SHARED.glob("torchrec4_v100*"))),
    "H200, gpu_study_h200_2026-11-26": ("h200-sxm", [STUDY]),
}
"""Profile and traces of each machine."""
OPERATORS = {
    Pass.FORWARD: ("aten::addmm", "aten::clamp_min"),
    Pass.BACKWARD: ("aten::mm", "aten::threshold_backward"),
}
PROFILED = 1.4
"""How much longer the host takes with the profiler: a third to a half in the H200 study."""
_LAUNCH = re.compile(r"cudaLaunchKernel|cudaMemcpyAsync|cudaMemsetAsync|cuLaunchKernel")
_OTHERS = re.compile(
    r"Synchronize|cudaMemcpy$|cudaMalloc|cudaFree|^fbgemm|^c10d|All2All|ReduceScatter|AllGather"
    r"|sparse_data|copy_batch|wait|nccl|DataLoader|[Ee]mbedding|lookup|bounds|Jagged|KeyedTensor"
    r"|Optimizer|AccumulateGrad"
)
"""Work between two operators, or around them, that is not the dense part's, or waits."""


class _Called(NamedTuple):
    """An operator that launched a kernel; None in its place: other work."""

    name: str
    begin: float
    direction: Pass


def between(trace: Document) -> Iterator[tuple[Pass, str, float]]:
    """Yield pass, operator and microseconds to the next one, of a profiler's trace."""
    threads: dict[Any, list[Document]] = defaultdict(list)
    for each in trace["traceEvents"]:
        if each.get("ph") == "X" and each.get("cat") in {
            "cpu_op",
            "user_annotation",
            "cuda_runtime",
        }:
            threads[each["tid"]].append(each)
    for events in threads.values():
        for one, other in pairwise(_called(events)):
            if one and other and one.direction is other.direction and one.begin < other.begin:
                yield one.direction, one.name, other.begin - one.begin


def _called(events: list[Document]) -> Iterator[_Called | None]:
    """Yield what launches kernels on one thread, once each, and None for all other work."""
    around: list[Document] = []
    latest: Document | None = None
    for event in sorted(events, key=lambda each: (each["ts"], -each["dur"])):
        while around and around[-1]["ts"] + around[-1]["dur"] <= event["ts"]:
            around.pop()
        names = [each["name"] for each in (*around, event)]
        if any(map(_OTHERS.search, names)):
            yield None
        elif _LAUNCH.match(event["name"]):
            own = next((e for e in reversed(around) if e["name"].startswith("aten::")), None)
            if own is None:
                yield None
            elif own is not latest:
                backward = any("Backward" in name for name in names)
                direction = Pass.BACKWARD if backward else Pass.FORWARD
                yield _Called(own["name"], own["ts"], direction)
            latest = own
        around.append(event)


def read() -> Iterator[dict[str, Any]]:
    """Yield the rows of ``listed_operators.csv``."""
    for source, (profile, paths) in SOURCES.items():
        found: dict[tuple[Pass, str], list[float]] = defaultdict(list)
        for _, trace in (each for path in paths for each in read_documents(path)):
            for direction, name, gap in between(trace):
                found[direction, name].append(gap)
        for direction, names in OPERATORS.items():
            for name in names:
                times = found[direction, name]
                yield {
                    "profile": profile, "source": source, "direction": direction.value,
                    "operator": name, "count": len(times), "us": f"{median(times):.1f}",
                }  # fmt: skip


def ratios() -> dict[str, dict[Pass, float]]:
    """Return by machine an operator's time over its profile's ``op_time``."""
    times: dict[str, dict[Pass, list[Seconds]]] = defaultdict(lambda: defaultdict(list))
    profiles = {}
    with TRACED.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            profiles[row["source"]] = load_profile(row["profile"]).host
            times[row["source"]][Pass(row["direction"])].append(float(row["us"]) * US / PROFILED)
    found: dict[str, dict[Pass, float]] = {}
    for source, by_pass in times.items():
        host = profiles[source]
        counted = {Pass.FORWARD: host.op_time, Pass.BACKWARD: host.backward_op_time}
        found[source] = {
            direction: (geometric_mean(own) - host.launch_time) / counted[direction]
            for direction, own in by_pass.items()
        }
    return found


def listed_times(profile: str) -> dict[str, Seconds]:
    """Return what operators of a list take by a GPU's profile, to half a microsecond."""
    host, known = load_profile(profile).host, ratios().values()
    fields = {
        "listed_op_time": (host.op_time, Pass.FORWARD),
        "listed_backward_op_time": (host.backward_op_time, Pass.BACKWARD),
    }
    return {
        name: round(2 * counted * geometric_mean(each[direction] for each in known) / US) / 2 * US
        for name, (counted, direction) in fields.items()
    }


def gpu_profiles() -> list[str]:
    """Return the profiles of GPUs."""
    return [name for name in profile_names() if load_profile(name).device is Device.CUDA]


def main() -> None:
    """Print ratios by machine, and the times of all profiles of GPUs."""
    parser = ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"read {TRACED.name} from traces")
    if parser.parse_args().write:
        rows = list(read())
        with TRACED.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
    for source, by_pass in ratios().items():
        print(source, {each.value: round(ratio, 2) for each, ratio in by_pass.items()})
    for name in gpu_profiles():
        print(name, {field: f"{each / US:g} us" for field, each in listed_times(name).items()})


if __name__ == "__main__":
    main()
