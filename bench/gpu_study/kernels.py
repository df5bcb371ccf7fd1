"""Kernels of training steps that `planner calibrate` does not measure by themselves."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from bench.gpu_study.accelerator import Accelerator
from bench.gpu_study.points import (
    InteractionPoint,
    PointwiseOp,
    PointwisePoint,
)
from costmodel.base.units import Seconds
from costmodel.domain.workload import DataType
from planner.calibration.device import Stopwatch, repeated
from planner.calibration.records import Record, record_of

_BUDGET: Seconds = 0.1
_TYPES = {
    DataType.FP32: torch.float32,
    DataType.FP16: torch.float16,
    DataType.BF16: torch.bfloat16,
}
_POINTWISE: Mapping[PointwiseOp, Callable[[Any, Any], object]] = {
    PointwiseOp.RELU: lambda value, _: torch.relu(value),
    PointwiseOp.SIGMOID: lambda value, _: torch.sigmoid(value),
    PointwiseOp.GELU: lambda value, _: torch.nn.functional.gelu(value),
    PointwiseOp.MULTIPLY: torch.mul,
    PointwiseOp.SCALE: lambda value, _: value.mul_(1.0),
    PointwiseOp.DROPOUT: lambda value, _: torch.nn.functional.dropout(value, 0.1, training=True),
}


def measure_pointwise(point: PointwisePoint, accelerator: Accelerator) -> Record:
    """Time one operator, its inputs not in the cache."""
    kind = {"dtype": _TYPES[point.data_type], "device": accelerator.device.name}
    value = torch.ones(point.num_elements, **kind)
    other = torch.ones_like(value) if point.op is PointwiseOp.MULTIPLY else None
    work, device = _POINTWISE[point.op], accelerator.device

    def once() -> dict[str, Stopwatch]:
        device.flush()
        with device.stopwatch() as watch:
            work(value, other)
        return {"forward": watch}

    with torch.no_grad():
        return record_of(point, repeated(once, device, budget=_BUDGET))


def measure_interaction(point: InteractionPoint, accelerator: Accelerator) -> Record:
    """Time the dot interaction as TorchRec's ``InteractionArch`` writes it.

    Products of every pair of vectors, of which those above the diagonal are gathered and put
    beside the bottom MLP's output.
    """
    name, columns = accelerator.device.name, point.embedding_dim
    vectors = point.num_features + 1
    place = torch.triu_indices(vectors, vectors, offset=1, device=name)
    bottom = torch.ones(point.num_samples, columns, device=name, requires_grad=True)
    embeddings = torch.ones(
        point.num_samples, point.num_features, columns, device=name, requires_grad=True
    )

    def forward() -> Any:  # noqa: ANN401 - a tensor
        together = torch.cat((bottom.unsqueeze(1), embeddings), dim=1)
        products = torch.bmm(together, together.transpose(1, 2))
        return torch.cat((bottom, products[:, place[0], place[1]]), dim=1)

    device = accelerator.device

    def once() -> dict[str, Stopwatch]:
        device.flush()
        with device.stopwatch() as there:
            output = forward()
        gradient = torch.ones_like(output)
        device.flush()
        with device.stopwatch() as back:
            torch.autograd.grad(output, (bottom, embeddings), gradient)
        return {"forward": there, "backward": back}

    return record_of(point, repeated(once, device, budget=_BUDGET))
