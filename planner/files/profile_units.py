"""Converting text with a unit to SI numbers, and back, for hardware profiles."""

import re
from collections.abc import Mapping

from costmodel.base.units import GB, GIB, KB, KIB, MB, MIB, MS, TFLOP, US

SIZE = {
    "B": 1.0,
    "kB": KB,
    "MB": MB,
    "GB": GB,
    "TB": 1e12,
    "KiB": KIB,
    "MiB": MIB,
    "GiB": GIB,
    "TiB": 1024 * GIB,
}
TIME = {"ns": 1e-9, "us": US, "ms": MS, "s": 1.0}
RATE = {"MB/s": MB, "GB/s": GB, "TB/s": 1e12}
FLOP_RATE = {"TFLOP/s": TFLOP}
NUMBER = {"": 1.0}

_QUANTITY = re.compile(r"([-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?) *([A-Za-z/]*)")


def units_of(field_name: str) -> Mapping[str, float]:
    """Return the units that a field may have, by the end of its name.

    Names tell dimensions throughout: ``_bytes`` are sizes, ``bandwidth`` rates of bytes, ``_time``
    and ``latency`` durations, ``peak`` an arithmetic rate; the rest are numbers.
    """
    if field_name.endswith("_bytes"):
        return SIZE
    if field_name.endswith(("_time", "latency")):
        return TIME
    if field_name.endswith("bandwidth"):
        return RATE
    return FLOP_RATE if field_name == "peak" else NUMBER


def parse_quantity(value: object, units: Mapping[str, float]) -> float:
    """Return the SI value of a number with one of some units; ValueError says what is wrong."""
    match = None if isinstance(value, bool) else _QUANTITY.fullmatch(str(value).strip())
    if match is None or match[2] not in units:
        example = f"a number with one of {', '.join(units)}" if "" not in units else "a number"
        raise ValueError(f"needs {example}, got `{value}`")
    return float(match[1]) * units[match[2]]


def quantity_text(value: float, field_name: str) -> str:
    """Return an SI value as the shortest text in a unit of its field that is read back as it was.

    Where none is, the shortest of all.
    """
    units = units_of(field_name)
    texts = [f"{value / scale:.12g} {unit}".strip() for unit, scale in units.items()]
    exact = [text for text in texts if parse_quantity(text, units) == value]
    return min(exact or texts, key=len)
