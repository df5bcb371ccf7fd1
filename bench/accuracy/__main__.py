"""Every accuracy table and figure, from data: `python -m bench.accuracy [--only PART]`.

Writes ``bench/results/accuracy.json``, the tables as ``bench/results/accuracy.md``, the figures
under ``bench/results/figures`` and the tables that the README quotes. Nothing is fitted to whole
steps. Needs `../shared/data` beside the repository, and the ``fit`` extra.
"""

import json
import platform
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.accuracy import curves, figures, kernels, scaling, steps, tables
from bench.fitting.sources import DATA
from bench.readme import README, TABLES, filled

RESULTS = Path(__file__).parents[1] / "results"
PARTS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "collectives": curves.results,
    "scaling": scaling.results,
    "kernels": kernels.results,
    "steps": steps.results,
}

UNEVEN = (
    "The only public one of known sizes is too small to tell rules apart. So two CPU ranks were "
    "measured with gloo (`bench.uneven_exchange`, on a busy machine, one run). There both "
    "directions share the cores, and all that is sent decides; the model keeps the paper's rule, "
    "for links with a port per GPU and direction."
)
QUOTED = ("accuracy_collectives", "accuracy_steps")
"""Tables of this bench that the README has."""


def main() -> None:
    """Compute, print and write everything; ``--only`` takes the other parts from the last run."""
    if not DATA.is_dir():
        sys.exit("no measurements: ../shared/data is missing")
    only = sys.argv[2:] if sys.argv[1:2] == ["--only"] else list(PARTS)
    path = RESULTS / "accuracy.json"
    results = json.loads(path.read_text("utf-8")) if len(only) < len(PARTS) else {}
    for name in only:
        begin = time.perf_counter()
        results[name] = PARTS[name]()
        print(f"{name}: {time.perf_counter() - begin:.1f} s", file=sys.stderr)
    results["python"] = f"{platform.machine()}, Python {platform.python_version()}"
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    text = report(json.loads(path.read_text("utf-8")))
    (RESULTS / "accuracy.md").write_text(text, encoding="utf-8")
    print(text)
    figures.write_all(results)
    blocks = {name: TABLES[name]() for name in QUOTED}
    README.write_text(filled(README.read_text("utf-8"), blocks), encoding="utf-8")


def report(results: Mapping[str, Any]) -> str:
    """Return all tables, in words where they need some."""
    collectives, laws = results["collectives"], results["scaling"]
    made, whole = results["kernels"], results["steps"]
    worst = "\n".join(f"* {each['text']}" for each in whole["worst"])
    sections = {
        "Collectives": (
            "Hold-out MAPE in %, median over numbers of ranks: alternate sizes held out. `repeats` "
            "is how far rows of one size lie from their median, which no curve can avoid. "
            + tables.PAPER,
            tables.collectives(collectives),
        ),
        "Above the largest size given": (
            "Median MAPE in %. PCHIP goes on as a straight line through its last points.",
            tables.extrapolation(collectives),
        ),
        "Numbers of ranks held out": ("Errors in %.", tables.ranks(laws)),
        "Several nodes": ("In %.", tables.nodes(laws)),
        "Uneven all-to-all": (
            UNEVEN,
            f"{tables.uneven(laws)}\n\n{tables.uneven_gloo(laws)}".rstrip(),
        ),
        "Matrix products": ("Errors in %.", tables.gemm(made)),
        "Kernels between the products": ("Errors in %.", tables.dense(made)),
        "Lookups": (
            "Errors of the roofline in %; rows of other kernels than the modelled one say so.",
            tables.embedding(made),
        ),
        "Whole steps": (
            "Absolute errors; nothing is tuned on them. " + tables.PAPER,
            tables.table_ii(whole) + "\n\n![steps](figures/steps.png)",
        ),
        "The worst three steps": ("", worst),
        "Replays": ("Durations are the run's own: this is the simulator's.", tables.replays(whole)),
    }
    parts = [f"## {title}\n\n{about}\n\n{body}" for title, (about, body) in sections.items()]
    heading = "# Accuracy\n\nWritten by `python -m bench.accuracy`."
    return "\n\n".join([heading, *parts]).replace("\n\n\n\n", "\n\n") + "\n"


if __name__ == "__main__":
    main()
