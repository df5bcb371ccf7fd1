"""What-if questions in words: ``all_to_all x0.5``, ``balance``, ``collectives h100-sxm``."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from costmodel.base.errors import InputError, Problem, UnknownNameError
from costmodel.base.units import Bytes, Seconds
from costmodel.domain.hardware import CollectiveOp
from costmodel.step.changed_graphs import balanced, scaled, with_collectives
from costmodel.step.graph import ExecutionGraph, Node, NodeKind, Role, Stage
from planner.traces.replay.classify import Category, category
from planner.traces.replay.importing import ImportedRun

_SCALE = re.compile(r"(?P<what>[\w -]+?)\s+[x×](?P<factor>\d+(?:\.\d*)?|\.\d+)")
_LOOKUPS = (Stage.LOOKUP_FORWARD, Stage.LOOKUP_BACKWARD)
_PINNED = "ranks begin as far apart as they did, with the kernels launched before"
_AS_RECORDED = "only the recorded ranks change; the others take as long as they did"
_SAME_WORK = "the same kernels, launches and waits in the same order"


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A changed run, and what the change assumes."""

    text: str
    graph: ExecutionGraph
    assumptions: tuple[str, ...]


def _is_host(node: Node) -> bool:
    not_its_own = node.role in (Role.START_SKEW, Role.ABSENT)
    return node.kind in (NodeKind.HOST, NodeKind.WAIT) and not not_its_own


_GROUPS: Mapping[str, Callable[[Node], bool]] = {
    "embedding": lambda node: node.stage in _LOOKUPS,
    "gemm": lambda node: category(node.name, node.kind, node.stage) is Category.GEMM,
    "collectives": lambda node: node.kind is NodeKind.COLLECTIVE,
    "kernels": lambda node: node.kind is NodeKind.KERNEL,
    "host": _is_host,
}
_STAGES = tuple(stage for stage in Stage if stage is not Stage.HOST)


def what_if(run: ImportedRun, text: str, source: str) -> WhatIf:
    """Return the run as it would be with a change, given in words.

    Raises
    ------
    InputError
        The question cannot be understood, or the trace lacks what it needs.
    UnknownNameError
        It names something that nothing here answers to.

    """
    words = " ".join(text.split())
    if words == "balance" or words.startswith("collectives "):
        _check_whole(run, text)
    if words == "balance":
        alike = "every kernel of a stage grows or shrinks by the same factor on a rank"
        return _changed_run(run, words, balanced(run.graph), "tables can be cut to any size", alike)
    if words == "no host":
        words = "host x0"
    if match := _SCALE.fullmatch(words):
        return _scaled(run, words, match["what"].replace(" ", "_"), float(match["factor"]))
    if words.startswith("collectives "):
        return _other_collectives(run, words, words.removeprefix("collectives "), source)
    message = f"`{text}` is not a question"
    hint = "one of: `all_to_all x0.5`, `host x0`, `balance`, `collectives h100-sxm`"
    raise InputError("--what-if", (Problem(message=message, hint=hint),))


def _scaled(run: ImportedRun, text: str, what: str, factor: float) -> WhatIf:
    """Return the run with the times of one kind of work multiplied by a factor."""
    chosen = _GROUPS.get(what)
    if chosen is None:
        if what not in _STAGES:
            raise UnknownNameError("kind of work", what, (*_GROUPS, *_STAGES))
        stage = Stage(what)

        def chosen(node: Node) -> bool:
            return node.stage is stage

    with_absent = {node.collective for node in run.graph.nodes if node.role is Role.ABSENT}
    with_absent -= {None}
    if any(node.collective in with_absent and chosen(node) for node in run.graph.nodes):
        _check_whole(run, text)
    assumed = ["launch latency of the GPU stays"] if what == "host" else []
    return _changed_run(run, text, scaled(run.graph, chosen, factor), *assumed)


def _check_whole(run: ImportedRun, question: str) -> None:
    """Raise the InputError of a question that needs the ranks whose traces are not there."""
    if not run.job.is_whole:
        message = (
            f"`{question}` needs all ranks, and the traces are of {run.job.text}: what of a "
            "collective is its transfer, and what the others did meanwhile, is not recorded"
        )
        hint = "give the traces of all ranks; of some, `gemm x0.5`, `embedding x0.5` or `host x0`"
        raise InputError("--what-if", (Problem(message=message, hint=hint),))


def _other_collectives(run: ImportedRun, text: str, profile: str, source: str) -> WhatIf:
    """Return the run with the collectives' times of another machine, all ranks in one node."""
    from costmodel.kernels.collectives import RankGroup, collective_time
    from planner.files.profiles import load_profile

    hardware = load_profile(profile)
    if not run.sizes_known:
        message = "message sizes of collectives are not recorded in these traces"
        hint = "give the execution traces of the same steps with `--execution-traces`"
        raise InputError(source, (Problem(message=message, hint=hint),))

    def time(stage: Stage, num_bytes: Bytes, members: int) -> Seconds:
        group = RankGroup(num_ranks=members, ranks_per_node=members)
        # the input distribution is all-to-alls of lengths and ids
        op = CollectiveOp.ALL_TO_ALL if stage is Stage.INPUT_DIST else CollectiveOp(stage.value)
        return float(collective_time(op, num_bytes, group, hardware))

    return _changed_run(
        run, text, with_collectives(run.graph, time), f"all ranks in one node of {hardware.name}"
    )


def _changed_run(run: ImportedRun, text: str, graph: ExecutionGraph, *assumptions: str) -> WhatIf:
    others = () if run.job.is_whole else (_AS_RECORDED,)
    return WhatIf(text=text, graph=graph, assumptions=(*assumptions, *others, _SAME_WORK, _PINNED))
