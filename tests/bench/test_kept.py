import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from needed import needs_data

from bench import coverage, published_steps, table_iii
from bench.accuracy import basis, kernels, scaling, steps
from bench.fitting import embedding_anchors
from bench.kept import read, updated

RESULTS = Path(coverage.RESULTS).parent
QUICK: Mapping[tuple[str, ...], Callable[[], Any]] = {
    ("accuracy", "basis"): basis.results,
    ("accuracy", "kernels"): kernels.results,
    ("accuracy", "scaling"): scaling.results,
    ("accuracy", "steps"): steps.results,
    ("coverage",): coverage.results,
    ("embedding_anchors",): embedding_anchors.results,
    ("published_steps",): published_steps.results,
    ("table_iii",): table_iii.results,
}
"""Results that are made in seconds, by file and part."""
SELDOM = ("coverage",)
"""Takes as long as all others together; its parts are tried in ``test_coverage``."""


def test_processes_do_not_overwrite_each_other(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    updated(path, lambda results: results.update(a=1))
    assert updated(path, lambda results: results.update(b=2)) == {"a": 1, "b": 2}
    assert read(path) == {"a": 1, "b": 2}


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize(
    "place",
    [pytest.param(each, marks=pytest.mark.nightly) if each == SELDOM else each for each in QUICK],
    ids=" ".join,
)
def test_what_is_made_quickly_is_of_today_s_code(place: tuple[str, ...]) -> None:
    kept: Any = read(RESULTS / f"{place[0]}.json")
    for part in place[1:]:
        kept = kept[part]
    made = json.loads(json.dumps(QUICK[place]()))
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
