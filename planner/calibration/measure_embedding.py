"""FBGEMM's table-batched embedding kernels, forward and backward with the fused optimizer.

The cache is emptied before forward and again before backward: in a training step other layers run
before each. Weights and optimizer states are written once before anything is timed (untouched
memory is all the same page), and ids change from repeat to repeat.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import cycle, pairwise
from typing import Any

import torch

from costmodel.base.units import Seconds
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType, Optimizer
from planner.calibration.device import DeviceUnderTest, Stopwatch, repeated
from planner.calibration.ids import draw_ids, draw_lengths, reuse_histogram
from planner.calibration.points import EmbeddingPoint, TableSet
from planner.calibration.records import Record, record_of
from planner.calibration.timing import Timing

_BUDGET: Seconds = 0.25
_NUM_BATCHES = 3
"""Different batches that repeats take turns with."""
_LEARNING_RATE = 1e-6
"""Small: values must not grow, nor sink to denormal numbers, whose arithmetic is slow."""
_WEIGHT = 0.01
CPU_OPTIMIZERS = (Optimizer.SGD, Optimizer.ROWWISE_ADAGRAD, Optimizer.ADAGRAD)
"""What FBGEMM has CPU kernels for."""


@dataclass(frozen=True, slots=True)
class _Batch:
    ids: Any
    offsets: Any


class TableKernel:
    """The tables of a set in memory, ready to be looked up."""

    def __init__(self, tables: TableSet, device: DeviceUnderTest) -> None:
        self._tables = tables
        self._device = device
        self._dense = tables.compute_kernel is ComputeKernel.DENSE
        self._module = (_dense_module if self._dense else _fused_module)(tables, device)

    def measure(self, point: EmbeddingPoint) -> Record:
        """Time a point, and count the ids of one of its batches."""
        timings = self.timings(point, budget=_BUDGET)
        counts = list(_counted(point, _batch(point, self._device, 0)))
        facts = {
            "num_lookups": [lookups for lookups, _, _ in counts],
            "unique_rows": [unique for _, unique, _ in counts],
            "reuse_histograms": [shares for _, _, shares in counts],
        }
        return replace(record_of(point, timings), facts=facts)

    def timings(self, point: EmbeddingPoint, *, budget: Seconds) -> dict[str, Timing]:
        """Time forward and backward of a point's batches, one after another."""
        turns = cycle([_batch(point, self._device, seed) for seed in range(_NUM_BATCHES)])
        return repeated(lambda: self._once(next(turns)), self._device, budget=budget)

    def _once(self, batch: _Batch) -> dict[str, Stopwatch]:
        device = self._device
        device.flush()
        with device.stopwatch() as forward:
            output = self._module(batch.ids, batch.offsets)
        gradient = torch.full_like(output, 1e-3)
        if self._dense:
            self._module.weights.grad = None
        device.flush()
        with device.stopwatch() as backward:
            output.backward(gradient)
        return {"forward": forward, "backward": backward}


def _fused_module(tables: TableSet, device: DeviceUnderTest) -> Any:  # noqa: ANN401 - fbgemm is untyped
    from fbgemm_gpu.split_embedding_configs import SparseType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    on_cpu = device.synchronous
    place = EmbeddingLocation.HOST if on_cpu else EmbeddingLocation.DEVICE
    compute = ComputeDevice.CPU if on_cpu else ComputeDevice.CUDA
    sizes = zip(tables.num_embeddings, tables.embedding_dims, strict=True)
    module = SplitTableBatchedEmbeddingBagsCodegen(
        [(rows, dim, place, compute) for rows, dim in sizes],
        optimizer=optimizer_type(tables.optimizer),
        weights_precision=SparseType(tables.data_type.value),
        output_dtype=SparseType.FP32,
        learning_rate=_LEARNING_RATE,
        device=None if on_cpu else torch.device(device.name),
    )
    with torch.no_grad():
        for weights in module.split_embedding_weights():
            weights.fill_(_WEIGHT)
        if tables.optimizer is not Optimizer.SGD:
            for states in module.split_optimizer_states():
                for state in states:
                    state.fill_(_WEIGHT)
    return module


def _dense_module(tables: TableSet, device: DeviceUnderTest) -> Any:  # noqa: ANN401 - fbgemm is untyped
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        DenseTableBatchedEmbeddingBagsCodegen,
    )

    module = DenseTableBatchedEmbeddingBagsCodegen(
        list(zip(tables.num_embeddings, tables.embedding_dims, strict=True)),
        use_cpu=device.synchronous,
    )
    module = module.to(device.name)
    with torch.no_grad():
        module.weights.fill_(_WEIGHT)
    return module


def optimizer_type(optimizer: Optimizer) -> Any:  # noqa: ANN401 - fbgemm is untyped
    """Return FBGEMM's name of an optimizer."""
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import OptimType

    return {
        Optimizer.SGD: OptimType.EXACT_SGD,
        Optimizer.ROWWISE_ADAGRAD: OptimType.EXACT_ROWWISE_ADAGRAD,
        Optimizer.ADAGRAD: OptimType.EXACT_ADAGRAD,
        Optimizer.ADAM: OptimType.ADAM,
        Optimizer.PARTIAL_ROWWISE_ADAM: OptimType.PARTIAL_ROWWISE_ADAM,
    }[optimizer]


def optimizers(device: DeviceUnderTest) -> tuple[Optimizer, ...]:
    """Return the optimizers to measure on a device unless others are asked for.

    On CPU one: FBGEMM's kernels there have different inner loops for each, and constants fitted to
    several suit none (median error of backward 12% for row-wise Adagrad by itself, 15% for SGD,
    19% together; bench/results/cpu_embedding.csv.gz).
    """
    if device.synchronous:
        return (Optimizer.ROWWISE_ADAGRAD,)
    return (Optimizer.SGD, Optimizer.ROWWISE_ADAGRAD, Optimizer.ADAM)


def data_types(device: DeviceUnderTest) -> tuple[DataType, ...]:
    """Return the weight types that are measured on a device."""
    return (DataType.FP32,) if device.synchronous else (DataType.FP32, DataType.FP16)


def _batch(point: EmbeddingPoint, device: DeviceUnderTest, seed: int) -> _Batch:
    generator = torch.Generator(device=device.name)
    generator.manual_seed(seed)
    lengths, ids = [], []
    laws = zip(point.tables.num_embeddings, point.pooling_factors, point.zipf, strict=True)
    for rows, pooling_factor, zipf in laws:
        lengths.append(draw_lengths(point.num_samples, pooling_factor, generator))
        ids.append(draw_ids(int(lengths[-1].sum()), rows, zipf, generator))
    every = torch.cat(lengths)
    offsets = torch.zeros(len(every) + 1, dtype=torch.int64, device=every.device)
    torch.cumsum(every, 0, out=offsets[1:])
    return _Batch(ids=torch.cat(ids), offsets=offsets)


def _counted(point: EmbeddingPoint, batch: _Batch) -> Iterator[tuple[int, int, list[float]]]:
    """Yield lookups, distinct rows and reuse histogram of every table."""
    ends = batch.offsets[:: point.num_samples].tolist()
    for start, end in pairwise(ends):
        yield (end - start, *reuse_histogram(batch.ids[start:end]))
