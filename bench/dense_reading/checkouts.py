"""Models of public repositories, from checkouts of them in one folder.

``torchrec`` has github.com/meta-pytorch/torchrec, whose package has no examples, and
``generative-recommenders`` github.com/meta-recsys/generative-recommenders. Nothing is written for
the planner: modules are made as their training scripts make them, with fewer rows.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import torch
from torch import nn
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from planner.operators.made_batches import MadeSize, lengths

CANDIDATES = 4
ROWS = 10_000
Batches: TypeAlias = Callable[[MadeSize], Any]
Made: TypeAlias = tuple[nn.Module, Batches | None]


def _module(path: Path) -> ModuleType:
    """Return the module of a file, which is in no package."""
    spec = spec_from_file_location(f"checked_out_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def bert4rec(folder: Path) -> Made:
    """Return TorchRec's BERT4Rec, of the sizes of its script: 32 items, two blocks of 4 heads."""
    theirs = _module(folder / "torchrec/examples/bert4rec/models/bert4rec.py")
    return theirs.BERT4Rec(ROWS, 32, emb_dim=128, nhead=4, num_layers=2), None


def two_tower(folder: Path) -> Made:
    """Return the two towers of TorchRec's example of retrieval, with its script's layers."""
    theirs = _module(folder / "torchrec/examples/retrieval/modules/two_tower.py")
    tables = [
        EmbeddingBagConfig(
            name=f"t_{feature}", embedding_dim=64, num_embeddings=ROWS, feature_names=[feature]
        )
        for feature in ("userId", "movieId")
    ]
    bags = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
    return theirs.TwoTowerTrainTask(theirs.TwoTower(bags, [128, 64])), None


class Losses(nn.Module):  # type: ignore[misc]  # torch has no types here
    """A model of generative-recommenders as its training step calls it: its losses, added up."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, history: KeyedJaggedTensor, candidates: KeyedJaggedTensor) -> torch.Tensor:
        """Return the loss of a batch."""
        return sum(self.model(history, candidates)[2].values())


def hstu(folder: Path) -> Made:
    """Return generative-recommenders' DLRMv3: its HSTU of the default configuration, in FP32."""
    sys.path.insert(0, str(folder / "generative-recommenders"))
    common = import_module("generative_recommenders.common")
    vars(common)["triton_autotune"] = lambda *_, **__: lambda kernel: kernel  # a CPU runs none
    configs = import_module("generative_recommenders.dlrm_v3.configs")
    theirs = import_module("generative_recommenders.modules.dlrm_hstu")
    config, tables = configs.get_hstu_configs(), configs.get_embedding_table_config()
    model = theirs.DlrmHSTU(config, tables, is_inference=False, bf16_training=False)
    model.set_hammer_kernel(common.HammerKernel.PYTORCH)
    contexts = list(config.contextual_feature_to_max_length)
    histories = [each for each in config.hstu_uih_feature_names if each not in contexts]

    def batch(size: MadeSize) -> tuple[KeyedJaggedTensor, KeyedJaggedTensor]:
        ones = torch.ones(size.samples, dtype=torch.int32)
        own = {**dict.fromkeys(histories, lengths(size)), **dict.fromkeys(contexts, ones)}
        targets = dict.fromkeys(config.hstu_candidate_feature_names, CANDIDATES * ones)
        return _keyed(own, size.samples), _keyed(targets, size.samples)

    return Losses(model), batch


def _keyed(found: Mapping[str, torch.Tensor], seed: int) -> KeyedJaggedTensor:
    """Return features of lengths; ids are drawn."""
    every = torch.cat(list(found.values()))
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, ROWS, (int(every.sum()),), generator=draw)
    return KeyedJaggedTensor(list(found), ids, lengths=every)


CHECKED_OUT: Mapping[str, Callable[[Path], Made]] = {
    "TorchRec, BERT4Rec": bert4rec,
    "TorchRec, two towers of its example": two_tower,
    "generative-recommenders, HSTU": hstu,
}
ABSENT = ("faiss", "triton", "gin")
"""Packages that they import, and a CPU has no use for."""
