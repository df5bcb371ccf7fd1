"""Every operator of real steps beside the synthesized ones: `python -m bench.conformity [NAME...]`.

Trains small models with DistributedModelParallel on CPU ranks (gloo) under torch's profiler, and
compares each step's embedding work, gradient buckets and optimizer with the CPU step synthesized
for the same plan: operators by part of the step, with their bytes, and the order of collectives
and lookups. Needs torchrec. Names select cells that contain one of them.
"""

import sys
from pathlib import Path

from bench.conformity.cells import cells
from bench.conformity.runs import Result, run

RESULTS = Path(__file__).parents[1] / "results" / "conformity.md"


def main() -> None:
    """Run the matrix, or some of it, and print or write the table."""
    names = sys.argv[1:]
    some = [c for c in cells() if not names or any(name in c.name for name in names)]
    results = run(some)
    for each in results:
        print(f"{'same' if is_same(each) else 'DIFFERS':<8}{each.cell.name}")
        if isinstance(each.trained, str):
            print(f"        {each.trained}")
        for difference in each.differences:
            print(f"        {difference}")
        if not each.same_order:
            print("        another order")
    good = sum(map(is_same, results))
    print(f"{good} of {len(results)} cells are the same")


def is_same(result: Result) -> bool:
    """Tell whether nothing is left between two steps."""
    return not result.differences and result.same_order


if __name__ == "__main__":
    main()
