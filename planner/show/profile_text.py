"""Hardware profiles beside each other, as text."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from costmodel.domain.families import kernel_families
from costmodel.domain.hardware import HardwareProfile, KernelFamily
from planner.show.format import bandwidth, memory, percent, percent_fine, rate
from planner.show.layout import Column, table, table_text


def profiles_text(profiles: Sequence[HardwareProfile], width: int) -> Iterator[Text]:
    """Yield a table of profiles."""
    columns = [
        Column(header="Profile", cells=[profile.name for profile in profiles]),
        Column(header="GPUs per node", cells=[str(p.gpus_per_node) for p in profiles], right=True),
        Column(header="Memory", cells=[memory(p.gpu.memory_bytes) for p in profiles], right=True),
        Column(
            header="HBM",
            cells=[bandwidth(p.gpu.memory_bandwidth) for p in profiles],
            right=True,
            priority=1,
        ),
        Column(header="Collectives measured on", cells=list(map(_ranks, profiles)), priority=2),
        Column(header="Held-out error", cells=list(map(_error, profiles)), priority=3),
    ]
    yield from table_text(columns, width=width)


def families_text(profile: HardwareProfile, width: int) -> list[str]:
    """Return a table of kernel families: what they rest on, and how far off they have been."""
    families = kernel_families(profile)
    rows = list(families.values())
    columns = [
        Column(header="Family", cells=list(families)),
        Column(header="Source", cells=[str(row.source) for row in rows]),
        Column(header="Points", cells=[f"{row.num_points:,}" for row in rows], right=True),
        Column(header="Held-out error", cells=[_percent(row.error) for row in rows], right=True),
        Column(header="90%", cells=[_percent(row.error_p90) for row in rows], right=True),
        Column(header="Measured", cells=list(map(_measured_on, rows)), priority=1),
    ]
    return table(columns, width=width, gap=2)


def families_data(profile: HardwareProfile) -> list[dict[str, Any]]:
    """Return the same as plain data."""
    return [
        {
            "name": name,
            "source": family.source.value,
            "origin": family.origin,
            "num_points": family.num_points,
            "error": family.error,
            "error_p90": family.error_p90,
            "ranges": {quantity: list(pair) for quantity, pair in family.ranges.items()},
        }
        for name, family in kernel_families(profile).items()
    ]


def _percent(error: float | None) -> str:
    return "-" if error is None else percent_fine(error)


def _measured_on(family: KernelFamily) -> str:
    """Return the ranges of what was measured as text."""
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
    """Return one range: sizes with their unit, products by letter, counts by what they count."""
    text = _size if name == "num_bytes" else _count
    both = text(low) if low == high else f"{text(low)}-{text(high)}"
    unit = _QUANTITIES.get(name)
    return f"{name} {both}" if unit is None else f"{both} {unit}".strip()


def _size(num_bytes: float) -> str:
    return f"{num_bytes:.0f} B" if num_bytes < 1024 else memory(num_bytes).replace(".0 ", " ")


def _count(number: float) -> str:
    return f"{number:.0f}" if number < 10000 else rate(number).replace(" ", "")


def _ranks(profile: HardwareProfile) -> str:
    ranks = sorted({curve.num_ranks for curve in profile.curves})
    return f"{', '.join(map(str, ranks))} GPUs" if ranks else "nothing; links only"


def _error(profile: HardwareProfile) -> str:
    errors = [curve.error for curve in profile.curves if curve.error is not None]
    return f"{percent(sum(errors) / len(errors))} of a collective" if errors else ""
