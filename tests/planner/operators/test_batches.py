from dataclasses import dataclass

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

import torch
from torchrec.sparse.jagged_tensor import JaggedTensor, KeyedJaggedTensor, KeyedTensor

from planner.operators.batches import BatchArguments, given_batches, leaves


@dataclass
class Mine:
    """A batch of a script's own."""

    features: KeyedJaggedTensor
    pooled: KeyedTensor
    numbers: dict[str, torch.Tensor]
    history: JaggedTensor
    name: str = "mine"


def batch(samples: int) -> Mine:
    lengths = torch.arange(samples, dtype=torch.int32) % 3
    ids = torch.arange(int(lengths.sum()))
    both = torch.cat([lengths, torch.ones_like(lengths)])
    return Mine(
        features=KeyedJaggedTensor(
            ["a", "b"], torch.arange(int(both.sum())), lengths=both,
            weights=torch.rand(int(both.sum())),
        ),
        pooled=KeyedTensor(["x"], [4], torch.rand(samples, 4)),
        numbers={"age": torch.arange(samples), "scale": torch.rand(3)},
        history=JaggedTensor(ids, lengths=lengths),
    )  # fmt: skip


def test_a_cut_has_the_first_samples_of_everything() -> None:
    whole = batch(20)
    given = BatchArguments.of((whole, torch.rand(20)))
    assert given.samples == 20
    cut, more = given.cut(6).arguments
    assert cut.features.stride() == 6
    assert cut.features.keys() == ["a", "b"]
    for key in "ab":
        kept = len(cut.features[key].values())
        assert torch.equal(cut.features[key].values(), whole.features[key].values()[:kept])
        assert torch.equal(cut.features[key].weights(), whole.features[key].weights()[:kept])
        assert torch.equal(cut.features[key].lengths(), whole.features[key].lengths()[:6])
    assert torch.equal(cut.pooled["x"], whole.pooled["x"][:6])
    assert torch.equal(cut.numbers["age"], torch.arange(6))
    assert cut.numbers["scale"] is whole.numbers["scale"]  # of no sample
    assert torch.equal(cut.history.lengths(), whole.history.lengths()[:6])
    assert len(cut.history.values()) == int(cut.history.lengths().sum())
    assert cut.name == "mine"
    assert more.shape == (6,)
    assert whole.features.stride() == 20


def test_what_is_worked_out_of_lengths_is_not_kept() -> None:
    features = KeyedJaggedTensor(["a"], torch.arange(6), lengths=torch.tensor([1, 2, 3]))
    assert features.offsets().tolist() == [0, 1, 3, 6]
    (anew,) = BatchArguments.of(features).anew().arguments
    assert anew.offsets_or_none() is None
    assert anew.lengths_or_none() is features.lengths()
    assert torch.equal(anew["a"].values(), features["a"].values())


def test_without_jagged_features_the_first_tensor_has_the_samples() -> None:
    pooled = KeyedTensor(["x"], [4], torch.rand(7, 4))
    assert BatchArguments.of({"pooled": pooled, "scale": torch.rand(3)}).samples == 7
    assert BatchArguments.of((torch.rand(()), torch.rand(5, 2))).samples == 5


def test_batches_of_three_sizes_are_taken_as_they_are() -> None:
    given = [batch(samples) for samples in (9, 4, 6)]
    assert [each.samples for each in given_batches(given)] == [9, 4, 6]


def test_else_the_largest_is_cut() -> None:
    counts = [each.samples for each in given_batches([batch(8), batch(40)])]
    assert counts[0] == 40
    assert len(set(counts)) == len(counts) == 9


def test_leaves_are_what_may_have_a_gradient() -> None:
    made = {"a": torch.rand(2), "b": [batch(3)], "c": torch.arange(3)}
    assert sum(1 for _ in leaves(made)) == 3  # a, pooled, and the scale
