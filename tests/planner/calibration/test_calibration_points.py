from calibration_cases import TARGET

from planner.calibration.grids import Grid, grid_points
from planner.calibration.points import Family, point_data, point_key, read_point

POINTS = grid_points(Grid.QUICK, TARGET)


def test_every_point_reads_back_as_written() -> None:
    for points in POINTS.values():
        for point in points:
            assert read_point(point.family, point_data(point)) == point


def test_no_two_points_have_the_same_key() -> None:
    keys = [point_key(point) for points in POINTS.values() for point in points]
    assert len(set(keys)) == len(keys)


def test_families_come_in_the_order_they_are_measured() -> None:
    assert tuple(POINTS) == tuple(Family)
