import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_runs import Command, unread

from planner.files.plans import load_plan_file
from planner.planned.planned import Planned
from planner.search import in_turn
from planner.search.search import Attempt

KEYS = {
    "schema_version",
    "step_time_s",
    "sharder",
    "world_size",
    "peak_memory_bytes",
    "breakdown",
    "ranks",
    "tables",
}


def test_the_report_goes_to_stdout_and_the_rest_to_stderr(run: Command, directory: Path) -> None:
    done = run("plan", "tables.yaml", "--gpus", "2", "--time-limit", "10s")
    assert done.code == 0
    shape = [re.sub(r"\d[\d.,]*\d|\d", "0", line) for line in done.out.splitlines()]
    assert shape[0] == (
        "0 tables, 0 GiB of weights + state · local batch 0 · 0 × h0-sxm (assumed; set --hardware)"
    )
    assert "  Where the step goes (critical path)" in shape
    assert max(map(len, done.out.splitlines())) <= 100
    assert re.search(
        r"Wrote plan\.json in \d+\.\d s \(auto: \w+ won, [\d,]+ plans, seed 0(, ended.*)?\)\n",
        done.err,
    )
    assert "Next: planner explain plan.json" in done.err
    assert (directory / "plan.json").exists()


def test_json_is_one_object_with_the_promised_keys(run: Command, directory: Path) -> None:
    done = run("plan", "tables.yaml", "--gpus", "2", "--json", "--sharder", "size_greedy")
    assert set(done.data) >= KEYS
    assert done.data["sharder"] == "size_greedy"
    assert sum(done.data["breakdown"].values()) == pytest.approx(done.data["step_time_s"])
    table = done.data["tables"][0]
    assert set(table) >= {"name", "sharding_type", "compute_kernel", "shards"}
    assert not (directory / "plan.json").exists()


def test_a_group_size_is_chosen_and_shown(run: Command) -> None:
    told = ("--gpus", "16", "--hardware", "h100-sxm", "--time-limit", "2s", "--sync-interval", "20")
    done = run("plan", "tables.yaml", *told, "--replica-group", "auto")
    assert done.code == 0
    assert "16 × h100-sxm in 2 nodes" in done.out
    assert "Group sizes weighed" in done.out
    assert re.search(r"Plans tried$", done.out, re.MULTILINE)
    assert re.search(r"chosen$", done.out, re.MULTILINE)
    assert "more, slower or without a plan" not in done.out  # 2, 4 and 8, two places each, and all
    assert "what looked fast was searched longer" in done.out
    again = run("plan", "tables.yaml", *told, "--replica-group", "8", "--json")
    assert (again.data["world_size"], again.data["replicas"]["num_groups"]) == (8, 2)
    assert again.data["replicas"]["sync_interval"] == 20
    assert {each["group_size"] for each in again.data["weighed_groups"]} == {8}


def test_options_of_groups_need_a_group(run: Command) -> None:
    done = run("plan", "tables.yaml", "--gpus", "16", "--sync-interval", "2")
    assert done.code == 2
    assert "--sync-interval goes with --replica-group: one group has no replicas" in done.err
    wrong = run("plan", "tables.yaml", "--gpus", "16", "--replica-group", "3")
    assert "16 GPUs on 2 nodes are no groups of 3" in wrong.err
    assert "sizes of groups here: 2, 4, 8, 16 (one group of all); or `auto`" in wrong.err
    typo = run("plan", "tables.yaml", "--gpus", "16", "--replica-group", "aut")
    assert "`aut` is not a number; write a number or `auto`" in typo.err


def test_a_plan_of_a_group_is_searched_from_with_its_groups(run: Command) -> None:
    told = (
        "--gpus",
        "16",
        "--hardware",
        "h100-sxm",
        "--replica-group",
        "8",
        "--sync-interval",
        "4",
    )
    search = ("--sharder", "size_greedy", "--baseline", "none")
    assert run("plan", "tables.yaml", *told, *search, "-o", "group.json").code == 0
    again = run("plan", "--from", "group.json", *search, "-o", "again.json", "--json").data
    assert again["replicas"]["sync_interval"] == 4
    often = ("--sync-interval", "1", "--sharding-strategy", "fully_sharded")
    changed = run("plan", "--from", "group.json", *search, *often, "--json").data
    assert changed["replicas"] == {
        **again["replicas"], "sync_interval": 1, "sharding_strategy": "fully_sharded"
    }  # fmt: skip
    refused = run("plan", "--from", "group.json", "--sharding-strategy", "fully_sharded")
    assert "fully sharded replicas are averaged in every step" in refused.err
    is_consecutive = again["replicas"]["use_inter_host_allreduce"]
    place = f"--{'no-' if is_consecutive else ''}use-inter-host-allreduce"
    moved = run("plan", "--from", "group.json", place)
    assert "--from keeps the ranks of the plan's groups" in moved.err
    assert run("plan", "tables.yaml", "--gpus", "2", *search, "-o", "one.json").code == 0
    alone = run("plan", "--from", "one.json", "--sync-interval", "2")
    assert "goes with a plan of groups: all ranks of this one are one group" in alone.err


def test_commands_that_are_told_can_be_pasted(run: Command) -> None:
    init = run("init", "my tables.yaml")
    assert "Next: planner plan 'my tables.yaml' --gpus 8" in init.err
    done = run("plan", "tables.yaml", "--gpus", "2", "--sharder", "naive", "-o", "my plan.json")
    assert "planner explain 'my plan.json'        planner simulate 'my plan.json' --" in done.err
    lost = run("plan", "tables.yaml", "--gpus", "2", "-o", "no such/plan.json")
    assert re.search(r"hint: mkdir -p '.*/no such'", lost.err)


@pytest.mark.slow
def test_a_plan_on_stdout_is_alone_there(run: Command) -> None:
    done = run("plan", "tables.yaml", "--gpus", "2", "-o", "-")
    assert set(done.data) >= KEYS | {"workload"}
    assert "step time" in done.err


@pytest.mark.slow
def test_quiet_says_nothing_on_stderr(run: Command) -> None:
    assert run("plan", "tables.yaml", "--gpus", "2", "--quiet").err == ""


@pytest.mark.slow
def test_gpus_are_spread_over_nodes(run: Command) -> None:
    even = run("plan", "tables.yaml", "--gpus", "20", "--sharder", "naive").out
    assert "20 × h100-sxm in 4 nodes" in even
    data = run("plan", "tables.yaml", "--gpus", "16", "--nodes", "4", "--json").data
    assert (data["world_size"], data["local_world_size"]) == (16, 4)
    data = run("plan", "tables.yaml", "--gpus", "16", "--json").data
    assert data["local_world_size"] == 8


@pytest.mark.slow
def test_settings_come_from_flags_before_environment(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANNER_HARDWARE", "a100-sxm-80gb")
    data = run("plan", "tables.yaml", "--gpus", "2", "--json").data
    assert (data["hardware"], data["hardware_assumed"]) == ("a100-sxm-80gb", False)
    arguments = ("plan", "tables.yaml", "--gpus", "2", "--json", "--hardware", "h200-sxm")
    assert run(*arguments).data["hardware"] == "h200-sxm"


@pytest.mark.slow
def test_the_baseline_can_be_chosen_or_left_out(run: Command) -> None:
    arguments = (
        "plan", "tables.yaml", "--gpus", "2", "--sharder", "naive", "--time-limit", "10s",
    )  # fmt: skip
    assert "TorchRec's planner (1.9.2), ported; " in run(*arguments).out
    assert "size_greedy; this plan" in run(*arguments, "--baseline", "size_greedy").out
    assert "baseline" not in run(*arguments, "--baseline", "none").out
    done = run(*arguments, "--time-limit", "10ms")
    assert "no plan to compare with: no time was left for `torchrec_port`" in done.out


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("plan", "tables.yaml"), 2, "Missing option '--gpus'"),
        (("compare", "plan.json"), 2, "a plan file another beside it"),
        (
            ("plan", "tables.yaml", "--gpus", "9"),
            2,
            "evenly over 2 nodes of h100-sxm; 8 or 16 can be",
        ),
        (
            ("plan", "tables.yaml", "--gpus", "17"),
            2,
            "3 nodes of h100-sxm; 16 or 24 can be",
        ),
        (("plan", "tables.yaml", "--gpus", "16", "--nodes", "1"), 2, "has 8 GPUs"),
        (("plan", "tables.yaml", "--gpus", "20", "--nodes", "2"), 2, "20 need 4 nodes or more"),
        (("plan", "tables.yaml", "--gpus", "2", "--time-limit", "x"), 2, "`x` is not a time"),
        (("plam",), 2, "No such command"),
        (("plan", "table.yaml", "--gpus", "2"), 3, "did you mean `tables.yaml`?"),
        (("plan", "tables.yaml", "--gpus", "2", "--hardware", "h10"), 3, "hardware profile `h10`"),
        (("plan", "tables.yaml", "--gpus", "2", "--sharder", "size"), 3, "unknown sharder `size`"),
        (("plan", "tables.yaml", "--gpus", "2", "--baseline", "beem"), 3, "did you mean `beam`?"),
        (("plan", "tables.yaml", "--gpus", "2", "-o", "no/p.json"), 3, "no such directory"),
        (("plan", "bad.yaml", "--gpus", "2"), 3, "bad.yaml:1:1"),
        (("plan", "big.yaml", "--gpus", "1"), 4, "no plan fits"),
        (("explain", "tables.yaml"), 3, "tables.yaml"),
    ],
)
def test_errors_have_their_exit_code_and_no_traceback(
    run: Command, directory: Path, arguments: tuple[str, ...], code: int, text: str
) -> None:
    (directory / "bad.yaml").write_text("tabels: []\n")
    table = "{name: big, num_embeddings: 1_000_000_000, embedding_dim: 128}"
    model = "dense: {bottom_mlp: [128]}"
    (directory / "big.yaml").write_text(f"{model}\ntables:\n  - {table}\n")
    done = run(*arguments)
    assert done.code == code
    assert text in done.err
    assert "Traceback" not in done.err
    assert done.out == ""
    as_json = run(*arguments, "--json")
    assert as_json.code == code
    assert as_json.data["error"]["exit_code"] == code
    assert as_json.data["schema_version"] == 1
    assert not (directory / "plan.json").exists()


def test_nothing_is_left_behind_when_the_plan_cannot_be_written(
    run: Command, directory: Path
) -> None:
    before = sorted(directory.iterdir())
    assert run("plan", "tables.yaml", "--gpus", "2", "-o", str(directory)).code == 3
    assert sorted(directory.iterdir()) == before


def test_ctrl_c_writes_the_best_plan_so_far(
    run: Command, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unhurried = in_turn.run_sharder

    def pressed(*arguments: Any) -> Attempt:  # noqa: ANN401 - passed on
        signal.raise_signal(signal.SIGINT)
        return unhurried(*arguments)

    monkeypatch.setattr(in_turn, "run_sharder", pressed)
    done = run("plan", "tables.yaml", "--gpus", "2")
    assert done.code == 130
    assert "(auto: annealing won, 1 plan, seed 0, interrupted)" in done.err
    assert "interrupted: this is the best plan found until then" in done.err
    written = json.loads((directory / "plan.json").read_text())
    assert set(written) >= KEYS
    assert (written["status"], written["ended"]) == ("stopped", "interrupted")
    assert "limit" not in done.out


def test_ctrl_c_before_there_is_a_plan_writes_nothing(
    run: Command, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(*_: object) -> Attempt:
        raise KeyboardInterrupt

    monkeypatch.setattr(in_turn, "run_sharder", pressed)
    done = run("plan", "tables.yaml", "--gpus", "2")
    assert (done.code, done.out) == (130, "")
    assert "nothing more was written" in done.err
    assert not (directory / "plan.json").exists()


def test_ctrl_c_while_the_page_is_made_leaves_the_plan_and_its_report(
    run: Command, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("vl_convert", reason="the extra `page` is not installed")

    def pressed(_: Planned) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(Planned, "to_html", pressed)
    done = run("plan", "tables.yaml", "--gpus", "2", "--html", "plan.html")
    assert done.code == 130
    assert "Where the step goes" in done.out
    assert re.search(r"Wrote plan\.json .*nothing more was written", done.err, re.DOTALL)
    assert (directory / "plan.json").exists()
    assert not (directory / "plan.html").exists()


def test_a_page_is_not_of_the_time_that_is_limited(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("vl_convert", reason="the extra `page` is not installed")
    started, waited = time.monotonic, [0.0]

    def page(_: Planned) -> str:
        waited[0] = 3600.0
        return ""

    monkeypatch.setattr(Planned, "to_html", page)
    monkeypatch.setattr(time, "monotonic", lambda: started() + waited[0])
    done = run("plan", "tables.yaml", "--gpus", "2", "--html", "plan.html")
    assert done.code == 0
    assert "Longer than the limit" not in done.err


@pytest.mark.slow
def test_a_reader_that_stops_reading_is_no_error_and_the_plan_is_kept(directory: Path) -> None:
    done = unread("plan", "tables.yaml", "--gpus", "2")
    assert done.code == 0
    assert "Traceback" not in done.err
    assert "BrokenPipe" not in done.err
    assert (directory / "plan.json").exists()


@pytest.mark.slow
def test_a_workload_from_standard_input(directory: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "planner", "plan", "-", "--gpus", "1", "--json"],
        input=(directory / "tables.yaml").read_text(),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "NO_COLOR": "1"},
    )
    data = json.loads(done.stdout)
    assert data["breakdown"].keys().isdisjoint({"all_to_all", "all_reduce"})


@pytest.mark.slow
def test_tables_can_be_put_on_ranks(run: Command, directory: Path) -> None:
    text = (directory / "tables.yaml").read_text()
    put = text.replace("name: item,", "name: item, ranks: [1, 0],")
    put = put.replace("name: place,", "name: place, ranks: [1],")
    (directory / "put.yaml").write_text(put)
    done = run("plan", "put.yaml", "--gpus", "2", "-o", "put.json")
    assert done.code == 0
    planned = load_plan_file(directory / "put.json").plan
    assert sorted(planned.table("item").ranks) == [0, 1]
    assert planned.table("place").ranks == (1,)
    assert (
        "of the lookups; on your `ranks`"
        in run("explain", "put.json", "--what-if", "dtype=fp16").out
    )


def test_ranks_that_there_are_not_are_pointed_at(run: Command, directory: Path) -> None:
    text = (directory / "tables.yaml").read_text()
    (directory / "put.yaml").write_text(text.replace("name: ad,", "name: ad, ranks: [2],"))
    done = run("plan", "put.yaml", "--gpus", "2")
    assert done.code == 3
    assert "table `ad` cannot be on rank 2: there is none" in done.err
    assert "put.yaml:7:" in done.err
    assert "there are ranks 0 to 1" in done.err


def test_tables_too_large_for_their_rank_are_named(run: Command, directory: Path) -> None:
    rows = "num_embeddings: 150_000_000, embedding_dim: 128"
    tables = "".join(f"  - {{name: {name}, {rows}, ranks: [1]}}\n" for name in "ab")
    (directory / "put.yaml").write_text(f"dense: {{bottom_mlp: [128]}}\ntables:\n{tables}")
    done = run("plan", "put.yaml", "--gpus", "8")
    assert done.code == 4
    assert "GiB is free on rank 1, where it is to be" in done.err
    assert re.search(r"ranks: \[\] +for a and b: a plan that fills the fullest GPU to", done.err)


@pytest.mark.slow
def test_so_many_plans_are_looked_at_and_give_the_same_plan(run: Command, directory: Path) -> None:
    def planned() -> tuple[object, int]:
        done = run(
            "plan", "tables.yaml", "--gpus", "2", "--max-plans", "50", "--json", "-o", "a.json"
        )
        assert done.code == 0
        plan = json.loads((directory / "a.json").read_text())
        return plan["tables"], json.loads(done.out)["evaluated"]

    first = planned()
    assert planned() == first
    assert first[1] <= 70


def test_a_clock_and_a_number_of_plans_are_not_both_given(run: Command) -> None:
    flags = ("--max-plans", "5", "--time-limit", "1s")
    done = run("plan", "tables.yaml", "--gpus", "2", *flags)
    assert done.code == 2
    assert "--max-plans goes without --time-limit" in done.err
