"""Errors that a user's input can cause, in the user's words.

Messages are lowercase, without a full stop, names in backticks. Exit codes are the business of the
command line, not of the exceptions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches


class PlannerError(Exception):
    """An error that the user can cause, and can mend."""

    hint: str | None = None
    """How to mend it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong in an input file."""

    message: str
    line: int | None = None
    """From 1."""
    column: int | None = None
    """From 1."""
    width: int = 1
    """How many characters to underline."""
    hint: str | None = None


@dataclass(eq=False)
class InputError(PlannerError):
    """A file or value cannot be used; carries every problem found, not only the first."""

    source: str
    """The file, or the name of the argument."""
    problems: Sequence[Problem]
    text: str | None = None
    """The file's text, to quote lines from."""

    def __str__(self) -> str:
        return f"{self.source}: {'; '.join(problem.message for problem in self.problems)}"


@dataclass(eq=False)
class UnknownNameError(PlannerError):
    """A name (sharder, profile, operation) that does not exist."""

    kind: str
    name: str
    choices: Sequence[str]

    def __post_init__(self) -> None:
        self.hint = suggestion(self.name, self.choices) or f"one of: {', '.join(self.choices)}"

    def __str__(self) -> str:
        return f"unknown {self.kind} `{self.name}`"


@dataclass(eq=False)
class InfeasibleError(PlannerError):
    """No plan fits in memory, or none was found that does; the message says which."""

    message: str
    details: Sequence[tuple[str, str]] = ()
    """Label and text of the lines that show why."""
    remedies: Sequence[tuple[str, str]] = ()
    """(change, effect); any one of them is enough."""
    hint: str | None = field(default=None)

    def __str__(self) -> str:
        return self.message


@dataclass(eq=False)
class MissingDependencyError(PlannerError):
    """An optional package is needed and not installed, or cannot be imported on this machine."""

    package: str
    needed_for: str
    extra: str
    reason: str = "is not installed"

    def __post_init__(self) -> None:
        installed = self.reason != type(self).reason
        how = f"pip install '.[{self.extra}]' in the checkout that the planner is from"
        self.hint = None if installed else how

    def __str__(self) -> str:
        return f"{self.needed_for} needs `{self.package}`, which {self.reason}"


@dataclass(eq=False)
class StatedError(PlannerError):
    """An error that says what is wrong in a sentence, and maybe how to mend it."""

    message: str
    hint: str | None = None

    def __str__(self) -> str:
        return self.message


class MachineError(StatedError):
    """What was asked for is not possible on this machine."""


class PlanMismatchError(StatedError):
    """A plan does not belong to the workload or the topology it is used with."""


@dataclass(eq=False)
class PluginError(PlannerError):
    """A third-party sharder or profile is broken."""

    name: str
    reason: str
    hint: str | None = field(default=None)

    def __str__(self) -> str:
        return f"plug-in `{self.name}`: {self.reason}"


@dataclass(eq=False)
class SharderFailedError(PlannerError):
    """A sharder ended with an exception that is its own bug, not an error of its input."""

    name: str
    reason: str
    """The exception's type and message, and where it was raised."""
    hint: str | None = field(default=None)

    def __post_init__(self) -> None:
        """Set the hint: how to see the traceback."""
        self.hint = self.hint or (
            f"a bug of the sharder: `planner plan --sharder {self.name}` shows its traceback"
        )

    def __str__(self) -> str:
        return f"sharder `{self.name}` failed: {self.reason}"


def suggestion(name: str, choices: Sequence[str]) -> str | None:
    """Return ``did you mean `x`?`` if a choice begins with the name or is close to it.

    Else None.

    Upper and lower case count as the same.
    """
    asked = name.casefold()
    folded = {each.casefold(): each for each in choices}
    begun = [each for each in folded if asked and each.startswith(asked)]
    close = begun if 0 < len(begun) <= 2 else get_close_matches(asked, folded, n=1)
    meant = " or ".join(f"`{folded[each]}`" for each in sorted(close, key=len))
    return f"did you mean {meant}?" if close else None
