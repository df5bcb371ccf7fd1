import gzip
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from kineto_traces import TraceMaker, read_kineto, two_ranks, write_folder, write_json

from costmodel.base.errors import InputError
from planner.traces.kineto import rank_traces
from planner.traces.trace_files import read_documents


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "traces", two_ranks())


def test_a_folder_has_one_trace_per_rank(folder: Path) -> None:
    first, second = read_kineto(folder)
    assert (first.rank, second.rank, first.world_size) == (0, 1, 2)
    assert [call.name for call in first.calls][:2] == ["cudaLaunchKernel", "cudaStreamWaitEvent"]
    assert first.activities[0].end == pytest.approx(120e-6)
    assert first.steps == [(3, 0.0, pytest.approx(400e-6))]


def test_calls_know_the_operators_they_are_in(folder: Path) -> None:
    calls = read_kineto(folder)[0].calls
    inside = {call.correlation for call in calls if "c10d::allreduce_" in call.scopes}
    assert inside == {2, 3}


def test_archives_and_gzipped_files_hold_the_same(folder: Path, tmp_path: Path) -> None:
    zipped = tmp_path / "zipped"
    zipped.mkdir()
    for file in folder.iterdir():
        (zipped / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
    archive = tmp_path / "traces.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(zipped, "job")
    for path in (zipped, archive):
        assert [trace.calls for trace in read_kineto(path)] == [
            trace.calls for trace in read_kineto(folder)
        ]


def test_a_gpu_clock_that_is_early_is_put_right(tmp_path: Path) -> None:
    makers = two_ranks()
    for event in makers[0].events:
        if event["cat"] == "kernel":
            event["ts"] -= 30  # the first kernel seems to start 20 us before its launch at 10
    trace = read_kineto(write_folder(tmp_path / "early", makers))[0]
    assert trace.activities[0].start == pytest.approx(10e-6)


def test_clocks_with_different_bases_become_one(tmp_path: Path) -> None:
    makers = two_ranks()
    write_folder(tmp_path / "bases", makers)
    document = makers[1].document()
    for event in document["traceEvents"]:
        event["ts"] -= 5000.0
    document["baseTimeNanoseconds"] = 5_000_000
    write_json(tmp_path / "bases" / "rank1.json", document)
    traces = read_kineto(tmp_path / "bases")
    assert traces[1].calls[0].start == pytest.approx(traces[0].calls[0].start, abs=1e-9)


def problems(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_kineto(path)
    return str(caught.value)


def test_nothing_there(tmp_path: Path) -> None:
    assert "no such file or folder" in problems(tmp_path / "none")
    assert "no trace files" in problems(tmp_path)
    (tmp_path / "trace.txt").write_text("x")
    assert "not a trace file by its name" in problems(tmp_path / "trace.txt")


def test_every_damaged_file_is_named(folder: Path) -> None:
    (folder / "empty.json").write_text("")
    (folder / "cut.json").write_text((folder / "rank0.json").read_text()[:200])
    (folder / "cut.json.gz").write_bytes(gzip.compress(b"{}" * 1000)[:-12])
    (folder / "list.json").write_text("[1]")
    (folder / "deep.json").write_text("[" * 100_000)
    text = problems(folder)
    for part in (
        "`empty.json` is empty",
        "`cut.json` is not valid JSON",
        "`cut.json.gz` is not a whole gzip file",
        "`list.json` is not a trace",
        "`deep.json` is not usable: nested too deeply",
    ):
        assert part in text


def test_a_cut_archive_is_refused(folder: Path, tmp_path: Path) -> None:
    archive = tmp_path / "traces.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, "job")
    archive.write_bytes(archive.read_bytes()[:-100])
    assert "cannot be read to its end" in problems(archive)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"name": "package.json"}, "is not a profiler trace: no `traceEvents`"),
        ({"traceEvents": []}, "has no events"),
        ({"traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": 1}]}, "no calls of the CUDA runtime"),
        ({"nodes": [], "schema": "1.0.1"}, "only execution traces"),
        ({"traceEvents": [None, 3, {"ph": "X"}]}, "no calls of the CUDA runtime"),
    ],
)
def test_foreign_and_useless_files(tmp_path: Path, document: dict[str, Any], message: str) -> None:
    write_json(tmp_path / "trace.json", document)
    assert message in problems(tmp_path)


def test_a_trace_without_a_gpu_is_refused(tmp_path: Path) -> None:
    maker = TraceMaker(0, world_size=1)
    maker.call("cudaLaunchKernel", 0, 1, 1)
    assert "nothing that ran on a GPU" in problems(write_folder(tmp_path / "cpu", [maker]))


def test_cuda_graphs_whose_kernels_are_hidden_are_refused(tmp_path: Path) -> None:
    makers = two_ranks()
    makers[1].call("cudaGraphLaunch", 90, 5, 9)
    folder = write_folder(tmp_path / "graphs", makers)
    assert "launches CUDA graphs, 1 of them without a record of its kernels" in problems(folder)
    makers[1].kernel("inside", 310, 20, 9)
    assert len(read_kineto(write_folder(tmp_path / "graphs", makers))) == 2


def test_double_ranks_and_ranks_of_no_job_are_named(folder: Path, tmp_path: Path) -> None:
    document = json.loads((folder / "rank0.json").read_text())
    write_json(folder / "again.json", document)
    assert "rank 0 is there 2 times" in problems(folder)
    beyond = two_ranks()[1]
    beyond.world_size = 1
    assert "there is no rank 1 in a job of 1 rank" in problems(
        write_folder(tmp_path / "beyond", [beyond])
    )


def test_events_of_odd_shapes_are_passed_over(tmp_path: Path) -> None:
    makers = two_ranks()
    makers[0].events += [
        {"ph": "X", "cat": "kernel", "name": "k", "ts": "soon", "args": {}},
        {"ph": "X", "cat": "kernel", "ts": 1, "args": {"stream": 7}},
        {"ph": "X", "cat": "cpu_op", "name": "op", "ts": 1, "tid": "x", "args": None},
        {"ph": "X", "cat": {"kernel": 1}, "name": "k", "ts": 1, "args": {"correlation": 1}},
    ]
    assert len(read_kineto(write_folder(tmp_path / "odd", makers))[0].activities) == 3


def cycle(number: int, *, pid: int = 4242, at: float = 0.0) -> dict[str, Any]:
    """Return what one cycle of a profiler of a single GPU writes: two steps, from a time on."""
    maker = TraceMaker(pid - 100)
    for step in (1, 2):
        start = at + 1e3 * step
        maker.step(10 * number + step, start, 900)
        maker.launch("gemm", start + 20, start + 60, 500, 10 * number + step)
    return {"schemaVersion": 1, "traceEvents": maker.events}


def handled(folder: Path, worker: str, number: int, **where: float) -> None:
    """Write a cycle as ``tensorboard_trace_handler`` names it."""
    folder.mkdir(exist_ok=True)
    name = f"{worker}.{1_700_000_000_000 + 10_000 * number}.pt.trace.json"
    write_json(folder / name, cycle(number, **where))  # type: ignore[arg-type]


def test_cycles_of_a_process_are_one_rank(tmp_path: Path) -> None:
    for number in range(3):
        handled(tmp_path / "job", "host01_4242", number, at=1e7 * number)
    found = read_documents(tmp_path / "job")
    for asked, number in ((None, 3), (1, 1), (2, 2)):
        (trace,) = rank_traces(found, tmp_path, asked)
        assert (trace.rank, trace.cycle, trace.num_cycles) == (0, number, 3)
        assert [step for step, _, _ in trace.steps] == [10 * (number - 1) + 1, 10 * number - 8]
    with pytest.raises(InputError, match=r"there is no cycle 4: the ranks have 3 cycles in common"):
        rank_traces(found, tmp_path, 4)


def in_cycles(folder: Path, ours: tuple[int, ...], theirs: tuple[int, ...]) -> None:
    """Write cycles of two processes, whose clocks are 50 us apart."""
    for number in ours:
        handled(folder, "host01_4242", number, at=1e7 * number)
    for number in theirs:
        handled(folder, "host01_4243", number, pid=4243, at=1e7 * number + 50)


@pytest.mark.parametrize(
    ("ours", "theirs", "asked", "cycle", "of", "left_out"),
    [
        ((0, 1), (1,), None, 2, 2, [1, 0]),
        ((0, 1), (0,), None, 1, 2, [1, 0]),
        ((0, 1, 2), (0, 2), None, 3, 3, [1, 0]),
        ((0, 1, 2), (0, 2), 1, 1, 3, [1, 0]),
        ((0, 1), (1, 2), None, 2, 3, [1, 1]),
        ((0, 1), (0, 2), None, 1, 3, [1, 1]),
    ],
)
def test_cycles_that_not_all_ranks_have_are_matched_and_left_out(
    tmp_path: Path,
    ours: tuple[int, ...],
    theirs: tuple[int, ...],
    asked: int | None,
    cycle: int,
    of: int,
    left_out: list[int],
) -> None:
    in_cycles(tmp_path, ours, theirs)
    traces = rank_traces(read_documents(tmp_path), tmp_path, asked)
    assert [(each.rank, each.cycle, each.num_cycles) for each in traces] == [
        (0, cycle, of), (1, cycle, of),
    ]  # fmt: skip
    assert {each.steps[0][0] for each in traces} == {10 * cycle - 9}
    assert [len(each.left_out) for each in traces] == left_out


def test_a_cycle_that_some_rank_lacks_cannot_be_chosen(tmp_path: Path) -> None:
    in_cycles(tmp_path, (0, 1, 2), (0, 2))
    with pytest.raises(InputError, match="no cycle 2: the ranks have 2 cycles in common") as caught:
        rank_traces(read_documents(tmp_path), tmp_path, 2)
    assert "--cycle has 1, 3" in str(caught.value.problems)


def test_cycles_that_no_two_ranks_share_are_refused(tmp_path: Path) -> None:
    for number in (0, 1):
        handled(tmp_path, "host01_4242", number, at=1e7 * number)
    handled(tmp_path, "host01_4243", 2, pid=4243, at=2e7)
    with pytest.raises(InputError, match="of different cycles of the profiler"):
        rank_traces(read_documents(tmp_path), tmp_path)


def test_so_are_those_of_ranks_that_are_known(tmp_path: Path) -> None:
    for number, late in ((0, 0.0), (1, 1e7)):
        for maker in two_ranks():
            document = maker.document()
            for event in document["traceEvents"]:
                event["ts"] += late
            write_json(tmp_path / f"worker{maker.rank}.{number}.pt.trace.json", document)
    traces = rank_traces(read_documents(tmp_path), tmp_path, 1)
    assert [(trace.rank, trace.cycle, trace.num_cycles) for trace in traces] == [
        (0, 1, 2), (1, 1, 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "others",
    [
        {"worker": "host02_4242"},  # a process of that number on another host
        {"pid": 4243, "worker": "host01_4243"},
    ],
)
def test_other_processes_are_other_ranks(tmp_path: Path, others: dict[str, Any]) -> None:
    handled(tmp_path / "job", "host01_4242", 0)
    second = {"worker": "host01_4242", "at": 1e7, **others}
    handled(tmp_path / "job", second.pop("worker"), 1, **second)
    traces = rank_traces(read_documents(tmp_path / "job"), tmp_path)
    assert [(trace.rank, trace.num_cycles) for trace in traces] == [(0, 1), (1, 1)]


def test_two_traces_of_one_process_at_one_time_are_refused(tmp_path: Path) -> None:
    handled(tmp_path, "host01_4242", 0)
    handled(tmp_path, "host01_4242", 1, at=500.0)  # while the first is profiled
    with pytest.raises(InputError, match=r"0000.pt.*` and `.*` are of one process, at one time"):
        rank_traces(read_documents(tmp_path), tmp_path)


def test_processes_of_one_number_and_unknown_hosts_are_ranks(tmp_path: Path) -> None:
    for number in (0, 1):
        write_json(tmp_path / f"trace{number}.json", cycle(number, at=500.0 * number))
    traces = rank_traces(read_documents(tmp_path), tmp_path)
    assert [(trace.rank, trace.num_cycles) for trace in traces] == [(0, 1), (1, 1)]


def test_a_file_of_several_processes_is_refused(tmp_path: Path) -> None:
    document = cycle(0)
    document["traceEvents"] += cycle(0, pid=4243)["traceEvents"]
    write_json(tmp_path / "all.json", document)
    assert "`all.json` has 2 processes in one file" in problems(tmp_path)
