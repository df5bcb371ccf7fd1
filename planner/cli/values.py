"""Types of values that a shell completes: files, hardware profiles, sharders."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # generic from click 8.4 on


def _nothing() -> Iterable[str]:
    return ()


class Completed(_ParamType):
    """Text that is taken as it is; a shell offers names, and files where these may be given."""

    def __init__(
        self, name: str, names: Callable[[], Iterable[str]] = _nothing, *, files: bool = False
    ) -> None:
        self.name = name
        self._names, self._files = names, files

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin so, after what makes the shell complete files."""
        del ctx, param
        before, comma, last = incomplete.rpartition(",")  # of several, the last one
        items = [CompletionItem(incomplete, type="file")] if self._files else []
        found = sorted(name for name in self._names() if name.startswith(last))
        return [*items, *(CompletionItem(before + comma + name) for name in found)]


def _profiles() -> Iterable[str]:
    from planner.files.profiles import profile_names

    return profile_names()


def _sharders() -> Iterable[str]:
    from planner.planning.plugins import AUTO, sharder_names

    return (AUTO, *sharder_names())


def _baselines() -> Iterable[str]:
    from planner.planning.baseline import NONE
    from planner.planning.plugins import sharder_names

    return (NONE, *sharder_names())


FILE = Completed("file", files=True)
HARDWARE = Completed("profile", _profiles, files=True)
SHARDER = Completed("sharder", _sharders)
BASELINE = Completed("sharder", _baselines)
