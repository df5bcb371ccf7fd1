"""What is no good name of a file, a folder or a module, wherever a command takes one: refused."""

from pathlib import Path

import click
import pytest
from all_commands import ARGUMENTS, commands
from command_runs import Command, Run
from kineto_traces import two_ranks, write_folder

from planner.cli.sweep_command import ListOf
from planner.cli.values import Completed

pytestmark = pytest.mark.slow

FOLDERS = (".", "..", "./", "folder")
BAD = ("", *FOLDERS, "x" * 300, f"{'x' * 300}/y", "a\0b", "tables.yaml/x", "-/x")
BAD_MODULES = (
    "",
    ":",
    "a:",
    ":b",
    ".:f",
    "..a:f",
    "none:f",
    "a b:f",
    "os:f",
    "os:sep",
    "json:load",
)
BAD_MODULES += (f"{'x' * 300}:f", "tables.yaml:f", "a\0:f")
MODEL = "--from-torchrec"


def taking_paths() -> list[tuple[str, click.Parameter]]:
    return [
        (name, parameter)
        for name, command in commands()
        for parameter in command.params
        if isinstance(parameter.type, ListOf)
        or (isinstance(parameter.type, Completed) and parameter.type.name != "sharder")
    ]


@pytest.fixture
def tried(planned: Path, monkeypatch: pytest.MonkeyPatch, run: Command) -> Command:
    """A folder with what the commands take; nothing is served or opened."""
    monkeypatch.setattr("planner.cli.open_command._serve", lambda _: None)
    monkeypatch.setenv("PLANNER_SHARDER", "naive")
    monkeypatch.setenv("PLANNER_TIME_LIMIT", "0.1s")
    monkeypatch.setenv("PLANNER_BASELINE", "none")
    write_folder(planned.parent / "traces", two_ranks())
    (planned.parent / "folder").mkdir()
    return run


def check(done: Run, words: list[str]) -> None:
    assert done.code in {0, 2, 3}, (words, done.out + done.err)
    assert "schema_version" in done.data, words


@pytest.mark.parametrize(
    ("name", "parameter"), [pytest.param(n, p, id=f"{n} {p.name}") for n, p in taking_paths()]
)
def test_files_and_folders(tried: Command, name: str, parameter: click.Parameter) -> None:
    first, *others = ARGUMENTS[name] or ("",)
    for bad in BAD:
        given = [first, *others, parameter.opts[-1], bad]
        if isinstance(parameter, click.Argument):
            given = [bad, *others] if parameter.name != "name" else ["show", bad]
        words = [*name.split(), *given, "--json"]
        if name != "demo":
            check(tried(*words), words)
        elif bad not in FOLDERS:  # there it would show all it can
            assert tried(name, *given[1:]).code in {2, 3}


@pytest.mark.parametrize("name", ["plan", "init", "torchrec export", "torchrec import"])
def test_modules(tried: Command, name: str) -> None:
    pytest.importorskip("torchrec")
    others = {
        "plan": ["--gpus", "2"], "init": [], "torchrec export": ["plan.json"],
        "torchrec import": ["plan.json", "--gpus", "2"],
    }[name]  # fmt: skip
    for bad in BAD_MODULES:
        words = [*name.split(), *others, MODEL, bad, "--json"]
        done = tried(*words)
        assert done.code in {2, 3}, words
        check(done, words)


@pytest.mark.parametrize("command", ["export", "import"])
@pytest.mark.parametrize("folder", [".", "/", "./"])
def test_torchrec_plans_in_folders(tried: Command, command: str, folder: str) -> None:
    pytest.importorskip("torchrec")
    done = tried("torchrec", command, folder)
    assert (done.code, done.err) == (3, f"error: {folder}: this is a directory, not a file\n")
    assert tried("open", folder).err == done.err


def test_what_a_model_prints_is_not_on_standard_output(tried: Command, directory: Path) -> None:
    pytest.importorskip("torchrec")
    (directory / "speaks.py").write_text("print('hello')\ndef model():\n    print('there')\n")
    done = tried("plan", "--gpus", "2", MODEL, "speaks:model", "--json")
    assert (done.code, done.err) == (3, "hello\nthere\n")
    assert "not a torch.nn.Module" in done.data["error"]["message"]
