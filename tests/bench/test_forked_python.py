"""A command that is forked does what Python does with it."""

import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.forked_python import ADDRESS, python_command

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
PYTHON = [sys.executable]
SHOW = """
import json, os, sys, warnings
warnings.warn("of a script")
print(json.dumps([sys.argv, os.getcwd(), os.environ["GIVEN"], sys.path[:2], __name__]))
print(sys.stdin.read(), file=sys.stderr)
"""
ENDS = {
    "": 0,
    "sys.exit()": 0,
    "sys.exit(3)": 3,
    "sys.exit('said')": 1,
    "1 / 0": 1,
    "os.abort()": -signal.SIGABRT,
    "os.kill(os.getpid(), signal.SIGINT)": -signal.SIGINT,
    "atexit.register(print, 'at exit')": 0,
}


def run(
    command: list[str], *arguments: str, folder: Path, given: str = "", **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own interpreter
        [*command, *arguments],
        cwd=folder, input=given, env={**os.environ, **more}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["-c", "-m", "-", "a.py", "folder/a.py"])
def test_it_is_given_all_that_python_is(tmp_path: Path, kind: str) -> None:
    for place in ("folder", "elsewhere"):
        (tmp_path / place).mkdir()
    for script in ("a.py", "folder/a.py"):
        (tmp_path / script).write_text(SHOW)
    arguments = {"-c": (kind, SHOW), "-m": (kind, "a")}.get(kind, (kind,))
    settings = {"GIVEN": "x", "PYTHONPATH": str(tmp_path / "elsewhere")}
    forked, real = (
        run(
            command, "-W", "ignore", *arguments, "b", "c d",
            folder=tmp_path, given=SHOW if kind == "-" else "a\nb", **settings,
        )
        for command in (python_command(), PYTHON)
    )  # fmt: skip
    assert python_command() != PYTHON
    assert (forked.returncode, json.loads(forked.stdout)) == (0, json.loads(real.stdout))
    assert forked.stderr == real.stderr


@pytest.mark.slow
@pytest.mark.parametrize("last", ENDS)
def test_it_ends_as_python_does(tmp_path: Path, last: str) -> None:
    code = f"import atexit, os, signal, sys\nprint('begun')\nsys.stdout.flush()\n{last}"
    forked, real = (
        run(command, "-c", code, folder=tmp_path) for command in (python_command(), PYTHON)
    )
    assert (forked.returncode, forked.stdout) == (real.returncode, real.stdout) != (0, "")
    assert forked.returncode == ENDS[last]
    assert forked.stderr.splitlines()[-1:] == real.stderr.splitlines()[-1:]


@pytest.mark.slow
def test_it_is_a_child_of_one_process_and_hears_signals(tmp_path: Path) -> None:
    code = "import sys, time; print('torchrec' in sys.modules, flush=True); time.sleep(60)"
    with subprocess.Popen(  # noqa: S603 - our own interpreter
        [*python_command(), "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        expected = find_spec("torchrec") is not None
        assert process.stdout.readline() == f"{expected}\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait() == -signal.SIGTERM


def test_python_itself_runs_it_where_no_process_forks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import sys; print('socket' in sys.modules, sys.argv)"
    command = python_command()
    monkeypatch.setenv(ADDRESS, str(tmp_path / "none"))
    assert run(command, "-c", code, "a", folder=tmp_path).stdout == "False ['-c', 'a']\n"
    monkeypatch.delenv(ADDRESS)
    assert python_command() == PYTHON
