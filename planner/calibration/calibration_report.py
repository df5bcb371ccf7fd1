"""The report of a calibration: hold-out errors, warnings, and the head of the profile file."""

import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from costmodel.domain.families import kernel_families
from planner.calibration.machine import busy_cores
from planner.calibration.points import Family
from planner.calibration.profile import Calibrated
from planner.calibration.records import Record
from planner.calibration.session import Calibration
from planner.calibration.timing import UNSTABLE
from planner.files.profiles import dump_profile
from planner.show.format import count

if TYPE_CHECKING:
    from rich.text import Text

_BUSY_SHARE = 0.25
"""Share of the cores that others may use in the last minute without a warning."""
_FOREIGN_SHARE = 0.05
"""Share of a rank's core that others may use during measuring without a warning."""
_MANY_UNSTABLE = 0.1
"""Share of a family's points that may be unstable without a warning."""


def busy_remark() -> str | None:
    """Return a warning if others have just been using the machine; None: they have not."""
    busy, cores = busy_cores(), os.cpu_count() or 1
    if busy is None or busy < _BUSY_SHARE * cores:
        return None
    return (
        f"warning: {busy:.1f} of {cores} cores were in use in the last minute; measurements on a "
        "busy machine are too slow"
    )


def remarks(result: Calibrated, outcome: Calibration) -> Iterator[str]:
    """Yield warnings about the profile."""
    for family, varying, total in _unstable(outcome.measured.records):
        if varying > _MANY_UNSTABLE * total:
            yield (
                f"warning: {varying} of {total} {family} points vary by more than "
                f"{100 * UNSTABLE:.0f}% between repeats; measure again on an idle machine"
            )
    if not outcome.num_new:
        yield "note: all points had been measured before; --remeasure measures them again"
    if outcome.foreign_share > _FOREIGN_SHARE:
        yield (
            f"warning: other processes had {100 * outcome.foreign_share:.0f}% of a rank's core "
            "while it measured; collectives, which are timed by the wall clock, suffer most"
        )
    if outcome.num_skipped:
        yield f"warning: {count(outcome.num_skipped, 'point')} left out for want of memory"
    failures = outcome.measured.failures
    if failures:
        failed = count(len(failures), "point")
        yield f"warning: {failed} left out that failed ({failures[0].reason})"
    if not result.profile.curves:
        yield (
            "note: one process measures no collectives; run under torchrun, or give a profile "
            "that has them with --hardware"
        )


def profile_file(result: Calibrated, outcome: Calibration, name: str) -> str:
    """Return the profile file's text: the machine it was measured on, then the profile."""
    facts = outcome.measured.machine
    versions = ", ".join(f"{package} {number}" for package, number in facts["versions"].items())
    points = count(len(outcome.measured.records), "point")
    head = [
        f"# Measured by `planner calibrate` on {facts['num_ranks']} x {facts['name']}",
        f"# {facts['date']}, Python {facts['python']}, {versions}",
        f"# {points}; errors are relative, on points held out",
    ]
    profile = replace(result.profile, name=name)
    return "\n".join(head) + "\n" + dump_profile(profile)


def summary_data(result: Calibrated, outcome: Calibration) -> dict[str, Any]:
    """Return the outcome as plain data, for ``--json``."""
    return {
        "machine": dict(outcome.measured.machine),
        "points": len(outcome.measured.records),
        "measured_now": outcome.num_new,
        "skipped": outcome.num_skipped,
        "failed": len(outcome.measured.failures),
        "foreign_share": outcome.foreign_share,
        "families": {
            name: {"points": family.num_points, "error": family.error, "p90": family.error_p90}
            for name, family in kernel_families(result.profile).items()
        },
        "errors": {name: asdict(errors) for name, errors in result.errors.items()},
        "unstable": {
            family: {"points": total, "unstable": varying}
            for family, varying, total in _unstable(outcome.measured.records)
        },
    }


def outcome_lines(result: Calibrated, outcome: Calibration, width: int) -> Iterator["Text"]:
    """Yield the report's lines: every family with its points and errors."""
    from rich.text import Text

    from planner.show.columns import COUNT, SHARE_FINE, Column
    from planner.show.layout import rows_text

    facts = outcome.measured.machine
    yield Text(f"{facts['num_ranks']} x {facts['name']}, {facts['device']}", style="bold")
    families = kernel_families(result.profile).items()
    rows: list[tuple[str, int | None, float | None, float | None]] = [
        (name, family.num_points, family.error, family.error_p90) for name, family in families
    ]
    rows += [(name, None, errors.median, errors.p90) for name, errors in result.errors.items()]
    columns: list[Column[tuple[str, int | None, float | None, float | None]]] = [
        Column("Family", lambda row: row[0]),
        Column("Points", lambda row: row[1], COUNT),
        Column("Median error", lambda row: row[2], SHARE_FINE),
        Column("90th percentile", lambda row: row[3], SHARE_FINE),
    ]
    yield from rows_text(columns, rows, width=width, gap=2)


def _unstable(records: tuple[Record, ...]) -> Iterator[tuple[str, int, int]]:
    """Yield (family, unstable points, all points), by the spread of the median phase."""
    for family in Family:
        spreads = [
            median(record.spread.values())
            for record in records
            if record.point.family == family and record.spread
        ]
        if spreads:
            yield family.value, sum(spread > UNSTABLE for spread in spreads), len(spreads)
