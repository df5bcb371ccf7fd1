"""Normal numbers by name."""

import numpy as np
import pytest

from costmodel.domain.hardware import Topology
from costmodel.uncertainty.sampling import Draws
from planner.examples import example_hardware


def test_draws_are_standard_normal_whatever_their_number() -> None:
    for count in (16, 256):
        values = Draws(num_samples=count).normal("x")
        assert values.mean() == pytest.approx(0.0, abs=1e-12)
        assert values.std() == pytest.approx(1.0)


@pytest.mark.parametrize(("ranks", "count"), [(8, 256), (1024, 256), (4096, 64)])
def test_steps_of_many_ranks_have_fewer_samples(ranks: int, count: int) -> None:
    topology = Topology(hardware=example_hardware(), world_size=ranks, local_world_size=8)
    assert len(Draws.of(topology).normal("any")) == count
    assert len(Draws.of(topology, 32).normal("any")) == 32


def test_a_name_always_gives_the_same_numbers() -> None:
    assert (Draws().normal("x") == Draws().normal("x")).all()


def test_names_are_independent() -> None:
    draws = Draws()
    values = np.stack([draws.normal(str(index)) for index in range(20)])
    off_diagonal = np.corrcoef(values) - np.eye(20)
    assert np.abs(off_diagonal).max() < 0.25
    assert np.abs(off_diagonal).mean() < 0.07


def test_smooth_draws_change_a_little_over_a_little() -> None:
    draws = Draws()

    def correlation(distance: float) -> float:
        pair = draws.smooth("x", 3.2), draws.smooth("x", 3.2 + distance)
        return float(np.corrcoef(*pair)[0, 1])

    assert correlation(0.1) > 0.95
    assert 0.5 < correlation(0.5) < correlation(0.1)
    assert abs(correlation(2.0)) < 0.2
    assert draws.smooth("x", 3.5).std() == pytest.approx(1.0, rel=0.1)


def test_smooth_draws_are_the_named_ones_at_whole_numbers() -> None:
    draws = Draws()
    assert draws.smooth("x", 3.0) == pytest.approx(draws.normal("x 3"))
