"""What recorded ids say, by hand and against other ways to count."""

from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from costmodel.inputs.distribution import UniqueFraction, Zipf, lookup_share, unique_curve
from planner.inspection.asked import Asked
from planner.inspection.block_ids import Ids
from planner.inspection.counter import RankBatches, counter_of
from planner.inspection.kinds import Kind, kind_of
from planner.inspection.recorded import Arrays
from planner.inspection.samples import FeatureSample, RecordedIds
from planner.inspection.statistics import (
    LARGEST_ERROR,
    TableObservation,
    length_spread,
    observe,
    rows_of,
)


def observed(
    *features: object, batch_samples: int | None = None, num_embeddings: int | None = None
) -> TableObservation:
    """Return what is said of a table of features, each ids, or ids and lengths."""
    made = []
    for place, given in enumerate(features):
        ids, lengths = given if isinstance(given, tuple) else (given, None)
        array = np.asarray(ids)
        each = np.ones(len(array), int) if lengths is None else np.asarray(lengths)
        made.append(FeatureSample(name="abc"[place], ids=array, lengths=each))
    names = tuple(feature.name for feature in made)
    asked = Asked(
        share={"x": names},
        batch_samples=batch_samples,
        rows={"x": num_embeddings} if num_embeddings else {},
    )
    recorded = Arrays("log", RecordedIds(features=tuple(made)), asked)
    counter = counter_of(recorded, asked, {"x": names}, None)
    counter.count(recorded, batch_samples or recorded.num_rows, None)
    facts = tuple(counter.facts[name] for name in names)
    counts = counter.tables["x"]
    spectrum = counts.log.spectrum()
    kind = kind_of(facts[0], spectrum)
    largest = max(each.largest for each in facts)
    rows = rows_of(kind[0], largest, spectrum, given=num_embeddings, hashed=None)
    return observe("x", counts, facts, spectrum, kind=kind, rows=rows)


def draw(exponent: float, rows: int, lookups: int, *, hashed: bool = True) -> NDArray[np.int64]:
    random = np.random.default_rng(3)
    weights = np.arange(1, rows + 1) ** -exponent
    ids = random.choice(rows, size=lookups, p=weights / weights.sum())
    return random.permutation(rows)[ids] if hashed else ids


def test_by_hand() -> None:
    # 4 samples, 8 ids; 7 is hit 4 times, 2 twice, 0 and 9 once
    table = observed(([7, 7, 2, 7, 2, 7, 0, 9], [3, 0, 4, 1]))
    assert (table.pooling_factor, table.longest_bag) == (2.0, 4)
    assert table.num_embeddings == 10
    assert (table.unique_rows, table.unique_fraction) == (4.0, 0.5)
    assert table.reuse_rows == (2.0, 1.0, 1.0, *(0.0,) * 14)
    assert [(row.id, row.lookup_share) for row in table.hot_rows[:2]] == [(7, 0.5), (2, 0.25)]
    assert table.half_rows == 1
    assert table.inputs.row_shares == (0.5, 0.25, 0.25)
    assert table.inputs.mean_hits == (1.0, 2.0, 4.0)


def test_reuse_is_counted_within_each_batch() -> None:
    # 1 and 2 in both batches: 2 distinct rows in each, hit once and twice
    table = observed([1, 2, 2, 1, 1, 2], batch_samples=3)
    assert (table.num_lookups, table.unique_rows) == (3.0, 2.0)
    assert table.reuse_rows[:2] == (1.0, 1.0)


def test_a_batch_has_as_many_samples_as_it_is_said_to_have() -> None:
    # the last two of five samples are no whole batch of three
    table = observed([1, 1, 2, 3, 3], batch_samples=3)
    assert (table.num_batches, table.num_lookups, table.unique_rows) == (1, 3.0, 2.0)
    assert (table.pooling_factor, table.num_embeddings) == (1.0, 4)


def test_ids_that_are_in_no_whole_batch_are_one() -> None:
    table = observed(([1, 1, 2], [0, 0, 3]), batch_samples=2)
    assert (table.num_batches, table.num_lookups, table.unique_rows) == (1, 3.0, 2.0)


@pytest.mark.parametrize("kind", ["uint8", "uint64"])
def test_lengths_may_be_of_any_whole_numbers(kind: str) -> None:
    table = observed(([1, 1, 2, 2], np.array([1, 3], kind)), batch_samples=1)
    assert (table.num_batches, table.num_lookups, table.unique_rows) == (2, 2.0, 1.5)


def test_features_of_a_table_share_its_rows() -> None:
    table = observed([1, 2], ([2, 3, 3, 3], [2, 2]))
    assert table.feature_names == ("a", "b")
    assert table.pooling_factor == 3.0
    assert table.unique_rows == 3.0


def test_large_counts_are_exact() -> None:
    ids = draw(1.2, 5000, 300_000)
    table = observed(ids, num_embeddings=5000)
    hits = Counter(Counter(ids.tolist()).values())
    for bin_, (least, most) in enumerate([(1, 1), (2, 2), (3, 4), (5, 8), (9, 16)]):
        assert table.reuse_rows[bin_] == sum(
            rows for hit, rows in hits.items() if least <= hit <= most
        )
    curve = unique_curve(table.inputs, 5000)
    assert curve.unique_rows(300_000) == pytest.approx(table.unique_rows, rel=2e-3)


@pytest.mark.parametrize("exponent", [0.6, 1.05, 1.4])
def test_a_zipf_law_is_recognised(exponent: float) -> None:
    table = observed(draw(exponent, 20_000, 100_000), num_embeddings=20_000)
    assert table.zipf.exponent == pytest.approx(exponent, abs=4 * table.zipf.standard_error)
    assert table.zipf.histogram_error < 0.03
    assert abs(table.order_effect) < 0.02
    assert table.inputs_as("zipf") == Zipf(exponent=table.zipf.exponent)
    assert table.inputs_as("unique_fraction") == UniqueFraction(
        fraction=table.unique_fraction, num_lookups=100_000
    )


def test_even_ids_are_taken_as_hashed() -> None:
    table = observed(draw(0.0, 20_000, 200_000), num_embeddings=20_000)
    assert table.skew < 1.05
    assert not table.inputs.range_lookups


@pytest.mark.parametrize("ranks", [2, 8, 16])
def test_hot_first_rows_keep_their_ranges(ranks: int) -> None:
    ids = draw(1.05, 20_000, 100_000, hashed=False)
    table = observed(ids, num_embeddings=20_000)
    block = 20_000 // ranks
    for rank in range(ranks):
        mine = ids[ids // block == rank]
        share = lookup_share(table.inputs, 20_000, rank * block, block)
        assert share == pytest.approx(len(mine) / len(ids), abs=1e-3)
        unique = unique_curve(table.inputs, 20_000, rank * block, block).unique_rows(100_000)
        assert unique == pytest.approx(len(np.unique(mine)), rel=0.02)
    assert table.skew == pytest.approx(8 * np.mean(ids < 2500))


def test_ids_of_one_time_that_resemble_each_other_are_noticed() -> None:
    # the first half of the batch knows only half of the rows
    random = np.random.default_rng(0)
    ids = np.concatenate([random.integers(0, 1000, 4000), random.integers(1000, 2000, 4000)])
    assert observed(ids).order_effect > 0.5


def test_the_spread_of_batches_counts_lengths_that_go_together() -> None:
    # eight batches of two samples, 2 ids and 6 in turns: mean 4, deviation sqrt(8 / 7) 2
    lengths = np.array([1, 1, 3, 3] * 4)
    ids = np.zeros(lengths.sum(), int)
    feature = Ids(keys=ids, lengths=lengths)
    for features in ([feature], [feature, feature]):
        ranks = RankBatches(2)
        ranks.take(features, 16)
        assert length_spread(ranks.ids) == pytest.approx(np.sqrt(8 / 7) / 2)
    few = RankBatches(3)
    few.take([feature], 16)
    assert length_spread(few.ids) is None
    assert observed((ids, lengths), (ids, lengths)).pooling_std == 2.0


def test_batches_of_ranks_go_over_the_ends_of_blocks() -> None:
    whole, parts = RankBatches(4), RankBatches(4)
    lengths = np.arange(40) % 7
    ids = np.zeros(lengths.sum(), int)
    whole.take([Ids(keys=ids, lengths=lengths)], 40)
    for start in range(0, 40, 10):
        part = lengths[start : start + 10]
        parts.take([Ids(keys=ids[: part.sum()], lengths=part)], 10)
    assert parts.ids.std() == pytest.approx(whole.ids.std())
    assert parts.ids.number == whole.ids.number == 10


def test_ids_that_are_no_rows_are_counted_as_their_distinct_ones() -> None:
    # 2^62 and 2^61 are beyond the rows of any table: 3 distinct ids; two seen once make
    # 2 x 1 / (2 x 1) = 1 unseen one at least
    table = observed([2**62, 2**61, 2**62, 5, 2**62])
    assert table.kind is Kind.RAW
    assert (table.num_distinct, table.num_unseen, table.num_embeddings) == (3, 1, 4)
    assert (table.largest_id, table.coverage) == (2**62, pytest.approx(0.6))
    assert (table.hot_rows[0].id, table.hot_rows[0].lookup_share) == (2**62, 0.6)
    assert table.inputs.range_lookups == ()


def test_rows_come_from_the_largest_id_or_what_was_said() -> None:
    assert observed([5, 9]).num_embeddings == 10
    assert observed([5, 9], num_embeddings=100).num_embeddings == 100


def test_batches_differ_by_what_resampling_says() -> None:
    # of 200 batches of 50 samples from 100 even rows: the deviation of a mean, by the batches
    ids = np.random.default_rng(0).integers(0, 100, 10_000)
    table = observed(ids, batch_samples=50)
    unique = [len(np.unique(part)) for part in ids.reshape(200, 50)]
    low, high = table.unique_interval
    assert low < table.unique_rows < high
    deviation = np.std(unique, ddof=1) / np.sqrt(200)
    assert high - low == pytest.approx(2 * 1.645 * deviation, rel=0.1)
    assert observed(ids[:150], batch_samples=50).unique_interval is None


def test_an_exponent_that_the_hits_do_not_tell_is_none() -> None:
    # 1,000 of 2^30 rows, once each: so it is under any law that has no hot rows
    table = observed(np.arange(1000) * 2**20, num_embeddings=2**30)
    assert table.zipf is None
    told = observed(draw(1.2, 10_000, 5_000), num_embeddings=10_000)
    assert told.zipf is not None
    assert told.zipf.standard_error < LARGEST_ERROR
