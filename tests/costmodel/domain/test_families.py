from dataclasses import replace

import pytest
from machines import PLAIN_GEMM, flat_curve, machine
from plans import table

from costmodel.domain.families import SINGLE_NUMBERS, is_lookup_covered, kernel_families
from costmodel.domain.hardware import CollectiveOp, HardwareProfile, KernelFamily, Source
from costmodel.domain.workload import Optimizer
from costmodel.kernels.embedding import embedding_estimate
from planner.files.profiles import load_profile, profile_names

LOOKUPS = KernelFamily(
    source=Source.ROOFLINE,
    origin="made up",
    num_points=3,
    error=0.1,
    ranges={"lookups": (1000.0, 2000.0), "embedding_dim": (64.0, 64.0)},
)
BOTH = {"embedding_forward": LOOKUPS, "embedding_backward": replace(LOOKUPS, num_points=0)}


def profile() -> HardwareProfile:
    pair = replace(flat_curve(CollectiveOp.ALL_TO_ALL, 2), num_points=10, error=0.02)
    many = replace(flat_curve(CollectiveOp.ALL_TO_ALL, 8), num_points=30, error=0.04)
    derived = flat_curve(CollectiveOp.ALL_TO_ALL, 16)
    return replace(machine(curves=(pair, many, derived)), families=BOTH)


def test_a_collective_sums_up_its_measured_curves() -> None:
    family = kernel_families(profile())["all_to_all"]
    assert (family.num_points, family.error) == (40, pytest.approx(0.03))
    assert family.ranges == {"num_ranks": (2.0, 8.0), "num_bytes": (2.0**10, 2.0**30)}


def test_products_without_measurements_have_no_points() -> None:
    measured = replace(PLAIN_GEMM, num_points=5, shapes=((1, 2), (3, 4), (5, 6)))
    machine_ = profile()
    gpu = replace(machine_.gpu, gemm={"fp32": PLAIN_GEMM, "bf16": measured})
    families = kernel_families(replace(machine_, gpu=gpu))
    assert families["gemm.fp32"].num_points == 0
    assert families["gemm.bf16"].ranges == {"m": (1, 2), "n": (3, 4), "k": (5, 6)}


def test_what_rests_on_one_number_says_where_it_is_from() -> None:
    sources = {
        "intra_node.bandwidth": "300 GB/s",
        "host.op_time": "as elsewhere",
        "host.pcie_bandwidth": "fastest of 13 copies, twice what is assumed",
        "gpu.gemm.fp32": "as bf16",
    }
    kinds = {"intra_node.bandwidth": Source.DATASHEET, "host.op_time": Source.ASSUMED}
    families = kernel_families(replace(machine(), sources=sources, kinds=kinds))
    named = {name: (family.source, family.num_points) for name, family in families.items()}
    assert named["all_reduce"] == (Source.DATASHEET, 0)
    assert named["host"] == (Source.ASSUMED, 0)
    assert named["memory_copy"] == (Source.MEASURED, 1)
    assert named["memory_bound"] == (Source.ROOFLINE, 0)
    assert named["gemm.fp32"] == (Source.DATASHEET, 0)
    assert families["inter_node"].origin == "not said"
    assert named["inter_node"] == (Source.ASSUMED, 0)


def test_constants_carried_over_are_not_fitted_though_they_were_checked() -> None:
    checked = replace(PLAIN_GEMM, num_points=5, shapes=((1, 2), (3, 4), (5, 6)))
    carried = replace(checked, kind=Source.DATASHEET)
    machine_ = machine()
    gpu = replace(machine_.gpu, gemm={"fp32": carried, "bf16": checked})
    families = kernel_families(replace(machine_, gpu=gpu))
    assert families["gemm.fp32"].source is Source.DATASHEET
    assert families["gemm.bf16"].source is Source.FITTED


@pytest.mark.parametrize("name", profile_names())
def test_every_shipped_profile_lists_every_family_with_a_source(name: str) -> None:
    profile = load_profile(name)
    families = kernel_families(profile)
    assert {*CollectiveOp, *SINGLE_NUMBERS} <= families.keys()
    assert all(family.origin and family.origin != "not said" for family in families.values())
    # what was fitted says how far off it was, but for single numbers
    single = SINGLE_NUMBERS.keys() - profile.families.keys()
    fitted = [
        family
        for name in families.keys() - single
        if (family := families[name])
        if family.source is Source.FITTED
    ]
    assert all(family.num_points and family.error is not None for family in fitted)


def test_families_cover_what_lies_between_their_measurements() -> None:
    assert LOOKUPS.covers(lookups=1000.0, embedding_dim=64.0)
    assert not LOOKUPS.covers(lookups=2001.0)
    assert not replace(LOOKUPS, num_points=0).covers(lookups=1500.0)


@pytest.mark.parametrize(
    ("lookups", "columns", "covered"),
    [(1500.0, (), True), (1500.0, (64, 64), True), (1500.0, (64, 128), False), (1.0, (), False)],
)
def test_lookups_are_covered_by_number_and_width(
    lookups: float, columns: tuple[int, ...], *, covered: bool
) -> None:
    machine_ = profile()
    found = is_lookup_covered(machine_, backward=False, lookups=lookups, columns=columns)
    assert found is covered
    assert not is_lookup_covered(machine_, backward=True, lookups=lookups)
    assert not is_lookup_covered(machine(), backward=False, lookups=lookups)


def test_an_estimate_of_a_lookup_says_whether_it_was_measured() -> None:
    one = table("a", ids=1.0)
    forward, backward = embedding_estimate(
        (one,), num_samples=1500, optimizer=Optimizer.SGD, hardware=profile()
    )
    assert forward.basis.origin == "roofline"
    assert backward.basis.origin == "roofline, extrapolated"
