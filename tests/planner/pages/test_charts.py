"""Vega's script: made once, and again where it cannot be kept."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.pages.charts import vega_bundle


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Return the versions of Vega-Lite that were bundled, of a library that does it at once."""
    library = pytest.importorskip("vl_convert", reason="the extra `page` is not installed")
    made: list[str] = []

    def bundle(vl_version: str) -> str:
        made.append(vl_version)
        return f"const é = '{len(made)}</script>'"

    monkeypatch.setattr(library, "javascript_bundle", bundle)
    vega_bundle.cache_clear()
    yield made
    vega_bundle.cache_clear()


def test_it_is_kept_for_the_next_process(
    made: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "new"))
    first = vega_bundle()
    vega_bundle.cache_clear()
    assert vega_bundle() == first == r"const é = '1<\/script>'"
    assert len(made) == 1
    (kept,) = (tmp_path / "new").rglob("*.js")
    kept.write_bytes(b"\xff")
    vega_bundle.cache_clear()
    assert vega_bundle().startswith("const é = '2")


def test_without_a_place_to_keep_it_it_is_made(
    made: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert vega_bundle()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    vega_bundle.cache_clear()
    assert vega_bundle()
    assert len(made) == 2
