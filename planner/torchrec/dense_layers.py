"""The dense model that a module's linear layers stand for."""

from torch import nn

from costmodel.domain.workload import DenseModel
from planner.torchrec.error_types import refusing


def dense_model(module: nn.Module, embedding_paths: set[str]) -> DenseModel:
    """Return the model's linear layers as MLPs: those below ``dense_arch`` are the bottom.

    Layers without weights, as lazy ones are before their first batch, are no work.

    Raises
    ------
    torchrec.distributed.planner.types.PlannerError
        They are wider or more than a dense model's layers can be.

    """
    layers = [
        (path, layer)
        for path, layer in module.named_modules()
        if isinstance(layer, nn.Linear)
        and layer.in_features
        and layer.out_features
        and path not in embedding_paths
    ]
    bottom = [layer for path, layer in layers if "dense_arch" in path]
    top = [layer for path, layer in layers if "dense_arch" not in path]
    with refusing(
        "the model's linear layers, in whose place IterationTimePlanner takes "
        "`dense=DenseModel(...)`"
    ):
        return DenseModel(
            num_dense_features=bottom[0].in_features if bottom else 1,
            bottom_mlp=tuple(layer.out_features for layer in bottom),
            top_mlp=tuple(layer.out_features for layer in top) or (1,),
        )
