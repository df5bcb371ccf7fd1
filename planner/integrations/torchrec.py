"""The planner as TorchRec's: plan by predicted iteration time, or rate TorchRec's own proposals.

    >>> from planner.integrations.torchrec import IterationTimePlanner    # doctest: +SKIP
    >>> plan = IterationTimePlanner(topology, batch_size).plan(model, sharders)    # doctest: +SKIP

Torch and torchrec are imported when the first name is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from planner.integrations.presence import require_torchrec

if TYPE_CHECKING:
    from planner.integrations.torchrec_factory import read_factory
    from planner.integrations.torchrec_files import (
        export_plan,
        import_plan,
        load_torchrec_plan,
        save_plan,
    )
    from planner.integrations.torchrec_planner import IterationTimePlanner, Solution
    from planner.integrations.torchrec_plans import Home, from_torchrec, to_torchrec
    from planner.integrations.torchrec_rating import IterationTimePerfModel

_HOMES = {
    "Home": "torchrec_plans",
    "IterationTimePerfModel": "torchrec_rating",
    "IterationTimePlanner": "torchrec_planner",
    "Solution": "torchrec_planner",
    "export_plan": "torchrec_files",
    "from_torchrec": "torchrec_plans",
    "import_plan": "torchrec_files",
    "load_torchrec_plan": "torchrec_files",
    "read_factory": "torchrec_factory",
    "save_plan": "torchrec_files",
    "to_torchrec": "torchrec_plans",
}

__all__ = [
    "Home",
    "IterationTimePerfModel",
    "IterationTimePlanner",
    "Solution",
    "export_plan",
    "from_torchrec",
    "import_plan",
    "load_torchrec_plan",
    "read_factory",
    "require_torchrec",
    "save_plan",
    "to_torchrec",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public object
    if name not in _HOMES:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    require_torchrec("planning in TorchRec")
    value = getattr(import_module(f"planner.integrations.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
