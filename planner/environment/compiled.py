"""The modules of the search that are compiled where the package was built with a C compiler."""

from functools import cache
from importlib import import_module

MODULES = (
    "costmodel.kernels.times",
    "costmodel.engine.step",
    "costmodel.engine.state",
    "costmodel.engine.contraction",
    "costmodel.engine.cycles",
    "costmodel.bounds.longest_path",
    "sharders.engine.tables",
    "sharders.engine.rank_loads",
    "sharders.engine.search_state",
    "sharders.engine.moves",
    "sharders.engine.rank_blocks",
    "sharders.engine.eject",
    "sharders.engine.reassign",
    "sharders.engine.annealing_run",
    "sharders.engine.kernel_ranks",
    "sharders.engine.rank_scores",
    "sharders.engine.fill",
)
"""The modules with a ``.pxd`` file beside them."""
SLOWDOWN = 100.0
"""Times as long as a search takes interpreted, for as many plans."""
INTERPRETED = "the search runs interpreted, some hundred times as slowly"
REMEDY = (
    "in a checkout run `python setup.py build_ext --inplace`, elsewhere install a C compiler and "
    "reinstall shardwise"
)


class InterpretedSearchWarning(UserWarning):
    """A search that runs interpreted, in Python; the command line says so on its screen."""


@cache
def interpreted_modules() -> tuple[str, ...]:
    """Return the names of the modules that run interpreted; none in a good build."""
    return tuple(name for name in MODULES if str(import_module(name).__file__).endswith(".py"))
