import json
from pathlib import Path

import pytest
from command_runs import Command

import planner
from planner.examples import example_workload


@pytest.fixture(scope="module")
def sixteen(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A plan for 16 ranks on two nodes."""
    path = tmp_path_factory.mktemp("sixteen") / "plan.json"
    planner.plan(
        example_workload(12), gpus=16, sharder="naive", baseline="none", time_limit=0.05
    ).save(path)
    return str(path)


def in_trace(path: str) -> set[int]:
    return {event["pid"] for event in json.loads(Path(path).read_text())["traceEvents"]}


def test_of_many_ranks_a_few_are_drawn_and_written_and_it_is_said(
    run: Command, sixteen: str
) -> None:
    done = run("simulate", sixteen, "--trace", "trace.json")
    shown = in_trace("trace.json")
    assert 1 < len(shown) <= 8
    drawn = {line.split()[1] for line in done.out.splitlines() if line.startswith("  rank ")}
    assert drawn == {str(rank) for rank in shown}
    assert f"  {len(shown)} of 16 ranks: " in done.out
    assert max(map(len, done.out.splitlines())) <= 100
    assert f"Of 16 ranks, {len(shown)} are written: " in done.err
    assert "; `--ranks all` writes every one" in done.err
    data = run("simulate", sixteen, "--trace", "trace.json", "--json").data
    assert data["trace_ranks"] == sorted(shown)


def test_ranks_asked_for_are_written_with_the_jobs_size(run: Command, sixteen: str) -> None:
    done = run("simulate", sixteen, "--trace", "traces", "--ranks", "0-1,12")
    assert "Of 16 ranks, 3 are written: 0, 1, 12; `--ranks all` writes every one" in done.err
    assert sorted(path.name for path in Path("traces").iterdir()) == [
        "rank0.json", "rank1.json", "rank12.json",
    ]  # fmt: skip
    replayed = run("replay", "traces")
    assert replayed.out.startswith("ranks 0, 1, 12 of 16, 3 steps")
    assert "`planner simulate PLAN --trace DIR --ranks all`" in replayed.out
    assert max(map(len, replayed.out.splitlines()[1:])) <= 100
    again = run("replay", "traces", "--trace", "again.json", "--ranks", "12")
    assert "Of 3 ranks, 1 is written: 12; " in again.err
    assert in_trace("again.json") == {12}
    # one more written beside them, of another run perhaps
    done = run("simulate", sixteen, "--trace", "traces", "--ranks", "5")
    assert "traces/rank0.json, traces/rank1.json, traces/rank12.json" in done.err


def test_all_ranks_are_written_and_named_together(run: Command, sixteen: str) -> None:
    done = run("simulate", sixteen, "--trace", "traces", "--ranks", "all", "--json")
    assert "Wrote 16 files, traces/rank0.json to traces/rank15.json" in done.err
    assert "are written:" not in done.err
    assert done.data["trace_ranks"] == list(range(16))
    assert len(list(Path("traces").iterdir())) == 16


@pytest.mark.parametrize(
    ("ranks", "code", "said"),
    [
        ("5-2", 2, "'--ranks': `5-2` ends before it begins; write `2-5`"),
        ("x", 2, "'--ranks': `x` is not a rank, or ranks; write `0-7,12` or `all`"),
        ("", 2, "'--ranks': a rank is missing; write `0-7,12` or `all`"),
        ("3,16", 3, "--ranks: there is no rank 16: there are 0-15"),
    ],
)
def test_ranks_that_are_not_there_are_refused_and_nothing_is_written(
    run: Command, sixteen: str, ranks: str, code: int, said: str
) -> None:
    for target in ("trace.json", "traces"):
        done = run("simulate", sixteen, "--trace", target, "--ranks", ranks)
        assert done.code == code
        assert said in done.err
        assert not done.out
        assert not Path(target).exists()


def test_ranks_without_what_shows_them_are_refused(run: Command, traces: str) -> None:
    for command in (("replay", traces), ("predict", traces, "--hardware", "h100-sxm")):
        done = run(*command, "--ranks", "0")
        assert done.code == 2
        assert "--ranks goes with --trace" in done.err
