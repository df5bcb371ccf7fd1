"""How much kernels slow each other down when they run at once: `python -m bench.overlap [--write]`.

From the public profiler traces of ``../shared/data/traces`` (V100): every kernel on a compute
stream, and the share of it during which a collective's kernel ran on another stream. The same
kernel (same set, name, grid and block) mostly runs more than once, over ranks and steps: where some
runs are hidden behind a collective (``MOST`` of them or more) and others are not (``LEAST`` or
less), the ratio of their median durations is what the collective costs it. The scatter of runs that
nothing overlaps says how much of a ratio is noise. The other way round cannot be read off a trace:
a collective's kernel also waits for its peers.
"""

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

TRACES = DATA / "traces"
RESULTS = Path(__file__).parent / "results" / "overlap.json"
LEAST, MOST = 0.05, 0.95
"""Shares of a run below and above which it counts as alone, or as overlapped."""
SHORTEST_US = 10.0
"""Kernels below this are mostly the clock's resolution, 1 us."""
KINDS: Mapping[str, tuple[str, ...]] = {
    "matrix product": ("gemm", "cutlass", "splitK"),
    "lookup": ("embedding_codegen", "codegen_forward", "per_row"),
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
    return next((kind for kind, words in KINDS.items() if any(w in name for w in words)), None)


def overlapped_share(start: float, end: float, busy: Sequence[tuple[float, float]]) -> float:
    """Return the share of a run during which others run, given their merged intervals."""
    covered = sum(max(0.0, min(end, last) - max(start, first)) for first, last in busy)
    return covered / (end - start)


def merged(intervals: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return intervals without overlaps, in order."""
    found: list[tuple[float, float]] = []
    for first, last in sorted(intervals):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def runs() -> dict[tuple[str, str, str], list[tuple[float, float]]]:
    """Return duration in us and overlapped share of every run, by set, kind and kernel."""
    found: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)
    for name, document in documents():
        kernels = [event for event in document["traceEvents"] if event.get("cat") == "kernel"]
        busy = merged([
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
    return found


def results() -> list[dict[str, Any]]:
    """Return the slowdown of every kind in every set, as JSON."""
    ratios: dict[tuple[str, str], list[tuple[float, float, float]]] = defaultdict(list)
    for (name, kind, _), points in runs().items():
        alone = [duration for duration, share in points if share <= LEAST]
        hidden = [duration for duration, share in points if share >= MOST]
        if len(alone) < 2 or not hidden:
            continue
        spread = float(np.std(np.log(alone)))
        weight = float(np.sum(hidden))
        ratios[name, kind].append((median(hidden) / median(alone), spread, weight))
    return [
        {
            "set": name,
            "kind": kind,
            "kernels": len(values),
            "slowdown": round(_weighted([v[0] for v in values], [v[2] for v in values]), 3),
            "median_slowdown": round(median(v[0] for v in values), 3),
            "scatter_alone": round(median(v[1] for v in values), 3),
            "overlapped_ms": round(sum(v[2] for v in values) / 1e3, 2),
        }
        for (name, kind), values in sorted(ratios.items())
    ]


def _weighted(values: Sequence[float], weights: Sequence[float]) -> float:
    return float(np.exp(np.average(np.log(values), weights=weights)))


def main() -> None:
    """Print the table; with --write keep it."""
    found = results()
    for row in found:
        print(
            f"{row['set']:40}{row['kind']:16}{row['kernels']:4} kernels  "
            f"x{row['slowdown']:.3f} by time, x{row['median_slowdown']:.3f} median; "
            f"scatter alone {row['scatter_alone']:.1%}; {row['overlapped_ms']} ms overlapped"
        )
    if "--write" in sys.argv:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
