"""Every way out of every command: with ``--json`` one object on stdout, whatever went wrong."""

import errno
import json
from pathlib import Path
from typing import Any

import click
import pytest
from all_commands import ARGUMENTS, WITHOUT_JSON, commands
from command_runs import Command

from costmodel.base.errors import InputError, Problem
from planner.cli import main
from planner.environment.interrupts import Terminated
from planner.show.output import Output

WITH_JSON = [name for name in ARGUMENTS if name not in WITHOUT_JSON]
LONG = "x" * 300
"""More than any file's name may have."""


def refused(code: int, run: Command, *arguments: str) -> Any:  # noqa: ANN401 - JSON
    done = run(*arguments)
    assert done.code == code, done.out + done.err
    error = done.data["error"]
    assert done.data == {"schema_version": 1, "error": error}
    assert (error["exit_code"], done.err) == (code, "")
    return error


def words(name: str) -> list[str]:
    return [*name.split(), *ARGUMENTS[name], "--json"]


def test_all_commands_are_tried() -> None:
    found = dict(commands())
    assert set(found) == set(ARGUMENTS)
    without = {
        name
        for name, each in found.items()
        if not any("--json" in option.opts for option in each.params)
    }
    assert without == set(WITHOUT_JSON)


@pytest.mark.parametrize("name", WITH_JSON)
def test_usage_errors(run: Command, name: str) -> None:
    error = refused(2, run, *words(name), "--zzz")
    assert (error["kind"], error["message"]) == ("UsageError", "No such option '--zzz'.")
    assert refused(2, run, *name.split(), "--json", "--zzz")["kind"] == "UsageError"


@pytest.mark.parametrize("name", ARGUMENTS)
def test_json_before_the_command_is_refused_in_json(run: Command, name: str) -> None:
    error = refused(2, run, "--json", *words(name)[:-1])
    assert "--json" in error["message"]
    assert error["hint"] == "give it after the command"


@pytest.mark.parametrize("name", WITH_JSON)
@pytest.mark.parametrize(
    ("raised", "code", "kind", "message"),
    [
        (
            InputError("a.yaml", [Problem(message="it is bad")]),
            3,
            "InputError",
            "a.yaml: it is bad",
        ),
        (OSError(errno.ENAMETOOLONG, "File name too long", "x"), 3, "OSError", "x: file name too"),
        (OSError(errno.EMFILE, "Too many open files"), 3, "OSError", "too many open files"),
        (MemoryError(), 3, "MemoryError", "out of memory"),
        (KeyboardInterrupt(), 130, "Interrupted", "interrupted"),
        (click.Abort(), 130, "Interrupted", "interrupted"),
        (Terminated(15), 143, "Interrupted", "interrupted"),
        (click.exceptions.Exit(130), 130, "Interrupted", "ended with exit code 130"),
        (click.exceptions.Exit(4), 4, "Error", "ended with exit code 4: stderr says why"),
    ],
)
def test_whatever_goes_wrong(
    run: Command,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    raised: BaseException,
    code: int,
    kind: str,
    message: str,
) -> None:
    def fail(*_: object) -> None:
        raise raised

    monkeypatch.setattr(click.Command, "invoke", fail)
    error = refused(code, run, *words(name))
    assert (error["kind"], error["message"][: len(message)]) == (kind, message)


@pytest.mark.parametrize("name", WITH_JSON)
def test_a_bug_is_told_of_in_json_and_by_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("by us")

    monkeypatch.setattr(click.Command, "invoke", fail)
    with pytest.raises(ZeroDivisionError):
        main(words(name))
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["kind"], error["exit_code"]) == ("InternalError", 1)
    assert error["message"] == "ZeroDivisionError: by us"


@pytest.mark.usefixtures("directory")
def test_what_is_wrong_after_the_object_is_said_in_words(
    monkeypatch: pytest.MonkeyPatch, run: Command
) -> None:
    printed = Output.data

    def print_and_fail(self: Output, data: Any) -> None:  # noqa: ANN401 - JSON
        printed(self, data)
        raise OSError(errno.EIO, "Input/output error", "page.html")

    monkeypatch.setattr(Output, "data", print_and_fail)
    done = run("schema", "plan", "--json")
    assert (done.code, done.err) == (3, "error: page.html: input/output error\n")
    assert done.data["kind"] == "plan"


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", LONG, "--gpus", "2"),
        ("plan", "tables.yaml", "--gpus", "2", "-o", LONG),
        ("plan", "tables.yaml", "--gpus", "2", "-o", f"{LONG}/plan.json"),
        ("plan", "tables.yaml", "--gpus", "2", "--html", LONG),
        ("plan", "tables.yaml", "--gpus", "2", "--hardware", LONG),
        ("sweep", "tables.yaml", "--gpus", "2", "-o", LONG),
        ("open", LONG),
        ("init", LONG),
        ("replay", LONG),
        ("predict", LONG, "--hardware", "h100-sxm"),
        ("explain", LONG),
        ("inspect", LONG),
        ("inspect", "tables.yaml", "-o", LONG),
        ("calibrate", "-o", LONG),
        ("validate", LONG),
    ],
)
def test_a_name_that_is_too_long(run: Command, directory: Path, arguments: tuple[str, ...]) -> None:
    error = refused(3, run, *arguments, "--json")
    assert "file name too long" in error["message"] or "unknown" in error["message"]
    assert run(*arguments).err.startswith("error: ")
    assert sorted(path.name for path in directory.iterdir()) == ["tables.yaml"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("init", "-"),
        ("inspect", "ids.npz", "-o", "-"),
        ("torchrec", "export", "plan.json", "-o", "-"),
    ],
)
def test_what_is_no_json_is_not_printed_for_it(run: Command, arguments: tuple[str, ...]) -> None:
    error = refused(2, run, *arguments, "--json")
    assert error["message"].endswith("and `--json` would be mixed on standard output")


@pytest.mark.usefixtures("directory")
def test_a_file_that_is_called_as_the_option(run: Command) -> None:
    done = run("explain", "--", "--json")
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith("error: --json: no such file")
