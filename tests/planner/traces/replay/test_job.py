from pathlib import Path

import pytest
from kineto_traces import COLLECTIVES, TraceMaker, read_kineto, two_ranks, write_json

from planner.traces.replay.job import RecordedJob, job_of


def job(folder: Path, *makers: TraceMaker, told: bool = True) -> RecordedJob:
    """Return the job of some traces, which say how many ranks it has or not."""
    folder.mkdir(exist_ok=True)
    for maker in makers:
        document = maker.document()
        if not told:
            del document["distributedInfo"]
        write_json(folder / f"rank{maker.rank}.json", document)
    return job_of(read_kineto(folder))


def test_a_job_is_whole_with_the_traces_of_all_ranks(tmp_path: Path) -> None:
    both = job(tmp_path, *two_ranks())
    assert (both.size, both.recorded, both.is_whole) == (2, (0, 1), True)
    assert job(tmp_path, *two_ranks(), told=False) == both


def test_one_rank_of_many_says_which_are_absent(tmp_path: Path) -> None:
    maker = two_ranks()[1]
    maker.world_size = 200
    one = job(tmp_path, maker)
    assert not one.is_whole
    assert one.text == "rank 1 of 200"
    assert one.absent_text == "0, 2, 3, 4, 5, 6, 7, 8, and 191 more"


def test_one_rank_that_communicates_is_one_of_several(tmp_path: Path) -> None:
    one = job(tmp_path, two_ranks()[1], told=False)
    assert (one.size, one.text, one.absent_text) == (None, "rank 1 of several", "")
    assert not one.is_whole


def test_one_rank_that_does_not_communicate_is_all(tmp_path: Path) -> None:
    maker = TraceMaker(0)
    maker.launch("gemm", 0, 10, 50, 1)
    assert job(tmp_path, maker, told=False).is_whole


def test_a_job_of_one_rank_may_run_collectives(tmp_path: Path) -> None:
    maker = TraceMaker(0, world_size=1)
    maker.launch("ncclKernel_AllReduce", 0, 10, 50, 1, COLLECTIVES)
    assert job(tmp_path, maker).is_whole


@pytest.mark.parametrize("ranks", [(0, 2), (2,)])
def test_missing_ranks_in_between_are_absent(tmp_path: Path, ranks: tuple[int, ...]) -> None:
    makers = [two_ranks()[0] for _ in ranks]
    for maker, rank in zip(makers, ranks, strict=True):
        maker.rank = rank
    found = job(tmp_path, *makers, told=False)
    assert found.recorded == ranks
    assert found.size == (3 if len(ranks) > 1 else None)
