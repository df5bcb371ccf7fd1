"""What a dense part may take that was read in part: the end of an interval, by hand."""

from dataclasses import replace
from math import exp

import pytest
from machines import topology
from plans import plan, table, workload

from costmodel.domain.dense_layers import num_products
from costmodel.domain.plan import ShardingPlan, ShardingType
from costmodel.domain.workload import DenseModel, Workload
from costmodel.kernels.gemm import gemm_estimate
from costmodel.step.synthesis import step_operations
from costmodel.uncertainty.error_model import NORMAL_90, Cause
from costmodel.uncertainty.step_samples import sample_steps
from costmodel.uncertainty.unread import is_dense_kernel, unread_spread, unread_time

RANKS = topology(2)
GPU = RANKS.hardware.gpu


def case(products: float) -> tuple[Workload, ShardingPlan]:
    """Return two tables, and layers that may have so many more products of a sample's."""
    work = workload(table("a"), table("b"))
    whole = ShardingType.TABLE_WISE
    placed = plan(work, RANKS, {"a": (whole, (0,)), "b": (whole, (1,))})
    dense = replace(work.dense, most_products=num_products(work) + products if products else 0.0)
    return replace(work, dense=dense), placed


@pytest.mark.parametrize(("products", "side"), [(2048.0**2, 2048), (16.0**2, 16), (47.0**2, 32)])
def test_it_is_three_products_of_what_is_on_top(products: float, side: int) -> None:
    """Sides are whole multiples of what rows are aligned to."""
    work, _ = case(products)
    one = gemm_estimate(work.local_batch_size, side, side, work.dense.precision, GPU)
    assert unread_time(work, GPU) == pytest.approx(3 * one.seconds)
    assert unread_time(case(15.9**2)[0], GPU) == 0.0


def test_fewer_products_than_timed_are_doubt_as_well() -> None:
    half = num_products(case(0.0)[0]) / 2
    more, fewer = case(half)[0], case(-half)[0]
    assert unread_time(fewer, GPU) == unread_time(more, GPU) > 0


def test_what_was_told_has_none() -> None:
    work, placed = case(0.0)
    assert work.dense.most_products == 0
    assert unread_time(work, GPU) == 0
    assert unread_spread(step_operations(work, RANKS, placed), 0.0) == 0


def test_the_end_of_its_interval_is_all_of_it() -> None:
    work, placed = case(2048.0**2)
    step = step_operations(work, RANKS, placed)
    timed = sum(float(op.seconds.max()) for op in step.ops if is_dense_kernel(op))
    spread = unread_spread(step, 3 * timed)
    assert exp(NORMAL_90 * spread) == pytest.approx(4.0)


def test_the_more_was_not_read_the_wider_is_the_interval() -> None:
    ratios, shares = [], []
    for products in (0.0, 8192.0**2, 65536.0**2):
        work, placed = case(products)
        sampled = sample_steps(work, RANKS, [placed])
        low, high = sampled.interval()
        ratios.append(high / low)
        shares.append(sampled.shares().get(Cause.UNREAD, 0.0))
        # what is predicted is not changed
        assert sampled.predicted[0] == sample_steps(*case(0.0)[:1], RANKS, [placed]).predicted[0]
    assert ratios == sorted(ratios)
    assert ratios[2] > 1.5 * ratios[0]
    assert shares[0] == 0.0
    assert shares[2] > 0.4


def test_most_products_of_a_dense_model_are_not_negative() -> None:
    with pytest.raises(ValueError, match="most_products must be at least 0"):
        DenseModel(most_products=-1.0)
