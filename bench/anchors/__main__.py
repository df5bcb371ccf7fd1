"""All anchors: `python -m bench.anchors [--check]`.

Writes ``bench/results/anchors.csv`` and prints what changed; with ``--check`` only says what got
worse than the committed file allows, and fails if anything did. Needs `../shared/data`.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import chain

from bench.anchors import kernels, pipelines, steps
from bench.anchors.anchor import RESULTS, Anchor, committed, worsened, written
from bench.fitting.sources import DATA

SOURCES: Mapping[str, Callable[[], Iterator[Anchor]]] = {
    "lookups": kernels.lookups,
    "matrix products": kernels.matrix_products,
    "collectives": kernels.collectives,
    "dense kernels": kernels.dense_kernels,
    "published steps": steps.published_steps,
    "TorchRec steps": steps.torchrec_steps,
    "memory": lambda: chain(steps.memory(), pipelines.memory()),
}


def all_anchors() -> tuple[Anchor, ...]:
    """Return every anchor with today's error."""
    return tuple(anchor for source in SOURCES.values() for anchor in source())


def main() -> None:
    """Compute, print changes, and write; or check."""
    if not DATA.is_dir():
        sys.exit("no measurements: ../shared/data is missing")
    before = committed() if RESULTS.exists() else ()
    now = all_anchors()
    known = {(anchor.family, anchor.name): anchor.error for anchor in before}
    for anchor in now:
        old = known.get((anchor.family, anchor.name))
        if old is None or f"{old:.4f}" != f"{anchor.error:.4f}":
            was = "  (new)" if old is None else f"{old:+8.1%}"
            print(f"{anchor.family:28.27} {anchor.name:88.87} {was} -> {anchor.error:+8.1%}")
    worse = worsened(now, before)
    if "--check" in sys.argv:
        sys.exit("\n".join(["worse than committed:", *worse]) if worse else 0)
    written(now)
    print(f"{len(now)} anchors, {len(worse)} worse or new; wrote {RESULTS.name}")


if __name__ == "__main__":
    main()
