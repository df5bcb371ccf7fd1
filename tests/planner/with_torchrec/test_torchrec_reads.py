"""What constraints and sample batches say of the ids that tables are read by."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

import torch
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.modules.embedding_configs import EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingCollection
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor
from torchrec_cases import META, SHARDERS, bags, planner, solved, table

from costmodel.domain.workload import EmbeddingTable

FEATURES = ["f", "g", "h"]


def read(model: torch.nn.Module, name: str = "a", **settings: Any) -> EmbeddingTable:  # noqa: ANN401
    made = planner(**settings)
    made.plan(model, SHARDERS)
    return solved(made).workload.table(name)


def constrained_read(features: list[str], **given: list[float]) -> EmbeddingTable:
    constraints = {"a": ParameterConstraints(**given)}
    return read(bags(table("a", feature_names=features)), constraints=constraints)


@pytest.mark.parametrize(
    "given", [{"pooling_factors": [2.0]}, {"num_poolings": [2.0]}, {"batch_sizes": [128]}]
)
def test_one_value_is_one_for_every_feature(given: dict[str, list[float]]) -> None:
    # batches of 64 samples
    three = {name: values * 3 for name, values in given.items()}
    assert constrained_read(FEATURES, **given).pooling_factor == 6
    assert constrained_read(FEATURES, **given) == constrained_read(FEATURES, **three)


def test_values_for_other_inputs_than_features_are_added_up_as_torchrec_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # ten inputs of 10 ids for each of 128 samples, where the planner has batches of 64
    ten = {"pooling_factors": [10.0] * 10, "num_poolings": [1.0] * 10, "batch_sizes": [128] * 10}
    one = constrained_read(["f"], **ten)
    assert one.pooling_factor == 10 * 10 * 128 / 64
    assert one.num_bags == 10 * 128 / 64
    assert "(a): 10 values for 1 feature are added up" in caplog.text
    two = constrained_read(FEATURES, pooling_factors=[2.0, 3.0])
    assert two.pooling_factor == 5
    assert two.num_bags == pytest.approx(2, abs=1e-5)


def test_one_value_beside_several_is_one_for_each_of_them() -> None:
    both = constrained_read(["f"], pooling_factors=[3.0], num_poolings=[1.0, 2.0])
    assert both.pooling_factor == 3 * 1 + 3 * 2
    assert both.num_bags == 3


def jagged(lengths: dict[str, list[int]]) -> KeyedJaggedTensor:
    flat = torch.tensor([each for own in lengths.values() for each in own])
    return KeyedJaggedTensor(
        keys=list(lengths), values=torch.arange(int(flat.sum())) % 7, lengths=flat
    )


@pytest.mark.parametrize(
    "wrapped", [lambda groups: groups, lambda groups: SimpleNamespace(sparse_features=groups)]
)
def test_batches_may_be_dicts_of_features(wrapped: Any) -> None:  # noqa: ANN401
    model = bags(table("a", feature_names=["f", "g"]), table("b", feature_names=["h"]))
    whole = jagged({"f": [1, 2], "g": [3, 0], "h": [4, 4]})
    groups = {"one": jagged({"f": [1, 2]}), "two": jagged({"g": [3, 0], "h": [4, 4]})}
    for name, pooling_factor in (("a", 3), ("b", 4)):
        in_dict = read(model, name, sample_batches=[wrapped({**groups, "labels": torch.ones(2)})])
        assert in_dict.pooling_factor == pooling_factor
        assert in_dict.pooling_std == read(model, name, sample_batches=[whole]).pooling_std
        assert in_dict.bags_per_sample == 1


def test_groups_of_features_may_have_batches_of_their_own() -> None:
    model = bags(table("a", feature_names=["f"]), table("b", feature_names=["g"]))
    groups = {"one": jagged({"f": [1, 2, 3, 2]}), "two": jagged({"g": [3, 5]})}
    # 8 ids of 4 samples, one each; 8 ids for 4 samples, in two lengths that they share
    assert read(model, "a", sample_batches=[groups]).pooling_factor == 2
    assert read(model, "b", sample_batches=[groups]).pooling_factor == 2
    assert read(model, "b", sample_batches=[groups]).bags_per_sample == 0.5


def test_the_longest_bag_is_the_mean_of_the_batches_longest() -> None:
    model = bags(table("a", feature_names=["f", "g"]), table("b", feature_names=["h"]))
    batches = [jagged({"f": [1, 6], "g": [3, 0], "h": [4, 4]}), jagged({"f": [2], "h": [4]})]
    assert read(model, "a", sample_batches=batches).longest_bag == (6 + 2) / 2
    assert read(model, "b", sample_batches=batches).longest_bag == 0  # all have as many


def sequences(*names: str) -> torch.nn.Module:
    return EmbeddingCollection(
        tables=[
            EmbeddingConfig(name=name, num_embeddings=100, embedding_dim=64, feature_names=[name])
            for name in names
        ],
        device=META,
    )


def test_sequences_of_unknown_length_are_named(caplog: pytest.LogCaptureFixture) -> None:
    model = torch.nn.ModuleDict({"pooled": bags(table("p")), "ids": sequences(*"abcdef")})
    known = {
        "a": ParameterConstraints(pooling_factors=[200.0]),
        "c": ParameterConstraints(sharding_types=["row_wise"]),
    }
    read(model, sample_batches=[jagged({"b": [3, 4]})], constraints=known)
    said = "sequence tables (c, d, e, f): read as one id a sample for each feature: give sample_b"
    assert said in caplog.text
    assert "`pooling_factors`" in caplog.text


def test_sequences_of_known_length_are_not(caplog: pytest.LogCaptureFixture) -> None:
    read(sequences("a"), sample_batches=[jagged({"a": [3, 4]})])
    assert "sequence tables" not in caplog.text
