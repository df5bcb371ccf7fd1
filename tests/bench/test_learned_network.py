"""The learned embedding model: by hand, in batches, and as torch trained it."""

from math import exp, log

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.learned.network import (
    FEATURES,
    KINDS,
    Layer,
    LearnedEmbedding,
    table_features,
)


def layer(inputs: int, outputs: int, seed: int) -> Layer:
    random = np.random.default_rng(seed)
    return Layer(
        weight=random.normal(size=(inputs, outputs)) / inputs, bias=random.normal(size=outputs)
    )


def network(*, head: bool) -> LearnedEmbedding:
    columns = ("log_rows", "log_pooling", "log_reuse", "sgd")
    encoder = (layer(4, 8, 1), layer(8, 8, 2), layer(8, 8 if head else 2, 3))
    return LearnedEmbedding(
        columns=columns,
        mean=np.ones(4),
        scale=np.full(4, 2.0),
        encoder=encoder,
        head=(layer(8, 8, 4), layer(8, 2, 5)) if head else (),
        constant=np.log([1e-4, 2e-4]),
    )


def some_features(tables: int) -> NDArray[np.float64]:
    return np.random.default_rng(7).normal(size=(tables, len(FEATURES)))


def test_times_of_tables_add_up_by_hand() -> None:
    # one linear layer: log time of a table over the constant's is twice its log rows
    model = LearnedEmbedding(
        columns=("log_rows",),
        mean=np.zeros(1),
        scale=np.ones(1),
        encoder=(Layer(weight=np.array([[2.0, 2.0]]), bias=np.zeros(2)),),
        head=(),
        constant=np.log([1e-3, 1e-3]),
    )
    features = np.zeros((2, len(FEATURES)))
    features[:, 0] = log(3), log(5)
    seconds = np.exp(model.log_seconds(features, np.array([0, 0]), 1))
    assert seconds[0, 0] == pytest.approx(1e-3 * (1 + 9 + 25))


@pytest.mark.parametrize("head", [False, True])
def test_batches_are_kernels_one_by_one(*, head: bool) -> None:
    model, features = network(head=head), some_features(7)
    kernel = np.array([0, 1, 1, 2, 2, 2, 1])
    together = model.log_seconds(features, kernel, 3)
    for number in range(3):
        own = features[kernel == number]
        alone = model.log_seconds(own, np.zeros(len(own), dtype=np.intp), 1)
        assert together[number] == pytest.approx(alone[0])


@pytest.mark.parametrize("head", [False, True])
def test_the_order_of_tables_does_not_matter(*, head: bool) -> None:
    model, features = network(head=head), some_features(5)
    kernel = np.zeros(5, dtype=np.intp)
    turned = model.log_seconds(features[::-1], kernel, 1)
    assert model.log_seconds(features, kernel, 1) == pytest.approx(turned)


def test_another_table_is_never_faster() -> None:
    model, features = network(head=False), some_features(9)
    times = [model.log_seconds(features[:n], np.zeros(n, dtype=np.intp), 1)[0] for n in range(10)]
    assert times[0] == pytest.approx(model.constant)
    assert (np.diff(times, axis=0) > 0).all()


def test_features_by_hand() -> None:
    # 8 lookups of 5 distinct rows, 4 samples: 4 rows once, one 4 times
    features = table_features(
        num_rows=100,
        num_columns=16,
        num_lookups=8,
        num_samples=4,
        rows_by_hits=(4, 0, 1, *(0,) * 14),
        kind="adagrad",
    )
    named = dict(zip(FEATURES, features, strict=True))
    assert exp(named["log_rows"]) == pytest.approx(100)
    assert exp(named["log_pooling"]) == pytest.approx(2)
    assert exp(named["log_reuse"]) == pytest.approx(8 / 5)
    assert (named["bin_0"], named["bin_2"]) == (0.8, 0.2)
    assert [kind for kind in KINDS if named[kind]] == ["adagrad"]


@pytest.mark.slow
@pytest.mark.parametrize("head", [False, True])
def test_numpy_says_what_torch_trained(*, head: bool) -> None:
    pytest.importorskip("torch")
    from bench.learned.training import MeasuredKernels, Training, train

    random = np.random.default_rng(0)
    features = random.normal(size=(600, len(FEATURES)))
    kernel = np.sort(random.integers(0, 200, 600))
    # times that are a constant and a sum over tables, as the form has it
    seconds = np.full((200, 2), 1e-4)
    np.add.at(seconds, kernel, 1e-4 * np.exp(features[:, :2]))
    kernels = MeasuredKernels(features=features, kernel=kernel, seconds=seconds)
    columns = ("log_rows", "log_columns", "log_pooling")
    training = Training(columns=columns, with_head=head, width=16, learning_rate=2e-2)
    model = train(kernels, training)
    errors = model.log_seconds(features, kernel, 200) - np.log(seconds)
    assert np.abs(errors).mean() < (0.2 if head else 0.1)
    again = train(kernels, training)
    assert (again.encoder[0].weight == model.encoder[0].weight).all()
