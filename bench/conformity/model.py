"""A workload as a model for DistributedModelParallel: pooled, weighted and unpooled tables.

Needs torch and torchrec; imported by the ranks only.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.optim import _apply_optimizer_in_backward as apply_optimizer_in_backward
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.fbgemm_qcomm_codec import (
    CommType,
    QCommsConfig,
    get_qcomm_codecs_registry,
)
from torchrec.modules.embedding_configs import EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor
from torchrec.streamable import Pipelineable

from costmodel.domain.plan import ComputeKernel, ShardingType
from costmodel.domain.workload import DataType, EmbeddingTable, Pooling, Workload
from planner.torchrec.model_reading import OPTIMIZER_CLASSES
from planner.torchrec.plan_conversion import TableLocation
from planner.validation.trained_model import LEARNING_RATE, bag_config, table_config

MODULES = ("unpooled", "pooled", "weighted")
"""Attributes of the model, by what their tables have in common."""
META = torch.device("meta")
_CODECS = {
    None: CommType.FP32,
    DataType.FP16: CommType.FP16,
    DataType.BF16: CommType.BF16,
    DataType.FP8: CommType.FP8,
    DataType.INT8: CommType.INT8,
}


def module_of(table: EmbeddingTable) -> str:
    """Return which module of the model holds a table."""
    if table.pooling is Pooling.NONE:
        return "unpooled"
    return "weighted" if table.weighted else "pooled"


@torch.fx.wrap  # type: ignore[untyped-decorator]
def summed(rows: Any, name: str, per_sample: int) -> torch.Tensor:  # noqa: ANN401 - JaggedTensors
    """Return the sum of each sample's rows; the pipeline's tracing does not look inside."""
    values: torch.Tensor = rows[name].values()
    return values.view(-1, per_sample, values.shape[1]).sum(dim=1)


class TrainedModel(nn.Module):  # type: ignore[misc] # torch has no types here
    """Bottom MLP, up to three modules of tables, and a top MLP over all columns."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        dense = workload.dense
        self.members = {
            name: [table for table in workload.tables if module_of(table) == name]
            for name in MODULES
        }
        for name, tables in self.members.items():
            if tables:
                setattr(self, name, _module(name, tables))
        self.bottom = _mlp(dense.num_dense_features, dense.bottom_mlp, last=True)
        width = dense.bottom_mlp[-1] + sum(
            table.embedding_dim * table.num_features for table in workload.tables
        )
        self.top = _mlp(width, dense.top_mlp, last=False)

    def forward(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN401 - a Batch
        """Return the loss, twice, as pipelines want it with the predictions."""
        parts = [self.bottom(batch.dense_features)]
        used = [(name, tables) for name, tables in self.members.items() if tables]
        outputs = [getattr(self, name)(getattr(batch, name)) for name, _ in used]
        for (name, tables), out in zip(used, outputs, strict=True):
            if name == "unpooled":
                parts += [summed(out, table.name, int(table.pooling_factor)) for table in tables]
            else:
                columns = out.to_dict()  # in the model's order, as TorchRec's SparseArch
                keys = [key for table in tables for key in table.features]
                parts.append(torch.cat([columns[key] for key in keys], dim=1))
        logits = self.top(torch.cat(parts, dim=1)).squeeze(-1)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, batch.labels)
        return loss, logits.detach()


def _mlp(inputs: int, widths: Sequence[int], *, last: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    for index, width in enumerate(widths):
        layers.append(nn.Linear(inputs, width))
        if last or index + 1 < len(widths):
            layers.append(nn.ReLU())
        inputs = width
    return nn.Sequential(*layers)


def _module(name: str, tables: Sequence[EmbeddingTable]) -> nn.Module:
    if name == "unpooled":
        configs = [EmbeddingConfig(**table_config(table, table.name)) for table in tables]
        return EmbeddingCollection(tables=configs, device=META)
    return EmbeddingBagCollection(
        tables=[bag_config(table, table.name) for table in tables],
        device=META,
        is_weighted=name == "weighted",
    )


class _AnyTypes:
    """Shards as it is told, on any device."""

    def sharding_types(self, compute_device_type: str) -> list[str]:
        """Offer every sharding type."""
        del compute_device_type
        return [kind.value for kind in ShardingType]

    def compute_kernels(self, sharding_type: str, compute_device_type: str) -> list[str]:
        """Offer every kernel."""
        del sharding_type, compute_device_type
        return [kernel.value for kernel in ComputeKernel]


class BagSharder(_AnyTypes, EmbeddingBagCollectionSharder):  # type: ignore[misc]
    """Offers every sharding type and kernel for pooled tables."""


class SequenceSharder(_AnyTypes, EmbeddingCollectionSharder):  # type: ignore[misc]
    """Offers every sharding type and kernel for unpooled tables."""


def sharders(workload: Workload) -> list[Any]:
    """Return sharders with the workload's codecs."""
    registry = None
    if workload.comms_forward or workload.comms_backward:
        registry = get_qcomm_codecs_registry(
            QCommsConfig(
                forward_precision=_CODECS[workload.comms_forward],
                backward_precision=_CODECS[workload.comms_backward],
            ),
            device=torch.device("cpu"),
        )
    options: dict[str, Any] = {"qcomm_codecs_registry": registry}
    return [BagSharder(**options), SequenceSharder(**options)]


def build(workload: Workload) -> TrainedModel:
    """Return the model, its tables' optimizer in the backward."""
    model = TrainedModel(workload)
    chosen = OPTIMIZER_CLASSES[workload.optimizer]
    for name, tables in model.members.items():
        if tables:
            parameters = getattr(model, name).parameters()
            apply_optimizer_in_backward(chosen, parameters, {"lr": LEARNING_RATE})
    return model


def locations(workload: Workload) -> dict[str, TableLocation]:
    """Return where in the model tables live."""
    return {
        table.name: TableLocation(module=module_of(table), table=table.name)
        for table in workload.tables
    }


class Batch(Pipelineable):  # type: ignore[misc]
    """Dense features, one KeyedJaggedTensor for each module, labels."""

    def __init__(
        self,
        dense_features: torch.Tensor,
        features: dict[str, KeyedJaggedTensor],
        labels: torch.Tensor,
    ) -> None:
        self.dense_features, self.labels = dense_features, labels
        for name in MODULES:
            setattr(self, name, features.get(name))

    def to(self, device: torch.device, non_blocking: bool = False) -> "Batch":  # noqa: FBT001, FBT002
        """Return it on a device."""
        features = {name: getattr(self, name) for name in MODULES}
        return Batch(
            self.dense_features.to(device, non_blocking=non_blocking),
            {
                name: each.to(device, non_blocking)
                for name, each in features.items()
                if each is not None
            },
            self.labels.to(device, non_blocking=non_blocking),
        )

    def record_stream(self, stream: torch.Stream) -> None:
        """Do nothing: a CPU has no streams."""


def make_batch(workload: Workload, seed: int) -> Batch:
    """Draw a batch: every sample has the same number of ids, evenly spread over the rows."""
    generator = torch.Generator().manual_seed(seed)
    samples = workload.local_batch_size
    features: dict[str, KeyedJaggedTensor] = {}
    for name in MODULES:
        tables = [table for table in workload.tables if module_of(table) == name]
        if not tables:
            continue
        keys, values, lengths = [], [], []
        for table in tables:
            names = table.features
            per_sample = int(table.pooling_factor / len(names))
            for key in names:
                keys.append(key)
                shape = (samples, per_sample)
                # row i of a sample falls on row block i: every rank gets as many ids
                ids = torch.randint(0, table.num_embeddings, shape, generator=generator)
                blocks = torch.arange(per_sample) % 4 * (table.num_embeddings // 4)
                values.append(((ids % (table.num_embeddings // 4)) + blocks).reshape(-1))
                lengths.append(torch.full((samples,), per_sample, dtype=torch.int32))
        ids = torch.cat(values)
        features[name] = KeyedJaggedTensor(
            keys=keys,
            values=ids,
            lengths=torch.cat(lengths),
            weights=torch.ones(len(ids)) if name == "weighted" else None,
        )
    dense = torch.randn(samples, workload.dense.num_dense_features, generator=generator)
    labels = torch.randint(0, 2, (samples,), generator=generator).float()
    return Batch(dense, features, labels)
