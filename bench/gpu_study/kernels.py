"""Kernels of training steps that `planner calibrate` does not measure by themselves."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from bench.gpu_study.accelerator import Accelerator
from bench.gpu_study.points import (
    InteractionPoint,
    LayerKind,
    LayerPoint,
    OptimizerPoint,
    TypedOperatorPoint,
)
from costmodel.base.units import Seconds
from costmodel.domain.workload import DataType
from planner.calibration.device import Stopwatch, repeated
from planner.calibration.operator_calls import CALLS, Numbers
from planner.calibration.points import Point
from planner.calibration.records import Record, record_of
from planner.torchrec.model_reading import OPTIMIZER_CLASSES

_BUDGET: Seconds = 0.1
_LEARNING_RATE = 1e-6
_TYPES = {
    DataType.FP32: torch.float32,
    DataType.FP16: torch.float16,
    DataType.BF16: torch.bfloat16,
}
_HEAD_WIDTH = 32


def measure_typed_operator(point: TypedOperatorPoint, accelerator: Accelerator) -> Record:
    """Time one operator, its operands not in the cache."""
    device, data_type = accelerator.device, _TYPES[point.data_type]
    call = CALLS[point.operator](Numbers(point.num_elements, device.name, data_type))

    def once() -> dict[str, Stopwatch]:
        device.flush()
        with device.stopwatch() as watch:
            call()
        return {"operator": watch}

    with torch.no_grad():
        return record_of(point, repeated(once, device, budget=_BUDGET))


def measure_layer(point: LayerPoint, accelerator: Accelerator) -> Record:
    """Time attention or a convolution, forward and backward."""
    kind = {"dtype": _TYPES[point.data_type], "device": accelerator.device.name}
    if point.layer is LayerKind.ATTENTION:
        heads = max(1, point.width // _HEAD_WIDTH)
        shape = (point.num_samples, heads, point.length, _HEAD_WIDTH)
        inputs = [torch.randn(shape, requires_grad=True, **kind) for _ in range(3)]
        work = partial(torch.nn.functional.scaled_dot_product_attention, is_causal=True)
    else:
        shape = (point.num_samples, point.width, point.length, point.length)
        sizes = (shape, (point.width, point.width, 3, 3))
        inputs = [torch.randn(size, requires_grad=True, **kind) for size in sizes]
        work = partial(torch.nn.functional.conv2d, padding=1)
    return _both_ways(point, accelerator, lambda: work(*inputs), inputs)


def measure_optimizer(point: OptimizerPoint, accelerator: Accelerator) -> Record:
    """Time a step of the dense optimizer: on a GPU, by the wall's clock, how long it is issued."""
    device, parameters = accelerator.device, []
    for _ in range(point.num_tensors):
        parameter = torch.nn.Parameter(torch.ones(point.num_elements, device=device.name))
        parameter.grad = torch.full_like(parameter, 1e-3)
        parameters.append(parameter)
    optimizer = OPTIMIZER_CLASSES[point.optimizer.elementwise](parameters, lr=_LEARNING_RATE)
    optimizer.step()  # makes its states

    def once() -> dict[str, Stopwatch]:
        device.flush()
        with device.stopwatch() as watch:
            optimizer.step()
        return {"step": watch}

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

    return _both_ways(point, accelerator, forward, (bottom, embeddings))


def _both_ways(
    point: Point, accelerator: Accelerator, forward: Callable[[], Any], inputs: Sequence[Any]
) -> Record:
    """Time something forward, and backward to all of its inputs, the cache empty before each."""
    device = accelerator.device

    def once() -> dict[str, Stopwatch]:
        device.flush()
        with device.stopwatch() as there:
            output = forward()
        gradient = torch.ones_like(output)
        device.flush()
        with device.stopwatch() as back:
            torch.autograd.grad(output, inputs, gradient)
        return {"forward": there, "backward": back}

    return record_of(point, repeated(once, device, budget=_BUDGET))
