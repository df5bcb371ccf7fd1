"""How much kernels slow each other down when they run at once: `python -m bench.overlap [--write]`.

From the public profiler traces of ``../shared/data/traces`` (V100): every kernel on a compute
stream, and the share of it during which a collective's kernel ran on another stream. The same
kernel (same set, name, grid and block) mostly runs more than once, over ranks and steps: where some
runs are alone (a share of ``LEAST`` or less) and others are behind a collective (``SOME`` or more),
c of duration = alone (1 + c share) is what the collective costs it, by least squares. The scatter
of runs that nothing overlaps says how much of that is noise. The other way round cannot be read off
a trace: a collective's kernel also waits for its peers.

Those traces have hardly a lookup behind a collective. ``fitting/overlapped_lookups.csv`` has all of
a millisecond and more from the test traces of facebookresearch/HolisticTraceAnalysis (f4d0062,
MIT), as that package's files are not here; ids of one kernel vary by less than 1% over its runs.
"""

import csv
import gzip
import json
import sys
import tarfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.fitting.sources import DATA
from bench.kept import write
from planner.traces.replay.breakdown import union

TRACES = DATA / "traces"
RESULTS = Path(__file__).parent / "results" / "overlap.json"
LOOKUPS = Path(__file__).parent / "fitting" / "overlapped_lookups.csv"
LEAST, SOME = 0.05, 0.1
"""Shares of a run up to which it counts as alone, and from which on as overlapped."""
SHORTEST_US = 10.0
"""Kernels below this are mostly the clock's resolution, 1 us."""
KINDS: Mapping[str, tuple[str, ...]] = {
    "lookup": ("split_embedding", "embedding_codegen", "codegen_forward"),
    "matrix product": ("gemm", "cutlass", "splitK"),
    "elementwise": ("elementwise", "CatArray", "reduce_kernel", "multi_tensor", "optimizer"),
}
COLLECTIVE = "nccl"
Event = Mapping[str, Any]


def documents() -> Iterator[tuple[str, Event]]:
    """Yield the name of a set and the trace of one of its ranks."""
    with tarfile.open(TRACES / "dlrm8_v100" / "kineto.tar.gz") as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member) if member.name.endswith(".json") else None
            if file is not None:
                yield "dlrm8_v100", json.load(file)
    for path in sorted(TRACES.glob("torchrec4_v100_*/rank*.json.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as text:
            yield path.parent.name, json.load(text)


def kind_of(name: str) -> str | None:
    """Return what sort of kernel a name is of; None for others."""
    own = name.replace("fbgemm", "")
    return next((kind for kind, words in KINDS.items() if any(w in own for w in words)), None)


def overlapped_share(start: float, end: float, busy: Sequence[tuple[float, float]]) -> float:
    """Return the share of a run during which others run, given their merged intervals."""
    covered = sum(max(0.0, min(end, last) - max(start, first)) for first, last in busy)
    return covered / (end - start)


def runs() -> dict[tuple[str, str, str], list[tuple[float, float]]]:
    """Return duration in us and overlapped share of every run, by set, kind and kernel."""
    found: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)
    for name, document in documents():
        kernels = [event for event in document["traceEvents"] if event.get("cat") == "kernel"]
        busy = union([
            (event["ts"], event["ts"] + event["dur"])
            for event in kernels
            if COLLECTIVE in event["name"].lower()
        ])
        for event in kernels:
            kind = kind_of(event["name"])
            if kind is None or COLLECTIVE in event["name"].lower() or event["dur"] < SHORTEST_US:
                continue
            share = overlapped_share(event["ts"], event["ts"] + event["dur"], busy)
            same = f"{event['name']} {event['args']['grid']} {event['args']['block']}"
            found[name, kind, same].append((event["dur"], share))
    with LOOKUPS.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            name = f"{row['machine']}, {row['collective']}"
            kernel = f"{row['trace']} {row['kernel']}"
            run = float(row["us"]), float(row["overlapped_share"])
            found[name, "lookup", kernel].append(run)
    return found


def results() -> list[dict[str, Any]]:
    """Return the slowdown of every kind in every set, as JSON."""
    slowed: dict[tuple[str, str], list[tuple[float, float | None, float]]] = defaultdict(list)
    for (name, kind, _), points in runs().items():
        alone = [duration for duration, share in points if share <= LEAST]
        behind = [point for point in points if point[1] >= SOME]
        if not alone or not behind or (len(alone) < 2 and kind != "lookup"):
            continue
        spread = float(np.std(np.log(alone))) if len(alone) > 1 else None
        weight = float(np.sum([duration for duration, _ in behind]))
        slowed[name, kind].append((slowdown(median(alone), behind), spread, weight))
    return [
        {
            "set": name,
            "kind": kind,
            "kernels": len(values),
            "slowdown": round(float(np.average([v[0] for v in values], weights=weights)), 3),
            "median_slowdown": round(median(v[0] for v in values), 3),
            "scatter_alone": round(median(scatter), 3) if scatter else None,
            "overlapped_ms": round(sum(weights) / 1e3, 2),
        }
        for (name, kind), values in sorted(slowed.items())
        for weights in ([v[2] for v in values],)
        for scatter in ([v[1] for v in values if v[1] is not None],)
    ]


def slowdown(alone: float, behind: Sequence[tuple[float, float]]) -> float:
    """Return how many times as long a run takes that is overlapped from beginning to end.

    ``behind``: durations of overlapped runs, and by which share each is.
    """
    shares = np.array([share for _, share in behind])
    more = np.array([duration for duration, _ in behind]) / alone - 1.0
    return 1.0 + float(shares @ more / (shares @ shares))


def main() -> None:
    """Print the table; with --write keep it."""
    found = results()
    for row in found:
        noise = "unknown" if row["scatter_alone"] is None else f"{row['scatter_alone']:.1%}"
        print(
            f"{row['set']:40}{row['kind']:16}{row['kernels']:4} kernels  "
            f"x{row['slowdown']:.3f} by time, x{row['median_slowdown']:.3f} median; "
            f"scatter alone {noise}; {row['overlapped_ms']} ms overlapped"
        )
    if "--write" in sys.argv:
        write(RESULTS, found)


if __name__ == "__main__":
    main()
