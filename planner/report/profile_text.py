"""Hardware profiles beside each other, as text."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from costmodel.hardware import HardwareProfile
from planner.report.format import bandwidth, memory, percent
from planner.report.layout import Column, table


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
    lines = table(columns, width=width)
    yield Text(lines[0], style="bold")
    yield from map(Text, lines[1:])


def _ranks(profile: HardwareProfile) -> str:
    ranks = sorted({curve.num_ranks for curve in profile.curves})
    return f"{', '.join(map(str, ranks))} GPUs" if ranks else "nothing; links only"


def _error(profile: HardwareProfile) -> str:
    errors = [curve.error for curve in profile.curves if curve.error is not None]
    return f"{percent(sum(errors) / len(errors))} of a collective" if errors else ""
