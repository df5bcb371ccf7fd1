"""A workload as a TorchRec model that can be trained: tables, dense model, loss.

It needs torch and torchrec.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.optim import _apply_optimizer_in_backward as apply_optimizer_in_backward
from torchrec.models.dlrm import DLRM, DLRM_DCN, DenseArch, DLRMTrain, InteractionArch, OverArch
from torchrec.modules.crossnet import LowRankCrossNet
from torchrec.modules.embedding_configs import EmbeddingBagConfig, PoolingType
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.types import DataType as TorchRecType

from costmodel.domain.dense_layers import bottom_width, interaction_width, num_sparse_features
from costmodel.domain.workload import (
    EmbeddingTable,
    Interaction,
    OptimizerImplementation,
    Pooling,
    Workload,
)
from planner.torchrec.model_reading import OPTIMIZER_CLASSES
from planner.torchrec.plan_conversion import TableLocation

LEARNING_RATE = 1e-3
"""Rate of both optimizers. The loss does not matter; weights must neither grow nor vanish."""
_WEIGHT = 0.01
"""Initial value of every weight of a table: drawing them would take longer than the timed steps."""


def build_model(workload: Workload) -> DLRMTrain:
    """Return the workload's model, tables on the meta device, their optimizer in the backward.

    It is TorchRec's DLRM for a dot interaction, DLRM_DCN for DCNv2; they need vectors of one width.
    Other widths, and plain concatenation, which TorchRec has no model of, get the same modules
    around another interaction.
    """
    bags = EmbeddingBagCollection(
        tables=[bag_config(table, f"t{index}") for index, table in enumerate(workload.tables)],
        device=torch.device("meta"),
    )
    for table, bag in zip(workload.tables, bags.embedding_bags.values(), strict=True):
        chosen = OPTIMIZER_CLASSES[workload.optimizer_of(table)]
        apply_optimizer_in_backward(chosen, bag.parameters(), {"lr": LEARNING_RATE})
    return DLRMTrain(_plain_model(bags, workload))


def table_locations(model: nn.Module, workload: Workload) -> dict[str, TableLocation]:
    """Return the location in the model of each of the workload's tables.

    Tables are numbered in the model: a workload's names may have dots in them.
    """
    path = next(
        name for name, each in model.named_modules() if isinstance(each, EmbeddingBagCollection)
    )
    return {
        table.name: TableLocation(module=path, table=f"t{index}")
        for index, table in enumerate(workload.tables)
    }


def dense_optimizer(workload: Workload, parameters: Sequence[Any]) -> torch.optim.Optimizer:
    """Return the optimizer of all parameters that are not updated in the backward."""
    chosen = OPTIMIZER_CLASSES[workload.dense.optimizer.elementwise]
    used = workload.dense.optimizer_implementation
    options: dict[str, bool] = {}
    if used is not None:
        options["foreach"] = used is OptimizerImplementation.FOREACH
        if used is OptimizerImplementation.FUSED:
            options["fused"] = True
    made: torch.optim.Optimizer = chosen(parameters, lr=LEARNING_RATE, **options)
    return made


def bag_config(table: EmbeddingTable, name: str) -> EmbeddingBagConfig:
    """Return TorchRec's configuration of a pooled table, under a name in the model."""
    pooling = PoolingType.MEAN if table.pooling is Pooling.MEAN else PoolingType.SUM
    return EmbeddingBagConfig(**table_config(table, name), pooling=pooling)


def table_config(table: EmbeddingTable, name: str) -> dict[str, Any]:
    """Return the fields that TorchRec's configurations of pooled and unpooled tables share."""
    return {
        "name": name,
        "num_embeddings": table.num_embeddings,
        "embedding_dim": table.embedding_dim,
        "feature_names": list(table.features),
        "data_type": TorchRecType[table.data_type.name],
        "init_fn": partial(nn.init.constant_, val=_WEIGHT),
    }


def _plain_model(bags: EmbeddingBagCollection, workload: Workload) -> nn.Module:
    """Return TorchRec's DLRM around the tables, or ours where its layers cannot be TorchRec's."""
    dense = workload.dense
    widths = {table.embedding_dim for table in workload.tables} | {bottom_width(workload)}
    whole = len(widths) == 1 and dense.bottom_mlp and len(dense.top_mlp) > 1
    sizes: dict[str, Any] = {
        "embedding_bag_collection": bags,
        "dense_in_features": dense.num_dense_features,
        "dense_arch_layer_sizes": list(dense.bottom_mlp),
        "over_arch_layer_sizes": list(dense.top_mlp),
    }
    if whole and dense.interaction is Interaction.DOT:
        return DLRM(**sizes)
    if whole and dense.interaction is Interaction.DCN_V2:
        return DLRM_DCN(
            **sizes, dcn_num_layers=dense.cross_layers, dcn_low_rank_dim=dense.cross_rank
        )
    return PlainDLRM(bags, workload)


class PlainDLRM(nn.Module):  # type: ignore[misc] # torch has no types here
    """Bottom MLP and pooled embeddings side by side, an interaction, top MLP: any widths."""

    def __init__(self, bags: EmbeddingBagCollection, workload: Workload) -> None:
        super().__init__()
        dense, width = workload.dense, interaction_width(workload)
        self.bags = bags
        self.keys = [name for table in workload.tables for name in table.features]
        self.bottom = nn.Identity()
        if dense.bottom_mlp:
            self.bottom = DenseArch(dense.num_dense_features, list(dense.bottom_mlp))
        self.dot = None
        if dense.interaction is Interaction.DOT:
            self.dot = InteractionArch(num_sparse_features(workload))
        self.cross = nn.Identity()
        if dense.interaction is Interaction.DCN_V2:
            self.cross = LowRankCrossNet(width, dense.cross_layers, dense.cross_rank)
        top = list(dense.top_mlp)
        self.top = OverArch(width, top) if len(top) > 1 else nn.Linear(width, top[0])

    def forward(self, dense_features: torch.Tensor, sparse_features: Any) -> torch.Tensor:  # noqa: ANN401 - a KeyedJaggedTensor
        """Return the logits of a batch."""
        bottom = self.bottom(dense_features)
        pooled = self.bags(sparse_features).to_dict()
        vectors = [pooled[key] for key in self.keys]
        if self.dot is not None:
            together = self.dot(bottom, torch.stack(vectors, dim=1))
        else:
            ordered = torch.cat(vectors, dim=1)  # a copy, as TorchRec's SparseArch makes it
            together = self.cross(torch.cat([bottom, ordered], dim=1))
        logits: torch.Tensor = self.top(together)
        return logits
