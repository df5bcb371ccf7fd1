"""Puts our planner where TorchRec's tests look for TorchRec's, in every process of theirs.

``install`` is called by a ``sitecustomize`` module that the runner writes, so that processes which
a test spawns have it, too. Nothing of TorchRec is imported here before a test does.
"""

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

PLANNERS = "torchrec.distributed.planner.planners"
PROVIDERS = "torchrec.distributed.planner.provider"
OWN = ("planner.torchrec.other_tables", "planner.torchrec.torchrec_sharder")
"""Modules of ours that ask TorchRec's planner."""


def install(checkout: str, *, ours: bool) -> None:
    """Let packages of TorchRec find their tests in a checkout, and its planner be ours."""
    sys.meta_path.insert(0, _Finder(Path(checkout), ours=ours))


class _Finder(MetaPathFinder):
    """Finds TorchRec's modules as usual, and changes some once they are loaded."""

    def __init__(self, checkout: Path, *, ours: bool) -> None:
        self._checkout, self._ours = checkout, ours
        self._asking = False

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        wanted = name.startswith("torchrec") or (self._ours and name in OWN)
        if self._asking or not wanted:
            return None
        if name.endswith(".test_model_parallel_base"):
            import_module("torchrec.distributed.planner")  # it takes it to be there
        self._asking = True
        try:
            spec = find_spec(name)
        finally:
            self._asking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _StandInLoader(spec.loader, self._change)
        return spec

    def _change(self, module: ModuleType) -> None:
        name = module.__name__
        if name.startswith("torchrec") and hasattr(module, "__path__"):
            module.__path__.append(str(self._checkout.joinpath(*name.split("."))))
        if self._ours and name == PLANNERS:
            vars(module)["TorchRecsPlanner"] = vars(module)["EmbeddingShardingPlanner"]
            vars(module)["EmbeddingShardingPlanner"] = StandIn
        if self._ours and name == PROVIDERS:
            # ours is a subclass of theirs, which it finds here as long as it is not replaced
            own = import_module("planner.torchrec.provider")
            vars(module)["DefaultPlannerProvider"] = own.IterationTimeProvider
        if name in OWN:
            planners = sys.modules[PLANNERS]
            vars(module)["EmbeddingShardingPlanner"] = vars(planners)["TorchRecsPlanner"]


class _StandInLoader(Loader):
    """Loads a module as another loader does, then changes it."""

    def __init__(self, loader: Any, change: Any) -> None:  # noqa: ANN401 - importlib's
        self._loader, self._change = loader, change

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the loader has
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return what the loader makes."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's code, then change it."""
        self._loader.exec_module(module)
        self._change(module)


class StandIn:
    """Has the name of TorchRec's planner; to make one makes ours."""

    def __new__(cls, *arguments: Any, **settings: Any) -> Any:  # noqa: ANN401 - a planner
        """Return our planner, with the attributes that TorchRec's tests look at."""
        from bench.torchrec_suite.looked_at import LookedAt

        return LookedAt(*arguments, **settings)
