import pytest
from command_runs import Command

from planner.files.profiles import load_profile


def test_a_profile_is_learned_and_can_be_used(run: Command, traces: str) -> None:
    done = run("calibrate", "--from-trace", traces, "--hardware", "v100-nvlink", "-o", "mine.yaml")
    assert done.code == 0
    assert "sync_time          5.00 us" in done.out
    assert "Wrote mine.yaml" in done.err
    assert run("profiles", "show", "mine.yaml", "--json").data["name"] == "mine"
    learn = ("calibrate", "--from-trace", traces, "--hardware", "v100-nvlink", "-o", "mine.yaml")
    again = run(*learn)
    assert (again.code, again.out) == (3, "")
    assert "--force overwrites it" in again.err
    assert run(*learn, "--force", "--name", "ours").code == 0
    assert run("profiles", "show", "mine.yaml", "--json").data["name"] == "ours"


def test_what_was_learned_as_json(run: Command, traces: str) -> None:
    flags = ("--from-trace", traces, "--hardware", "v100-nvlink", "--json")
    data = run("calibrate", *flags).data
    assert data["host"]["launch_time_s"] == pytest.approx(1e-5)
    assert data["collectives"] == [
        {"op": "all_reduce", "num_ranks": 2, "num_bytes": None, "time_s": pytest.approx(5e-5)}
    ]


@pytest.mark.parametrize(
    "flags",
    [("--minutes", "1"), ("--grid", "full"), ("--optimizer", "adam"), ("--remeasure",)],
)
def test_what_would_be_ignored_is_refused(run: Command, traces: str, flags: tuple[str]) -> None:
    hardware = ("--hardware", "v100-nvlink", "-o", "mine.yaml")
    for instead in (("--from-trace", traces), ("--host",)):
        done = run("calibrate", *instead, *hardware, *flags)
        assert done.code == 2
        assert f"{flags[0]} goes with measuring" in done.err
    assert run("calibrate", "--from-trace", traces, "--host", *hardware).code == 2


def test_a_profile_of_another_kind_of_device_gives_nothing(run: Command, traces: str) -> None:
    done = run("calibrate", "--from-trace", traces, "--hardware", "cpu-gloo")
    assert done.code == 3
    assert "`cpu-gloo` is a profile of a CPU, and what is measured is a GPU" in done.err


def test_errors(run: Command, traces: str) -> None:
    assert run("calibrate", "--hardware", "v100-nvlink").code == 2
    assert run("calibrate", "--from-trace", traces).code == 2
    assert run("calibrate", "--from-trace", "none", "--hardware", "v100-nvlink").code == 3
    assert run("calibrate", "--from-trace", traces, "--hardware", "x100").code == 3


@pytest.mark.slow
def test_host_times_are_measured_without_a_gpu(run: Command) -> None:
    pytest.importorskip("fbgemm_gpu")
    done = run("calibrate", "--host", "--hardware", "a100-sxm-80gb", "-o", "host.yaml", "--json")
    assert done.code == 0
    assert set(done.data["host"]) == {"op_time_s", "backward_op_time_s"}
    assert all(1e-7 < seconds < 1e-2 for seconds in done.data["host"].values())
    mine, base = load_profile("host.yaml"), load_profile("a100-sxm-80gb")
    assert mine.host.op_time == pytest.approx(done.data["host"]["op_time_s"])
    assert mine.host.launch_time == base.host.launch_time
    assert mine.gpu == base.gpu


def test_host_times_need_a_profile_for_the_rest(run: Command) -> None:
    pytest.importorskip("fbgemm_gpu")
    done = run("calibrate", "--host", "-o", "host.yaml")
    assert done.code == 2
    assert "--hardware" in done.err


def test_learning_needs_the_traces_of_all_ranks(run: Command, traces: str) -> None:
    done = run("calibrate", "--from-trace", f"{traces}/rank0.json", "--hardware", "v100-nvlink")
    assert done.code == 3
    assert "traces of rank 0 of 2; missing: 1" in done.err
