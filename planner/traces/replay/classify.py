"""The purpose of a profiled kernel, from its name and the operators it was launched in."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from enum import StrEnum

from costmodel.step.graph import NodeKind, Stage
from planner.traces.kineto import RankTrace
from planner.traces.kineto_events import Activity, is_collective
from planner.traces.replay.matching import collective_stage


class Category(StrEnum):
    """Rows of Fig. 2 of arXiv 2404.12674, in order: collectives by kind, and the host.

    Then what ranks do whose traces are not there.
    """

    EMBEDDING_FORWARD = "embedding forward"
    EMBEDDING_BACKWARD = "embedding backward"
    GEMM = "gemm"
    MEMORY = "memory"
    OTHER = "other"
    ALL_TO_ALL = "all-to-all"
    ALL_REDUCE = "all-reduce"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_GATHER = "all-gather"
    HOST = "host"
    OTHER_RANKS = "other ranks"


_BY_STAGE: Mapping[Stage, Category] = {
    Stage.LOOKUP_FORWARD: Category.EMBEDDING_FORWARD,
    Stage.LOOKUP_BACKWARD: Category.EMBEDDING_BACKWARD,
    Stage.ALL_TO_ALL: Category.ALL_TO_ALL,
    Stage.ALL_REDUCE: Category.ALL_REDUCE,
    Stage.REDUCE_SCATTER: Category.REDUCE_SCATTER,
    Stage.ALL_GATHER: Category.ALL_GATHER,
}
_STAGES = frozenset(Stage)
_GEMM = ("gemm", "gemv", "cutlass", "splitkreduce", "cublas", "dot_kernel", "wgrad", "dgrad")
_LOOKUP = ("embedding", "bounds_check_indices")
_BACKWARD = ("backward", "linearize_index", "_bwd")
_IN_LOOKUP = ("fbgemm::split_embedding", "splitlookupfunction", "aten::embedding_bag")
_IN_INPUT_DIST = ("sparse_data_dist", "all2all_data", "kjt")
_IN_OPTIMIZER = ("optimizer.step", "## optimizer ##")
"""Operators and annotations of PyTorch, FBGEMM and TorchRec around an optimizer's kernels."""
_COPIES = ("memcpy", "memset", "catarray", "copy_kernel", "direct_copy")


def node_kind(activity: Activity) -> NodeKind:
    """Return the kind of node that an activity is to the simulator."""
    if is_collective(activity):
        return NodeKind.COLLECTIVE
    return NodeKind.KERNEL if activity.kind == "kernel" else NodeKind.COPY


def stage(activity: Activity, scopes: Sequence[str], *, backward: bool) -> Stage:
    """Return an activity's stage; ``backward`` is whether autograd's thread launched it.

    Traces of ``planner simulate`` say it.
    """
    told = activity.args.get("stage")
    if isinstance(told, str) and told in _STAGES:
        return Stage(told)
    if activity.kind != "kernel":
        return Stage.MEMORY_COPY
    if is_collective(activity):
        return collective_stage(activity.name)
    name, within = activity.name.lower(), " ".join(scopes).lower()
    if _any(name, _LOOKUP) or _any(within, _IN_LOOKUP):
        backward = backward or _any(name, _BACKWARD)
        return Stage.LOOKUP_BACKWARD if backward else Stage.LOOKUP_FORWARD
    if _any(within, _IN_INPUT_DIST):
        return Stage.INPUT_DIST
    dense = Stage.DENSE_BACKWARD if backward else Stage.DENSE_FORWARD
    return Stage.OPTIMIZER if _any(within, _IN_OPTIMIZER) else dense


def category(name: str, kind: NodeKind, of: Stage) -> Category:
    """Return the row of a breakdown like Fig. 2 of arXiv 2404.12674, by a kernel's own name."""
    if of in _BY_STAGE:
        return _BY_STAGE[of]
    if kind is NodeKind.COLLECTIVE:
        return Category.ALL_TO_ALL  # of ids
    plain = name.lower().replace("fbgemm", "")
    if kind is NodeKind.COPY or _any(plain, _COPIES):
        return Category.MEMORY
    return Category.GEMM if _any(plain, _GEMM) else Category.OTHER


def stream_names(trace: RankTrace) -> Mapping[int, str]:
    """Return the names of a rank's streams; ``compute`` is the one that computes longest."""
    busy: dict[int, float] = defaultdict(float)
    names: dict[int, str] = {}
    for activity in trace.activities:
        if is_collective(activity):
            nth = sum(name.startswith("collectives") for name in names.values())
            names.setdefault(activity.stream, f"collectives {nth}" if nth else "collectives")
        else:
            busy[activity.stream] += activity.end - activity.start
    computing = {stream: time for stream, time in busy.items() if stream not in names}
    if computing:
        names[max(computing, key=computing.__getitem__)] = "compute"
    for stream in busy:
        names.setdefault(stream, f"stream {stream}")
    return names


def says_steps(trace: RankTrace) -> bool:
    """Whether a trace says the step of every kernel, as `planner simulate` does.

    Hosts launch kernels of a step before the step before has ended.
    """
    told = [activity.args.get("step") for activity in trace.activities]
    numbers = {number for number, _, _ in trace.steps}
    return all(isinstance(step, int) for step in told) and set(told) == numbers


def _any(text: str, parts: Sequence[str]) -> bool:
    return any(part in text for part in parts)
