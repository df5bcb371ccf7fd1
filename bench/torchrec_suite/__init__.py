"""TorchRec's own tests with ``IterationTimePlanner`` in the place of its planner."""

from collections import Counter
from typing import Any


def table(results: dict[str, Any]) -> str:
    """Return how many tests pass, and why the others do not, as text and a table."""
    passed, other = len(results["passed"]), results["not with ours"]
    neither = Counter(results["not with either"].values())
    counts = (
        f"Of {passed + len(other) + neither.total()} tests (TorchRec's commit "
        f"{results['tests_of'][:8]}, torchrec {results['versions']['torchrec']}), {passed} pass, "
        f"{neither['skipped']} are skipped without GPUs, {neither['failed']} fail with either "
        f"planner, and {len(other)} cannot pass with this one:"
    )
    rows = [f"| `{name.rpartition('/')[2]}` | {why} |" for name, why in other.items()]
    return "\n".join([counts, "", "| test | why |", "|---|---|", *rows])
