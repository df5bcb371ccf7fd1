"""SI units: every number inside the packages is seconds, bytes, FLOP, or a ratio of these.

Constants multiply on the way in (``64 * MIB``) and divide on the way out (``t / MS``).
"""

from typing import TypeAlias

Seconds: TypeAlias = float
Bytes: TypeAlias = float
BytesPerSecond: TypeAlias = float
FlopPerSecond: TypeAlias = float

US: Seconds = 1e-6
MS: Seconds = 1e-3

KB: Bytes = 1e3
MB: Bytes = 1e6
GB: Bytes = 1e9
KIB: Bytes = 2.0**10
MIB: Bytes = 2.0**20
GIB: Bytes = 2.0**30

TFLOP = 1e12


def size_text(num_bytes: Bytes) -> str:
    """Return a size in the unit that fits it: GiB, MiB or KiB, with one decimal."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB")):
        if abs(num_bytes) >= 0.1 * unit or num_bytes == 0:
            return f"{num_bytes / unit:,.1f} {name}"
    return f"{num_bytes / KIB:,.1f} KiB"
