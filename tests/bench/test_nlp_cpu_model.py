from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.nlp.cpu_model import (
    CpuCollective,
    CpuHost,
    CpuModel,
    CpuProfile,
    InStep,
    MatrixTimes,
    OperatorTimes,
)
from bench.nlp.kernel_calls import KernelCall
from costmodel.domain.hardware import Source
from costmodel.operators.products import Product

CURVE = OperatorTimes(
    elements=(100, 10_000), seconds=(1e-6, 1e-4), far_seconds=(2e-6, 3e-4), run_time=1e-9
)
HOST = CpuHost(
    python_call_time=0, dispatch_time=0, function_time=0, accumulation_time=0, step_time=0
)


def call(name: str, *, reuse: tuple[tuple[float, float], ...] = ()) -> KernelCall:
    return KernelCall(
        operator=name,
        num_elements=100,
        num_runs=1,
        num_bytes=800,
        read_bytes=sum(size for size, _ in reuse),
        reuse=reuse,
    )


def model(**operators: OperatorTimes) -> CpuModel:
    return CpuModel(
        CpuProfile(
            name="core",
            source="made up",
            near_bytes=1e3,
            far_bytes=1e6,
            products={},
            operators={f"aten::{name}": times for name, times in operators.items()},
            host=HOST,
        )
    )


def test_between_knots_the_curve_is_straight_in_logarithms() -> None:
    # halfway from 100 to 10,000 in the logarithm: halfway from 1 to 100 us
    assert CURVE.time(1_000) == pytest.approx(1e-5)


def test_beyond_the_knots() -> None:
    assert CURVE.time(1) == pytest.approx(1e-6)
    assert CURVE.time(30_000) == pytest.approx(3e-4)
    assert not CURVE.covers(30_000)


def test_runs_cost_extra() -> None:
    assert CURVE.time(100, 50) == pytest.approx(1e-6 + 50e-9)


def test_far_operands_take_longer() -> None:
    assert CURVE.time(100, far=1.0) == pytest.approx(2e-6)
    assert CURVE.time(100, far=0.5) == pytest.approx(1.5e-6)


@given(st.floats(1, 1e7), st.floats(1, 1e7), st.floats(0, 1.5))
def test_more_elements_never_take_less(a: float, b: float, far: float) -> None:
    less, more = sorted((a, b))
    assert CURVE.time(less, far=far) <= CURVE.time(more, far=far) * (1 + 1e-12)


def test_products_by_hand() -> None:
    times = MatrixTimes(
        call_time=1e-6, product_time=1e-7, flop_time=1e-11, byte_time=1e-10, far_byte_time=1e-10
    )
    product = Product(count=2, m=10, n=10, k=10)
    made = KernelCall(
        operator="aten::bmm",
        num_elements=600,
        num_runs=1,
        num_bytes=2400,
        product=product,
    )
    # 1 us a call, 0.2 us for two products, 4,000 FLOP at 100 GFLOP/s, 2,400 bytes at 10 GB/s
    assert times.time(made) == pytest.approx(1e-6 + 2e-7 + 4e-8 + 2.4e-7)
    assert times.time(made, far=1.0) == pytest.approx(1e-6 + 2e-7 + 4e-8 + 4.8e-7)


def test_distance_decides_how_far_operands_are() -> None:
    near, halfway, far = (
        model(relu=CURVE).kernel(call("aten::relu", reuse=((400, d),)))
        for d in (10, 10**4.5, float("inf"))
    )
    assert near is not None
    assert halfway is not None
    assert far is not None
    assert near.seconds == pytest.approx(1e-6, rel=1e-2)
    assert halfway.seconds == pytest.approx(1.5e-6, rel=1e-2)
    assert far.seconds == pytest.approx(2e-6, rel=1e-2)
    assert near.source is Source.MEASURED


def test_an_operator_in_place_stands_in_for_its_twin() -> None:
    assert model(mul_=CURVE).kernel(call("aten::mul")) is not None
    assert model(mul=CURVE).kernel(call("aten::mul_")) is not None


def test_what_was_not_measured_is_not_known() -> None:
    assert model(mul=CURVE).kernel(call("aten::erf")) is None


def test_work_of_a_collective_is_at_most_its_time() -> None:
    reduced = CpuCollective(num_ranks=2, sizes=(1e3, 1e6), seconds=(1e-4, 1e-3), work=(2e-4, 5e-4))
    assert reduced.work_time(1e3) == reduced.time(1e3) == pytest.approx(1e-4)
    assert reduced.work_time(1e6) == pytest.approx(5e-4)


@pytest.mark.parametrize("sizes", [(), (2.0, 1.0), (1.0, 1.0), (0.0, 1.0)])
def test_refuses_curves_that_do_not_grow(sizes: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="as many times as sizes"):
        OperatorTimes(elements=sizes, seconds=(1e-6,) * len(sizes))


def test_within_a_step_kernels_take_a_share_longer() -> None:
    alone = model(relu=CURVE)
    within = CpuModel(replace(alone.profile, in_step=InStep(operators=1.5, products=2.0)))
    before, after = alone.kernel(call("aten::relu")), within.kernel(call("aten::relu"))
    assert before is not None
    assert after is not None
    assert after.seconds == pytest.approx(1.5 * before.seconds)
    with pytest.raises(ValueError, match="must take"):
        InStep(products=0.0)
