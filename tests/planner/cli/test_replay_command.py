import json
from pathlib import Path

import pytest
from command_runs import Command, unread
from kineto_traces import TraceMaker
from perfetto import perfetto


def test_steps_and_makespan_as_json(run: Command, traces: str) -> None:
    data = run("replay", traces, "--json").data
    assert data["steps"][0] == {
        "rank": 0, "step": 3, "measured_s": pytest.approx(4e-4), "simulated_s": pytest.approx(4e-4),
    }  # fmt: skip
    assert data["makespan"] == {
        "measured_s": pytest.approx(4e-4), "simulated_s": pytest.approx(4e-4),
    }  # fmt: skip
    assert (data["waits"]["recorded"], data["waits"]["inferred"]) == (0, 4)
    edges = data["waits"]["edges"]
    assert [(e["rank"], e["waiting"], e["waited_for"], e["recorded"]) for e in edges[:2]] == [
        (0, "ncclKernel_AllReduce", "volta_sgemm", False),
        (0, "elementwise_kernel", "ncclKernel_AllReduce", False),
    ]
    assert data["breakdown"]["host_bound"] == pytest.approx(0.3)
    assert data["breakdown"]["bound_by"] == {
        "GPU": pytest.approx(0.575), "CPU": pytest.approx(0.3), "network": pytest.approx(0.125),
    }  # fmt: skip
    path = data["breakdown"]["critical_path_in_order"]
    assert sum(part["time_s"] for part in path) == pytest.approx(4e-4)
    assert (path[1]["rank"], path[1]["resource"], path[1]["bound_by"]) == (1, "compute", "GPU")


@pytest.mark.parametrize("mode", ["graph", "algorithm1", "baseline"])
def test_every_mode_prints_what_was_measured_beside(run: Command, traces: str, mode: str) -> None:
    done = run("replay", traces, "--mode", mode)
    assert done.code == 0
    assert "400 us measured" in done.out
    assert max(map(len, done.out.splitlines())) <= 100
    assert run("replay", traces, "--mode", mode, "--json").data["mode"] == mode


def test_the_report(run: Command, traces: str) -> None:
    lines = run("replay", traces, "--what-if", "all_reduce x2").out.splitlines()
    assert lines[0] == "2 ranks, 1 step · timed by the planner's simulator"
    assert "  step time   400 us simulated, 400 us measured (0.0%)" in lines
    assert ["3", "0", "400.0", "us", "400.0", "us", "0.0%"] in map(str.split, lines)
    assert "  Critical path of the last step, limited by GPU 58%, CPU 30%, network 12%" in lines
    assert ["20.0", "us", "200.0", "us", "1", "gemm", "GPU", "volta_sgemm"] in map(str.split, lines)
    answer = next(line for line in lines if "all_reduce x2" in line)
    assert answer.split() == ["all_reduce", "x2", "450.0", "us", "+12.5%"]
    assert any("the same kernels" in line for line in lines)


def test_one_rank_says_first_that_others_are_as_recorded(run: Command, traces: str) -> None:
    one = f"{traces}/rank1.json"
    lines = run("replay", one, "--what-if", "gemm x2").out.splitlines()
    assert lines[0] == (
        "rank 1 of 2, 1 step · timed by the planner's simulator · the other ranks as recorded"
    )
    assert lines[2].startswith("a collective with other ranks ends when it ended")
    assert any("only the recorded ranks change" in line for line in lines)
    assert max(map(len, lines)) <= 100
    data = run("replay", one, "--json").data
    assert (data["num_ranks"], data["ranks"], data["num_ranks_of_job"]) == (1, [1], 2)
    assert {use["rank"] for use in data["breakdown"]["streams"]} == {1}
    refused = run("replay", one, "--what-if", "balance")
    assert refused.code == 3
    assert "needs all ranks" in refused.err


def test_of_several_cycles_one_is_replayed_and_named(run: Command, tmp_path: Path) -> None:
    for number in range(2):
        maker = TraceMaker(0, world_size=1)
        maker.step(1, 1e7 * number, 400 + 100 * number)
        maker.launch("gemm", 1e7 * number + 10, 1e7 * number + 20, 300, 1)
        document = {"traceEvents": maker.events}
        (tmp_path / f"host_1.{number}00.pt.trace.json").write_text(json.dumps(document))
    lines = run("replay", str(tmp_path)).out.splitlines()
    assert lines[0] == "1 rank, 1 step · timed by the planner's simulator"
    said = "cycle 2 of the 2 that the job was profiled in; `--cycle` chooses another"
    assert said in lines
    data = run("replay", str(tmp_path), "--cycle", "1", "--json").data
    assert data["steps"][0]["measured_s"] == pytest.approx(4e-4)
    assert data["notes"] == [said.replace("cycle 2", "cycle 1")]
    assert run("replay", str(tmp_path), "--cycle", "3").code == 3


@pytest.mark.slow
def test_a_reader_that_stops_reading_does_not_keep_files_from_being_written(
    traces: str, tmp_path: Path
) -> None:
    done = unread("replay", traces, "--trace", f"{tmp_path}/all.json", errors=True)
    assert done.code == 0
    assert (tmp_path / "all.json").exists()


def test_what_if_as_json(run: Command, traces: str) -> None:
    (answer,) = run("replay", traces, "--what-if", "balance", "--json").data["what_if"]
    assert answer["change"] == "balance"
    assert answer["step_time_s"] == pytest.approx(3.6806e-4, rel=1e-4)
    assert answer["speedup"] == pytest.approx(400 / 368.06, rel=1e-4)
    assert answer["assumptions"]


def test_chrome_traces_in_one_file_or_one_per_rank(
    run: Command, traces: str, directory: Path
) -> None:
    assert "Wrote all.json" in run("replay", traces, "--trace", "all.json").err
    events = json.loads((directory / "all.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1}
    assert not +perfetto((directory / "all.json").read_text()).problems
    assert run("replay", traces, "--trace", "out").code == 0
    for rank in (0, 1):
        document = json.loads((directory / "out" / f"rank{rank}.json").read_text())
        assert document["distributedInfo"]["rank"] == rank
        assert {event["pid"] for event in document["traceEvents"]} == {rank}


@pytest.mark.slow
def test_the_page_is_one_file(run: Command, traces: str, directory: Path) -> None:
    pytest.importorskip("vl_convert", reason="the extra `page` is not installed")
    done = run("replay", traces, "--what-if", "all_reduce x2", "--html", "page.html")
    assert done.code == 0
    assert "open it in a browser" in done.err
    page = (directory / "page.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    charts = page.split('id="charts">', 1)[1].split("</script>", 1)[0]
    streams = json.loads(charts)[0]["spec"]["data"]["values"]
    reduced = [row["text"] for row in streams if row["part"] == "all-reduce"]
    assert reduced == ["50.0 us", "50.0 us"]
    assert "the same kernels" in page  # what the what-if assumes


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("none",), 3, "no such file or folder"),
        (("tables.yaml",), 3, "not a trace file by its name"),
        (("traces", "--mode", "magic"), 2, "magic"),
        (("traces", "--mode", "baseline", "--what-if", "balance"), 2, "need `--mode graph`"),
        (("traces", "--what-if", "be fast"), 3, "`be fast` is not a question"),
        (("traces", "--what-if", "gem x2"), 3, "did you mean `gemm`?"),
        (("traces", "--what-if", "collectives h100-sxm"), 3, "--execution-traces"),
        (("traces", "--trace", "-"), 2, "needs a file"),
        (("traces", "--html", "none/page.html"), 3, "no such directory"),
        (("traces", "--trace", "none/all.json"), 3, "no such directory"),
        (("traces", "--trace", "tables.yaml"), 3, "`tables.yaml` is a file"),
        (("traces", "--trace", "tables.yaml/in"), 3, "tables.yaml` is a file"),
        (("traces", "--execution-traces", "none"), 3, "no such file or folder"),
    ],
)
def test_errors(
    run: Command, traces: str, arguments: tuple[str, ...], code: int, message: str
) -> None:
    del traces
    done = run("replay", *arguments)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    as_json = run("replay", *arguments, "--json")
    assert as_json.code == code
    assert as_json.data["error"]["exit_code"] == code
