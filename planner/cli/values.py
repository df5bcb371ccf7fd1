"""Types of values that a shell completes: files, hardware profiles, sharders."""

import os
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
    """Text that is taken as it is; a shell offers names, and files where these may be given.

    A file that is written over may be no other one that the command names.
    """

    def __init__(
        self,
        name: str,
        names: Callable[[], Iterable[str]] = _nothing,
        *,
        files: bool = False,
        overwrites: bool = False,
    ) -> None:
        self.name = name
        self._names, self._files, self._overwrites = names, files, overwrites

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - click's signature
        """Return the text; fail where a file would be overwritten that the command needs."""
        from planner.files.disk import STANDARD_STREAM

        if self._files and isinstance(value, str) and (not value or "\0" in value):
            self.fail(
                "an empty name" if not value else "no file's name has a null byte", param, ctx
            )
        if self is FOLDER and value == STANDARD_STREAM:
            self.fail("a folder is needed, not standard output", param, ctx)
        is_name = isinstance(value, str) and value != STANDARD_STREAM
        if self._files and is_name and ctx is not None and param is not None:
            named: dict[str, tuple[str, bool]] = ctx.meta.setdefault(__name__, {})
            path, own = os.path.realpath(value), param.get_error_hint(ctx)
            other, overwrites = named.setdefault(path, (own, self._overwrites))
            if other != own and (overwrites or self._overwrites):
                said = f"{other} names the same file, `{value}`, which would be overwritten"
                self.fail(f"{said}: give another name", param, ctx)
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin so, after what makes the shell complete files."""
        del ctx, param
        before, comma, last = incomplete.rpartition(",")  # of several, the last one
        items = [CompletionItem(incomplete, type="file")] if self._files else []
        found = sorted(name for name in self._names() if name.startswith(last))
        return [*items, *(CompletionItem(before + comma + name) for name in found)]


class Parsed(_ParamType):
    """A value read by a function that raises ValueError with what is wrong."""

    def __init__(self, name: str, parse: Callable[[str], object]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - click's signature
        """Read the value of an option."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class ListOf(Parsed):
    """Values between commas, each read by a function that raises ValueError with what is wrong."""

    def __init__(self, parse: Callable[[str], object], values: Completed | None = None) -> None:
        super().__init__("list", lambda text: tuple(map(parse, text.split(","))))
        self._values = values

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return what may be the last value."""
        return [] if self._values is None else self._values.shell_complete(ctx, param, incomplete)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - click's signature
        """Read the values of an option."""
        if self._values is not None and isinstance(value, str):
            for each in value.split(","):
                self._values.convert(each, param, ctx)
        return super().convert(value, param, ctx)


class Pairs(Parsed):
    """``NAME=VALUE``, the value read by a function that raises ValueError with what is wrong."""

    def __init__(self, parse: Callable[[str], object], *, nameless: bool = False) -> None:
        def pair(text: str) -> tuple[str, object]:
            """Return the name, empty if there may be none, and the value."""
            name, _, value = text.rpartition("=")
            if not name and not nameless:
                raise ValueError(f"`{text}` is no NAME=VALUE")
            return name, parse(value if name else text)

        super().__init__("pair", pair)


def parse_name(text: str) -> str:
    """Return a name of a list."""
    if not text:
        raise ValueError("a name is missing between commas")
    return text


def refuse_overwriting(path: str, named_by: str) -> None:
    """Refuse to write over a file that no option names, but something else does.

    Raises
    ------
    click.UsageError
        An option of this command names it as what is written.

    """
    named: dict[str, tuple[str, bool]] = click.get_current_context().meta.get(__name__, {})
    option, overwrites = named.get(os.path.realpath(path), ("", False))
    if overwrites:
        said = f"{option} names `{path}`, which {named_by} names, too, and would overwrite it"
        raise click.UsageError(f"{said}: give another name")


def _profiles() -> Iterable[str]:
    from planner.files.profiles import profile_names

    return profile_names()


def _sharders() -> Iterable[str]:
    from planner.search.plugins import AUTO, sharder_names

    return (AUTO, *sharder_names())


def _baselines() -> Iterable[str]:
    from planner.search.baseline import NONE
    from planner.search.plugins import sharder_names

    return (NONE, *sharder_names())


FILE = Completed("file", files=True)
WRITTEN = Completed("file", files=True, overwrites=True)
FOLDER = Completed("folder", files=True)
HARDWARE = Completed("profile", _profiles, files=True)
SHARDER = Completed("sharder", _sharders)
BASELINE = Completed("sharder", _baselines)
WEIGHTS = ["fp32", "fp16", "bf16", "fp8", "int8"]
"""Types that elements in memory can have."""
