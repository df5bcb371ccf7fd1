"""Where output goes: reports to stdout, remarks to stderr, JSON to stdout instead of both."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Self, TextIO

import click

from planner.files.standard_output import STDOUT_USED, write_no_more

if TYPE_CHECKING:
    from rich.text import Text

    from sharders.problem.sharding_problem import Progress

NARROWEST, WIDEST = 20, 100
"""Columns of a report in a very narrow or very wide terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """How a command prints, as its flags say."""

    json: bool = False
    quiet: bool = False
    color: bool = True

    def data(self, data: Mapping[str, Any]) -> None:
        """Print one JSON object, with ``schema_version`` first."""
        from planner.files.json_text import dump_json

        text = dump_json({"schema_version": 1, **data}, indent=2)
        STDOUT_USED.set(True)
        _echo(f"{text}\n")

    def lines(self, lines: Callable[[int], "Iterable[Text]"], file: TextIO | None = None) -> None:
        """Print styled lines, made by a function of the width."""
        from rich.console import Console

        console = Console(
            file=file, highlight=False, soft_wrap=True, no_color=None if self.color else True
        )
        fixed = console.is_terminal or os.environ.get("COLUMNS", "").isdigit()
        width = max(NARROWEST, min(WIDEST, console.width)) if fixed else WIDEST
        with console.capture() as written:
            for line in lines(width):
                line.plain = _harmless(line.plain)
                console.print(line)
        _echo(written.get(), file, color=True)

    def remark(self, text: str) -> None:
        """Print a remark on stderr, unless asked to be quiet."""
        if not self.quiet:
            _echo(_harmless(text) + "\n", sys.stderr)

    @property
    def live(self) -> bool:
        """Whether a changing line can be shown."""
        dumb = os.environ.get("TERM", "dumb") == "dumb"
        return sys.stderr.isatty() and not (self.quiet or self.json or dumb)


def _echo(text: str, stream: TextIO | None = None, *, color: bool | None = None) -> None:
    """Write text to a stream, by default stdout, as long as its reader is there.

    A reader that stops, as ``head`` does, does not end the command: files are still to be written.
    """
    stream = stream or sys.stdout
    try:
        click.echo(text, file=stream, nl=False, color=color)
    except BrokenPipeError:
        write_no_more(stream)


def _harmless(text: str) -> str:
    """Return text without characters that move the cursor: names come from files."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text)


class ProgressLine:
    """A line on a terminal's stderr that shows a command's progress and then vanishes.

    Between two things said, a thread counts the seconds: not all work reports how far it is.
    """

    def __init__(self, output: Output, time_limit: float = 0.0) -> None:
        self._live = output.live
        self._time_limit = time_limit
        self._start = self._shown = time.monotonic()
        self._text, self._ended, self._lock = "", Event(), Lock()

    def say(self, text: str) -> None:
        """Show what is being done now; nothing for an empty text."""
        self._text = text
        if self._live:
            self._write(text)

    def _count(self) -> None:
        """Show every second for how long the last thing said has been going on, until the end."""
        text, since = self._text, time.monotonic()
        while not self._ended.wait(1.0):
            if text != self._text:
                text, since = self._text, time.monotonic()
                continue
            with self._lock:  # it may end meanwhile, and the line is gone then
                if text and not self._ended.is_set():
                    self._write(f"{text}  {time.monotonic() - since:.0f} s")

    def watch(self, sharder: str, progress: "Progress") -> None:
        """Show a search's progress, at most ten times a second."""
        now = time.monotonic()
        if not self._live or now - self._shown < 0.1:
            return
        from planner.show.format import count, duration

        self._shown = now
        bound = f" (bound {duration(progress.bound)})" if progress.bound is not None else ""
        self._write(
            f"{sharder}  {now - self._start:.1f} of {self._time_limit:g} s · "
            f"best {duration(progress.best)}{bound} · {count(progress.evaluated, 'plan')}"
        )

    def __enter__(self) -> Self:
        if self._live:
            Thread(target=self._count, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the terminal as it was."""
        with self._lock:
            self._ended.set()
        self.say("")

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
