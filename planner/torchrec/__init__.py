"""The planner as TorchRec's: plan by predicted iteration time, or rate TorchRec's own proposals.

    >>> from planner.torchrec import IterationTimePlanner    # doctest: +SKIP
    >>> plan = IterationTimePlanner(topology, batch_size).plan(model, sharders)    # doctest: +SKIP

Torch and torchrec are imported when the first name is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from planner.environment.extras import require_torchrec

if TYPE_CHECKING:
    from planner.torchrec.factory import read_factory, read_factory_operators
    from planner.torchrec.plan_conversion import TableLocation, from_torchrec, to_torchrec
    from planner.torchrec.plan_files import (
        export_plan,
        import_plan,
        load_torchrec_plan,
        save_plan,
    )
    from planner.torchrec.planner import IterationTimePlanner
    from planner.torchrec.rating import IterationTimePerfModel
    from planner.torchrec.solving import Solution

_MODULE_OF = {
    "TableLocation": "plan_conversion",
    "IterationTimePerfModel": "rating",
    "IterationTimePlanner": "planner",
    "Solution": "solving",
    "export_plan": "plan_files",
    "from_torchrec": "plan_conversion",
    "import_plan": "plan_files",
    "load_torchrec_plan": "plan_files",
    "read_factory": "factory",
    "read_factory_operators": "factory",
    "save_plan": "plan_files",
    "to_torchrec": "plan_conversion",
}

__all__ = [
    "IterationTimePerfModel",
    "IterationTimePlanner",
    "Solution",
    "TableLocation",
    "export_plan",
    "from_torchrec",
    "import_plan",
    "load_torchrec_plan",
    "read_factory",
    "read_factory_operators",
    "require_torchrec",
    "save_plan",
    "to_torchrec",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public object
    if name not in _MODULE_OF:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    require_torchrec("planning in TorchRec")
    value = getattr(import_module(f"planner.torchrec.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value
