from pathlib import Path
from statistics import fmean

import pytest
from calibration_cases import FACTS, lookups

from costmodel.base.errors import InputError
from planner.calibration.points import StreamOp, StreamPoint
from planner.calibration.records import (
    MeasurementJournal,
    Record,
    joined_record,
    keys,
    read_measurements,
)


def test_what_was_appended_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    records = lookups(3)
    journal = MeasurementJournal(path, FACTS)
    for record in records:
        journal.append(record)
    again = read_measurements(path)
    assert again is not None
    assert list(again.records) == records
    assert again.machine == FACTS


def test_a_line_that_was_cut_off_is_left_out_and_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    first, second = lookups(2)
    MeasurementJournal(path, FACTS).append(first)
    path.write_text(path.read_text() + second.line()[:40])
    again = read_measurements(path)
    assert again is not None
    assert keys(again.records) == keys([first])
    MeasurementJournal(path, FACTS).append(second)
    whole = read_measurements(path)
    assert whole is not None
    assert keys(whole.records) == keys([first, second])


SPOILT = (
    b"\xff\xfe", b"[1]", b"7", b"", b'{"family": "gemm"}', b'{"family": [], "point": {}}',
    b'{"family": "stream", "point": {"op": "copy", "num_bytes": 1}, "seconds": 3}',
    b'{"family": "stream", "point": {"op": "copy", "num_bytes": 1}, "seconds": {"copy": -1}}',
    b'{"family": "stream", "point": {"op": "copy", "num_bytes": 1}, "seconds": {"copy": 1e999}}',
    b'{"family": "stream", "point": {"op": "copy", "num_bytes": 1e30}, "seconds": {"copy": 1}}',
    b'{"family": "gemm", "point": {"m": 1, "n": 1, "k": 1, "data_type": "fp32"}, "seconds": {}}',
    b"9" * 5000,
)  # fmt: skip


@pytest.mark.parametrize("line", SPOILT)
def test_a_spoilt_line_in_the_middle_costs_that_line(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "mine.jsonl"
    first, second = lookups(2)
    journal = MeasurementJournal(path, FACTS)
    journal.append(first)
    path.write_bytes(path.read_bytes() + line + b"\n")
    journal.append(second)
    again = read_measurements(path)
    assert again is not None
    assert list(again.records) == [first, second]


def test_no_file_has_no_measurements(tmp_path: Path) -> None:
    assert read_measurements(tmp_path / "none.jsonl") is None


@pytest.mark.parametrize("text", ["no JSON\n", "{}\n", "[1]\n", "\xff\n"])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text(text)
    with pytest.raises(InputError):
        read_measurements(path)


def test_a_point_that_was_measured_in_turns_has_the_mean_time_and_the_spread_of_the_turns() -> None:
    point = StreamPoint(op=StreamOp.COPY, num_bytes=2**20)
    turns = [
        Record(
            point=point, seconds={"operator": seconds}, wall={"operator": seconds},
            spread={"operator": 0.1}, repeats=5,
        )
        for seconds in (1e-3, 2e-3, 3e-3)
    ]  # fmt: skip
    mean = joined_record(turns, fmean)
    assert mean.seconds == mean.wall == {"operator": pytest.approx(2e-3)}
    assert mean.spread == {"operator": pytest.approx(1.0)}  # (3 - 1) / 2
    assert mean.repeats == 15
    assert joined_record(turns[:1], fmean) is turns[0]
