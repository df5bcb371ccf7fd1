from pathlib import Path

import pytest
from kineto_traces import COMPUTE, TraceMaker, read_kineto, write_folder

from planner.traces.kineto_events import Activity
from planner.traces.replay.crowding import fills_gpu, urgent_streams

SIDE = 25
WIDE = {"warps per SM": 64, "est. achieved occupancy %": 50}


def activity(name: str = "gemm", **args: object) -> Activity:
    return Activity(
        name=name, kind="kernel", stream=COMPUTE, start=0.0, end=1.0, correlation=1, args=args
    )


def test_the_gpu_is_full_until_the_last_wave() -> None:
    # 64 warps per SM, of which 32 are resident: two waves
    assert fills_gpu(activity(**WIDE)) == pytest.approx(0.5)
    quarter = {"warps per SM": 128, "est. achieved occupancy %": 50}
    assert fills_gpu(activity(**quarter)) == pytest.approx(0.75)


def test_one_wave_leaves_room() -> None:
    assert fills_gpu(activity(**{"warps per SM": 2, "est. achieved occupancy %": 50})) == 0.0
    assert fills_gpu(activity(**{"warps per SM": 0, "est. achieved occupancy %": 0})) == 0.0


def test_collectives_leave_room_and_the_unknown_does_not() -> None:
    assert fills_gpu(activity("ncclKernel_AllReduce", **WIDE)) == 0.0
    assert fills_gpu(activity()) == 1.0


@pytest.mark.parametrize(("offset", "urgent"), [(100, {SIDE}), (498, set())])
def test_streams_that_start_amid_wide_kernels_are_urgent(
    tmp_path: Path, offset: float, urgent: set[int]
) -> None:
    maker = TraceMaker(0, world_size=1)
    for number in range(10):
        at = 1000.0 * number
        maker.launch("wide", at, at + 10, 500, 2 * number)
        maker.events[-1]["args"] |= {"warps per SM": 640, "est. achieved occupancy %": 50}
        maker.launch("narrow", at + 20, at + 10 + offset, 5, 2 * number + 1, SIDE)
        maker.events[-1]["args"] |= {"warps per SM": 1, "est. achieved occupancy %": 50}
    (trace,) = read_kineto(write_folder(tmp_path / "t", [maker]))
    assert urgent_streams(trace) == urgent
