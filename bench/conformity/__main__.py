"""Every operator of real steps beside the synthesized ones: `python -m bench.conformity [NAME...]`.

Trains small models with DistributedModelParallel on CPU ranks (gloo) under torch's profiler, and
compares each step's embedding work, gradient buckets and optimizer with the CPU step synthesized
for the same plan: operators by part of the step, with their bytes, and the order of collectives
and lookups. Needs torchrec. Names select cells that contain one of them; without any, the table in
``bench/results/conformity.md`` is written.
"""

import sys
from importlib.metadata import version
from pathlib import Path

from bench.conformity.cells import cells
from bench.conformity.known import KNOWN
from bench.conformity.report import is_same, text
from bench.conformity.runs import run

RESULTS = Path(__file__).parents[1] / "results" / "conformity.md"


def main() -> int:
    """Run the matrix, or some of it; 1 where a cell differs without a known reason."""
    names = sys.argv[1:]
    results = run([c for c in cells() if not names or any(name in c.name for name in names)])
    for each in results:
        print(f"{'same' if is_same(each) else 'DIFFERS':<8}{each.cell.name}")
        if isinstance(each.trained, str):
            print(f"        {each.trained}")
        for difference in each.differences:
            print(f"        {difference}")
        if not each.same_order:
            print("        another order")
    print(f"{sum(map(is_same, results))} of {len(results)} cells are the same")
    if not names:
        packages = ("torchrec", "fbgemm-gpu-cpu", "torch")
        versions = ", ".join(f"{name} {version(name)}" for name in packages)
        RESULTS.write_text(text(results, versions), encoding="utf-8")
    return any(not is_same(each) and each.cell.name not in KNOWN for each in results)


if __name__ == "__main__":
    sys.exit(main())
