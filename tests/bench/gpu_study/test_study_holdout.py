from collections.abc import Sequence

import numpy as np
import pytest
from study_records import records

pytest.importorskip("sklearn")

from bench.gpu_study.correction import taught
from bench.gpu_study.holdout import CORRECTED, ROOFLINE, _folds, half_width, judged
from bench.gpu_study.points import TypedOperatorPoint
from bench.gpu_study.rooflines import Line, operator_bytes
from costmodel.domain.workload import DataType
from planner.calibration.records import Record

NAMES = ("relu", "sigmoid", "gelu", "add", "mul", "_softmax")
LINE = Line(operator_bytes, lambda point: point.operator)
POINTS = [
    TypedOperatorPoint(operator=op, num_elements=2**power, data_type=DataType.FP32)
    for power in range(10, 30)
    for op in NAMES
]


def bent(some: Sequence[Record]) -> list[Record]:
    """Records that no line has: 1.5 times the time from one size on, 0.8 from another."""
    return [
        Record(point=r.point, seconds={"operator": r.seconds["operator"] * _factor(_size(r))})
        for r in some
    ]


def _factor(size: int) -> float:
    return 1.0 if size < 2**18 else 1.5 if size < 2**25 else 0.8


def _size(record: Record) -> int:
    assert isinstance(record.point, TypedOperatorPoint)
    return record.point.num_elements


def groups(some: Sequence[Record]) -> list[int]:
    return [_size(record) for record in some]


def test_a_group_is_whole_in_one_fold() -> None:
    numbers = np.repeat(np.arange(17), 3)
    fold = _folds(numbers)
    assert len(set(fold)) == 5
    assert all(len(set(fold[numbers == number])) == 1 for number in range(17))


def test_the_right_model_misses_nothing_on_groups_held_out() -> None:
    some = records(POINTS)
    found = judged(LINE, some, groups(some))
    assert found is not None
    assert found.num_groups == 20
    assert found.models[ROOFLINE].errors.mape < 0.01
    assert found.models[ROOFLINE].width < 1.02


def test_a_correction_learns_what_the_roofline_lacks_and_wins() -> None:
    some = bent(records(POINTS))
    found = judged(LINE, some, groups(some))
    assert found is not None
    plain, learned = found.models[ROOFLINE].errors, found.models[CORRECTED].errors
    assert learned.mape < 0.8 * plain.mape
    assert found.better == CORRECTED


def test_intervals_cover_nine_of_ten_of_noisy_measurements() -> None:
    some = records(POINTS, noise=0.1)
    found = judged(LINE, some, groups(some))
    assert found is not None
    assert 0.82 <= found.models[ROOFLINE].coverage <= 0.97
    assert found.models[ROOFLINE].width == pytest.approx(np.exp(1.64 * 0.1), rel=0.1)


def test_two_groups_are_too_few() -> None:
    some = records(POINTS[:4])
    assert judged(LINE, some, [0, 0, 1, 1]) is None


def test_the_quantile_leaves_room_for_one_more() -> None:
    assert half_width(np.arange(1.0, 11.0)) == 10.0  # ceil(11 x 0.9) = 10 of 10
    assert half_width(np.arange(1.0, 20.0)) == 18.0  # ceil(20 x 0.9) = 18 of 19


def test_a_corrected_time_never_falls_with_size() -> None:
    corrected = LINE.fit(bent(records(POINTS, noise=0.2))).corrected
    for op in NAMES:
        row = [p for p in POINTS if p.operator == op]
        finer = [
            TypedOperatorPoint(
                operator=op, num_elements=p.num_elements + more, data_type=p.data_type
            )
            for p in row
            for more in range(0, p.num_elements, max(1, p.num_elements // 7))
        ]
        times = corrected(records(finer))["operator"]
        assert (np.diff(times) > 0).all()


def test_beyond_what_was_taught_the_correction_stays_what_it_was() -> None:
    rivals = taught(LINE.fit(records(POINTS)).roofline, bent(records(POINTS)))
    last = [TypedOperatorPoint(operator="relu", num_elements=2**p, data_type=DataType.FP32)
            for p in (31, 34, 40)]  # fmt: skip
    plain, corrected = rivals.roofline(records(last)), rivals.corrected(records(last))
    factors = corrected["operator"] / plain["operator"]
    assert factors == pytest.approx(factors[0], rel=1e-3)


def test_few_records_teach_nothing() -> None:
    some = bent(records(POINTS[:10], noise=0.2))
    rivals = LINE.fit(some)
    assert (rivals.corrected(some)["operator"] == rivals.roofline(some)["operator"]).all()
