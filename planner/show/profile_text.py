"""Tables of several hardware profiles, and of one profile's kernel families."""

from collections.abc import Mapping

from costmodel.domain.families import measured_groups
from costmodel.domain.hardware import HardwareProfile, KernelFamily
from planner.show.columns import COUNT, NUMBER, SHARE_FINE, Column, Quantity, json_column
from planner.show.format import bandwidth, memory, percent, rate

NOTHING = "nothing"
"""What is said of a machine of which no kernel was measured."""


def _measured_on(family: KernelFamily) -> str:
    """Return the measured ranges of a kernel family as text."""
    if not family.num_points:
        return "nothing"
    return ", ".join(_range(name, *pair) for name, pair in family.ranges.items()) or "one setting"


_QUANTITIES: Mapping[str, str] = {
    "num_ranks": "GPUs",
    "num_bytes": "",
    "lookups": "ids",
    "embedding_dim": "columns",
}


def _range(name: str, low: float, high: float) -> str:
    """Return one range as text: sizes with their unit, counts with a letter or noun."""
    text = _size if name == "num_bytes" else _count
    both = text(low) if low == high else f"{text(low)}-{text(high)}"
    unit = _QUANTITIES.get(name)
    return f"{name} {both}" if unit is None else f"{both} {unit}".strip()


def _size(num_bytes: float) -> str:
    """Return bytes as text, such as ``512 B`` and ``25 MiB``."""
    return f"{num_bytes:.0f} B" if num_bytes < 1024 else memory(num_bytes).replace(".0 ", " ")


def _count(number: float) -> str:
    return f"{number:.0f}" if number < 10000 else rate(number).replace(" ", "")


def _ranks(profile: HardwareProfile) -> str:
    """Return the numbers of ranks that a profile has collective curves of, as text."""
    ranks = sorted({curve.num_ranks for curve in profile.curves})
    return f"{', '.join(map(str, ranks))} GPUs" if ranks else "links only"


def measured_text(profile: HardwareProfile) -> str:
    """Return which kinds of kernels were measured on a machine of the profile's kind."""
    return ", ".join(measured_groups(profile)) or NOTHING


def _error(profile: HardwareProfile) -> str | None:
    """Return the mean error of a profile's collective curves as text; None: not known."""
    errors = [curve.error for curve in profile.curves if curve.error is not None]
    return f"{percent(sum(errors) / len(errors))} of a collective" if errors else None


PROFILE_COLUMNS: list[Column[HardwareProfile]] = [
    Column("Profile", lambda profile: profile.name),
    Column("GPUs per node", lambda profile: profile.gpus_per_node, NUMBER),
    Column("Memory", lambda profile: profile.gpu.memory_bytes, Quantity(memory)),
    Column("HBM", lambda profile: profile.gpu.memory_bandwidth, Quantity(bandwidth), priority=1),
    Column("Measured", measured_text),
    Column("Collectives of", _ranks, priority=2),
    Column("Held-out error", _error, priority=3, none="-"),
]
FAMILY_COLUMNS: list[Column[tuple[str, KernelFamily]]] = [
    Column("Family", lambda row: row[0], key="name"),
    Column("Source", lambda row: row[1].source, key="source"),
    json_column("origin", lambda row: row[1].origin),
    Column("Points", lambda row: row[1].num_points, COUNT, key="num_points"),
    Column("Held-out error", lambda row: row[1].error, SHARE_FINE, key="error", none="-"),
    Column("90%", lambda row: row[1].error_p90, SHARE_FINE, key="error_p90", none="-"),
    Column("Measured", lambda row: _measured_on(row[1]), priority=1),
    json_column("ranges", lambda row: row[1].ranges),
]
"""Columns of a table of kernel families: sources and errors."""
