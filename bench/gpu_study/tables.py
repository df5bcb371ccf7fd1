"""The study's results as tables in Markdown."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.gpu_study.holdout import CORRECTED, ROOFLINE
from costmodel.base.units import GIB, MS

Row = Mapping[str, Any]


def study_text(found: Row) -> str:
    """Return all tables, each under its heading."""
    parts = (
        ("Machine", [_machine(found["machine"]), *found["notes"]]),
        ("Models on groups held out", list(_families(found["families"]))),
        ("The profile's own families", list(_profile(found["profile"]))),
        ("Training steps, predicted before they were measured", list(_steps(found))),
        ("Their stages, predicted | measured", list(_stages(found["steps"]))),
        ("Points that failed", list(_failures(found["failures"]))),
    )
    return "\n".join(f"## {title}\n\n" + "\n".join(lines) + "\n" for title, lines in parts)


def _machine(facts: Row) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return f"{facts['name']}, {facts['date']}, Python {facts['python']}, {versions}"


def _families(rows: Mapping[str, Row]) -> Iterator[str]:
    yield from _head(
        "family", "points", "groups", "roofline MAPE", "median", "corrected MAPE", "median",
        "90% interval", "its coverage", "better", "in the profile",
    )  # fmt: skip
    for name, row in rows.items():
        if not row["models"]:
            few = ["too few", *[""] * 6, row["in_profile"]]
            yield _line(name, row["points"], row["groups"], *few)
            continue
        plain, learned = row["models"][ROOFLINE], row["models"][CORRECTED]
        better = row["models"][row["better"]]
        yield _line(
            name, row["points"], row["groups"],
            _percent(plain["errors"]["mape"]), _percent(plain["errors"]["median"]),
            _percent(learned["errors"]["mape"]), _percent(learned["errors"]["median"]),
            f"x {better['width']:.2f}", _percent(better["coverage"]), row["better"],
            row["in_profile"],
        )  # fmt: skip


def _profile(rows: Mapping[str, Row]) -> Iterator[str]:
    yield from _head("family", "points", "median error", "90th percentile")
    for name, row in rows.items():
        yield _line(name, row["points"], _percent(row["error"]), _percent(row["p90"]))


def _steps(found: Row) -> Iterator[str]:
    yield from _head(
        "model", "batch", "ranks", "predicted", "measured", "error", "blind",
        "GiB predicted", "allocated", "reserved",
    )  # fmt: skip
    for row in found["steps"]:
        yield _line(
            row["model"], row["local_batch_size"], row["world_size"],
            _ms(row.get("predicted_s")), _ms(row["measured_s"]), _signed(row.get("error")),
            {True: "yes", False: "no"}.get(row.get("blind", False), ""),
            _gib(row.get("predicted_bytes")), _gib(row["allocated_bytes"]),
            _gib(row["reserved_bytes"]),
        )  # fmt: skip
    yield ""
    yield f"Geometric mean of the blind steps' errors: {_percent(found['step_error'])}"


def _stages(rows: Sequence[Row]) -> Iterator[str]:
    names = sorted({name for row in rows for name in row["stages_s"]})
    yield from _head("model", "batch", *names)
    for row in rows:
        ours, theirs = row.get("predicted_stages_s", {}), row["stages_s"]
        if theirs:
            cells = [
                f"{_ms(ours.get(name, 0.0))} \\| {_ms(theirs.get(name, 0.0))}" for name in names
            ]
            yield _line(row["model"], row["local_batch_size"], *cells)


def _failures(rows: Sequence[Row]) -> Iterator[str]:
    if not rows:
        yield "None."
        return
    yield from _head("family", "points", "reason")
    for row in rows:
        yield _line(row["family"], row["points"], row["reason"].replace("|", "\\|"))


def _head(*cells: str) -> Iterator[str]:
    yield _line(*cells)
    yield _line(*["---"] * len(cells))


def _line(*cells: object) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}%"


def _signed(share: float | None) -> str:
    return "" if share is None else f"{100 * share:+.1f}%"


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds / MS:.2f} ms"


def _gib(num_bytes: float | None) -> str:
    return "" if num_bytes is None else f"{num_bytes / GIB:.2f}"
