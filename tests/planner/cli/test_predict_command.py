import json
from pathlib import Path

import pytest
from command_runs import Command
from execution_trace_files import rank, sharded_step, tensor, write_job

from costmodel.base.units import US
from planner.files.profiles import dump_profile, load_profile
from planner.show.format import duration
from planner.traces.predict.prediction import predict


@pytest.fixture
def job(directory: Path) -> str:
    return str(write_job(directory / "job", rank(), rank()))


@pytest.fixture
def core(directory: Path) -> str:
    path = directory / "mine.yaml"
    path.write_text(dump_profile(load_profile("cpu-gloo")), encoding="utf-8")
    return str(path)


@pytest.fixture
def step_time(job: str, core: str) -> float:
    return predict(job, core).step_time


def test_json_has_ranks_and_stages(run: Command, job: str, core: str, step_time: float) -> None:
    data = run("predict", job, "--hardware", core, "--json").data
    assert data["step_time_s"] == step_time
    assert data["measured_step_time_s"] is None
    assert [each["rank"] for each in data["ranks"]] == [0, 1]
    assert data["ranks"][0]["predicted_s"] == pytest.approx(step_time)
    assert set(data["ranks"][0]["stages_s"]) >= {"host", "all_reduce", "optimizer"}
    assert {each["family"] for each in data["families"]} == {"products", "elementwise"}
    assert data["unknown_operators"] == []


def test_the_report(run: Command, job: str, core: str, step_time: float) -> None:
    done = run("predict", job, "--hardware", core)
    lines = done.out.splitlines()
    assert done.code == 0
    assert lines[0].startswith("2 ranks · 8 kernels · ")
    assert f"  step time   {duration(step_time)} predicted" in lines
    assert any(line.split()[:2] == ["0", f"{step_time / US:.1f}"] for line in lines if line)
    assert any(line.split()[:2] == ["products", "2"] for line in lines)
    assert "no model knows" not in done.out


def test_lookups_of_fbgemm_are_refused_with_a_way_out(
    run: Command, directory: Path, core: str
) -> None:
    makers = [rank(), rank()]
    for maker in makers:
        lookup = "fbgemm::split_embedding_codegen_lookup_adagrad_function"
        maker.add(lookup, [tensor(100_000)], [tensor(1000)])
    done = run("predict", str(write_job(directory / "job", *makers)), "--hardware", core)
    assert done.code == 3
    assert "how often ids repeat" in done.err
    assert "`--workload`" in done.err
    assert "planner replay" in done.err


TABLES = """
local_batch_size: 2
tables:
  - {name: a, num_embeddings: 1000, embedding_dim: 8, pooling_factor: 2}
  - {name: b, num_embeddings: 1000, embedding_dim: 8, pooling_factor: 2}
dense: {bottom_mlp: [8], interaction: cat, top_mlp: [1]}
"""


def test_a_workload_says_how_ids_repeat(run: Command, directory: Path) -> None:
    job = str(write_job(directory / "job", sharded_step()))
    (directory / "tables.yaml").write_text(TABLES, encoding="utf-8")
    asked = ("predict", job, "--hardware", "h100-sxm", "--workload", "tables.yaml")
    data = run(*asked, "--json").data
    families = {each["family"]: each["kernels_per_rank"] for each in data["families"]}
    assert (families["gathers"], families["scatters"]) == (1, 1)
    assert {"lookup_forward", "lookup_backward"} <= set(data["ranks"][0]["stages_s"])
    (directory / "tables.yaml").write_text(TABLES.replace("factor: 2", "factor: 20"))
    done = run(*asked)
    assert done.code == 3
    assert "its lookups gather 128 elements of rows in a step" in done.err


def test_unknown_operators_are_named(run: Command, directory: Path, core: str) -> None:
    makers = [rank(), rank()]
    for maker in makers:
        maker.add("mine::attention", [tensor(100_000)], [tensor(100_000)])
    job = write_job(directory / "job", *makers)
    out = run("predict", str(job), "--hardware", core).out
    (share,) = (each.share for each in predict(job, core).unknown)
    assert f"2 calls no model knows, {share:.1%} of the kernel time by their bytes:" in out
    assert f"mine::attention   2   {share:.1%}" in out


def test_what_a_profiler_measured_is_beside(
    run: Command, job: str, core: str, step_time: float, directory: Path
) -> None:
    for number in (0, 1):
        step = {
            "ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1,
            "ts": 0, "dur": 200,
        }  # fmt: skip
        document = {"distributedInfo": {"rank": number}, "traceEvents": [step]}
        (directory / f"job/kineto{number}.json").write_text(json.dumps(document))
    out = run("predict", job, "--hardware", core).out
    error = f"{step_time / 200e-6 - 1:+.1%}"
    assert f"{duration(step_time)} predicted, 200 us in the profiler traces ({error})" in out
    data = run("predict", job, "--hardware", core, "--json").data
    assert data["ranks"][1]["measured_s"] == pytest.approx(2e-4)
    # a CPU's trace says nothing about a GPU
    data = run("predict", job, "--hardware", "h100-sxm", "--json").data
    assert data["measured_step_time_s"] is None


def test_a_chrome_trace_is_written(run: Command, job: str, core: str, directory: Path) -> None:
    done = run("predict", job, "--hardware", core, "--trace", "out.json")
    assert "Wrote out.json" in done.err
    assert json.loads((directory / "out.json").read_text())["traceEvents"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("missing", "--hardware", "core.yaml"), 3, "no such file or folder"),
        (("job",), 2, "Missing option '--hardware'"),
        (("job", "--hardware", "h100"), 3, "unknown hardware profile `h100`"),
        (("job", "--hardware", "nothing.yaml"), 3, "no such file"),
        (("job", "--hardware", "core.yaml", "--trace", "-"), 2, "it needs a file"),
    ],
)
def test_errors(
    run: Command, job: str, arguments: tuple[str, ...], code: int, message: str
) -> None:
    assert job
    done = run("predict", *arguments)
    assert done.code == code
    assert message in done.err


def test_profiler_traces_alone_are_not_enough(run: Command, directory: Path, core: str) -> None:
    write_job(directory / "job")
    (directory / "job/kineto0.json").write_text('{"traceEvents": []}')
    done = run("predict", "job", "--hardware", core)
    assert done.code == 3
    assert "no execution traces are in it" in done.err
    assert "ExecutionTraceObserver" in done.err
