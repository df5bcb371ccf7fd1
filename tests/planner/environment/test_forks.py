"""A command outlives what reads strangers' files: it says in a sentence that the reader ended."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from planner.environment.forks import can_fork

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not can_fork(), reason="this system does not fork, or has no sigwaitinfo"),
]

FUZZ = Path(__file__).parents[2] / "fuzz"
IN_FORK = """
import os, signal, sys, time
from planner.environment.forks import forked
ended = forked()
if ended is None:
    {}
    sys.exit(0)
print("ended", ended)
"""


def _run(work: str) -> str:
    command = [sys.executable, "-c", IN_FORK.format(work)]
    return subprocess.run(  # noqa: S603 - our own
        command, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_what_ended_a_fork_is_told() -> None:
    assert _run("sys.exit(7)") == "ended 7"
    assert _run("os.kill(os.getpid(), signal.SIGSEGV)") == f"ended {-signal.SIGSEGV}"


def test_a_signal_goes_on_to_the_fork() -> None:
    work = """
    signal.signal(signal.SIGINT, lambda *_: sys.exit(9))
    print("ready", flush=True)
    time.sleep(60)"""
    command = [sys.executable, "-c", IN_FORK.format(work)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
        os.kill(process.pid, signal.SIGINT)
        assert process.stdout.readline().strip() == "ended 9"


@pytest.mark.parametrize("name", ["ends_reader.parquet", "ends_reader.orc"])
def test_a_file_that_ends_its_reader_is_an_error_of_input(name: str) -> None:
    pytest.importorskip("pyarrow")
    command = [sys.executable, "-m", "planner", "inspect", "--json", str(FUZZ / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 3
    assert "damaged" in json.loads(done.stdout)["error"]["message"]
