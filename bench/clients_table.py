"""Tables of what came of clients, as Markdown; needs nothing but the results."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from bench.kept import markdown
from costmodel.base.units import MS

PLANNERS = ("theirs", "ours")
"""TorchRec's planner and this one, as results name them."""


def section(results: Mapping[str, Any]) -> str:
    """Return what a page has of all results."""
    of = ", ".join(f"{name} {commit[:8]}" for name, commit in results["commits"].items())
    plans = summary(results["configurations"])
    parts = [clients(results["clients"]), f"{plans} Commits: {of}.", steps(results["steps"])]
    return "\n\n".join(parts)


def clients(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a row for every client: plans, planning time, predicted steps, losses."""
    head = (
        "client", "TorchRec's plan", "this planner's", "sharded otherwise, replicated by one alone",
        "planned in", "predicted step", "steps", "losses apart",
    )  # fmt: skip
    return markdown(head, [_client(name, row) for name, row in rows.items()])


def _client(name: str, row: Mapping[str, Any]) -> Sequence[str]:
    both = row["theirs"], row["ours"]
    errors = [each["error"] for each in both]
    if any(errors):
        said = ((each or "trained").partition("\n")[0].replace("|", "/") for each in errors)
        return (name, *said, "", "", "", "", "")
    apart = row["difference"]
    return (
        name,
        *(_types(each["types"]) for each in both),
        f"{row['sharded_otherwise']}, {row['replicated_otherwise']}",
        ", ".join(f"{each['seconds']:.1f} s" for each in both),
        ", ".join(_step(each["step"]) for each in both),
        str(len(row["ours"]["losses"]["0"])),
        "not comparable" if apart is None else "0" if apart == 0 else f"{apart:.1e}",
    )


def steps(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a row for every client: plans, steps of either, and which trains faster."""
    head = (
        "client", "runs each", "TorchRec's plan", "this planner's", "measured", "spread of runs",
        "predicted", "error", "ours over theirs",
    )  # fmt: skip
    return markdown(head, [(name, *_steps(row)) for name, row in rows.items()])


def _steps(row: Mapping[str, Any]) -> list[str]:
    if "error" in row:
        return ["0", row["error"].partition("\n")[0].replace("|", "/"), *[""] * 6]
    both = [row[name] for name in PLANNERS]
    measured = [median(each["measured"]) for each in both]
    predicted = [median(each["predicted"]) for each in both]
    spread = [(min(each["measured"]), max(each["measured"])) for each in both]
    pairs = zip(row["ours"]["measured"], row["theirs"]["measured"], strict=True)
    ratios = sorted(one / other for one, other in pairs)
    return [
        str(len(both[0]["measured"])),
        *(", ".join(f"{count} {kind}" for kind, count in each["types"].items()) for each in both),
        ", ".join(f"{step / MS:.1f}" for step in measured) + " ms",
        ", ".join(f"{low / MS:.1f}-{high / MS:.1f}" for low, high in spread),
        ", ".join(f"{step / MS:.1f}" for step in predicted) + " ms",
        ", ".join(f"{p / m - 1:+.0%}" for p, m in zip(predicted, measured, strict=True)),
        f"{median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})",
    ]


def configurations(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a row for every configuration that was planned."""
    head = ("configuration", "TorchRec's plan", "this planner's", "planned in", "predicted step")
    cells_of = []
    for row in rows:
        if "not_built" in row:
            cells = [f"not built: {row['not_built']}", "", "", ""]
        else:
            both = row["theirs"], row["ours"]
            cells = [each["error"] or _types(each["types"]) for each in both]
            cells += [", ".join(f"{each.get('seconds', 0):.1f} s" for each in both)]
            cells += [", ".join(_step(each.get("step")) for each in both)]
        cells_of.append((row["configuration"], *cells))
    return markdown(head, cells_of)


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return in a sentence or two what came of all configurations."""
    built = [row for row in rows if "not_built" not in row]
    tables = [row for row in built if row["theirs"]["types"] or row["ours"]["types"]]
    failed = {kind: sum(bool(row[kind]["error"]) for row in built) for kind in ("theirs", "ours")}
    planned = [row for row in tables if row["theirs"].get("step") and row["ours"].get("step")]
    said = (
        f"Of {len(rows)} configurations of TorchEasyRec, {len(built)} build on a CPU and "
        f"{len(tables)} have tables. Planned for 8 H100: {failed['theirs']} fail with TorchRec's "
        f"planner, {failed['ours']} with this one."
    )
    if not planned:
        return said
    shares = [row["ours"]["step"] / row["theirs"]["step"] for row in planned]
    seconds = {kind: [row[kind]["seconds"] for row in planned] for kind in ("theirs", "ours")}
    return (
        f"{said} Planning takes {_range(seconds['theirs'])} and {_range(seconds['ours'])}; by "
        f"this planner's own model its steps take {median(shares):.0%} of what those of TorchRec's "
        f"plans do ({min(shares):.0%} to {max(shares):.0%})."
    )


def warned(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the first line of every warning of this planner's, and how many runs had it."""
    lines = Counter(
        line.partition(" (")[0]
        for row in rows
        for line in dict.fromkeys(row.get("ours", {}).get("warnings", ()))
        if not line.startswith(" ")
    )
    return "\n".join(f"{number} x {line}" for line, number in lines.most_common())


def _range(seconds: Sequence[float]) -> str:
    return f"{median(seconds):.1f} s (at most {max(seconds):.1f})"


def _types(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in counts.items()) or "no table"


def _step(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds / MS:.2f} ms"
