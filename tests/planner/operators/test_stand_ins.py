"""What stands for embedding modules gives what they give, beside the modules themselves."""

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

import torch
from torch import nn
from torchrec.modules.embedding_configs import EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.modules.mc_embedding_modules import ManagedCollisionEmbeddingCollection
from torchrec.modules.mc_modules import (
    DistanceLFU_EvictionPolicy,
    ManagedCollisionCollection,
    MCHManagedCollisionModule,
)
from torchrec.sparse.jagged_tensor import JaggedTensor, KeyedJaggedTensor, KeyedTensor

from costmodel.operators.operator_list import SequenceSize
from planner.operators.stand_ins import dense_copy

ROWS, WIDTH = 50, 8
FEATURES = KeyedJaggedTensor(
    keys=["a", "b"],
    values=torch.arange(9),
    lengths=torch.tensor([2, 0, 3, 1, 1, 2], dtype=torch.int32),
)
"""Three samples, five ids and four, the longest sequence of three."""


def sequences() -> EmbeddingCollection:
    shared = EmbeddingConfig(
        name="shared", num_embeddings=ROWS, embedding_dim=WIDTH, feature_names=["a", "b"]
    )
    own = EmbeddingConfig(name="own", num_embeddings=ROWS, embedding_dim=WIDTH, feature_names=["b"])
    return EmbeddingCollection(tables=[shared, own])


def test_pooled_features_that_share_a_table_or_have_two() -> None:
    tables = [
        EmbeddingBagConfig(
            name=name, num_embeddings=ROWS, embedding_dim=width, feature_names=features
        )
        for name, width, features in (("x", WIDTH, ["a", "b"]), ("y", 2 * WIDTH, ["b"]))
    ]
    real = EmbeddingBagCollection(tables=tables)
    copy = dense_copy(nn.Sequential(real))
    made, expected = copy.module(FEATURES), real(FEATURES)
    assert isinstance(made, KeyedTensor)
    assert (made.keys(), made.length_per_key()) == (expected.keys(), expected.length_per_key())
    assert made.values().shape == expected.values().shape
    assert made.values().requires_grad
    assert (copy.given.samples, copy.given.sequences) == (3, {})
    assert list(copy.given.outputs) == ["0"]


def test_sequences_are_jagged_tensors_of_the_same_lengths() -> None:
    real = sequences()
    copy = dense_copy(nn.Sequential(real))
    made, expected = copy.module(FEATURES), real(FEATURES)
    assert set(made) == set(expected)
    for name, each in made.items():
        assert isinstance(each, JaggedTensor)
        assert each.values().shape == expected[name].values().shape
        assert torch.equal(each.lengths(), expected[name].lengths())
        assert torch.equal(each.offsets(), expected[name].offsets())
    assert copy.given.samples == 3
    assert copy.given.sequences == {"a": SequenceSize(3, 5), "b": SequenceSize(2, 4)}


def test_managed_collisions_give_a_pair() -> None:
    inner = EmbeddingCollection(
        tables=[
            EmbeddingConfig(name="t", num_embeddings=ROWS, embedding_dim=WIDTH, feature_names=["a"])
        ]
    )
    managed = ManagedCollisionCollection(
        managed_collision_modules={
            "t": MCHManagedCollisionModule(
                zch_size=ROWS, device=torch.device("cpu"), eviction_interval=2,
                eviction_policy=DistanceLFU_EvictionPolicy(),
            )
        },
        embedding_configs=inner.embedding_configs(),
    )  # fmt: skip
    real = ManagedCollisionEmbeddingCollection(inner, managed, return_remapped_features=True)
    made, ids = dense_copy(nn.Sequential(real)).module(FEATURES)
    assert made["a"].values().shape == (5, WIDTH)
    assert ids.keys() == ["a", "b"]


@pytest.mark.parametrize("include_last", [False, True])
def test_plain_tables_stay_unless_they_are_planned(include_last: bool) -> None:  # noqa: FBT001
    bag = nn.EmbeddingBag(ROWS, WIDTH, include_last_offset=include_last)
    model = nn.ModuleDict({"bag": bag, "rows": nn.Embedding(ROWS, WIDTH)})
    assert isinstance(dense_copy(model).module["bag"], nn.EmbeddingBag)
    copy = dense_copy(model, tables=["bag", "rows"])
    ids, offsets = torch.arange(9), torch.tensor([0, 2, 5] + [9] * include_last)
    assert copy.module["bag"](ids, offsets).shape == bag(ids, offsets).shape == (3, WIDTH)
    assert copy.module["bag"](ids.view(3, 3)).shape == (3, WIDTH)
    assert copy.module["rows"](ids.view(3, 3)).shape == (3, 3, WIDTH)
    assert copy.num_dense_elements == 0


def test_what_was_on_the_meta_device_has_values() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to("meta")
    copy = dense_copy(model)
    assert copy.module(torch.rand(5, 3)).isfinite().all()
    assert copy.materialized == 4
    assert next(model.parameters()).is_meta
