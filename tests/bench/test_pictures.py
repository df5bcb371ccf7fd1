"""Pictures of the documentation are of the pages that there are, and of what is predicted now."""

import re

import pytest

import planner
from bench.pictures import (
    COMMON,
    IMAGES,
    LAYOUT,
    PLAN,
    ROOT,
    code,
    image_digest,
    layout_digest,
    made,
)
from costmodel.base.units import MS
from planner.files.plans import load_plan_file

README = ROOT / "README.md"
AGAIN = "make the pictures again: python -m bench.pages"


@pytest.mark.parametrize("picture", LAYOUT)
def test_a_picture_is_of_the_page_as_it_is_laid_out(picture: str) -> None:
    assert made()[picture]["layout"] == layout_digest(picture), AGAIN
    assert made()[picture]["image"] == image_digest(picture), AGAIN


def test_all_pictures_are_looked_after() -> None:
    assert {path.name for path in IMAGES.glob("*.png")} == {f"{name}-page.png" for name in LAYOUT}
    assert made().keys() == LAYOUT.keys()


def test_all_pages_are_looked_at() -> None:
    """Whatever makes panels or HTML is code that some picture is laid out by."""
    looked_at = {f"planner/{name}" for names in LAYOUT.values() for name in names}
    looked_at |= {str(path.relative_to(ROOT)) for path in (ROOT / "planner").glob(COMMON)}
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / "planner").rglob("*_page.py")}
    assert pages
    assert pages <= looked_at


@pytest.mark.slow
def test_what_they_show_is_what_is_predicted_now() -> None:
    shown = load_plan_file(PLAN)
    now = planner.load_plan(PLAN).report.step_time
    assert now == pytest.approx(shown.step_time, rel=1e-3), AGAIN


def test_comments_and_docstrings_are_no_layout() -> None:
    plain = 'A = "#1"\n\ndef f():\n    return f"{A}"\n'
    told = (
        '"""A module."""\nA = "#1"  # a colour\n"""What it is."""\n\n\n'
        'def f():\n    """Say it.\n\n    In full.\n    """\n    # now\n    return f"{A}"\n'
    )
    assert code(told) == code(plain)
    assert code(plain.replace("#1", "#2")) != code(plain)


def test_the_pictures_are_of_the_plan_that_the_first_screen_shows() -> None:
    shown = re.search(r"^  step time +([\d.]+) ms", README.read_text("utf-8"), re.MULTILINE)
    assert shown
    assert load_plan_file(PLAN).step_time / MS == pytest.approx(float(shown[1]), rel=0.01), AGAIN
