"""The five models train on ranks as IterationTimePlanner plans them, and as unsharded ones do."""

import pytest

pytest.importorskip("torchrec", reason="torchrec is not installed")

from bench.dense_reading.reading import EXAMPLES
from bench.dense_steps.losses import difference, trained_on_ranks

NAMES = [
    pytest.param(each, marks=pytest.mark.nightly if each != "mmoe" else ()) for each in EXAMPLES
]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_model_trains_sharded_as_unsharded(name: str) -> None:
    trained = trained_on_ranks([name])[name]
    assert difference(trained) < 1e-5
    assert all("data_parallel" not in each for each in trained["shardings"].values())
    # the losses would tell if tables were not trained
    assert trained["frozen_tables"] != pytest.approx(trained["unsharded"], rel=2e-5)
