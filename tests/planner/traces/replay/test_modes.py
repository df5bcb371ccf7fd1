from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from kineto_traces import TraceMaker, two_ranks, write_folder
from machines import machine
from plans import plan, table, workload

from costmodel.base.errors import InputError, UnknownNameError
from costmodel.domain.hardware import Topology
from costmodel.domain.plan import ShardingType
from costmodel.step.graph import Stage
from costmodel.step.operation_timeline import plan_timeline
from planner.traces.replay.breakdown import breakdown
from planner.traces.replay.importing import ImportedRun, load_run
from planner.traces.replay.modes import Mode, replay, replay_graph
from planner.traces.replay.questions import what_if
from planner.traces.replay.replay_report import replay_report
from planner.traces.trace_folder import write_traces

TRACES = Path(__file__).parents[4].parent / "shared/data/traces"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="../shared/data/traces is absent")


@pytest.fixture
def run(tmp_path: Path) -> ImportedRun:
    return load_run(write_folder(tmp_path / "traces", two_ranks()))


def step_us(run: ImportedRun, question: str) -> float:
    return replay_graph(run, what_if(run, question, "traces").graph).step_time * 1e6


def test_the_graph_replays_what_was_measured(run: ImportedRun) -> None:
    done = replay(run)
    assert done.step_time == pytest.approx(400e-6)
    assert done.worst_error == pytest.approx(0.0, abs=1e-6)
    assert done.mean_error == pytest.approx(0.0, abs=1e-6)


def test_the_baseline_is_the_busiest_stream(run: ImportedRun) -> None:
    # rank 0: 100 + 30 of compute, 50 of communication; rank 1: 200 + 30
    done = replay(run, Mode.BASELINE)
    assert [step.simulated for step in done.steps] == [pytest.approx(130e-6), pytest.approx(230e-6)]
    assert done.simulated_makespan == pytest.approx(230e-6)


def test_algorithm1_does_not_know_that_the_host_waits(run: ImportedRun) -> None:
    # Of 400 us the host works 200 and is blocked from 100 to 300. The device is done with
    # 10 + 5 + 200 on rank 1, 1 + 50 of the all-reduce, 1 + 30
    done = replay(run, Mode.ALGORITHM1)
    assert done.simulated_makespan == pytest.approx(297e-6)


@pytest.mark.parametrize(
    ("question", "step"),
    [
        ("all_reduce x2", 450),
        ("collectives x0", 350),
        ("all reduce x0.0", 350),
        ("gemm x0.5", 300),
        ("kernels x1", 400),
        # 180 us on both ranks: rank 1's first kernel takes 200 x 180/230, the all-reduce starts
        # 43.48 earlier; rank 0's last one takes 30 x 180/130, 11.54 longer
        ("balance", 400 - 43.478 + 11.538),
        # launches at 0; 10 us to the device: 210 + 50 + 30
        ("no host", 290),
    ],
)
def test_what_if(run: ImportedRun, question: str, step: float) -> None:
    assert step_us(run, question) == pytest.approx(step, abs=1e-3)


@pytest.mark.parametrize(
    ("question", "step"),
    [
        ("kernels x1", 100),
        ("kernels x1.1", 100),
        ("kernels x5", (20 + 3 * 350) / 3),
        ("host x0", (10 + 3 * 70) / 3),
        ("host x0.9", 90),
    ],
)
def test_a_step_is_the_devices_where_it_falls_behind(
    tmp_path: Path, question: str, step: float
) -> None:
    # the host launches a kernel of 70 us every 100 us, and never waits
    maker = TraceMaker(0, world_size=1)
    for number in range(3):
        maker.step(number, 100 * number, 100)
        maker.launch("volta_sgemm", 100 * number + 10, 100 * number + 20, 70, number + 1)
    report = replay_report(write_folder(tmp_path / "t", [maker]), questions=[question])
    assert report.replay.step_time == pytest.approx(100e-6)
    (answer,) = report.answers
    assert answer.replay.step_time == pytest.approx(step * 1e-6)
    assert 3 * answer.replay.step_time <= answer.replay.simulated_makespan * (1 + 1e-9)


def test_how_far_a_device_is_behind_as_it_was_is_no_part_of_a_step(tmp_path: Path) -> None:
    # kernels end 60 us after their steps
    maker = TraceMaker(0, world_size=1)
    for number in range(3):
        maker.step(number, 100 * number, 100)
        maker.launch("volta_sgemm", 100 * number + 80, 100 * number + 90, 70, number + 1)
    folder = write_folder(tmp_path / "t", [maker])
    answers = replay_report(folder, questions=["kernels x1", "kernels x2"]).answers
    assert [each.replay.step_time for each in answers] == pytest.approx([100e-6, (300 + 150) / 3e6])


def test_questions_that_cannot_be_answered(run: ImportedRun) -> None:
    with pytest.raises(InputError, match="is not a question"):
        what_if(run, "faster please", "traces")
    with pytest.raises(UnknownNameError, match="unknown kind of work `all_reduse`") as caught:
        what_if(run, "all_reduse x2", "traces")
    assert caught.value.hint == "did you mean `all_reduce`?"
    with pytest.raises(InputError, match="sizes of collectives are not recorded"):
        what_if(run, "collectives h100-sxm", "traces")


def test_where_the_time_goes(run: ImportedRun) -> None:
    timeline = replay(run).timeline
    assert timeline is not None
    found = breakdown(timeline)
    compute = found.streams[0]
    assert (compute.rank, compute.stream) == (0, "compute")
    assert compute.busy == {"gemm": pytest.approx(100e-6), "other": pytest.approx(30e-6)}
    assert compute.idle == pytest.approx(270e-6)
    # rank 0 waits from 120 to 220 for rank 1; nothing computes while they reduce
    assert found.communication[0].waiting == pytest.approx(100e-6)
    assert found.communication[0].exposed == pytest.approx(50e-6)
    assert found.communication[0].hidden == 0.0
    assert found.path_time == pytest.approx(400e-6)
    # all but 200 + 50 + 30 on the device
    assert found.host_bound == pytest.approx(120 / 400)
    assert sum(found.bounds.values()) == pytest.approx(1.0)
    # rank 1 holds up all: 20 us to its launch, 200 of work, 50 together, 30, then the host
    begins = [round(part.start * 1e6) for part in found.stretches]
    assert begins == [0, 20, 220, 270, 300]
    assert [part.category for part in found.stretches] == [
        "host", "gemm", "all-reduce", "other", "host",
    ]  # fmt: skip


def test_a_trace_of_our_own_has_the_critical_path_of_its_plan(tmp_path: Path) -> None:
    work = workload(table("a", dim=128, ids=4000.0), table("b", dim=128, ids=20.0))
    topology = Topology(hardware=machine(), world_size=2, local_world_size=2)
    how = {name: (ShardingType.TABLE_WISE, (rank,)) for rank, name in enumerate("ab")}
    timeline = plan_timeline(work, topology, plan(work, topology, how))
    write_traces(timeline, tmp_path / "own")
    run = load_run(tmp_path / "own")
    assert run.waits.recorded > 0
    assert run.waits.inferred == 0
    done = replay(run)
    assert done.simulated_makespan == pytest.approx(done.measured_makespan, rel=1e-3)
    assert done.timeline is not None
    found = breakdown(done.timeline)
    # not exactly: the trace does not say which kernels fill the GPU
    assert found.path_time == pytest.approx(timeline.step_time, rel=0.01)
    told = timeline.breakdown()
    parts = {part.category.value: part.seconds for part in found.path}
    assert told[Stage.LOOKUP_BACKWARD] > 0
    assert parts["embedding backward"] == pytest.approx(told[Stage.LOOKUP_BACKWARD], rel=0.01)
    assert parts["host"] == pytest.approx(told[Stage.HOST], rel=0.05)
    assert any("gemm" in stream.busy for stream in found.streams)


@pytest.mark.slow
@needs_traces
def test_eight_v100_within_one_percent() -> None:
    run = load_run(TRACES / "dlrm8_v100")
    done = replay(run)
    assert done.worst_error < 0.01
    assert done.simulated_makespan == pytest.approx(done.measured_makespan, rel=0.01)
    assert run.waits.recorded == 40
    assert run.sizes_known


@pytest.mark.slow
@needs_traces
@pytest.mark.parametrize(
    "name", ["a2a_optimizer_2_0", "a2a_optimizer_4", "a2a_optimizer_5_qcomm_0"]
)
def test_four_v100_within_six_percent(name: str) -> None:
    done = replay(load_run(TRACES / f"torchrec4_v100_{name}"))
    assert done.worst_error < 0.06
    assert done.mean_error < 0.02


ODD = (None, "x", -1, 0, 1e308, float("nan"), float("inf"), [], {}, True, 10**30, "ProfilerStep#3")


@pytest.mark.parametrize("seed", range(60))
def test_damaged_traces_are_replayed_or_refused_but_never_a_crash(
    tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    makers = two_ranks()
    for _ in range(3):
        event = random.choice(random.choice(makers).events)
        part = random.choice([event, event.get("args")])
        if isinstance(part, dict) and part:
            part[random.choice(sorted(part))] = random.choice(ODD)
    folder = write_folder(tmp_path / "odd", makers)
    with suppress(InputError):
        for mode in Mode:
            assert replay_report(folder, mode=mode).replay.steps
