"""Tables of TorchRec's tests and planner, for the pages and the screen."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from bench.kept import markdown
from costmodel.base.units import MS, Seconds

_PLANNERS = {
    "our search": "our search",
    "our times and step": "TorchRec's planner, our times and step",
    "our times": "TorchRec's planner, our times",
    "theirs": "TorchRec's planner",
}


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
    rows = [(f"`{name.rpartition('/')[2]}`", why) for name, why in other.items()]
    return f"{counts}\n\n{markdown(('test', 'why'), rows)}"


def times(results: Mapping[str, Any]) -> str:
    """Return the planners' steps, how much longer than our search's, and CPU time, as a table."""
    rows = []
    for workload, row in results.items():
        best = row["planners"]["our search"]["step_s"]
        cells = (_planned(row["planners"][name], best) for name in _PLANNERS)
        rows.append((workload, f"{row['gpus']} x {row['hardware']}", *cells))
    return markdown(("workload", "GPUs", *_PLANNERS.values()), rows)


def _planned(planner: Mapping[str, Any], best: Seconds) -> str:
    if "step_s" not in planner:
        return f"no plan, {planner['cpu_s']:.1f} s"
    step = planner["step_s"]
    lost = "" if step == best else f" ({step / best - 1:+.0%})"
    return f"{step / MS:.2f} ms{lost}, {planner['cpu_s']:.1f} s"
