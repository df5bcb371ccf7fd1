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

MOST_DECIMALS = 6
"""Most decimals of two sizes that fewer do not tell apart."""


def size_text(num_bytes: Bytes, decimals: int = 1) -> str:
    """Return a size as text in GiB, MiB or KiB, whichever fits it, with so many decimals."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB")):
        if abs(num_bytes) >= 0.1 * unit or num_bytes == 0:
            return f"{num_bytes / unit:,.{decimals}f} {name}"
    return f"{num_bytes / KIB:,.{decimals}f} KiB"


def size_texts(needed: Bytes, there: Bytes) -> tuple[str, str]:
    """Return two sizes as texts, with as many decimals as tell them apart."""
    texts = size_text(needed), size_text(there)
    for decimals in range(2, MOST_DECIMALS + 1):
        if texts[0] != texts[1]:
            break
        texts = size_text(needed, decimals), size_text(there, decimals)
    return texts
