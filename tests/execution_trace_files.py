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


def write_job(folder: Path, *makers: EtMaker) -> Path:
    """Write one file per rank, and a profile beside the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, maker in enumerate(makers):
        text = json.dumps(maker.document())
        (folder / f"rank{number}.json").write_text(text, encoding="utf-8")
    (folder.parent / "core.yaml").write_text(PROFILE, encoding="utf-8")
    return folder
