"""Facts of a real step: the operators that torch's profiler saw on the training thread."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

from bench.conformity.facts import LEAST, Fact

Event: TypeAlias = Mapping[str, Any]
_TYPE_BYTES = {
    "float": 4, "int": 4, "long int": 8, "double": 8, "c10::Half": 2, "c10::BFloat16": 2,
    "unsigned char": 1, "signed char": 1, "bool": 1,
}  # fmt: skip
_PARTS = (
    ("## optimizer", "optimizer"),
    ("reducer::mul_out", "reduce"),
    ("CollectionAwaitable", "output"),
    ("[output_dist", "output"),
    ("[lookup]", "lookup"),
    ("LookupFunction", "update"),
    ("IndexSelectBackward", "gradient"),
    ("DivBackward", "gradient"),
    ("_WaitBackward", "gradient"),
    ("_ReqBackward", "gradient"),
    ("PermutePooledEmbs", "gradient"),
    ("start_sparse_data_dist", "input"),
    ("wait_sparse_data_dist", "input"),
    ("assemble_KJT", "input"),
    ("KJT", "input"),
    ("sparse_data_dist", "input"),
)
"""The innermost range that matches says in which part of the step an operator is."""
_FP32_BYTES = 4
_DENSE = "dense"
_DENSE_KINDS = {"product", "relu", "relu backward", "bias gradient", "concatenation"}
"""What is compared of the dense model; its loss differs, and is small."""
_HIDDEN = {("input", "copy"), ("input", "select"), ("input", "fill")}
"""How the divisor of mean pooling is made while the batch is distributed (torchrec 1.9.2,
embeddingbag.py 2606-2699)."""


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One operator call: sizes and types of its tensors, and the ranges around it."""

    name: str
    dims: Sequence[Any]
    types: Sequence[str]
    concrete: Sequence[str]
    """Values of its other arguments."""
    path: tuple[str, ...]
    world_size: int

    def elements(self, index: int) -> int:
        """Return the number of elements of an argument."""
        return prod(self.dims[index]) if index < len(self.dims) and self.dims[index] else 0

    def size(self, index: int) -> int:
        """Return the bytes of an argument."""
        return self.elements(index) * _TYPE_BYTES.get(self.types[index], 0)

    def listed(self) -> int:
        """Return the elements of a list of tensors."""
        return sum(prod(dims) for dims in self.dims[0])

    @property
    def part(self) -> str:
        """The part of the step it belongs to."""
        if self.name == "c10d::allreduce_":
            return "reduce"
        for name in reversed(self.path):
            for text, part in _PARTS:
                if text in name:
                    return part
        return _DENSE

    def inside(self, *names: str) -> bool:
        """Tell whether one of the ranges around it has such a name."""
        return any(name in f"{each} [" for each in self.path for name in names)


def _copied(call: OperatorCall) -> tuple[str, int] | None:
    kind = "copy" if call.types[0] == call.types[1] else "cast"
    gloo = call.inside("c10d::") or (kind == "copy" and call.inside("ReduceScatterBase_Wait ["))
    if call.elements(0) < LEAST or gloo:
        return None
    if kind == "cast" and {call.types[0], call.types[1]} <= {"int", "long int", "double", "float"}:
        return None
    return kind, call.size(0) + call.size(1)


def _permuted(call: OperatorCall) -> tuple[str, int]:
    if call.types[2] != "long int":
        return "permute rows", 2 * call.size(2)
    share = call.elements(0) / call.dims[1][0]
    weights = call.size(3) if len(call.types) > 3 and call.types[3] == "float" else 0
    return "permute ids", round(2 * share * (call.size(1) + call.size(2) + weights))


def _joined(call: OperatorCall) -> tuple[str, int] | None:
    if call.inside("aten::stack") or call.listed() < LEAST:
        return None
    return "concatenation" if call.part == _DENSE else "cat", 2 * call.listed() * 4


def _twice(kind: str) -> Callable[[OperatorCall], tuple[str, int] | None]:
    def moved(call: OperatorCall) -> tuple[str, int] | None:
        real = call.types[0] not in {"int", "long int"}
        return (kind, 2 * call.size(0)) if real and call.elements(0) >= LEAST else None

    return moved


def _sent(kind: str, argument: int) -> Callable[[OperatorCall], tuple[str, int]]:
    return lambda call: (kind, call.size(argument))


def _exchanged(call: OperatorCall) -> tuple[str, int]:
    """Count an uneven exchange as ``StepBuilder.all_to_all_size`` does on a CPU.

    Between nodes, with fewer ranks: what there is to send.
    """
    received, sent = call.size(0), call.size(1)
    own, other = (sent, received) if call.part == "output" else (received, sent)
    ranks = call.world_size
    splits = call.concrete[3].count(",") + 1 if call.concrete[3] != "[]" else ranks
    if splits < ranks:
        return "all_to_all", own
    return "all_to_all", round(((ranks - 2) * own + ranks * other) / (2 * (ranks - 1)))


def _quantized(call: OperatorCall) -> tuple[str, int]:
    """Rows of 32 floats become as many bytes and a scale and an offset of four bytes each."""
    return "cast", round(call.size(0) * (1 + 40 / 128))


def _dequantized(call: OperatorCall) -> tuple[str, int]:
    return "cast", round(call.size(0) * (1 + 128 / 40))


def _divided(call: OperatorCall) -> tuple[str, int] | None:
    small = call.elements(0) < LEAST or call.part == "optimizer"
    return None if small else ("scale", 2 * call.size(0) + call.size(1))


def _updated(call: OperatorCall) -> tuple[str, int] | None:
    """Count SGD's addition of a gradient to a parameter: a turn of the optimizer's loop."""
    both = call.part == "optimizer" and bool(call.dims[0]) and call.dims[0] == call.dims[1]
    return ("turn", 0) if both else None


def _plain(kind: str) -> Callable[[OperatorCall], tuple[str, int]]:
    return lambda _: (kind, 0)


_WITHIN = ("fbgemm::", "c10d::", "LookupFunction")
"""Ranges whose inner operators are not facts: a lookup's own, and how gloo does it."""
_KERNELS = ("fbgemm::permute_pooled_embs_split",)
"""But for these: facts wherever they are."""
_LINEAR_BACKWARD = "evaluate_function: AddmmBackward0"
_DENSE_BACKWARD = "torch::autograd::CppNode<(anonymous namespace)::SplitLookupFunction_De"
_HANDLERS: Mapping[str, Callable[[OperatorCall], tuple[str, int] | None]] = {
    "aten::copy_": _copied,
    "aten::cat": _joined,
    "aten::clamp": _twice("clamp"),
    "aten::div_": _twice("scale"),
    "aten::div": _divided,
    "aten::mul": _twice("scale"),
    "aten::index_select": _twice("select"),
    "aten::index_add_": lambda call: ("add rows", 3 * call.size(0)),
    "aten::zero_": lambda call: ("fill", call.size(0)) if call.elements(0) >= LEAST else None,
    "aten::add_": _updated,
    "aten::addcdiv_": lambda _: ("turn", 0),
    "aten::stack": lambda call: ("stack splits", 2 * 8 * call.listed()),
    "fbgemm::FloatToFused8BitRowwiseQuantized": _quantized,
    "fbgemm::Fused8BitRowwiseQuantizedToFloat": _dequantized,
    "c10d::alltoall_base_": _exchanged,
    "c10d::_reduce_scatter_base_": _sent("reduce_scatter", 1),
    "c10d::_allgather_base_": _sent("all_gather", 0),
    "c10d::allreduce_": _plain("all_reduce"),
    "fbgemm::permute_2D_sparse_data": _permuted,
    "fbgemm::permute_1D_sparse_data": _permuted,
    "fbgemm::block_bucketize_sparse_features": _plain("bucketize ids"),
    "fbgemm::permute_pooled_embs_split": _twice("permute columns"),
    "aten::addmm": _plain("product"),
    "aten::mm": _plain("product"),
    "aten::relu": _plain("relu"),
    "aten::threshold_backward": _plain("relu backward"),
    "aten::sum": lambda call: ("bias gradient", 0) if call.inside(_LINEAR_BACKWARD) else None,
}


def _handled(call: OperatorCall) -> tuple[str, int] | None:
    if call.name in _HANDLERS:
        inner = call.inside(*_WITHIN) and call.name not in _KERNELS
        return None if inner else _HANDLERS[call.name](call)
    if call.name.startswith(_DENSE_BACKWARD):
        return "lookup backward", 0
    if call.name.startswith("fbgemm::"):
        if "backward" in call.name and call.name.endswith("_cpu"):
            return "lookup backward", 0
        if call.name.endswith("_cpu") or "dense_embedding" in call.name:
            return "lookup", 0
    return None


def _is_compared(part: str, kind: str) -> bool:
    return (part, kind) not in _HIDDEN if part != _DENSE else kind in _DENSE_KINDS


def facts(events: Iterable[Event], world_size: int) -> tuple[Fact, ...]:
    """Return the facts of a Chrome trace of one step, in the order in which operators began.

    The profiler gives no type of an all-reduce: it is that of as many elements copied before it.
    """
    found = []
    copied: Counter[int] = Counter()
    for call in _calls(events, world_size):
        handled = _handled(call)
        if handled is not None and call.part == "reduce" and handled[0] == "scale":
            copied[call.size(0) // call.elements(0)] += call.elements(0)
        if handled is not None and handled[0] == "all_reduce":
            same = (width for width, count in copied.items() if count == call.listed())
            width = next(same, _FP32_BYTES)
            del copied[width]
            handled = "all_reduce", width * call.listed()
        if handled is not None and _is_compared(call.part, handled[0]):
            found.append(Fact(call.part, *handled))
    return tuple(found)


def _calls(events: Iterable[Event], world_size: int) -> Iterable[OperatorCall]:
    timed = [
        e for e in events if e.get("ph") == "X" and e.get("cat") in {"cpu_op", "user_annotation"}
    ]
    (main,) = {e["tid"] for e in timed if e["name"].startswith("## zero_grad")}
    stack: list[tuple[float, str]] = []
    for event in sorted((e for e in timed if e["tid"] == main), key=lambda e: (e["ts"], -e["dur"])):
        while stack and event["ts"] >= stack[-1][0]:
            stack.pop()
        args = event.get("args", {})
        yield OperatorCall(
            name=event["name"],
            dims=args.get("Input Dims", ()),
            types=args.get("Input type", ()),
            concrete=args.get("Concrete Inputs", ()),
            path=tuple(name for _, name in stack),
            world_size=world_size,
        )
        stack.append((event["ts"] + event["dur"], event["name"]))
