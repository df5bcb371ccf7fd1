import json
import re
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from command_runs import Command

from planner.files.workload_reading import load_workload
from planner.planned.planned import Comparison
from planner.search import one_sharder, plugins
from planner.sweeping.sweep_points import Sweep
from planner.verbs import comparing
from sharders import SHARDERS
from sharders.greedy.one_pass import Naive
from sharders.problem.sharding_problem import Budget, SearchResult, Sharder, ShardingProblem

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_compare_runs_every_sharder_best_first(run: Command, directory: Path) -> None:
    del directory
    results = run("compare", "tables.yaml", "--gpus", "2", "--json").data["results"]
    times = [result["step_time_s"] for result in results]
    assert times == sorted(times)
    assert {*SHARDERS, "auto"} <= {result["sharder"] for result in results}
    text = run("compare", "tables.yaml", "--gpus", "2", "--sharder", "naive").out
    lines = text.splitlines()
    assert lines[0].startswith("4 tables, ")  # what was planned, as `plan` says it
    assert "local batch" in lines[0]
    header = " ".join(lines[2].split())
    assert header.startswith("Sharder Step time vs best 90% interval")
    assert "Types" in header
    assert "naive" in text


def test_compare_says_what_a_sharder_lacks(
    run: Command, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del directory
    monkeypatch.setitem(sys.modules, "optuna", None)
    two = ("--sharder", "optuna", "--sharder", "naive")
    done = run("compare", "tables.yaml", "--gpus", "2", *two)
    text = " ".join(done.out.split())
    assert "optuna no plan" in text
    assert "optuna has no plan: the sharder `optuna` needs `optuna`" in text
    assert "; pip install '.[search]'" in text
    assert "naive" in text
    assert done.code == 0  # an extra that is not installed is no failure


class _Failing:
    """A sharder with a bug."""

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        del problem, budget, rng
        raise AttributeError("'dict' object has no attribute 'clone_expr'")


class _Cheating:
    """A plug-in whose plan leaves tables out."""

    def shard(self, problem: ShardingProblem, budget: Budget, rng: Random) -> SearchResult:
        result = Naive().shard(problem, budget, rng)
        some = replace(result.plan, tables=result.plan.tables[1:])
        return replace(result, plan=some)


@pytest.mark.parametrize(
    ("name", "sharder", "said", "code"),
    [
        (
            "lns",
            _Failing,
            "lns has no plan: sharder `lns` failed: AttributeError: 'dict' object",
            1,
        ),
        (
            "own",
            _Cheating,
            "own has no plan: plug-in `own`: returned a plan that cannot be used",
            5,
        ),
    ],
)
def test_a_sharder_that_fails_is_a_row_and_costs_the_others_nothing(
    run: Command, monkeypatch: pytest.MonkeyPatch, name: str, sharder: type, said: str, code: int
) -> None:
    known = one_sharder.load_sharder

    def load(wanted: str) -> Sharder:
        return sharder() if wanted == name else known(wanted)

    monkeypatch.setattr(one_sharder, "load_sharder", load)
    monkeypatch.setattr(plugins, "sharder_names", lambda: ("naive", name))
    monkeypatch.setattr(comparing, "sharder_names", lambda: ("naive", name))
    flags = ("tables.yaml", "--gpus", "2", "--time-limit", "0.1s")
    done = run("compare", *flags)
    text = " ".join(done.out.split())
    assert f"{name} no plan" in text
    assert said in text
    assert "naive" in text
    assert done.code == code
    data = run("compare", *flags, "--json").data
    assert {each["sharder"] for each in data["results"]} == {"naive", "auto"}
    assert data["without_plan"][name]["exit_code"] == code


def test_where_every_sharder_fails_the_error_is_the_command_s(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_sharder, "load_sharder", lambda _: _Failing())
    done = run("compare", "tables.yaml", "--gpus", "2", "--sharder", "lns")
    assert done.code == 1
    assert "error: sharder `lns` failed: AttributeError" in done.err
    assert "`planner plan --sharder lns` shows its traceback" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "tables.yaml", "--gpus", "2", "-o", "./tables.yaml"),
        ("plan", "-o", "tables.yaml", "tables.yaml", "--gpus", "2"),
        ("plan", "tables.yaml", "--gpus", "2", "-o", "link.yaml"),
        ("plan", "-", "--gpus", "2", "--hardware", "own.yaml", "-o", "own.yaml"),
        ("plan", "tables.yaml", "--gpus", "2", "-o", "new", "--html", "new"),
        ("simulate", "tables.yaml", "--trace", "tables.yaml"),
        ("sweep", "tables.yaml", "--gpus", "2", "--csv", "tables.yaml"),
        ("sweep", "-", "--gpus", "2", "--hardware", "h100-sxm,own", "--csv", "own"),
    ],
)
def test_no_file_is_overwritten_that_a_command_names_otherwise(
    run: Command, directory: Path, arguments: tuple[str, ...]
) -> None:
    (directory / "link.yaml").symlink_to("tables.yaml")
    before = (directory / "tables.yaml").read_text()
    done = run(*arguments)
    assert done.code == 2
    assert "names the same file" in done.err
    assert (directory / "tables.yaml").read_text() == before
    assert not (directory / "new").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("sweep", "tables.yaml", "--gpus", "2", "--csv", "-", "--json"),
        ("sweep", "tables.yaml", "--gpus", "2", "--csv", "-", "--html", "-"),
        ("plan", "tables.yaml", "--gpus", "2", "-o", "-", "--html", "-"),
        ("simulate", "plan.json", "--html", "-", "--json"),
        ("compare", "a.json", "b.json", "--html", "-", "--json"),
    ],
)
def test_two_things_are_not_mixed_on_standard_output(
    run: Command, arguments: tuple[str, ...]
) -> None:
    done = run(*arguments)
    assert done.code == 2
    assert "would be mixed on standard output" in done.err + done.out


@pytest.mark.slow
def test_compare_says_what_changed_between_two_plans(run: Command, planned: Path) -> None:
    assert planned.exists()
    done = run("compare", "naive.json", "plan.json")
    assert "added" in done.out
    assert "made one after the other" in done.out
    assert "unchanged." in done.out
    data = run("compare", "naive.json", "plan.json", "--json").data
    assert len(data["results"]) == 2
    assert data["num_unchanged"] + len(data["changes"]) == 4
    steps = [result["step_time_s"] for result in data["results"]]
    effects = [change["step_time_change_s"] for change in data["changes"]]
    assert sum(effects) == pytest.approx(steps[1] - steps[0])
    assert data["other_step_time_change_s"] == pytest.approx(0.0, abs=1e-12)
    same = run("compare", "plan.json", "plan.json").out
    assert "0 added, 0 changed, 0 removed, 4 unchanged." in same
    assert "(as fast)" in same


def test_compare_needs_gpus_for_a_workload(run: Command) -> None:
    assert run("compare", "tables.yaml").code == 2
    assert run("compare", "a", "b", "c").code == 2


def test_two_plans_are_compared_without_what_says_how_to_plan(run: Command) -> None:
    done = run("compare", "a.json", "b.json", "--time-limit", "5s")
    assert done.code == 2
    assert "--time-limit goes with a workload file" in done.err
    flags = ("--gpus", "8", "--nodes", "77", "--sharder", "naive", "--hardware", "nope")
    done = run("compare", "a.json", "b.json", *flags, "--seed", "0")
    assert done.code == 2
    assert "--gpus, --nodes, --sharder, --hardware, --seed go with a workload file" in done.err


@pytest.mark.slow
def test_the_critical_path_adds_up_to_the_step(run: Command, planned: Path) -> None:
    data = run("explain", str(planned), "--what-if", "gpus=1", "--json").data
    path = data["critical_path"]
    assert sum(row["time_s"] for row in path) == pytest.approx(data["modelled_step_time_s"])
    assert [each["change"] for each in data["remedies"]] == ["gpus=1"]
    low, high = data["step_time_interval_s"]
    assert low < data["step_time_s"] < high


@pytest.mark.slow
def test_simulate_draws_and_writes_a_trace(run: Command, planned: Path, directory: Path) -> None:
    done = run("simulate", str(planned), "--trace", "trace.json")
    assert "rank 1" in done.out
    assert "Wrote trace.json" in done.err
    assert max(map(len, done.out.splitlines())) <= 100
    # of `test`, whose host times nobody measured
    assert "% of the step rests on no measurement: host" in done.out
    trace = json.loads((directory / "trace.json").read_text())
    assert {event["pid"] for event in trace["traceEvents"]} == {0, 1}
    data = run("simulate", str(planned), "--json").data
    assert data["step_time_s"] > 0
    assert data["hardware_assumed"] is None  # a plan file does not say


@pytest.mark.slow
def test_traces_of_a_plan_are_replayed(run: Command, planned: Path) -> None:
    data = run("simulate", str(planned), "--trace", "ranks", "--json").data
    step_time = data["modelled_step_time_s"]
    replayed = run("replay", "ranks", "--json").data
    assert replayed["steps"][-1]["simulated_s"] == pytest.approx(step_time, rel=1e-5)
    run("simulate", str(planned), "--trace", "all.json")
    refused = run("replay", "all.json")
    assert "has 2 processes in one file" in refused.err
    assert "as `planner simulate PLAN --trace DIR` writes" in refused.err


def test_compare_says_which_searches_took_longer_than_they_may(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("compare", "tables.yaml", "--gpus", "2", "--sharder", "naive")
    assert "longer than the limit" not in run(*command).err
    monkeypatch.setattr("planner.search.stages.may_take", lambda limit: limit - 60.0)
    assert "`naive` searched for 0." in run(*command).err


@pytest.mark.slow
def test_what_lies_outside_measurements_reaches_every_report(
    run: Command, planned: Path, directory: Path
) -> None:
    # lookups of so few ids were not measured on an A100 with 80 GB
    model = str(Path(__file__).parents[3] / "bench/workloads/dlrm_dcnv2.yaml")
    flags = ("--gpus", "8", "--hardware", "a100-sxm-80gb", "--sharder", "naive", "-o", "a.json")
    assert "of the step rests on no measurement" in run("plan", model, *flags).out
    assert "of the step rests on no measurement" in run("simulate", "a.json").out
    for name in (planned, directory / "a.json"):
        stages = {
            each["stage"] for each in run("simulate", str(name), "--json").data["extrapolated"]
        }
        assert "lookup_forward" in stages
    lookup = ("embedding", "--rows", "1e6", "--dim", "64", "--batch", "2048")
    assert "extrapolated" in json.loads((directory / "a.json").read_text())
    for flags, said in (
        ((*lookup, "--pooling-factor", "100", "--hardware", "v100-nvlink"), False),
        ((*lookup, "--pooling-factor", "9000", "--hardware", "v100-nvlink"), True),
        (("all_to_all", "--bytes", "64MiB", "--gpus", "8"), False),
        (("all_to_all", "--bytes", "100", "--gpus", "8"), True),
        (("gemm", "--m", "4096", "--n", "4096", "--k", "4096", "--dtype", "bf16"), False),
        (("gemm", "--m", "4096", "--n", "4096", "--k", "1e6", "--dtype", "bf16"), True),
    ):
        assert run("estimate", *flags, "--json").data["extrapolated"] is said
        assert ("outside the measured range" in run("estimate", *flags).out) is said


@pytest.mark.parametrize("command", ["compare", "sweep"])
def test_ctrl_c_while_the_page_is_made_leaves_what_was_found(
    run: Command, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    pytest.importorskip("vl_convert", reason="the extra `page` is not installed")

    def pressed(_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(Comparison, "to_html", pressed)
    monkeypatch.setattr(Sweep, "to_html", pressed)
    flags = ("--gpus", "2", "--sharder", "naive", "--html", "page.html")
    done = run(command, "tables.yaml", *flags)
    assert done.code == 130
    assert "Step time" in done.out


def test_explain_takes_the_seed_that_settings_name(
    run: Command, planned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANNER_SEED", "a")
    done = run("explain", str(planned), "--time-limit", "0.1s")
    assert done.code == 3
    assert "PLANNER_SEED" in done.err


def test_warnings_reach_every_report(run: Command, directory: Path) -> None:
    workload = directory / "tables.yaml"
    workload.write_text(workload.read_text().replace("20}", "20, data_type: int8}"))
    flags = ("tables.yaml", "--gpus", "2", "--sharder", "naive")
    note = (
        "weights of `item`: int8 cannot be trained, FBGEMM's lookups on GPUs have fp32, fp16, fp8"
    )
    explain = ("explain", "plan.json", "--what-if", "gpus=1")
    for command in (
        ("plan", *flags),
        explain,
        ("simulate", "plan.json"),
        ("compare", *flags),
        ("compare", "plan.json", "plan.json"),
        ("sweep", *flags),
    ):
        assert note in " ".join(run(*command).out.split())
    for command in (explain, ("simulate", "plan.json")):
        assert run(*command, "--json").data["notes"] == [note]


@pytest.mark.parametrize("op", ["all_to_all", "all_reduce", "reduce_scatter", "all_gather"])
def test_estimate_collectives(run: Command, op: str) -> None:
    flags = ("--bytes", "64MiB", "--gpus", "8", "--hardware", "a100-sxm-80gb")
    data = run("estimate", op, *flags, "--json").data
    assert data["num_bytes"] == 64 * 2**20
    assert 1e-5 < data["time_s"] < 1e-2
    assert {"bound_by", "source", "extrapolated"} <= set(data)
    assert "limited by" in run("estimate", op, *flags).out


def test_estimate_gemm_and_embedding(run: Command) -> None:
    data = run("estimate", "gemm", "--m", "64", "--n", "64", "--k", "64", "--json").data
    assert data["time_s"] > 0
    flags = ("--rows", "1000", "--dim", "64", "--batch", "512", "--zipf", "0")
    data = run("estimate", "embedding", *flags, "--json").data
    assert 0 < data["forward_s"] < data["backward_s"]
    assert run("estimate", "embedding", *flags).out.startswith("forward ")


def test_ranks_on_cpus_are_told_of_ranks_and_memory(run: Command) -> None:
    cpus = ("--hardware", "cpu-gloo")
    flags = ("--rows", "1000000", "--dim", "64", "--batch", "4096", *cpus)
    assert run("estimate", "embedding", *flags, "--json").data["bound_by"] == "memory bandwidth"
    estimated = run("estimate", "embedding", *flags).out
    assert "limited by memory bandwidth" in estimated
    run("plan", "tables.yaml", "--gpus", "2", *cpus, "--sharder", "naive", "-o", "plan.json")
    explained = run("explain", "plan.json", "--time-limit", "0.5s").out
    assert "memory bandwidth" in explained
    assert "4 ranks instead of 2" in explained
    refused = run("plan", "tables.yaml", "--gpus", "9", *cpus).err
    assert "9 ranks cannot be spread evenly over 2 nodes" in refused
    run("simulate", "plan.json", "--trace", "trace.json")
    said = (estimated, explained, refused, Path("trace.json").read_text())
    assert not any("HBM" in each or "GPU" in each for each in said)


@pytest.mark.parametrize("size", ["64 apples", "", "-1", "nan", "1e400"])
def test_sizes_that_are_none(run: Command, size: str) -> None:
    done = run("estimate", "all_to_all", "--bytes", size, "--gpus", "8")
    assert done.code == 2
    assert "size" in done.err


@pytest.mark.parametrize(
    ("text", "num_bytes"), [("64MiB", 2**26), ("64MB", 64e6), ("1e6", 1e6), ("4096", 4096)]
)
def test_sizes(run: Command, text: str, num_bytes: float) -> None:
    data = run("estimate", "all_to_all", "--bytes", text, "--gpus", "8", "--json").data
    assert data["num_bytes"] == num_bytes


def test_estimate_says_which_values_cannot_be(run: Command) -> None:
    done = run("estimate", "embedding", "--rows", "10", "--dim", "6", "--batch", "8")
    assert done.code == 2
    assert "embedding_dim must be a multiple of 4" in done.err


def test_profiles_are_listed_and_shown(run: Command) -> None:
    assert "h100-sxm" in run("profiles").out
    assert run("profiles", "--json").data["profiles"]
    assert "source" in run("profiles", "show", "h100-sxm").out
    assert run("profiles", "show", "h100-sxm", "--json").data["name"] == "h100-sxm"
    assert run("profiles", "show").code == 2
    assert run("profiles", "show", "x100").code == 3


def test_a_shown_profile_lists_its_families_and_loads_again(run: Command, directory: Path) -> None:
    text = run("profiles", "show", "v100-nvlink").out
    families = [line[4:].split() for line in text.splitlines() if line.startswith("#   ")]
    assert families[0][:5] == ["Family", "Source", "Points", "Held-out", "error"]
    shown = {line[0]: line[1:] for line in families[1:]}
    assert shown["gemm.fp32"][:3] == ["fitted", "63", "17.7%"]
    assert shown["gemm.bf16"] == ["datasheet", "0", "-", "-", "nothing"]
    assert {"all_to_all", "embedding_forward", "inter_node"} <= shown.keys()
    assert max(map(len, text.splitlines()[: len(families)])) <= 100
    (directory / "mine.yaml").write_text(text, encoding="utf-8")
    data = run("profiles", "show", "mine.yaml", "--json").data
    forward = next(row for row in data["families"] if row["name"] == "embedding_forward")
    assert forward["num_points"] == 13
    assert forward["ranges"]["embedding_dim"] == [16, 256]


def test_schema_doctor_and_completion(run: Command) -> None:
    assert json.loads(run("schema", "workload").out)["type"] == "object"
    assert run("schema", "workload", "--json").data["schema"]["type"] == "object"
    assert "numpy" in run("doctor").out
    assert "All that is needed is there" in run("doctor").out
    assert run("doctor", "--json").data["good"] is True
    assert "planner" in run("completion", "bash").out
    assert run("completion", "zsh", "--json").data["shell"] == "zsh"


def test_doctor_looks_at_all_that_searches_need(run: Command) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["search"]]
    looked_at = {check["name"] for check in run("doctor", "--json").data["checks"]}
    assert {re.split("[<>=]", each)[0] for each in needed} <= looked_at


def test_doctor_names_what_is_broken_and_how_to_mend_it(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)  # installed, and cannot be imported
    monkeypatch.setenv("PLANNER_TIME_LIMIT", "soon")
    done = run("doctor")
    assert done.code == 5
    lines = [line.strip() for line in done.out.splitlines()]
    broken = next(number for number, line in enumerate(lines) if line.startswith("highspy"))
    assert lines[broken].split()[1] == "BROKEN"
    assert lines[broken + 1] == "pip install --force-reinstall highspy"
    assert lines[-1] == "Broken: highspy, settings"
    settings = run("doctor", "--json").data["checks"][-1]
    assert "soon" in settings["detail"]
    assert settings["remedy"]


@pytest.mark.parametrize(
    ("variable", "value"), [("HARDWARE", "h100"), ("SHARDER", "gredy"), ("BASELINE", "gredy")]
)
def test_doctor_knows_what_settings_name(
    run: Command, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(f"PLANNER_{variable}", value)
    done = run("doctor", "--json")
    settings = done.data["checks"][-1]
    assert (done.code, settings["name"], settings["good"]) == (5, "settings", False)
    assert f"`{value}`" in settings["detail"]


def test_init_writes_a_workload_that_plans_and_keeps_what_is_there(
    run: Command, directory: Path
) -> None:
    done = run("init", "new.yaml")
    assert (done.code, done.out) == (0, "")
    assert "planner plan new.yaml" in done.err
    assert len(load_workload(directory / "new.yaml").tables) == 5
    comments = [line for line in (directory / "new.yaml").read_text().splitlines() if "#" in line]
    assert len(comments) > 10
    again = run("init", "new.yaml")
    assert again.code == 3
    assert "--force" in again.err
    assert run("init", "new.yaml", "--force").code == 0
    assert run("init", "-").out.startswith("# A small model")
    assert run("init", "--batch-size", "64").code == 2
