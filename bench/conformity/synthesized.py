"""Facts of the step that is synthesized for a rank: which operators its kernels stand for."""

from collections.abc import Mapping
from typing import TypeAlias

from bench.conformity.facts import LEAST, Fact
from costmodel.base.units import Seconds
from costmodel.step.graph import NodeKind, Stage
from costmodel.step.step_operations import Op, StepOperations

Parts: TypeAlias = tuple[tuple[str, float], ...]
"""Kinds of operators, and the share of the kernel's bytes that each moves."""
_NO_BYTES = frozenset(("lookup", "lookup backward", "bucketize ids"))
_COLLECTIVES = {
    Stage.ALL_TO_ALL: "all_to_all",
    Stage.REDUCE_SCATTER: "reduce_scatter",
    Stage.ALL_GATHER: "all_gather",
    Stage.ALL_REDUCE: "all_reduce",
    Stage.INPUT_DIST: "all_to_all",
}
_KERNELS: Mapping[str, tuple[str, Parts]] = {
    "permute ids": ("input", (("permute ids", 1.0),)),
    "bucketize ids": ("input", (("bucketize ids", 0.0),)),
    "stack splits": ("input", (("stack splits", 1.0),)),
    "reorder ids": ("input", (("permute ids", 1.0),)),
    "stagger ids": ("input", (("permute ids", 1.0),)),
    "concat lookups": ("lookup", (("cat", 1.0),)),
    "clamp to encode": ("output", (("clamp", 1.0),)),
    "clamp to encode sums": ("output", (("clamp", 1.0),)),
    "clamp to encode gradients": ("gradient", (("clamp", 1.0),)),
    "clamp to encode node gradients": ("gradient", (("clamp", 1.0),)),
    "divide by lengths": ("output", (("scale", 1.0),)),
    "divide gradients by lengths": ("gradient", (("scale", 1.0),)),
    "permute outputs": ("output", (("permute rows", 1.0),)),
    "concat columns": ("output", (("cat", 1.0),)),
    "select rows": ("output", (("select", 1.0),)),
    "zero rows": ("gradient", (("fill", 1.0),)),
    "add rows": ("gradient", (("add rows", 1.0),)),
    "permute rows' gradients": ("gradient", (("permute rows", 1.0),)),
    "scale node gradients": ("gradient", (("scale", 1.0),)),
    "dense bucket copy": ("reduce", (("scale", 1.0),)),
    "weights backward": ("update", (("lookup", 0.0),)),
    "lookup": ("lookup", (("lookup", 0.0),)),
    "encode": ("output", (("cast", 1.0),)),
    "copy to send buffer": ("output", (("copy", 1.0),)),
    "concat outputs": ("output", (("cat", 1.0),)),
    "concat groups": ("output", (("cat", 1.0),)),
    "decode": ("output", (("cast", 1.0),)),
    "decode sums": ("output", (("cast", 1.0),)),
    "encode sums": ("output", (("cast", 1.0),)),
    "permute columns": ("output", (("permute columns", 1.0),)),
    "split gradients": ("gradient", (("copy", 0.5), ("cat", 0.5))),
    "separate gradients": ("gradient", (("copy", 1.0),)),
    "permute gradients": ("gradient", (("permute columns", 1.0),)),
    "encode gradients": ("gradient", (("cast", 1.0),)),
    "encode node gradients": ("gradient", (("cast", 1.0),)),
    "decode gradients": ("gradient", (("cast", 1.0),)),
    "decode all gradients": ("gradient", (("cast", 1.0),)),
    "scale gradients": ("gradient", (("scale", 1.0),)),
    "gradient copy": ("reduce", (("scale", 1.0),)),
    "lookup backward": ("update", (("lookup backward", 0.0),)),
    "join gradients": ("dense", (("concatenation", 1.0),)),
    "order features": ("dense", (("concatenation", 1.0),)),
    "concat features": ("dense", (("concatenation", 1.0),)),
    "concat features backward": ("dense", (("concatenation", 1.0),)),
    " relu": ("dense", (("relu", 0.0),)),
    " backward relu": ("dense", (("relu backward", 0.0),)),
    " backward bias": ("dense", (("bias gradient", 0.0),)),
    " backward weight": ("dense", (("product", 0.0),)),
    " backward input": ("dense", (("product", 0.0),)),
    "bottom.0": ("dense", (("product", 0.0),)),
    "top.0": ("dense", (("product", 0.0),)),
    "top.1": ("dense", (("product", 0.0),)),
}
"""Part of the step and operators of each kernel, by the end of its name."""


def facts(program: StepOperations, rank: int, turn_time: Seconds) -> tuple[Fact, ...]:
    """Return the facts of a rank, in the order in which the host issues them.

    ``turn_time``: host time of a turn of the optimizer's loop.
    """
    found = [fact for op in program.ops for fact in _of(op, rank)]
    for op in program.ops:
        if op.name == "rest of the optimizer's loop":
            found += [Fact("optimizer", "turn", 0)] * (1 + round(op.seconds[rank] / turn_time))
    return tuple(found)


def _of(op: Op, rank: int) -> tuple[Fact, ...]:
    if not op.seconds[rank] or op.name.startswith("copies of"):
        return ()
    if op.kind is NodeKind.COLLECTIVE:
        return (_collective(op, rank),)
    name = max((end for end in _KERNELS if op.name.endswith(end)), key=len, default=None)
    if op.kind is not NodeKind.KERNEL or name is None:
        return ()
    if name.endswith("bucket copy") and op.num_bytes[rank] < 2 * 4 * LEAST:
        return ()
    part, kinds = _KERNELS[name]
    return tuple(
        Fact(part, kind, 0 if kind in _NO_BYTES else round(op.num_bytes[rank] * share))
        for kind, share in kinds
    )


def _collective(op: Op, rank: int) -> Fact:
    kind = _COLLECTIVES[op.stage]
    part = "input" if op.stage is Stage.INPUT_DIST else "output"
    if kind == "all_reduce":
        part = "reduce"
    elif "gradients" in op.name:
        part = "gradient"
    return Fact(part, kind, round(op.num_bytes[rank]))
