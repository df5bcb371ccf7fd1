"""Files and commands in Markdown pages, and what they print: pages are run to be believed.

A comment before a block of code says what it is: ``<!-- file: NAME -->`` puts it into a file,
``<!-- run -->`` runs it (``<!-- run: PACKAGE -->`` where that package is installed), and
``<!-- not run: REASON -->`` does not. Text between ``<!-- begin output -->`` and
``<!-- end output -->`` is what the block before it printed when the page was last written.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from bench.forked_python import python_command

ROOT = Path(__file__).parents[1]
SHOWN = ("bench", "examples")
"""Folders of the repository that commands on pages name."""
LANGUAGES = ("console", "python", "sh", "yaml")
_BLOCK = re.compile(
    r"^(?:<!-- (?P<kind>file|run|not run)(?:: (?P<argument>[^\n]*?))? -->\n)?"
    r"```(?P<language>\w+)[^\n]*\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_OUTPUT = re.compile(
    r"\n*<!-- begin output -->\n```text\n(?P<body>.*?)```\n<!-- end output -->", re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeBlock:
    """A block of code on a page."""

    kind: str
    """``file``, ``run``, ``not run``, or nothing."""
    argument: str
    language: str
    body: str
    end: int
    """Where it ends in the text of the page."""


def blocks(text: str) -> Iterator[CodeBlock]:
    """Yield the blocks of code that could be run or kept, in order."""
    for match in _BLOCK.finditer(text):
        if match["language"] in LANGUAGES:
            yield CodeBlock(
                kind=match["kind"] or "",
                argument=match["argument"] or "",
                language=match["language"],
                body=match["body"],
                end=match.end(),
            )


def run_page(text: str, folder: Path, settings: Mapping[str, str]) -> list[tuple[CodeBlock, str]]:
    """Write the files of a page and run its commands, in an empty folder.

    Parameters
    ----------
    text
        The page.
    folder
        Where to do it; gets the folders of the repository that pages name as links.
    settings
        Environment variables besides those there are.

    Returns
    -------
    list
        Every block that ran, and what it printed.

    Raises
    ------
    subprocess.CalledProcessError
        One of them failed.

    """
    for name in SHOWN:
        (folder / name).symlink_to(ROOT / name)
    environment = {**os.environ, **settings, "PATH": _path(folder), "PYTHONPATH": str(ROOT)}
    ran = []
    for block in blocks(text):
        if block.kind == "file":
            (folder / block.argument).write_text(block.body, encoding="utf-8")
        elif block.kind == "run" and (not block.argument or find_spec(block.argument)):
            ran.append((block, _run(block, folder, environment)))
    return ran


def _path(folder: Path) -> str:
    """Return a search path whose ``planner`` and ``python`` are those of this interpreter."""
    commands = folder / ".commands"
    commands.mkdir()
    python = shlex.join(python_command())
    for name, arguments in (("planner", "-m planner "), ("python", "")):
        script = commands / name
        script.write_text(f'#!/bin/sh\nexec {python} {arguments}"$@"\n', encoding="utf-8")
        script.chmod(0o755)
    return os.pathsep.join([str(commands), os.environ["PATH"]])


def _run(block: CodeBlock, folder: Path, environment: Mapping[str, str]) -> str:
    shell = ["python", "-"] if block.language == "python" else ["sh", "-e"]
    program = shutil.which(shell[0], path=environment["PATH"]) or shell[0]
    done = subprocess.run(  # noqa: S603 - what our pages say
        [program, *shell[1:]],
        input=block.body, cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise subprocess.CalledProcessError(
            done.returncode, block.body, output=done.stdout, stderr=done.stderr
        )
    return done.stdout


def with_outputs(text: str, ran: list[tuple[CodeBlock, str]]) -> str:
    """Return a page with the outputs of its blocks put where it shows them."""
    for block, output in reversed(ran):
        shown = _OUTPUT.match(text, block.end)
        if shown:
            text = text[: shown.start("body")] + output + text[shown.end("body") :]
    return text
