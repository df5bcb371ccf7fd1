"""The committed measurements and what the networks made of them."""

import json

import numpy as np
import pytest

from bench.embedding_model import (
    BEST,
    RESULT,
    VARIANTS,
    held_out,
    measured_kernels,
    measured_rows,
    measured_sums,
)
from bench.learned.network import DIRECTIONS, FEATURES

ROWS = list(measured_rows())


def test_measurements_are_complete() -> None:
    assert len(ROWS) == 1024
    features = np.array([table for row in ROWS for table in row.features])
    assert features.shape[1] == len(FEATURES)
    assert np.isfinite(features).all()
    assert all(len(row.features) == len(row.point.tables.num_embeddings) for row in ROWS)


def test_no_set_of_tables_is_predicted_by_what_saw_it() -> None:
    sets = np.array([row.table_set for row in ROWS])

    def predict(known: np.ndarray, asked: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        assert not set(sets[known]) & set(sets[asked])
        assert (known ^ asked).all()
        return np.zeros((int(asked.sum()), 2))

    assert held_out(ROWS, predict).shape == (1024, 2)


def test_the_committed_results() -> None:
    models = json.loads(RESULT.read_text(encoding="utf-8"))["models"]
    for phase in DIRECTIONS:
        best, blind = models[BEST][phase], models["sum of tables, without reuse"][phase]
        assert best["gmae"] < 0.08
        assert best["gmae"] < 0.8 * blind["gmae"]
        assert best["gmae"] < 0.5 * models["roofline"][phase]["gmae"]


def test_one_kernel_takes_less_than_a_kernel_for_each_table() -> None:
    for ratio in measured_sums().values():
        assert ratio["median"] < 0.8


def test_a_short_training_already_predicts() -> None:
    pytest.importorskip("torch")
    from bench.learned.training import Training, train

    known = measured_kernels([row for row in ROWS if row.table_set % 5])
    asked = measured_kernels([row for row in ROWS if row.table_set % 5 == 0])
    network = train(known, Training(columns=VARIANTS[BEST][0], width=32, epochs=20))
    predicted = network.log_seconds(asked.features, asked.kernel, len(asked.seconds))
    assert np.median(np.abs(predicted - np.log(asked.seconds))) < 0.25
