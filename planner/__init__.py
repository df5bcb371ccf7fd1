"""Predicts the training step time of embedding sharding plans, and searches for the best one.

    >>> import planner
    >>> best = planner.plan("tables.yaml", gpus=4)        # doctest: +SKIP
    >>> best.report.step_time, best.save("plan.json")     # doctest: +SKIP

Everything public is an attribute of this package and loaded when first used (PEP 562), so that
importing it costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from costmodel.base.errors import (
        InfeasibleError,
        InputError,
        MissingDependencyError,
        PlanMismatchError,
        PlannerError,
        PluginError,
        Problem,
        UnknownNameError,
    )
    from costmodel.domain.hardware import (
        CollectiveCurve,
        CollectiveOp,
        Estimate,
        Gpu,
        HardwareProfile,
        Host,
        Link,
        Topology,
    )
    from costmodel.domain.plan import (
        ComputeKernel,
        Shard,
        ShardingPlan,
        ShardingType,
        TableSharding,
    )
    from costmodel.domain.replica_groups import ReplicaGroups
    from costmodel.domain.workload import (
        DataType,
        DenseModel,
        EmbeddingTable,
        Interaction,
        Optimizer,
        Pipeline,
        Pooling,
        Workload,
    )
    from costmodel.engine.objective import Objective
    from costmodel.inputs.distribution import ReuseHistogram, UniqueFraction, Zipf
    from costmodel.memory.rank_memory import RankMemory
    from costmodel.step.graph import ExecutionGraph, Node, NodeKind, Stage
    from costmodel.step.timeline import Timeline
    from costmodel.uncertainty.step_samples import StepSamples, sample_steps
    from planner.files.profiles import load_profile, profile_names
    from planner.files.workload_reading import load_workload
    from planner.planned.planned import Comparison, Planned
    from planner.planned.report import Confidence, RankReport, Report
    from planner.search.plugins import sharder_names
    from planner.sweeping.sweep import sweep
    from planner.sweeping.sweep_points import Sweep, SweepPoint
    from planner.verbs.comparing import compare
    from planner.verbs.diff import compare_plans
    from planner.verbs.explanation import Explanation, explain
    from planner.verbs.grouping import Grouping
    from planner.verbs.loading import load_plan, simulate
    from planner.verbs.planning import plan
    from sharders.problem.sharding_problem import (
        Budget,
        Progress,
        SearchResult,
        SearchStatus,
        Sharder,
        ShardingProblem,
    )

_MODULES = {
    "costmodel.inputs.distribution": ("ReuseHistogram", "UniqueFraction", "Zipf"),
    "costmodel.base.errors": (
        "InfeasibleError",
        "InputError",
        "MissingDependencyError",
        "PlanMismatchError",
        "PlannerError",
        "PluginError",
        "Problem",
        "UnknownNameError",
    ),
    "costmodel.step.graph": ("ExecutionGraph", "Node", "NodeKind", "Stage"),
    "costmodel.step.timeline": ("Timeline",),
    "costmodel.domain.hardware": (
        "CollectiveCurve",
        "CollectiveOp",
        "Estimate",
        "Gpu",
        "HardwareProfile",
        "Host",
        "Link",
        "Topology",
    ),
    "costmodel.domain.replica_groups": ("ReplicaGroups",),
    "costmodel.memory.rank_memory": ("RankMemory",),
    "costmodel.engine.objective": ("Objective",),
    "costmodel.domain.plan": (
        "ComputeKernel",
        "Shard",
        "ShardingPlan",
        "ShardingType",
        "TableSharding",
    ),
    "costmodel.uncertainty.step_samples": ("StepSamples", "sample_steps"),
    "costmodel.domain.workload": (
        "DataType",
        "DenseModel",
        "EmbeddingTable",
        "Interaction",
        "Optimizer",
        "Pipeline",
        "Pooling",
        "Workload",
    ),
    "planner.planned.planned": ("Comparison", "Planned"),
    "planner.verbs.comparing": ("compare",),
    "planner.verbs.grouping": ("Grouping",),
    "planner.verbs.loading": ("load_plan", "simulate"),
    "planner.verbs.planning": ("plan",),
    "planner.verbs.diff": ("compare_plans",),
    "planner.verbs.explanation": ("Explanation", "explain"),
    "planner.files.profiles": ("load_profile", "profile_names"),
    "planner.files.workload_reading": ("load_workload",),
    "planner.search.plugins": ("sharder_names",),
    "planner.planned.report": ("Confidence", "RankReport", "Report"),
    "planner.sweeping.sweep_points": ("Sweep", "SweepPoint"),
    "planner.sweeping.sweep": ("sweep",),
    "sharders.problem.sharding_problem": (
        "Budget",
        "Progress",
        "SearchResult",
        "SearchStatus",
        "Sharder",
        "ShardingProblem",
    ),
}

_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__version__: str
__all__ = [
    "Budget",
    "CollectiveCurve",
    "CollectiveOp",
    "Comparison",
    "ComputeKernel",
    "Confidence",
    "DataType",
    "DenseModel",
    "EmbeddingTable",
    "Estimate",
    "ExecutionGraph",
    "Explanation",
    "Gpu",
    "Grouping",
    "HardwareProfile",
    "Host",
    "InfeasibleError",
    "InputError",
    "Interaction",
    "Link",
    "MissingDependencyError",
    "Node",
    "NodeKind",
    "Objective",
    "Optimizer",
    "Pipeline",
    "PlanMismatchError",
    "Planned",
    "PlannerError",
    "PluginError",
    "Pooling",
    "Problem",
    "Progress",
    "RankMemory",
    "RankReport",
    "ReplicaGroups",
    "Report",
    "ReuseHistogram",
    "SearchResult",
    "SearchStatus",
    "Shard",
    "Sharder",
    "ShardingPlan",
    "ShardingProblem",
    "ShardingType",
    "Stage",
    "StepSamples",
    "Sweep",
    "SweepPoint",
    "TableSharding",
    "Timeline",
    "Topology",
    "UniqueFraction",
    "UnknownNameError",
    "Workload",
    "Zipf",
    "__version__",
    "compare",
    "compare_plans",
    "explain",
    "load_plan",
    "load_profile",
    "load_workload",
    "plan",
    "profile_names",
    "sample_steps",
    "sharder_names",
    "simulate",
    "sweep",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public object
    if name == "__version__":
        from importlib.metadata import version

        return version("shardwise")
    if name not in _MODULE_OF:
        raise AttributeError(f"module `planner` has no attribute `{name}`")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
