"""Measuring FBGEMM's table-batched embedding kernels, forward and backward with the optimizer.

The cache is emptied before forward and again before backward: in a training step other layers run
before each. Weights and optimizer states are written once before anything is timed (untouched
memory is all the same page), and ids change from repeat to repeat.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, cycle, islice, pairwise
from typing import Any

import torch

from costmodel.base.units import Seconds
from costmodel.domain.plan import ComputeKernel
from costmodel.domain.workload import DataType, Optimizer
from planner.calibration.device import DeviceUnderTest, Stopwatch, repeated
from planner.calibration.ids import draw_ids, draw_lengths
from planner.calibration.points import EmbeddingPoint, TableSet
from planner.calibration.records import Record, record_of
from planner.calibration.timing import Timing

_BUDGET: Seconds = 0.25
_NUM_BATCHES = 3
"""Number of batches that repeats take turns with."""
_FILLING_BATCHES = 10
"""Number of batches that fill a cache before anything is timed."""
_LEARNING_RATE = 1e-6
"""Small, so that values neither grow nor sink to denormal numbers, whose arithmetic is slow."""
_WEIGHT = 0.01
_LOCATIONS = {
    ComputeKernel.FUSED: "DEVICE",
    ComputeKernel.FUSED_UVM: "MANAGED",
    ComputeKernel.FUSED_UVM_CACHING: "MANAGED_CACHING",
}
"""FBGEMM's name of the weights' memory, by compute kernel."""
_NO_CACHE = 0.2
"""FBGEMM's default cache share, which only cached tables use."""
_CALLS = 0
_CACHE_COUNTS = {"unique_ids": 2, "unique_misses": 3}
"""Places of counts in ``uvm_cache_stats`` (``UVMCacheStatsIndex``)."""


@dataclass(frozen=True, slots=True)
class _Batch:
    ids: Any
    offsets: Any
    weights: Any = None
    """A weight for each id; None: ids are not weighted."""


class TableKernel:
    """The tables of a set in memory, with the kernel that looks them up.

    Tables of ``fused_uvm`` and ``fused_uvm_caching`` need a GPU; FBGEMM counts misses of the cache.
    """

    def __init__(self, tables: TableSet, device: DeviceUnderTest) -> None:
        self._tables = tables
        self._device = device
        self._dense = tables.compute_kernel is ComputeKernel.DENSE
        self._caches = tables.compute_kernel is ComputeKernel.FUSED_UVM_CACHING
        self._module = (_dense_module if self._dense else _fused_module)(tables, device)

    def measure(self, point: EmbeddingPoint) -> Record:
        """Return the record of a point, with the ids of one of its batches counted."""
        timings = self.timings(point, budget=_BUDGET)
        counts = list(_counted(point, _batch(point, self._device, 0)))
        facts = {
            "num_lookups": [lookups for lookups, _ in counts],
            "unique_rows": [unique for _, unique in counts],
            **self._cache_counts(),
        }
        return replace(record_of(point, timings), facts=facts)

    def _cache_counts(self) -> dict[str, float]:
        """Return distinct ids and cache misses per batch, on average over all timed batches."""
        if not self._caches:
            return {}
        counts = self._module.get_uvm_cache_stats().tolist()
        calls = max(1, counts[_CALLS])
        return {name: counts[place] / calls for name, place in _CACHE_COUNTS.items()}

    def timings(self, point: EmbeddingPoint, *, budget: Seconds) -> dict[str, Timing]:
        """Return timings of forward and backward over a point's batches."""
        turns = self._batches(point)
        return repeated(lambda: self._once(next(turns)), self._device, budget=budget)

    def _batches(self, point: EmbeddingPoint) -> Iterator[_Batch]:
        """Yield batches without end, a few in turns; new ones where rows are cached.

        A cache is filled first, as far as ``_FILLING_BATCHES`` fill it.
        """
        drawn = (_batch(point, self._device, seed) for seed in count())
        if not self._caches:
            return cycle(islice(drawn, _NUM_BATCHES))
        for batch in islice(drawn, _FILLING_BATCHES):
            self._module(batch.ids, batch.offsets, batch.weights)
        self._module.reset_uvm_cache_stats()
        return drawn

    def _once(self, batch: _Batch) -> dict[str, Stopwatch]:
        """Run forward and backward once; return the stopwatch of each."""
        device = self._device
        device.flush()
        with device.stopwatch() as forward:
            output = self._module(batch.ids, batch.offsets, batch.weights)
        gradient = torch.full_like(output, 1e-3)
        if self._dense:
            self._module.weights.grad = None
        device.flush()
        with device.stopwatch() as backward:
            output.backward(gradient)
        return {"forward": forward, "backward": backward}


def _fused_module(tables: TableSet, device: DeviceUnderTest) -> Any:  # noqa: ANN401 - fbgemm is untyped
    from fbgemm_gpu.split_embedding_configs import SparseType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    on_cpu = device.synchronous
    place = (
        EmbeddingLocation.HOST if on_cpu else EmbeddingLocation[_LOCATIONS[tables.compute_kernel]]
    )
    compute = ComputeDevice.CPU if on_cpu else ComputeDevice.CUDA
    sizes = zip(tables.num_embeddings, tables.embedding_dims, strict=True)
    module = SplitTableBatchedEmbeddingBagsCodegen(
        [(rows, dim, place, compute) for rows, dim in sizes],
        optimizer=optimizer_type(tables.optimizer),
        weights_precision=SparseType(tables.data_type.value),
        output_dtype=SparseType.FP32,
        learning_rate=_LEARNING_RATE,
        device=None if on_cpu else torch.device(device.name),
        pooling_mode=PoolingMode[tables.pooling.name],
        cache_load_factor=tables.cache_load_factor or _NO_CACHE,
        gather_uvm_cache_stats=tables.compute_kernel is ComputeKernel.FUSED_UVM_CACHING,
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
    """Return the optimizers to measure on a device by default.

    On CPU one: FBGEMM's kernels there have different inner loops for each, and constants fitted to
    several suit none (bench/README.md, Found once). Of the others a few points are measured
    (``fit_updates``).
    """
    if device.synchronous:
        return (Optimizer.ROWWISE_ADAGRAD,)
    return (Optimizer.SGD, Optimizer.ROWWISE_ADAGRAD, Optimizer.ADAM)


def data_types(device: DeviceUnderTest) -> tuple[DataType, ...]:
    """Return the weight types that are measured on a device."""
    return (DataType.FP32,) if device.synchronous else (DataType.FP32, DataType.FP16)


def _batch(point: EmbeddingPoint, device: DeviceUnderTest, seed: int) -> _Batch:
    """Return ids drawn by every table's law, with offsets and weights."""
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
    every_id = torch.cat(ids)
    weights = torch.full(every_id.shape, 0.5, device=every.device) if point.weighted else None
    return _Batch(ids=every_id, offsets=offsets, weights=weights)


def _counted(point: EmbeddingPoint, batch: _Batch) -> Iterator[tuple[int, int]]:
    """Yield lookups and distinct rows of every table."""
    ends = batch.offsets[:: point.num_samples].tolist()
    for start, end in pairwise(ends):
        yield end - start, len(torch.unique(batch.ids[start:end]))
