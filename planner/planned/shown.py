"""Calling a view of some data by name: views import the data, so the data cannot import them."""

from importlib import import_module
from typing import TypeVar

Made = TypeVar("Made")


def shown(kind: type[Made], view: str, *data: object) -> Made:
    """Return what the function named ``view`` makes of some data, an object of class ``kind``.

    ``view`` is written ``module:function``, as entry points are.
    """
    module, _, function = view.partition(":")
    made = getattr(import_module(module), function)(*data)
    if not isinstance(made, kind):
        raise TypeError(f"{view} made a {type(made).__name__}, not a {kind.__name__}")
    return made
