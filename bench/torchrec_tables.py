"""Tables of TorchRec's cases and of its own tests, for the pages and the screen."""

from collections import Counter
from typing import Any


def cases(results: dict[str, Any]) -> str:
    """Return the cases as a table."""
    lines = [f"| the script says | commit {results['before_commit']} | now |", "|---|---|---|"]
    lines += [
        f"| {name} | {results['before'][name]} | {now} |" for name, now in results["now"].items()
    ]
    return "\n".join(lines)


def tests(results: dict[str, Any]) -> str:
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
