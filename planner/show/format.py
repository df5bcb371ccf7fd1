"""Numbers as text: only here SI becomes units that people read."""

from collections.abc import Iterable, Sequence

from costmodel.base.units import (
    GB,
    GIB,
    KIB,
    MIB,
    MS,
    US,
    Bytes,
    BytesPerSecond,
    Seconds,
    size_text,
)

_EIGHTHS = " ▏▎▍▌▋▊▉"
"""Block characters: a bar may end in any eighth of a column."""
_TIMES = ((1.0, "s"), (MS, "ms"), (US, "us"))
_SIZES = ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
_RATES = ((1e9, " G"), (1e6, " M"), (1e3, " k"), (1.0, ""))
_SURE, _SAME = 0.99, 5e-3
_ROUNDED: Seconds = 1e-12
"""Seconds that differences of steps may have from rounding alone."""


def significant(value: float, digits: int = 3) -> str:
    """Return a number with that many significant digits, never in scientific notation."""
    if value == 0:
        return f"{0:.{digits - 1}f}"
    rounded = float(f"{value:.{digits - 1}e}")
    magnitude = int(f"{abs(rounded):e}".split("e")[1])
    return f"{rounded:,.{max(0, digits - 1 - magnitude)}f}"


def _unit(size: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """Return the largest unit (size, name) that is no larger than a size, or else the smallest."""
    return next((each for each in units if size >= each[0]), units[-1])


def duration(seconds: Seconds) -> str:
    """Return a duration with three significant digits: s, ms, or us below 1 ms."""
    unit, name = _unit(abs(float(f"{seconds:.2e}")), _TIMES)
    return f"{significant(seconds / unit)} {name}"


def durations(column: Iterable[Seconds], largest: Seconds = 0.0) -> list[str]:
    """Return the durations of a column in one unit, with decimal points below each other.

    The largest one, or ``largest``, decides: it has at least three significant digits, and two
    decimals up to 100, so that smaller ones have three as well.
    """
    values = list(column)
    largest = max([largest, *map(abs, values)])
    unit, name = _unit(largest, _TIMES)
    decimals = 2 if largest < 100 * unit else 1
    return [f"{value / unit:,.{decimals}f} {name}" for value in values]


def memory(num_bytes: Bytes) -> str:
    """Return bytes as text: GiB with one decimal, or MiB and KiB for small sizes."""
    return size_text(num_bytes)


def memories(column: Iterable[Bytes]) -> list[str]:
    """Return the sizes of a column as text, in the unit that fits the largest."""
    values = list(column)
    unit, name = _unit(10 * max(map(abs, values), default=0.0), _SIZES)
    return [f"{value / unit:,.1f} {name}" for value in values]


def bandwidth(bytes_per_second: BytesPerSecond) -> str:
    """Return a bandwidth in GB/s (1e9 bytes)."""
    return f"{significant(bytes_per_second / GB)} GB/s"


def rate(per_second: float) -> str:
    """Return a rate as text without its unit: ``11.5 M`` is 11.5 million per second."""
    unit, name = _unit(per_second, _RATES)
    return f"{significant(per_second / unit)}{name}"


def percent(share: float) -> str:
    """Return a share in whole percent."""
    return f"{100 * share:.0f}%"


def percent_fine(share: float) -> str:
    """Return a small share in percent with one decimal."""
    return f"{100 * share:.1f}%"


def change(ratio: float) -> str:
    """Return a ratio as a signed relative change: 1.067 is ``+6.7%``.

    A change that rounds to 0 has no sign.
    """
    percents = round(100 * (ratio - 1), 1)
    return f"{percents:+.1f}%" if percents else "0.0%"


def times_text(ratio: float, more: str, less: str, same: str) -> str:
    """Return a ratio as text: how many times more or less; ``same`` within half a percent."""
    if abs(ratio - 1) < _SAME:
        return same
    return f"{ratio:.2f}× {more}" if ratio > 1 else f"{1 / ratio:.2f}× {less}"


def count(number: int, thing: str) -> str:
    """Return a number with its noun, in the plural where needed."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def bar(share: float, width: int, background: str = " ") -> str:
    """Return a horizontal bar of ``width`` columns, filled to a share, in eighths of a column."""
    eighths = round(8 * width * min(1.0, max(0.0, share)))
    full, rest = divmod(eighths, 8)
    drawn = "█" * full + (_EIGHTHS[rest] if rest else "")
    return drawn + background * (width - len(drawn))


def printable(text: str) -> str:
    """Return text without characters that move the cursor: names come from files."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def signed_duration(seconds: Seconds) -> str:
    """Return a change of a duration with its sign; differences from rounding are 0."""
    if abs(seconds) < _ROUNDED:
        return "0 us"
    return f"{'-' if seconds < 0 else '+'}{duration(abs(seconds))}"


def span(interval: tuple[Seconds, Seconds]) -> str:
    """Return an interval with one unit: ``5.40 - 6.60 ms``."""
    low, high = durations(interval)
    return f"{low.rsplit(' ', 1)[0]} - {high}"


def odds(probability: float) -> str:
    """Return a probability from samples as text: never quite 0% or 100%."""
    if probability > _SURE:
        return f">{percent(_SURE)}"
    return f"<{percent(1 - _SURE)}" if probability < 1 - _SURE else percent(probability)
