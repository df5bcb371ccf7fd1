"""Execution traces made by hand, as PyTorch writes them (schema 1.1)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

Argument = tuple[Any, list[Any], str, list[Any]]
"""Value, shape, type and strides."""
Arguments = Sequence[Argument]
FUNCTION = "autograd::engine::evaluate_function: "
PROFILE = """\
kind: cpu-operators
name: one-core
source: made up
near_bytes: 1000
far_bytes: 1000000
host: {python_call_us: 10, dispatch_us: 1, function_us: 5, accumulation_us: 20, step_us: 100}
products:
  aten::mm: {call_us: 0, product_us: 0, flop_us: 0.001, byte_us: 0, far_byte_us: 0}
operators:
  aten::relu: {elements: [100, 10000], us: [1, 100], run_us: 0}
  aten::mul_: {elements: [1, 10000], us: [2, 2], run_us: 0}
all_reduce: {num_ranks: 2, bytes: [400, 4000000], us: [50, 500000], work_us: [20, 200000]}
"""


def tensor(
    *shape: int, storage: int = 1, device: str = "cpu", strides: Sequence[int] = ()
) -> Argument:
    """Return the value, shape, type and strides of a float tensor."""
    steps = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    value = [storage, storage, 0, prod(shape), 4, device]
    return value, list(shape), "Tensor(float)", list(strides or steps)


@dataclass
class EtMaker:
    """Collects the nodes of one rank."""

    nodes: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.add("[pytorch|profiler|execution_trace|process]")
        self.root = self.add("[pytorch|profiler|execution_trace|thread]", parent=1)

    def add(
        self,
        name: str,
        inputs: Arguments = (),
        outputs: Arguments = (),
        parent: int | None = None,
    ) -> int:
        """Add an operator and return its id."""
        number = len(self.nodes) + 1
        parent = parent if parent is not None else getattr(self, "root", number)
        self.nodes.append({
            "id": number, "name": name, "ctrl_deps": parent, "inputs": _side(inputs),
            "outputs": _side(outputs), "attrs": [{"name": "tid", "value": 1}],
        })  # fmt: skip
        return number

    def document(self) -> dict[str, Any]:
        """Return the file."""
        return {"schema": "1.1.1-chakra.0.0.4", "pid": 7, "nodes": self.nodes}


def _side(tensors: Arguments) -> dict[str, Any]:
    columns = list(zip(*tensors, strict=True)) or [(), (), (), ()]
    keys = ("values", "shapes", "types", "strides")
    return {key: list(column) for key, column in zip(keys, columns, strict=True)}


def rank(work: int = 1) -> EtMaker:
    """One layer under DDP: a product, backward with one bucket, an optimizer.

    Forward is ``work`` products of 10 x 10 x 10 and a relu of 100 elements; backward a product
    and an all-reduce of 400 bytes; the optimizer multiplies 100 elements.
    """
    maker = EtMaker()
    a, b = tensor(10, 10), tensor(10, 10, storage=2)
    for _ in range(work):
        maker.add("aten::mm", [a, b], [tensor(10, 10, storage=3)])
    maker.add("aten::relu", [tensor(100, storage=3)], [tensor(100, storage=4)])
    outer = maker.add(FUNCTION + "MmBackward0")
    inner = maker.add("MmBackward0", [tensor(10, 10, storage=4)], parent=outer)
    maker.add("aten::mm", [a, b], [tensor(10, 10, storage=5)], parent=inner)
    hook = maker.add(FUNCTION + "torch::autograd::AccumulateGrad")
    bucket = tensor(100, storage=6)
    started = maker.add("c10d::allreduce_", [bucket], [bucket], parent=hook)
    maker.add("gloo:all_reduce", [bucket], parent=started)
    optimizer = maker.add("Optimizer.step#SGD.step")
    weight = tensor(100, storage=2)
    maker.add("aten::mul_", [weight], [weight], parent=optimizer)
    return maker


LOOKUP = "fbgemm::split_embedding_codegen_lookup_adagrad_function"


def floats(*shape: int, storage: int) -> Argument:
    """A tensor on a GPU."""
    return tensor(*shape, storage=storage, device="cuda:0")


def ids(*shape: int, storage: int) -> Argument:
    """The same, of integers."""
    value, sizes, _, strides = floats(*shape, storage=storage)
    return [*value[:4], 8, value[5]], sizes, "Tensor(long int)", strides


def sharded_step() -> EtMaker:
    """A step of rank 0 of two: a lookup of 2 tables, all-to-alls, a product, and all backwards.

    Storages: 1 ids, 2 offsets, 3 rows, 4 their output, 5 embeddings, 6 a weight, 7 the product.
    """
    maker = EtMaker()
    maker.add("fbgemm::asynchronous_complete_cumsum", [ids(8, storage=9)], [ids(9, storage=2)])
    tables = [floats(1000, storage=3), ids(3, storage=8), ids(16, storage=1), ids(9, storage=2)]
    maker.add(LOOKUP, tables, [floats(4, 16, storage=4)])
    maker.add("aten::empty", [], [floats(64, storage=5)])
    maker.add("c10d::alltoall_base_", [floats(64, storage=5), floats(64, storage=4)])
    waited = maker.add("All2All_Pooled_Wait", [])
    parts = [floats(2, 16, storage=5), floats(2, 16, storage=5)]
    maker.add("aten::cat", parts, [floats(2, 32, storage=10)], parent=waited)
    maker.add(
        "aten::mm",
        [floats(2, 32, storage=10), floats(32, 8, storage=6)],
        [floats(2, 8, storage=7)],
    )
    outer = maker.add(FUNCTION + "MmBackward0")
    inner = maker.add("MmBackward0", [floats(2, 8, storage=7)], parent=outer)
    given = [floats(2, 8, storage=7), floats(8, 32, storage=6)]
    maker.add("aten::mm", given, [floats(2, 32, storage=12)], parent=inner)
    given = [floats(32, 2, storage=10), floats(2, 8, storage=7)]
    maker.add("aten::mm", given, [floats(32, 8, storage=13)], parent=inner)
    hook = maker.add(FUNCTION + "torch::autograd::AccumulateGrad")
    gradient = floats(32, 8, storage=13)
    accumulates = maker.add("torch::autograd::AccumulateGrad", [gradient], parent=hook)
    maker.add("aten::mul", [gradient], [floats(32, 8, storage=20)], parent=accumulates)
    bucket = [floats(256, storage=20)]
    maker.add("c10d::allreduce_", bucket, bucket, parent=hook)
    sent = maker.add(FUNCTION + "All2All_Pooled_WaitBackward")
    wait = maker.add("All2All_Pooled_WaitBackward", [floats(2, 32, storage=12)], parent=sent)
    maker.add("aten::copy_", [floats(64, storage=14), floats(64, storage=12)], parent=wait)
    maker.add("c10d::alltoall_base_", [floats(64, storage=15), floats(64, storage=14)], parent=wait)
    rows = maker.add(FUNCTION + "torch::autograd::CppNode<SplitLookupFunction_adagrad_Op>")
    name = "torch::autograd::CppNode<SplitLookupFunction_adagrad_Op>"
    fused = maker.add(name, [floats(4, 16, storage=15)], parent=rows)
    maker.add("aten::zero_", [floats(8, storage=16)], [floats(8, storage=16)], parent=fused)
    step = maker.add("Optimizer.step#Adam.step")
    weight = floats(32, 8, storage=6)
    maker.add("aten::add_", [weight, floats(32, 8, storage=20)], [weight], parent=step)
    return maker


def write_job(folder: Path, *makers: EtMaker) -> Path:
    """Write one file per rank, and a profile beside the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, maker in enumerate(makers):
        text = json.dumps(maker.document())
        (folder / f"rank{number}.json").write_text(text, encoding="utf-8")
    (folder.parent / "core.yaml").write_text(PROFILE, encoding="utf-8")
    return folder
