from pathlib import Path

import pytest
from kineto_traces import TraceMaker, two_ranks, write_folder

from costmodel.base.errors import InputError
from costmodel.domain.hardware import CollectiveOp, Source
from planner.calibration.learning import Learned, TracedCollective, learn, learned_profile
from planner.files.profiles import dump_profile, load_profile, parse_profile
from planner.traces.replay.importing import load_run

PATHS = {"source": "job", "operators": (), "kernels": (), "collectives": (), "host": {}}


@pytest.fixture
def learned(tmp_path: Path) -> Learned:
    return learn(load_run(write_folder(tmp_path / "traces", two_ranks())), "job")


def test_a_collective_takes_what_it_takes_when_all_are_there(learned: Learned) -> None:
    (point,) = learned.collectives
    assert (point.op, point.num_ranks, point.num_bytes) == (CollectiveOp.ALL_REDUCE, 2, 0.0)
    assert point.seconds == pytest.approx(50e-6)


def test_overheads_of_operators_are_the_papers_five(learned: Learned) -> None:
    reduce = next(row for row in learned.operators if row.name == "c10d::allreduce_")
    # from 20 to 30 nothing, from 30 to 60 the operator, its launch from 40 to 50
    five = (reduce.before, reduce.lead, reduce.tail, reduce.call, reduce.between)
    assert five == pytest.approx((10e-6, 10e-6, 10e-6, 10e-6, 0.0))
    assert reduce.count == 2


def test_the_host_returns_from_a_wait_and_launches(learned: Learned) -> None:
    # 5 us after the kernel at 300 the host goes on; every launch takes 10, none is seen later
    assert learned.host["sync_time"] == pytest.approx(5e-6)
    assert learned.host["launch_time"] == pytest.approx(10e-6)
    # from the begin to 10, from 20 to 40, from 50 to 80
    assert learned.host["op_time"] == pytest.approx(20e-6)
    assert "backward_op_time" not in learned.host


def test_garbage_collection_is_not_an_overhead(tmp_path: Path) -> None:
    maker = TraceMaker(0, world_size=1)
    maker.step(0, 0, 60_000)
    for number in range(40):
        at = 90 + 100 * number + (50_000 if number > 30 else 0)
        maker.launch("k", at, at + 12, 5, number)
    learned = learn(load_run(write_folder(tmp_path / "t", [maker])), "job")
    assert learned.host["op_time"] == pytest.approx(90e-6)


def test_a_profile_takes_what_was_learned_and_keeps_the_rest(learned: Learned) -> None:
    base = load_profile("v100-nvlink")
    made = learned_profile(learned, base)
    assert made.host.sync_time == pytest.approx(5e-6)
    assert made.host.memory_bytes == base.host.memory_bytes
    assert made.curves == base.curves
    assert made.sources["host.sync_time"] == "job, profiled training steps"
    again = parse_profile(dump_profile(made), "made.yaml")
    assert again.host.sync_time == pytest.approx(5e-6)


def point(num_bytes: float, us: float) -> TracedCollective:
    return TracedCollective(
        op=CollectiveOp.ALL_TO_ALL, num_ranks=8, num_bytes=num_bytes, seconds=us * 1e-6
    )


def test_three_sizes_make_a_curve_that_grows() -> None:
    base = load_profile("v100-nvlink")
    points = (point(1e3, 10), point(1e6, 8), point(1e7, 90), point(1e7, 110))
    made = learned_profile(Learned(**{**PATHS, "collectives": points}), base)
    curve = next(c for c in made.curves if (c.op, c.num_ranks) == (CollectiveOp.ALL_TO_ALL, 8))
    assert curve.source is Source.MEASURED
    assert curve.knots[:3] == (
        (1e3, pytest.approx(10e-6)),
        (1e6, pytest.approx(10e-6)),
        (1e7, pytest.approx(100e-6)),
    )
    assert curve.last_measured == 1e7
    few = learned_profile(Learned(**{**PATHS, "collectives": points[1:]}), base)
    assert few.curves == base.curves


def test_beyond_its_sizes_a_run_does_not_contradict_the_profile() -> None:
    # 53 KB in 11 us are no sign of a network of 5 GB/s: the profile knows larger messages
    base = load_profile("v100-nvlink")
    points = (point(1e3, 8), point(2e4, 11), point(5e4, 11))
    made = learned_profile(Learned(**{**PATHS, "collectives": points}), base)
    before, after = (
        next(c for c in p.curves if (c.op, c.num_ranks) == (CollectiveOp.ALL_TO_ALL, 8))
        for p in (base, made)
    )
    assert after.knots[-1] == before.knots[-1]
    assert after.covers(5e4)
    assert not after.covers(1e6)
    times = [time for _, time in after.knots]
    assert times == sorted(times)


def test_a_profile_keeps_operators_and_kernels_by_name(learned: Learned) -> None:
    made = learned_profile(learned, load_profile("v100-nvlink"))
    assert made.traced.kernels["volta_sgemm"].median == pytest.approx(150e-6)
    assert made.gpu.kernel_latency == pytest.approx(30e-6)  # of the shortest kind
    again = parse_profile(dump_profile(made), "made.yaml")
    assert again.traced.kernels.keys() == made.traced.kernels.keys()
    reduce = again.traced.operators["c10d::allreduce_"]
    # 10 us before it, 10 to its launch, 10 the call, 10 after
    assert reduce.own_time(1) == pytest.approx(40e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("traced: {operators: 3}", "`operators` must be a list"),
        ("traced: {kernels: [{name: k, count: 1}]}", "missing field `us`"),
        (
            "traced: {kernels: [{name: k, count: 1, us: soon}]}",
            "`us` must be a number, got the text",
        ),
    ],
)
def test_damaged_times_of_a_profile_are_named(change: str, message: str) -> None:
    text = dump_profile(load_profile("v100-nvlink")) + change + "\n"
    with pytest.raises(InputError) as caught:
        parse_profile(text, "made.yaml")
    assert message in str(caught.value.problems[0].message)
