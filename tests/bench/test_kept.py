import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from needed import needs_data

from bench import accuracy, coverage, published_steps
from bench.kept import read, updated

RESULTS = Path(coverage.RESULTS).parent
QUICK: Mapping[str, Callable[[], Any]] = {
    "accuracy": accuracy.results,
    "coverage": coverage.results,
    "published_steps": published_steps.results,
}
"""Results that are made in seconds, by file."""


def test_processes_do_not_overwrite_each_other(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    updated(path, lambda results: results.update(a=1))
    assert updated(path, lambda results: results.update(b=2)) == {"a": 1, "b": 2}
    assert read(path) == {"a": 1, "b": 2}


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_what_is_made_quickly_is_of_today_s_code(name: str) -> None:
    kept: Any = read(RESULTS / f"{name}.json")
    made = json.loads(json.dumps(QUICK[name]()))
    for (at, now), (before_at, before) in zip(leaves(made), leaves(kept), strict=True):
        assert at == before_at
        # fits end a little apart where linear algebra is another library's
        is_number = isinstance(now, int | float)
        close = pytest.approx(before, rel=5e-3, abs=1e-4) if is_number else before
        assert now == close, at


def leaves(found: Any, at: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - JSON
    """Yield every number and text, with the way to it."""
    if isinstance(found, dict | list):
        items = found.items() if isinstance(found, dict) else enumerate(found)
        for key, value in items:
            yield from leaves(value, f"{at}/{key}")
    else:
        yield at, found
