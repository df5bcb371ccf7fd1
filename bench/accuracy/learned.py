"""Learned lookups on held-out tables, and intervals: other benches' results, made again here."""

import json
from importlib.util import find_spec
from typing import Any

from bench import coverage, embedding_model
from bench.kept import write


def results() -> dict[str, Any]:
    """Train and hold out again where torch is there to train with; else what was kept."""
    if find_spec("torch") is None:
        found: dict[str, Any] = json.loads(embedding_model.RESULT.read_text(encoding="utf-8"))
        return {**found, "best": embedding_model.BEST, "trained": False}
    found = embedding_model.results()
    write(embedding_model.RESULT, found)
    return {**found, "best": embedding_model.BEST, "trained": True}


def intervals() -> dict[str, Any]:
    """Count again how often 90% intervals hold, and keep it for the README."""
    found = coverage.results()
    write(coverage.RESULTS, found)
    return found
