from dataclasses import replace

import pytest
from calibration_cases import TARGET

from costmodel.domain.workload import DataType
from planner.calibration.grids import Grid, Target, grid_points
from planner.calibration.order import in_rounds, in_turn, ordered_families, spread
from planner.calibration.points import CollectivePoint, Family, GemmPoint, StreamPoint

GPU = replace(TARGET, on_cpu=False, data_types=(DataType.FP32, DataType.FP16), has_fp8=True)


@pytest.mark.parametrize("target", [TARGET, GPU])
def test_the_first_round_has_the_least_that_a_profile_needs(target: Target) -> None:
    grid = grid_points(Grid.FULL, target)
    first, more = in_rounds(ordered_families(grid, on_cpu=target.on_cpu))
    points = [point for unit in first for point in unit]
    assert len(points) < 200
    sizes = {p.num_bytes for p in points if isinstance(p, StreamPoint)}
    assert len(sizes) == 5
    even = [p for p in points if isinstance(p, CollectivePoint) and not p.focus]
    assert {sum(p.op is each.op for p in even) for each in even} == {10}
    products = [(p.data_type, p.num_products > 1) for p in points if isinstance(p, GemmPoint)]
    asked = {
        (p.data_type, p.num_products > 1) for p in grid[Family.GEMM] if isinstance(p, GemmPoint)
    }
    assert {products.count(kind) for kind in asked} == {4}
    every = [*points, *(point for unit in more for point in unit)]
    assert len(every) == len(set(every)) == sum(map(len, grid.values()))


def test_the_first_few_are_spread_and_groups_take_turns() -> None:
    assert list(spread(range(8))) == [0, 4, 2, 6, 1, 5, 3, 7]
    assert sorted(spread(range(11))) == list(range(11))
    assert list(in_turn(["ab", "c", "def"])) == ["a", "c", "d", "b", "e", "f"]
