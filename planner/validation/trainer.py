"""One rank's training of a workload under one plan, with DistributedModelParallel."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import cycle
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torchrec.datasets.utils import Batch
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.train_pipeline.train_pipelines import (
    TrainPipelineBase,
    TrainPipelineFusedSparseDist,
    TrainPipelineSemiSync,
    TrainPipelineSparseDist,
)
from torchrec.distributed.types import ShardingEnv
from torchrec.optim.keyed import KeyedOptimizerWrapper

from costmodel.domain.plan import ComputeKernel, ShardingPlan, ShardingType
from costmodel.domain.workload import DataType, Pipeline, Workload
from planner.torchrec.plan_conversion import to_torchrec
from planner.validation.trained_model import build_model, dense_optimizer, table_locations

_HALF = {DataType.FP16: torch.float16, DataType.BF16: torch.bfloat16}


class AnySharder(EmbeddingBagCollectionSharder):  # type: ignore[misc] # torchrec has no types here
    """Allows all shardings: TorchRec's own offers no row splits on CPU, though they work there."""

    def sharding_types(self, compute_device_type: str) -> list[str]:
        """Return every sharding type, on any device."""
        del compute_device_type
        return [kind.value for kind in ShardingType]

    def compute_kernels(self, sharding_type: str, compute_device_type: str) -> list[str]:
        """Return every kernel that suits a sharding type."""
        del compute_device_type
        if sharding_type == ShardingType.DATA_PARALLEL:
            return [ComputeKernel.DENSE.value]
        return [kernel.value for kernel in ComputeKernel if kernel is not ComputeKernel.DENSE]


class Trainer:
    """A sharded model with its optimizer and pipeline."""

    def __init__(
        self,
        workload: Workload,
        plan: ShardingPlan,
        batches: Sequence[Batch],
        device: torch.device,
    ) -> None:
        model = build_model(workload)
        sharder = AnySharder()
        torchrec_plan = to_torchrec(
            plan,
            table_locations(model, workload),
            compute_device=device.type,
            workload=workload,
        )
        self.device = device
        parallel = DistributedModelParallel(
            model,
            env=ShardingEnv.from_process_group(dist.group.WORLD),
            device=device,
            plan=torchrec_plan,
            sharders=[sharder],
        )
        self._pipeline = pipeline_around(workload, parallel, device)
        self._batches: Iterator[Batch] = cycle(batches)
        self._batches_per_step = workload.gradient_accumulation_steps
        self._precision = _precision(workload, device)

    def advance(self) -> Any:  # noqa: ANN401 - a tensor
        """Issue one step; return its last loss, which a GPU may still have to compute."""
        with self._precision:
            for _ in range(self._batches_per_step):
                loss, _, _ = self._pipeline.progress(self._batches)
        return loss

    def step(self) -> float:
        """Train one step to the end on this rank; return its last loss."""
        loss = self.advance()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return float(loss)


def pipeline_around(workload: Workload, parallel: nn.Module, device: torch.device) -> Any:  # noqa: ANN401
    """Return the workload's pipeline for a sharded model and the optimizer of its dense part."""
    fused = set(parallel.fused_optimizer.params)
    rest = {name: each for name, each in parallel.named_parameters() if name not in fused}
    optimizer = KeyedOptimizerWrapper(
        rest, lambda parameters: dense_optimizer(workload, parameters)
    )
    pipeline = train_pipeline(workload.pipeline)(parallel, optimizer, device)
    return accumulating(pipeline, optimizer, parallel, workload.gradient_accumulation_steps)


def accumulating(pipeline: Any, optimizer: Any, parallel: nn.Module, num_steps: int) -> Any:  # noqa: ANN401
    """Return a pipeline that updates the dense model every ``num_steps`` batches."""
    if num_steps == 1:
        return pipeline
    from torchrec.distributed.train_pipeline import (  # not every version has it
        GradientAccumulationConfig,
        GradientAccumulationWrapper,
    )

    config = GradientAccumulationConfig(num_steps=num_steps)
    return GradientAccumulationWrapper(pipeline, optimizer, parallel, config)


def train_pipeline(pipeline: Pipeline) -> Callable[..., Any]:
    """Return the function that makes TorchRec's pipeline of a model, optimizer and device."""
    made: dict[Pipeline, Callable[..., Any]] = {
        Pipeline.NONE: TrainPipelineBase,
        Pipeline.SPARSE_DIST: TrainPipelineSparseDist,
        Pipeline.FUSED_SPARSE_DIST: TrainPipelineFusedSparseDist,
        # from its first batch on: by default 900 batches are trained synchronously before
        Pipeline.SEMI_SYNC: partial(TrainPipelineSemiSync, start_batch=0),
    }
    return made[pipeline]


def _precision(workload: Workload, device: torch.device) -> AbstractContextManager[Any]:
    """Return the autocast of the dense part's precision; sets whether products may be TF32."""
    precision = workload.dense.precision
    torch.backends.cuda.matmul.allow_tf32 = precision is DataType.TF32
    if precision in _HALF:
        half: AbstractContextManager[Any] = torch.autocast(device.type, dtype=_HALF[precision])
        return half
    return nullcontext()


def release() -> None:
    """Free the memory of unused trainers, which refer to themselves."""
    gc.collect()
