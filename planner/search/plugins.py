"""Sharders by name: built-in ones, frameworks' own, and those that packages offer as entry points.

A package offers a sharder with, in its ``pyproject.toml``::

    [project.entry-points."planner.sharders"]
    mine = "my_package.module:MySharder"

"""

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from costmodel.base.errors import MissingDependencyError, PluginError, UnknownNameError
from planner.environment.extras import require_torchrec, torchrec_installed
from sharders import SHARDERS
from sharders.problem.sharding_problem import Sharder

GROUP = "planner.sharders"
TORCHREC = "torchrec"
"""Name of TorchRec's own planner, where torchrec is installed."""
TORCHREC_SHARDER = "planner.torchrec.torchrec_sharder:TorchRecPlanner"
"""Module and class of that sharder, imported when used: it stands above this package."""
AUTO = "auto"
"""Stands for all built-in sharders together; the best plan wins."""


def sharder_names() -> tuple[str, ...]:
    """Return the names of all sharders, the built-in ones first."""
    integrated = (TORCHREC,) if torchrec_installed() else ()
    third_party = (point.name for point in entry_points(group=GROUP))
    return tuple(dict.fromkeys((*SHARDERS, *integrated, *third_party)))


def load_sharder(name: str) -> Sharder:
    """Return the sharder of that name; a built-in one wins over a plug-in.

    Raises
    ------
    UnknownNameError
        Nothing has that name.
    MissingDependencyError
        It is TorchRec's planner, and torchrec is not installed, or cannot be imported here.
    PluginError
        A third-party sharder cannot be imported or made, or has no ``shard`` method.

    """
    if name in SHARDERS:
        return _built_in(SHARDERS[name])
    if name == TORCHREC:
        return _torchrec_planner("the sharder `torchrec`")
    points = entry_points(group=GROUP, name=name)
    if not points:
        known = sharder_names()
        raise UnknownNameError("sharder", name, known if name == AUTO else (AUTO, *known))
    return _from_plugin(next(iter(points)))


def _torchrec_planner(needed_for: str) -> Sharder:
    require_torchrec(needed_for)
    try:
        return _built_in(TORCHREC_SHARDER)
    except (ImportError, OSError) as error:  # torch wants a folder for temporary files, and more
        reason = f"cannot be imported here: {error}"
        raise MissingDependencyError(TORCHREC, needed_for, TORCHREC, reason) from error


def _built_in(target: str) -> Sharder:
    """Return the built-in sharder that a target ``module:Class`` names."""
    module, _, attribute = target.partition(":")
    sharder: Sharder = getattr(import_module(module), attribute)()
    return sharder


def _from_plugin(point: EntryPoint) -> Sharder:
    try:
        made = point.load()()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        hint = f"it is `{point.value}`; mend or uninstall the package that offers it"
        raise PluginError(point.name, reason, hint) from error
    if not callable(getattr(made, "shard", None)):
        raise PluginError(point.name, f"`{point.value}` has no method `shard`")
    sharder: Sharder = made
    return sharder
