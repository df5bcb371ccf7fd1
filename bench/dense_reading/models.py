"""Models of TorchRec's, small, whose dense parts are read."""

from collections.abc import Callable, Mapping

import torch
from torch import nn
from torchrec.models.deepfm import SimpleDeepFMNN
from torchrec.models.dlrm import DLRM, DLRM_DCN, DLRM_Projection, DLRMTrain
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.modules.mlp import MLP
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

META = torch.device("meta")
FEATURES, WIDTH, NUM_DENSE = 26, 64, 13


def _bags() -> EmbeddingBagCollection:
    tables = [
        EmbeddingBagConfig(
            name=f"t{i}", num_embeddings=10_000, embedding_dim=WIDTH, feature_names=[f"f{i}"]
        )
        for i in range(FEATURES)
    ]
    return EmbeddingBagCollection(tables=tables, device=META)


def _dlrm() -> nn.Module:
    return DLRMTrain(DLRM(_bags(), NUM_DENSE, [512, 256, WIDTH], [512, 256, 1], dense_device=META))


def _dcn() -> nn.Module:
    layers = [512, 256, WIDTH], [512, 256, 1], 3, 128
    return DLRMTrain(DLRM_DCN(_bags(), NUM_DENSE, *layers, dense_device=META))


def _projection() -> nn.Module:
    layers = {
        "interaction_branch1_layer_sizes": [256, 512],
        "interaction_branch2_layer_sizes": [256, 512],
    }
    return DLRMTrain(
        DLRM_Projection(
            _bags(), NUM_DENSE, [512, 256, WIDTH], [512, 256, 1], dense_device=META, **layers
        )
    )


def _deepfm() -> nn.Module:
    return SimpleDeepFMNN(NUM_DENSE, _bags(), hidden_layer_size=128, deep_fm_dimension=16)


class TwoTower(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Two towers of TorchRec's ``MLP``, as its example of retrieval has them."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = _bags()
        self.half = FEATURES // 2 * WIDTH
        self.query = MLP(self.half, [512, 128])
        self.candidate = MLP(self.half, [512, 128])

    def forward(self, sparse: KeyedJaggedTensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss of a batch."""
        left, right = self.tables(sparse).values().split(self.half, dim=1)
        logits = (self.query(left) * self.candidate(right)).sum(dim=1)
        return nn.functional.binary_cross_entropy_with_logits(logits, labels)


class ParallelExperts(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Experts side by side, which one chain of layers has not."""

    def __init__(self, number: int = 24) -> None:
        super().__init__()
        self.tables = _bags()
        self.first = nn.Linear(FEATURES * WIDTH, 256)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(256, 8192), nn.ReLU(), nn.Linear(8192, 8))
            for _ in range(number)
        )

    def forward(self, sparse: KeyedJaggedTensor) -> torch.Tensor:
        """Return what the experts say, added up."""
        inputs = self.first(self.tables(sparse).values())
        return torch.stack([expert(inputs) for expert in self.experts]).sum(0)


TORCHREC: Mapping[str, Callable[[], nn.Module]] = {
    "DLRM": _dlrm,
    "DLRM_DCN": _dcn,
    "DLRM_Projection": _projection,
    "SimpleDeepFMNN": _deepfm,
    "two towers": TwoTower,
    "24 experts of 8,192": ParallelExperts,
}
