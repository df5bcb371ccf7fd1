"""Commands in this process, as typed: what they print, and how they end."""

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.robustness.attack_files import CORPUS

CODES = {0, 2, 3, 4, 5}
"""All but a bug's."""


class Ran(NamedTuple):
    """What a command did."""

    code: object
    out: str
    err: str


def ran(words: Sequence[str], folder: Path, out: io.StringIO | None = None) -> Ran:
    """Run a command line in a folder; in its words ``CORPUS`` stands for the corpus's.

    Raises
    ------
    ValueError
        It ends with a code that no command has.

    """
    from planner.cli import main

    out, err = out or io.StringIO(), io.StringIO()
    code: object = None
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.chdir(folder),
    ):
        try:
            main([word.replace("CORPUS", str(CORPUS)) for word in words])
        except SystemExit as done:
            code = done.code
    if code not in CODES:
        raise ValueError(f"exit code {code}")
    return Ran(code, out.getvalue(), err.getvalue())
