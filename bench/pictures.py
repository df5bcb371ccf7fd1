"""Which code lays out the pictures of the documentation, to tell when they are to be made again.

``docs/images/made.json`` has of every picture a digest of the code that its page is laid out by,
and one of the picture; ``docs/images/plan.json`` is the plan that they show. A test compares
(``tests/bench/test_pictures.py``); ``python -m bench.pages`` makes the pictures again.
"""

import ast
import hashlib
import json
import tokenize
from collections.abc import Mapping
from io import StringIO
from pathlib import Path

from planner.files.json_text import dump_json

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
MADE, PLAN = IMAGES / "made.json", IMAGES / "plan.json"
_PLAN = ("views/plan_page.py", "views/plan_charts.py", "views/plan_columns.py")
LAYOUT: Mapping[str, tuple[str, ...]] = {
    "plan": (*_PLAN, "views/decision_charts.py"),
    "explain": (*_PLAN, "views/decision_charts.py"),
    "simulate": _PLAN,
    "compare": ("views/compare_page.py", "views/compare_columns.py", "views/plan_charts.py"),
    "sweep": ("sweeping/sweep_page.py", "sweeping/sweep_data.py"),
    "replay": ("traces/replay/replay_page.py", "traces/replay/replay_data.py"),
    "open": ("editing/edit_page.py",),
    "inspect": ("inspection/inspection_page.py",),
}
"""Files in ``planner`` by picture, beside those of all pages."""
COMMON = "pages/*.py"
_BEGINS = {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}
"""Tokens after which a text is a statement, and so says what something is."""


def layout_digest(picture: str) -> str:
    """Return a digest of the code that lays out a picture's page, but for comments and spaces."""
    digest = hashlib.sha256()
    package = ROOT / "planner"
    for path in [*sorted(package.glob(COMMON)), *(package / name for name in LAYOUT[picture])]:
        digest.update(code(path.read_text(encoding="utf-8")).encode())
    return digest.hexdigest()[:16]


def code(source: str) -> str:
    """Return a module's text without imports, comments, docstrings and white space."""
    lines, before = source.splitlines(keepends=True), tokenize.NEWLINE
    spans = []
    for token in tokenize.generate_tokens(StringIO(source).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and before in _BEGINS):
            spans.append((token.start, token.end))
        if token.type not in {tokenize.COMMENT, tokenize.NL}:
            before = token.type
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            until = (node.end_lineno or node.lineno, node.end_col_offset or 0)
            spans = [span for span in spans if not node.lineno <= span[0][0] <= until[0]]
            spans.append(((node.lineno, node.col_offset), until))
    for (first, start), (last, end) in sorted(spans, reverse=True):
        rest = lines[last - 1][end:]
        lines[first - 1 : last] = [lines[first - 1][:start] + rest]
    return "".join("".join(lines).split())


def image_digest(picture: str) -> str:
    """Return a digest of a picture's file."""
    return hashlib.sha256((IMAGES / f"{picture}-page.png").read_bytes()).hexdigest()[:16]


def made() -> dict[str, dict[str, str]]:
    """Return what the pictures were made by, by name."""
    known: dict[str, dict[str, str]] = json.loads(MADE.read_text(encoding="utf-8"))
    return known


def note(picture: str) -> None:
    """Write down what a picture, just made, was laid out by."""
    known = made() if MADE.exists() else {}
    known[picture] = {"layout": layout_digest(picture), "image": image_digest(picture)}
    MADE.write_text(dump_json(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
