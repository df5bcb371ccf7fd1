"""What a command did that a test ran: the fixture ``run`` of ``tests/planner/cli``."""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Run:
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:  # noqa: ANN401 - JSON
        return json.loads(self.out)


Command: TypeAlias = Callable[..., Run]
"""Runs a command by its arguments."""


def unread(*arguments: str, errors: bool = False) -> Run:
    """Run a command in a process, into a pipe that nobody reads; ``errors``: stderr, too."""
    command = shlex.join([sys.executable, "-m", "planner", *arguments])
    done = subprocess.run(  # noqa: S603 - a pipe is what is tested
        ["bash", "-c", f"{command} {'2>&1' * errors} | true; exit ${{PIPESTATUS[0]}}"],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    return Run(done.returncode, done.stdout, done.stderr)
