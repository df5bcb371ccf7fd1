"""Every accuracy table and figure, from data: `python -m bench.accuracy [--only PART ...]`.

Writes ``bench/results/accuracy.json``, the tables as ``bench/results/accuracy.md``, the figures
under ``bench/results/figures`` and the tables that pages quote. Nothing is fitted to whole
steps. Needs `../shared/data` beside the repository, and the ``fit`` extra.
"""

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.accuracy import anchors, basis, curves, figures, kernels, learned, scaling, steps
from bench.accuracy.report import report
from bench.fitting.sources import DATA
from bench.kept import write
from bench.readme import block, fill

RESULTS = Path(__file__).parents[1] / "results"
PARTS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "collectives": curves.results,
    "scaling": scaling.results,
    "kernels": kernels.results,
    "learned": learned.results,
    "intervals": learned.intervals,
    "steps": steps.results,
    "anchors": anchors.results,
    "basis": basis.results,
}

QUOTED = ("accuracy_collectives", "accuracy_table_i", "accuracy_steps", "coverage")
"""Tables of this bench that pages have."""


def main() -> None:
    """Compute, print and write everything; ``--only`` takes the other parts from the last run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument(
        "--only",
        nargs="+",
        choices=PARTS,
        default=list(PARTS),
        metavar="PART",
        help="compute only these anew, of " + ", ".join(PARTS),
    )
    only = parser.parse_args().only
    if not DATA.is_dir():
        sys.exit("no measurements: ../shared/data is missing")
    path = RESULTS / "accuracy.json"
    results = json.loads(path.read_text("utf-8")) if len(only) < len(PARTS) else {}
    for name in only:
        begin = time.perf_counter()
        results[name] = PARTS[name]()
        print(f"{name}: {time.perf_counter() - begin:.1f} s", file=sys.stderr)
    results["python"] = f"{platform.machine()}, Python {platform.python_version()}"
    write(path, results)
    text = report(json.loads(path.read_text("utf-8")))
    (RESULTS / "accuracy.md").write_text(text, encoding="utf-8")
    print(text)
    figures.write_all(results)
    fill({name: block(name) for name in QUOTED})


if __name__ == "__main__":
    main()
