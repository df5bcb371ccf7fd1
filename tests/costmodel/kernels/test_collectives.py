from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import machine

from costmodel.base.units import GB, KIB, MB, MIB, US
from costmodel.domain.hardware import (
    CollectiveCurve,
    CollectiveOp,
    GemmEfficiency,
    Gpu,
    HardwareProfile,
    Host,
    Link,
    Source,
    Spine,
)
from costmodel.kernels.collectives import (
    RankGroup,
    bus_factor,
    collective_estimate,
    collective_form,
    collective_time,
    curve_time,
    link_form,
)

A2A, AR = CollectiveOp.ALL_TO_ALL, CollectiveOp.ALL_REDUCE
RS, AG = CollectiveOp.REDUCE_SCATTER, CollectiveOp.ALL_GATHER

NVLINK = Link(latency=10 * US, bandwidth=400 * GB)
NETWORK = Link(latency=20 * US, bandwidth=25 * GB)


def curve(op: CollectiveOp, num_ranks: int, **changes: object) -> CollectiveCurve:
    """10 us up to 64 KiB, then a bus bandwidth of 200 GB/s reached at 64 MiB."""
    large = 10 * US + bus_factor(op, num_ranks) * 64 * MIB / (200 * GB)
    knots = ((64 * KIB, 10 * US), (64 * MIB, large))
    made = CollectiveCurve(
        op=op, num_ranks=num_ranks, knots=knots, source=Source.FITTED, origin="by hand"
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def hardware(*curves: CollectiveCurve, inter_node: Link = NETWORK) -> HardwareProfile:
    gemm = GemmEfficiency(
        peak=1e14,
        max_efficiency=0.8,
        tile_efficiency=(1.0, 0.9, 0.5, 0.2),
        prologue_depth=100,
        split_time=US,
        l2_efficiency=0.5,
        memory_efficiency=0.9,
        latency=2 * US,
    )
    gpu = Gpu(
        name="gpu",
        memory_bytes=80e9,
        memory_bandwidth=2e12,
        l2_bytes=40e6,
        l2_bandwidth=4e12,
        num_sms=108,
        kernel_latency=2 * US,
        lookup_efficiency=0.9,
        update_efficiency=0.7,
        sort_rate=1e10,
        gemm={"fp32": gemm},
    )
    host = Host(
        memory_bytes=1e12,
        pcie_bandwidth=24e9,
        uvm_bandwidth=19e9,
        launch_time=5 * US,
        launch_latency=2 * US,
        op_time=20 * US,
        backward_op_time=20 * US,
        sync_time=7 * US,
    )
    return HardwareProfile(
        name="made up",
        gpu=gpu,
        host=host,
        gpus_per_node=8,
        curves=curves,
        intra_node=NVLINK,
        inter_node=inter_node,
        sources={},
    )


MEASURED = hardware(*(curve(op, n) for op in CollectiveOp for n in (2, 4, 8)))
sizes = st.floats(0, 1e11)
ops = st.sampled_from(CollectiveOp)
groups = st.builds(
    lambda nodes, local: RankGroup(num_ranks=nodes * local, ranks_per_node=local),
    st.integers(1, 8),
    st.integers(1, 16),
)


def test_bus_factor_by_hand() -> None:
    assert bus_factor(A2A, 4) == 3 / 4
    assert bus_factor(AR, 4) == 6 / 4


def test_the_time_of_a_link_by_hand() -> None:
    # 4 ranks: 3/4 of 1.6 GB at 400 GB/s is 3 ms, after 10 us of latency
    assert link_form(A2A, 4, NVLINK).time(1.6 * GB) == pytest.approx(3.010e-3)
    # all_reduce moves twice that, and climbs a tree of depth 2 up and down
    assert link_form(AR, 4, NVLINK).time(1.6 * GB) == pytest.approx(6.040e-3)


def test_interpolates_in_log_log() -> None:
    knots = ((1 * MIB, 10 * US), (4 * MIB, 40 * US))
    assert curve_time(curve(A2A, 4, knots=knots), 2 * MIB) == pytest.approx(20 * US)


def test_constant_below_the_first_knot_and_proportional_above_the_last() -> None:
    measured = curve(A2A, 4)
    assert curve_time(measured, 0) == pytest.approx(10 * US)
    assert curve_time(measured, 1 * KIB) == pytest.approx(10 * US)
    assert curve_time(measured, 640 * MIB) == pytest.approx(10 * measured.knots[-1][1])


def test_one_rank_talks_to_nobody() -> None:
    alone, pair = (RankGroup(num_ranks=count, ranks_per_node=8) for count in (1, 2))
    assert collective_time(A2A, 1 * GB, alone, MEASURED) == 0
    assert collective_estimate(A2A, 1 * GB, alone, MEASURED).bound_by == "nothing to send"
    assert collective_estimate(A2A, 1 * GB, pair, MEASURED).bound_by == "link bandwidth"


def test_nothing_to_send_still_costs_the_latency() -> None:
    group = RankGroup(num_ranks=8, ranks_per_node=8)
    assert collective_time(A2A, 0, group, MEASURED) == pytest.approx(10 * US)


def test_keeps_the_shape_of_the_sizes() -> None:
    group = RankGroup(num_ranks=16, ranks_per_node=8)
    times = collective_time(A2A, np.ones((3, 5)) * MB, group, MEASURED)
    assert times.shape == (3, 5)


def test_unmeasured_ranks_scale_by_bytes_per_peer() -> None:
    # the same 16 MiB per peer as 4 ranks at 64 MiB, whose wire time is 3/4 x 64 MiB / 200 GB/s;
    # 6 ranks send 5/6 of 96 MiB at the same bandwidth, with the same 10 us of latency
    only4 = hardware(curve(A2A, 4))
    expected = 10 * US + 5 / 6 * 96 * MIB / (200 * GB)
    group = RankGroup(num_ranks=6, ranks_per_node=6)
    assert collective_time(A2A, 96 * MIB, group, only4) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("measured_us", "num_ranks", "size", "expected_us"),
    [
        # latencies of 1 us per rank more: 8 us on four, 12 us on eight
        ({2: 6, 4: 8}, 8, 0, 12),
        # 8 us per rank less would be 8 us before the start: half the least measured one
        ({4: 8, 8: 40}, 2, 0, 4),
        # both are as near: the larger, of as many bytes per peer, beyond its latency 70 us for
        # 1 MiB, times 4 x 3/4 over 8 x 7/8
        ({2: 6, 8: 12}, 4, 512 * KIB, 8 + 70 * 3 / 7),
    ],
)
def test_latency_of_unmeasured_ranks_is_on_the_line_of_the_measured(
    measured_us: dict[int, float], num_ranks: int, size: float, expected_us: float
) -> None:
    curves = [
        curve(RS, ranks, knots=((1 * KIB, least * US), (1 * MIB, (least + 70) * US)))
        for ranks, least in measured_us.items()
    ]
    group = RankGroup(num_ranks=num_ranks, ranks_per_node=num_ranks)
    assert collective_time(RS, size, group, hardware(*curves)) == pytest.approx(expected_us * US)


def test_without_any_curve_the_link_decides() -> None:
    group = RankGroup(num_ranks=4, ranks_per_node=4)
    assert collective_time(A2A, 1.6 * GB, group, hardware()) == pytest.approx(3.010e-3)
    assert collective_estimate(A2A, 1.6 * GB, group, hardware()).source is Source.ASSUMED
    cited = replace(hardware(), kinds={"intra_node.bandwidth": Source.DATASHEET})
    assert collective_estimate(A2A, 1.6 * GB, group, cited).source is Source.DATASHEET


def test_across_nodes_an_estimate_rests_on_what_the_link_between_them_does() -> None:
    group = RankGroup(num_ranks=16, ranks_per_node=8)
    measured = replace(
        hardware(curve(A2A, 8, knots=((1 * KIB, 8 * US), (1 * MIB, 80 * US)))),
        kinds={"inter_node.bandwidth": Source.MEASURED, "intra_node.bandwidth": Source.DATASHEET},
    )
    assert collective_estimate(A2A, 1.6 * GB, group, measured).source is Source.MEASURED


@pytest.mark.parametrize("num_ranks", [4, 6])
def test_beside_curves_the_link_changes_nothing(num_ranks: int) -> None:
    # as the field's text says, which a profile's schema shows
    group, measured = RankGroup(num_ranks=num_ranks, ranks_per_node=num_ranks), curve(A2A, 4)
    slow = replace(hardware(measured), intra_node=Link(latency=1.0, bandwidth=1.0))
    times = [collective_time(A2A, MB, group, each) for each in (slow, hardware(measured))]
    assert times[0] == times[1]


@pytest.mark.parametrize(
    ("op", "network", "expected_us"),
    [
        # three quarters leave the node at 25 GB/s; a tree over 4 nodes has two steps of 20 us
        (A2A, 25 * GB, 2 * 20 + 3000),
        # an eighth of that on every port; all_reduce climbs the tree up and down
        (RS, 25 * GB, 2 * 20 + 375),
        (AG, 25 * GB, 2 * 20 + 375),
        (AR, 25 * GB, 4 * 20 + 750),
        # where the network is faster, what stays in the node counts, at 400 GB/s: 7/8 of a quarter,
        # and 7/8 of all of it
        (A2A, 1e6 * GB, 2 * 20 + 10 + 54.6875),
        (RS, 1e6 * GB, 2 * 20 + 10 + 218.75),
        (AR, 1e6 * GB, 4 * 20 + 60 + 437.5),
    ],
)
def test_four_nodes_by_hand(op: CollectiveOp, network: float, expected_us: float) -> None:
    """100 MB on 32 ranks, 8 to a node."""
    group = RankGroup(num_ranks=32, ranks_per_node=8)
    nodes = hardware(inter_node=replace(NETWORK, bandwidth=network))
    assert collective_time(op, 100 * MB, group, nodes) == pytest.approx(expected_us * US)


def test_one_rank_per_node_uses_the_network_only() -> None:
    # 2 ranks exchange half of 100 MB at 25 GB/s: 2 ms
    group = RankGroup(num_ranks=2, ranks_per_node=1)
    assert collective_time(A2A, 100 * MB, group, MEASURED) == pytest.approx(2.020e-3)


def test_a_curve_measured_across_nodes_wins() -> None:
    across = curve(A2A, 16, num_nodes=2, knots=((1 * KIB, 1e-3), (1 * MIB, 1e-3)))
    group = RankGroup(num_ranks=16, ranks_per_node=8)
    assert collective_time(A2A, 1 * KIB, group, hardware(across)) == pytest.approx(1e-3)


def test_says_what_bounds_it_and_whether_it_was_measured() -> None:
    node = RankGroup(num_ranks=8, ranks_per_node=8)
    small = collective_estimate(A2A, 64 * KIB, node, MEASURED)
    assert (small.bound_by, small.source, small.extrapolated) == (
        "link latency",
        Source.FITTED,
        False,
    )
    assert collective_estimate(A2A, 32 * MIB, node, MEASURED).bound_by == "link bandwidth"
    # 3/4 of 6 MB at 400 GB/s are 11 us, more than half of the latency
    four = RankGroup(num_ranks=4, ranks_per_node=4)
    assert collective_estimate(A2A, 6 * MB, four, hardware()).bound_by == "link bandwidth"
    assert collective_estimate(A2A, 2 * MB, four, hardware()).bound_by == "link latency"
    assert collective_estimate(A2A, 1 * GB, node, MEASURED).extrapolated
    assert collective_estimate(A2A, 1 * KIB, node, MEASURED).basis.origin == "fitted, extrapolated"
    assert collective_estimate(
        A2A, MIB, RankGroup(num_ranks=6, ranks_per_node=6), MEASURED
    ).extrapolated
    nodes = RankGroup(num_ranks=16, ranks_per_node=8)
    assert collective_estimate(A2A, 1 * GB, nodes, MEASURED).bound_by == "inter-node bandwidth"


def test_knots_beyond_what_was_measured_are_an_extrapolation() -> None:
    node = RankGroup(num_ranks=8, ranks_per_node=8)
    profile = hardware(curve(A2A, 8, last_measured=1 * MIB))
    assert not collective_estimate(A2A, 1 * MIB, node, profile).extrapolated
    assert collective_estimate(A2A, 2 * MIB, node, profile).extrapolated


def test_groups_must_fill_their_nodes() -> None:
    with pytest.raises(ValueError, match="evenly"):
        RankGroup(num_ranks=12, ranks_per_node=8)
    for count, per_node in ((0, 8), (8, 0)):
        with pytest.raises(ValueError, match="at least one rank"):
            RankGroup(num_ranks=count, ranks_per_node=per_node)


@given(op=ops, group=groups, size=sizes, factor=st.floats(0.01, 1))
def test_lower_bandwidth_is_never_faster(
    op: CollectiveOp, group: RankGroup, size: float, factor: float
) -> None:
    slow_link = replace(NETWORK, bandwidth=NETWORK.bandwidth * factor)
    slow = replace(MEASURED, inter_node=slow_link)
    assert collective_time(op, size, group, slow) >= collective_time(op, size, group, MEASURED)


def test_sizes_may_lie_apart_in_memory() -> None:
    measured = curve(A2A, 4)
    sizes = np.linspace(1.0, 100 * MIB, 12).reshape(3, 4)
    apart = curve_time(measured, sizes[:, ::2])
    assert apart.tolist() == curve_time(measured, sizes)[:, ::2].tolist()


SPINE = Spine(nodes=4, oversubscription=3.0)
"""Blocks of four nodes, with a third of the bandwidth beyond them."""


def across(op: CollectiveOp, group: RankGroup, spine: Spine | None) -> float:
    """Return the seconds beyond latency of 1 GB, where the network decides."""
    hardware = replace(machine(link=10_000 * GB), spine=spine)
    form = collective_form(op, group, hardware)
    return float(form.time(1 * GB)) - form.alpha


def test_what_leaves_a_block_of_nodes_is_slower() -> None:
    # 32 ranks on 8 nodes: 7/8 leave the node at 10 GB/s, half leave four nodes at a third of that
    group = RankGroup(num_ranks=32, ranks_per_node=4)
    op = CollectiveOp.ALL_TO_ALL
    assert across(op, group, None) == pytest.approx(7 / 8 / 10)
    assert across(op, group, SPINE) == pytest.approx(3 * 1 / 2 / 10)
    within = RankGroup(num_ranks=16, ranks_per_node=4)
    assert across(op, within, SPINE) == across(op, within, None)
    # every second node: two of them in a block, 3/4 of the bytes leave it
    apart = replace(group, node_stride=2)
    assert across(op, apart, SPINE) == pytest.approx(3 * 3 / 4 / 10)


def test_few_bytes_of_a_hierarchical_reduction_leave_a_block() -> None:
    # each of 16 ranks of a block has a sixteenth: 2 x 1/2 x 1/16, thrice as slow, and the
    # network in the block has 2 x 7/8 x 1/4 to move
    group = RankGroup(num_ranks=32, ranks_per_node=4)
    op = CollectiveOp.ALL_REDUCE
    assert across(op, group, SPINE) == across(op, group, None) == pytest.approx(7 / 16 / 10)
    narrow = replace(SPINE, oversubscription=14.0)
    assert across(op, group, narrow) == pytest.approx(14 / 16 / 10)


def test_a_spine_slows_nothing_down_that_it_makes_faster() -> None:
    with pytest.raises(ValueError, match="oversubscription of at least 1"):
        Spine(nodes=4, oversubscription=0.5)
