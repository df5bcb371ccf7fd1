"""Every public measurement beside the model, as `bench.anchors` and `bench.lookup_fit` keep it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from bench.accuracy_tables import percent, table
from bench.anchors.anchor import Anchor, committed
from bench.fitting.lookup_rates import fitted

ANCHORS = (
    "All public measurements beside the shipped model, of which a change of the model may worsen "
    "none without this table being made again (`bench.anchors`). Signed errors in %; of sets of "
    "points the mean absolute one. Nothing is fitted to whole steps, orders of plans or memory."
)
LAUNCHES = (
    "Absolute errors in % of lookups on GPUs that were predicted without their shape, or without "
    "any launch of their GPU (`bench.lookup_fit`), and how many of those without their shape lie "
    "in 90% intervals made of the others."
)
PLACES = (
    "The same launches by where they were measured: what the model misses, and what it misses of a "
    "launch whose shape was left out of the fit; mean and largest absolute error in %. Not fitted: "
    "launches of 5 to 8 us of another lookup kernel, and weighted ones that are bound by their "
    "longest bag, which their source does not record; and lookups in host memory."
)
PHASES = {"forward": "forward", "backward": "backward with the optimizer"}


def results() -> dict[str, Any]:
    """Return the anchors by family, and the lookups left out."""
    families: dict[str, list[Anchor]] = defaultdict(list)
    for anchor in committed():
        families[anchor.family].append(anchor)
    return {
        "families": {
            family: [
                {"name": anchor.name, "points": anchor.points, "error": anchor.error}
                for anchor in anchors
            ]
            for family, anchors in families.items()
        },
        "lookups": {name: fitted()[name] for name in ("left_out", "gpu_left_out", "coverage")},
    }


def anchor_table(found: Mapping[str, Any]) -> str:
    """Return every anchor as a row."""
    rows = [
        [family, row["name"], f"{row['points']:,}", percent(row["error"])]
        for family, anchors in found["families"].items()
        for row in anchors
    ]
    return table(["family", "measurement", "points", "error"], rows)


def launch_table(found: Mapping[str, Any]) -> str:
    """Return what lookups miss when they are left out."""
    lookups = found["lookups"]
    rows = [
        [
            name,
            what,
            f"{errors['launches']}",
            *(percent(errors[key]) for key in ("mape", "median", "p90", "worst")),
            percent(lookups["coverage"][phase]["coverage"]) if title == "left_out" else "-",
        ]
        for phase, name in PHASES.items()
        for title, what in {"left_out": "its shape", "gpu_left_out": "its GPU"}.items()
        for errors in (lookups[title][phase],)
    ]
    header = ["phase", "left out", "launches", "MAPE", "median", "p90", "worst", "in 90% interval"]
    return table(header, rows)


def place_table(found: Mapping[str, Any]) -> str:
    """Return the errors of lookups, and of those left out, by place and phase."""
    launches = {row["name"]: row for row in fitted()["launches"]}
    groups: dict[tuple[str, str], list[tuple[float, float | None]]] = defaultdict(list)
    for phase in PHASES:
        for row in found["families"][f"lookup {phase}"]:
            left = launches.get(row["name"], {}).get(phase, {})
            known = row["error"], left.get("left_out")
            groups[phase, _place(row["name"], in_fit=left.get("in_fit"))].append(known)
    rows = [
        [phase, place, f"{len(errors)}", *(_spread(column) for column in zip(*errors, strict=True))]
        for (phase, place), errors in sorted(groups.items(), reverse=True)
    ]
    return table(["phase", "measured on", "launches", "error", "shape left out"], rows)


def _place(name: str, *, in_fit: bool | None) -> str:
    """Return a launch's GPU and source; in which memory it is, or why it is not fitted to."""
    source, facts = name.split(": ", maxsplit=1)
    gpu = facts.split(",", maxsplit=1)[0]
    if in_fit is None:
        return f"{gpu}, host memory ({source})"
    return f"{gpu} ({source.split(' ')[0]})" + ("" if in_fit else ", not fitted")


def _spread(errors: Sequence[float | None]) -> str:
    known = [abs(error) for error in errors if error is not None]
    if not known:
        return "-"
    return f"{percent(sum(known) / len(known))}, {percent(max(known))}"
