"""How often Python collects cyclic garbage while plans are made."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_SELDOM = (50_000, 50, 100)
"""Thresholds of the garbage collector: new objects before a collection, and collections before a
deeper one."""


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """Collect cyclic garbage seldom inside: many objects are made, few of them cyclic.

    Nothing changes if the collector is switched off.
    """
    before = gc.get_threshold()
    if before[0] > 0:
        gc.set_threshold(*_SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)
