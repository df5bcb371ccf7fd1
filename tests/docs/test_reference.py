"""The pages of the reference that are made from the code say what the code says."""

import pytest

from bench.documented import ROOT

pytest.importorskip("griffe", reason="what makes pages is not installed")
NAMES = ("commands", "dense", "plan", "profile", "torchrec-settings", "workload")


@pytest.mark.parametrize("name", NAMES)
def test_a_page_of_the_reference_is_made_from_the_code(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "hooks"))
    import reference

    page = (ROOT / "docs" / "reference" / f"{name}.md").read_text(encoding="utf-8")
    assert page == reference.PAGES[f"{name}.md"](), "python docs/hooks/reference.py makes it again"
    assert {f"{each}.md" for each in NAMES} == set(reference.PAGES)
