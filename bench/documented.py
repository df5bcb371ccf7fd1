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
from math import isclose
from pathlib import Path

from bench.forked_python import python_command

ROOT = Path(__file__).parents[1]
SHOWN = ("bench", "examples")
"""Folders of the repository that commands on pages name."""
CHECKOUT = "checkout"
"""Where a reader of a page starts."""
QUICK = {"PLANNER_TIME_LIMIT": "0.2s"}
"""Settings with which commands of pages end soon."""
LANGUAGES = ("console", "python", "sh", "yaml")
_BLOCK = re.compile(
    r"^(?:<!-- (?P<kind>file|run|not run)(?:: (?P<argument>[^\n]*?))? -->\n)?"
    r"```(?P<language>\w+)[^\n]*\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_END = "END OF THE BLOCK"
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_BAR = re.compile("[·▏▎▍▌▋▊▉█]+")
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


def run_page(
    text: str, folder: Path, settings: Mapping[str, str], hurry: Mapping[str, str]
) -> list[tuple[CodeBlock, str]]:
    """Do what a page says from top to bottom, as a reader would: in one shell, in a new checkout.

    Parameters
    ----------
    text
        The page.
    folder
        An empty folder. The shell starts in its ``CHECKOUT``, which has the folders of the
        repository that pages name, as links; the packages are installed.
    settings
        Environment variables besides those there are.
    hurry
        Others, for blocks whose output the page does not show.

    Returns
    -------
    list
        Every block that ran, and what it printed.

    Raises
    ------
    subprocess.CalledProcessError
        A command failed; the error has its block, and what that printed.

    """
    checkout, printed = folder / CHECKOUT, folder / "printed"
    for made in (checkout, printed):
        made.mkdir()
    for name in SHOWN:
        (checkout / name).symlink_to(ROOT / name)
    environment = {
        # packages that tests import may tell the width of a terminal
        **{name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}},
        **settings,
        "PATH": _path(folder),
        "PYTHONPATH": _installed(folder),
    }
    done = [
        block
        for block in blocks(text)
        if block.kind == "file"
        or (block.kind == "run" and (not block.argument or find_spec(block.argument)))
    ]
    calm = {name: settings.get(name) for name in hurry}
    script = "\n".join(
        _step(block, printed / str(number), calm if _OUTPUT.match(text, block.end) else hurry)
        for number, block in enumerate(done)
    )
    shell = subprocess.run(  # noqa: S603 - what our pages say
        [shutil.which("sh") or "sh", "-e"],
        input=script, cwd=checkout, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    outputs = [(printed / str(number)).read_text("utf-8") for number in range(_count(printed))]
    if shell.returncode:
        failed = done[len(outputs) - 1].body
        raise subprocess.CalledProcessError(
            shell.returncode, failed, output=outputs[-1], stderr=shell.stderr
        )
    ran = zip(done, outputs, strict=True)
    return [(block, output) for block, output in ran if block.kind == "run"]


def _step(block: CodeBlock, printed: Path, settings: Mapping[str, str | None]) -> str:
    """Return what a reader types for a block: lines of a shell, which stay in its folder."""
    lines = [
        f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}"
        for name, value in settings.items()
    ]
    body = block.body
    if block.kind == "file":
        body = f"cat > {shlex.quote(block.argument)} <<'{_END}'\n{body}{_END}\n"
    elif block.language == "python":
        body = f"python - <<'{_END}'\n{body}{_END}\n"
    return "\n".join([*lines, f"{{\n{body}}} > {shlex.quote(str(printed))}"])


def _count(folder: Path) -> int:
    return sum(1 for _ in folder.iterdir())


def _installed(folder: Path) -> str:
    """Return a folder with the packages that an installation has, and no others."""
    packages = folder / "installed"
    packages.mkdir()
    for name in ("costmodel", "planner", "sharders"):
        (packages / name).symlink_to(ROOT / name)
    return str(packages)


def _path(folder: Path) -> str:
    """Return a search path whose ``planner`` and ``python`` are those of this interpreter."""
    commands = folder / "commands"
    commands.mkdir()
    python = shlex.join(python_command())
    for name, arguments in (("planner", "-m planner "), ("python", "")):
        script = commands / name
        script.write_text(f'#!/bin/sh\nexec {python} {arguments}"$@"\n', encoding="utf-8")
        script.chmod(0o755)
    return os.pathsep.join([str(commands), os.environ["PATH"]])


def shown_outputs(text: str, ran: list[tuple[CodeBlock, str]]) -> Iterator[tuple[str, str]]:
    """Yield what a page shows of each block's output, and what the block printed."""
    for block, output in ran:
        shown = _OUTPUT.match(text, block.end)
        if shown:
            yield shown["body"], output


def alike(shown: str, printed: str) -> bool:
    """Return whether a page shows what is printed: the same words, and numbers within 2%."""
    told, found = (_NUMBER.sub("0", _BAR.sub("", text)).split() for text in (shown, printed))
    if told != found:
        return False
    pairs = zip(_NUMBER.findall(shown), _NUMBER.findall(printed), strict=True)
    return all(isclose(_number(one), _number(other), rel_tol=0.02) for one, other in pairs)


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def with_outputs(text: str, ran: list[tuple[CodeBlock, str]]) -> str:
    """Return a page with the outputs of its blocks put where it shows them."""
    for block, output in reversed(ran):
        shown = _OUTPUT.match(text, block.end)
        if shown:
            text = text[: shown.start("body")] + output + text[shown.end("body") :]
    return text
