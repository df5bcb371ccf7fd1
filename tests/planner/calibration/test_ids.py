import pytest

from costmodel.inputs.distribution import Zipf, unique_curve

torch = pytest.importorskip("torch")
ids = pytest.importorskip("planner.calibration.ids")


def _generator(seed: int = 0) -> object:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("zipf", [0.0, 0.5, 1.0, 1.2])
@pytest.mark.parametrize("rows", [300, 200_000])
def test_distinct_ids_are_those_of_the_law(rows: int, zipf: float) -> None:
    drawn = ids.draw_ids(40_000, rows, zipf, _generator())
    assert 0 <= int(drawn.min()) <= int(drawn.max()) < rows
    expected = unique_curve(Zipf(exponent=zipf), rows).unique_rows(40_000)
    assert len(torch.unique(drawn)) == pytest.approx(expected, rel=0.03)


def test_lengths_have_the_pooling_factor_as_mean() -> None:
    for pooling in (0.1, 3.0, 7.4):
        lengths = ids.draw_lengths(20_000, pooling, _generator())
        assert float(lengths.double().mean()) == pytest.approx(pooling, rel=0.05)
        assert int(lengths.max() - lengths.min()) <= 1
