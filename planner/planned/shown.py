"""How data is shown: by functions of a floor above, which it names and does not import."""

from importlib import import_module
from typing import TypeVar

Made = TypeVar("Made")


def shown(kind: type[Made], view: str, *data: object) -> Made:
    """Return what a view makes of some data: an object of a kind.

    ``view`` is ``module:function``, as entry points are written: views import the data that they
    show, and the data, whose methods notebooks call, names its views.
    """
    module, _, function = view.partition(":")
    made = getattr(import_module(module), function)(*data)
    if not isinstance(made, kind):
        raise TypeError(f"{view} made a {type(made).__name__}, not a {kind.__name__}")
    return made
