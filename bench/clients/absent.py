"""Stands for packages that are not installed: every name of theirs is a thing that does nothing."""

import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Self


def stand_in_for(packages: Sequence[str]) -> None:
    """Let packages be imported that are not found; those that are, stay as they are."""
    sys.meta_path.append(_AbsentFinder(frozenset(packages)))


class Absent:
    """Anything of such a package: an object, a function, a decorator, a base class."""

    def __init__(self, *_: object, **__: object) -> None:
        """Take whatever is given."""

    def __call__(self, *given: Any, **named: object) -> Any:  # noqa: ANN401 - as a decorator, it
        """Return what is decorated, if it is one, or another such thing."""
        decorated = len(given) == 1 and callable(given[0]) and not named
        return given[0] if decorated else Absent()

    def __getattr__(self, name: str) -> "Absent":
        """Have every attribute but Python's own."""
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent()

    def __getitem__(self, _: object) -> "Absent":
        return Absent()

    def __setitem__(self, place: object, value: object) -> None:
        """Keep nothing."""

    def __mro_entries__(self, _: tuple[type, ...]) -> tuple[type, ...]:
        """Be a base class that has nothing."""
        return (object,)

    def __iter__(self) -> Iterator[object]:
        return iter(())

    def __or__(self, _: object) -> Self:
        """Be a part of a type."""
        return self

    __ror__ = __or__

    def __rtruediv__(self, other: Any) -> Any:  # noqa: ANN401 - a path
        return other

    def __fspath__(self) -> str:
        return "absent"


class _Module(ModuleType):
    """A module of such a package."""

    __version__ = "0.0.0"
    __file__ = "absent/__init__.py"

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent()


class _AbsentFinder(MetaPathFinder, Loader):
    """Finds what no finder before it has found."""

    def __init__(self, packages: frozenset[str]) -> None:
        self._packages = packages

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name.partition(".")[0] not in self._packages:
            return None
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Leave it empty."""
