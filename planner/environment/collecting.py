"""How often Python looks for garbage that refers to itself, while plans are made."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_SELDOM = (50_000, 50, 100)
"""Objects made after which Python looks for cycles, and how many such looks before a deeper one.
With Python's own (700, 10, 10) 5,000 tables on 1,024 GPUs take 7.0 to 8.6 CPU seconds until a plan
is annealed, with these 5.2, and 320 MB either way; in the first CPU second at 300 to 950 tables on
64 and 128 GPUs a search tries 8% more moves. Ten seconds leave some 50,000 objects as garbage."""


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """Look for cycles seldom, as there are few among very many objects; not at all if told so."""
    before = gc.get_threshold()
    if before[0] > 0:
        gc.set_threshold(*_SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)
