from pathlib import Path

import pytest
from kineto_traces import COLLECTIVES, read_kineto, two_ranks, write_folder

from costmodel.base.errors import InputError
from costmodel.step.graph import Stage
from planner.traces.replay.matching import collective_stage, match_collectives


def test_a_collective_takes_from_the_latest_start_to_the_end(tmp_path: Path) -> None:
    # profiled: 150 us on rank 0 and 50 on rank 1; rank 0 waited for 100
    members = match_collectives(read_kineto(write_folder(tmp_path / "t", two_ranks())), "t")
    assert [member.seconds for member in members.values()] == [pytest.approx(50e-6)] * 2
    assert {member.collective for member in members.values()} == {0}


def test_collectives_before_a_rank_began_to_record_belong_to_none(tmp_path: Path) -> None:
    makers = two_ranks()
    makers[1].kernel("ncclKernel_AllReduce", 2, 3, -1, COLLECTIVES)
    traces = read_kineto(write_folder(tmp_path / "t", makers))
    members = match_collectives(traces, "t")
    assert len(members) == 2
    assert (1, 0) not in members


def test_clocks_that_do_not_align_are_refused(tmp_path: Path) -> None:
    makers = two_ranks()
    for event in makers[1].events:
        event["ts"] += 40_000
    traces = read_kineto(write_folder(tmp_path / "t", makers))
    with pytest.raises(InputError, match=r"rank 1 starts collective 0 39\.9 ms after rank 0 has"):
        match_collectives(traces, "t")


def test_different_collectives_are_refused(tmp_path: Path) -> None:
    makers = two_ranks()
    for event in makers[1].events:
        event["name"] = event["name"].replace("AllReduce", "SendRecv")
    traces = read_kineto(write_folder(tmp_path / "t", makers))
    with pytest.raises(InputError, match="the ranks ran different collectives"):
        match_collectives(traces, "t")


def test_recorded_groups_are_matched_on_their_own(tmp_path: Path) -> None:
    makers = two_ranks()
    for maker in makers:
        for event in maker.events:
            if "nccl" in event["name"]:
                group = str(maker.rank)
                event["args"] |= {"Process Group Name": group, "Process Group Ranks": f"[{group}]"}
    members = match_collectives(read_kineto(write_folder(tmp_path / "t", makers)), "t")
    # each is alone in its group: what was profiled is true
    assert sorted(member.seconds for member in members.values()) == [
        pytest.approx(50e-6),
        pytest.approx(150e-6),
    ]


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", Stage.ALL_TO_ALL),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", Stage.ALL_REDUCE),
        ("ncclDevKernel_ReduceScatter_Sum_f16_RING_LL", Stage.REDUCE_SCATTER),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t", Stage.ALL_GATHER),
    ],
)
def test_kinds_by_name(name: str, stage: Stage) -> None:
    assert collective_stage(name) is stage
