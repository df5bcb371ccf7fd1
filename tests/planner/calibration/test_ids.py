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


def test_a_histogram_by_hand() -> None:
    # 7 once, 8 twice, 9 four times, 10 five times: bins 1, 2, 3-4, 5-8
    hit = torch.tensor([7, 8, 8, *[9] * 4, *[10] * 5])
    distinct, shares = ids.reuse_histogram(hit)
    assert distinct == 4
    assert shares[:5] == [0.25, 0.25, 0.25, 0.25, 0.0]
    assert len(shares) == 17


def test_no_ids_no_histogram() -> None:
    assert ids.reuse_histogram(torch.tensor([], dtype=torch.int64)) == (0, [0.0] * 17)
