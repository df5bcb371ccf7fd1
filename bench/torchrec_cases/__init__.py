"""What becomes of what a TorchRec script tells the planner, before and now."""

from typing import Any


def table(results: dict[str, Any]) -> str:
    """Return the cases as a table."""
    lines = [f"| the script says | commit {results['before_commit']} | now |", "|---|---|---|"]
    lines += [
        f"| {name} | {results['before'][name]} | {now} |" for name, now in results["now"].items()
    ]
    return "\n".join(lines)
