"""Every column and every word of a screen's tables is explained on a page."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from bench.documented import ROOT
from costmodel.domain.hardware import Bound, Source
from planner.views.confidence_text import CAUSE_NAMES

GLOSSARY = ("docs/screen.md", "docs/words.md")


def explained() -> set[str]:
    """Return the words in backticks of the first column of tables, and those told beside them."""
    pages = "".join((ROOT / page).read_text(encoding="utf-8") for page in GLOSSARY)
    rows = re.findall(r"^\| `.*$", pages, re.MULTILINE)
    return {word for row in rows for word in re.findall(r"`([^`]+)`", row)}


def titles(path: Path) -> Iterator[str]:
    """Yield the titles of columns that a module describes, but for what is filled in."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or ast.unparse(node.func) != "Column":
            continue
        hidden = any(ast.unparse(word) == "in_text=False" for word in node.keywords)
        match node.args:
            case [ast.Constant(value=str(title)), *_] if title and not hidden:
                yield title


def test_the_columns_of_all_screens_are_explained() -> None:
    found = {title for path in (ROOT / "planner").rglob("*.py") for title in titles(path)}
    assert len(found) > 70
    assert found - explained() == set()


def test_limits_sources_and_causes_of_error_are_explained() -> None:
    words = {*map(str, Bound), *map(str, Source), *CAUSE_NAMES.values()}
    assert words <= explained()


def test_no_word_is_explained_that_no_screen_has() -> None:
    sources = [
        path.read_text(encoding="utf-8")
        for name in ("costmodel", "planner")
        for path in (ROOT / name).rglob("*.py")
    ]
    text = "".join(sources)
    first = re.findall(r"^\| `([^`]+)`", (ROOT / GLOSSARY[1]).read_text("utf-8"), re.MULTILINE)
    filled = {"Cost/M samples", "Skew of 8"}
    assert [word for word in first if word not in filled and f'"{word}"' not in text] == []
