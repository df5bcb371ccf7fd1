"""Errors as text that quotes the user's lines, and as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any
from unicodedata import east_asian_width

from costmodel.base.errors import (
    InfeasibleError,
    InputError,
    MissingDependencyError,
    PlannerError,
    PluginError,
    Problem,
    SharderFailedError,
    UnknownNameError,
)
from planner.files.source import MOST_PROBLEMS
from planner.show.format import count

WIDTH = 100
"""Most columns of a quoted line."""

_MOST_SHOWN = 20
"""Most problems of a file that are shown."""
_BUG, _BAD_INPUT = 1, 3
_EXIT_CODES: Mapping[type[PlannerError], int] = {
    UnknownNameError: _BAD_INPUT,
    InputError: _BAD_INPUT,
    InfeasibleError: 4,
    MissingDependencyError: 5,
    PluginError: 5,
    SharderFailedError: _BUG,
}
"""Exit codes by class of error: 1 a bug, 3 bad input, 4 no plan fits, 5 something is missing."""


def exit_code(error: PlannerError) -> int:
    """Return the exit code of a command that ends with this error."""
    return next((code for kind, code in _EXIT_CODES.items() if isinstance(error, kind)), _BAD_INPUT)


def error_json(error: PlannerError) -> dict[str, Any]:
    """Return the error as plain data, for ``--json``."""
    body: dict[str, Any] = {
        "kind": type(error).__name__,
        "message": str(error),
        "hint": error.hint,
        "exit_code": exit_code(error),
    }
    if isinstance(error, InputError):
        body["source"] = error.source
        body["problems"] = [
            {
                "message": problem.message,
                "line": problem.line,
                "column": problem.column,
                "hint": problem.hint,
            }
            for problem in error.problems
        ]
    if isinstance(error, InfeasibleError):
        body["details"] = [{"label": label, "text": text} for label, text in error.details]
        body["remedies"] = [{"change": change, "effect": text} for change, text in error.remedies]
    return body


def render_error(error: PlannerError) -> str:
    """Return the error as plain text of several lines, without a newline at the end."""
    if isinstance(error, InputError) and error.text is not None:
        return "\n".join(_input_lines(error, error.text.splitlines()))
    lines = [f"error: {_clean(str(error))}"]
    if isinstance(error, InfeasibleError):
        lines += _columns(error.details, indent=2)
    lines += [f"  hint: {_clean(hint)}" for hint in _hints(error)]
    if isinstance(error, InfeasibleError) and error.remedies:
        lines += _remedy_lines(error)
    return "\n".join(lines)


def _hints(error: PlannerError) -> list[str]:
    problems = error.problems if isinstance(error, InputError) else ()
    hints = (error.hint, *(problem.hint for problem in problems))
    return list(dict.fromkeys(hint for hint in hints if hint))


def _input_lines(error: InputError, quoted: Sequence[str]) -> list[str]:
    lines = [
        line
        for problem in error.problems[:_MOST_SHOWN]
        for line in _problem_lines(problem, error.source, quoted)
    ]
    number = len(error.problems)
    if number > _MOST_SHOWN:
        lines.append(f"... and {number - _MOST_SHOWN} more")
    problems = count(number, "problem")
    if number >= MOST_PROBLEMS:
        problems += " or more"
    return [*lines, f"error: {_clean(error.source)} has {problems}; nothing was done"]


def _problem_lines(problem: Problem, source: str, quoted: Sequence[str]) -> list[str]:
    """Return a problem with the line of the file that has it, and carets below."""
    head = f"error: {_clean(problem.message)}"
    hint = [f"  hint: {_clean(problem.hint)}"] if problem.hint else []
    if problem.line is None:
        return [head, f"   --> {_clean(source)}", *hint]
    gutter = max(3, len(str(problem.line)))
    column = problem.column or 1
    place = f"{'':{gutter}}--> {_clean(source)}:{problem.line}:{column}"
    if problem.line > len(quoted):
        return [head, place, *hint]
    shown, start = _window(
        _clean(quoted[problem.line - 1]), column - 1, problem.width, room=WIDTH - gutter - 3
    )
    carets = "^" * max(1, _width(shown[start : start + problem.width]))
    under = f"{'':{gutter}} | {' ' * _width(shown[:start])}{carets}"
    if problem.hint and len(under) + 1 + _width(problem.hint) <= WIDTH:
        under, hint = f"{under} {_clean(problem.hint)}", []
    return [head, place, f"{'':{gutter}} |", f"{problem.line:>{gutter}} | {shown}", under, *hint]


def _window(line: str, start: int, width: int, *, room: int) -> tuple[str, int]:
    """Return the part of a long line that is shown, and where the problem starts in it."""
    line = line.rstrip()
    start = min(start, len(line))
    if len(line) <= room:
        return line, start
    first = max(0, min(start - room // 3, len(line) - room))
    if start + width > first + room:
        first = max(0, min(start - 4, len(line) - room))
    shown = line[first : first + room]
    if first > 0:
        shown = f"... {shown[4:]}"
    if first + room < len(line):
        shown = f"{shown[:-4]} ..."
    return shown, start - first


def _remedy_lines(error: InfeasibleError) -> list[str]:
    several = "any one of these is enough" if len(error.remedies) > 1 else "this is enough"
    head = [] if error.hint else [f"  hint: {several}"]
    return [*head, *_columns(error.remedies, indent=4)]


def _columns(rows: Sequence[tuple[str, str]], *, indent: int) -> list[str]:
    widest = max((len(label) for label, _ in rows), default=0)
    return [f"{'':{indent}}{label:<{widest + 4}}{text}" for label, text in rows]


def _clean(text: str) -> str:
    """Return text without characters that could move the terminal's cursor."""
    return "".join(
        char if char.isprintable() else " " if char == "\t" else "\ufffd" for char in text
    )


def _width(text: str) -> int:
    """Return the terminal columns a text takes."""
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)
