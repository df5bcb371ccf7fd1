"""What numbers of machines are allowed, and what follows from them."""

from dataclasses import replace

import pytest
from machines import flat_curve, gpu, topology

from costmodel.domain.hardware import (
    Bound,
    CollectiveOp,
    Device,
    KernelFamily,
    Link,
    Source,
    Topology,
)


def test_the_memory_that_bounds_a_kernel_has_its_device_s_name() -> None:
    assert Bound.HBM_BANDWIDTH.on(Device.CUDA) is Bound.HBM_BANDWIDTH
    assert Bound.HBM_BANDWIDTH.on(Device.CPU) == "memory bandwidth"
    assert Bound.L2_BANDWIDTH.on(Device.CPU) is Bound.L2_BANDWIDTH


def test_a_family_covers_what_lies_within_all_its_ranges_ends_included() -> None:
    made = KernelFamily(
        source=Source.FITTED, origin="", num_points=1, ranges={"a": (1.0, 2.0), "b": (3.0, 4.0)}
    )
    assert made.covers(a=1.0, b=4.0)
    assert made.covers(a=2.0, b=3.0)
    for a, b in ((0.9, 3.0), (2.1, 3.0), (1.0, 2.9), (1.0, 4.1)):
        assert not made.covers(a=a, b=b)
    assert not replace(made, num_points=0).covers(a=1.0, b=3.0)


@pytest.mark.parametrize(
    ("latency", "bandwidth", "allowed"),
    [(0.0, 1e-9, True), (-1e-9, 1.0, False), (0.0, 0.0, False)],
)
def test_a_link_has_a_bandwidth(*, latency: float, bandwidth: float, allowed: bool) -> None:
    if allowed:
        assert Link(latency=latency, bandwidth=bandwidth).bandwidth == bandwidth
    else:
        with pytest.raises(ValueError, match="a link needs"):
            Link(latency=latency, bandwidth=bandwidth)


@pytest.mark.parametrize(
    "knots",
    [
        (), ((0.0, 1.0),), ((1.0, 0.0),),
        ((1.0, 1.0), (1.0, 2.0)), ((2.0, 1.0), (1.0, 2.0)), ((1.0, 2.0), (2.0, 1.0)),
    ],
)  # fmt: skip
def test_knots_of_a_curve_are_above_0_and_grow(knots: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(ValueError, match="knots"):
        replace(flat_curve(CollectiveOp.ALL_TO_ALL, 4), knots=knots)


def test_a_curve_covers_what_was_measured() -> None:
    made = replace(flat_curve(CollectiveOp.ALL_TO_ALL, 4), knots=((0.5, 1.0), (8.0, 1.0)))
    assert [made.covers(size) for size in (0.4, 0.5, 8.0, 8.1)] == [False, True, True, False]
    assert [replace(made, last_measured=4.0).covers(size) for size in (4.0, 4.1)] == [True, False]


def test_one_multiprocessor_is_a_core() -> None:
    assert [replace(gpu(), num_sms=count).is_core for count in (1, 2)] == [True, False]


def test_ranks_fill_their_nodes() -> None:
    assert [topology(4, local).num_nodes for local in (1, 2, 4)] == [4, 2, 1]
    for world, local in ((0, 1), (1, 0), (4, 3), (2, 4), (4097, 1)):
        with pytest.raises(ValueError, match="world_size"):
            Topology(hardware=topology(1).hardware, world_size=world, local_world_size=local)
    assert topology(4096, 8).num_nodes == 512


def test_what_is_withheld_is_told_of_every_rank() -> None:
    for withheld, uniform in (((), True), ((0.0, 0.0), True), ((0.0, 1.0), False)):
        assert replace(topology(2), withheld_bytes=withheld).is_uniform == uniform
    for wrong in ((1.0,), (0.0, -1e-9)):
        with pytest.raises(ValueError, match="withheld_bytes"):
            replace(topology(2), withheld_bytes=wrong)
