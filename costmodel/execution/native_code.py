"""Functions that run as compiled code: what they are handed, or what numba makes of them.

Importing numba takes longer than a short search. So a function is handed to numba when it is first
called without having code of its own, from Python or from a function that numba is compiling.
"""

from collections.abc import Callable
from functools import cached_property, update_wrapper
from typing import Any, ClassVar


class Native:
    """A function in the subset of Python that numba compiles."""

    everyone: ClassVar[list["Native"]] = []
    """All there are: who chooses where numba keeps its code must do so before it is asked."""

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:  # noqa: ANN401
        self.function, self.options = function, options
        self.code: Callable[..., Any] | None = None
        """Compiled earlier, to be called instead: whoever finds some puts it here."""
        self.name = function.__name__
        update_wrapper(self, function)
        self.everyone.append(self)

    @cached_property
    def dispatcher(self) -> Any:  # noqa: ANN401 - numba is untyped
        """What numba makes of it."""
        import numba

        return numba.njit(**self.options)(self.function)

    @property
    def _numba_type_(self) -> Any:  # noqa: ANN401
        """What numba asks objects for that it finds in functions."""
        return self.dispatcher._numba_type_

    def __call__(self, *arguments: Any) -> Any:  # noqa: ANN401
        """Call the code handed in; without any, what numba makes of the function."""
        return (self.code or self.dispatcher)(*arguments)
