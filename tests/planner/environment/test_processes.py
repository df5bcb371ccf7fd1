"""Processes that commands start: they run nothing of the working directory, and outlive no one."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from needed import needs_proc

from planner.environment.processes import python_command, safe_path

pytestmark = pytest.mark.slow


WAIT = 60.0
TABLES = [
    f"  - {{name: t{i}, num_embeddings: {5_000 * i + 1_000}, embedding_dim: {32 * (1 + i % 4)}, "
    f"pooling_factor: {1 + i * i % 37}}}\n"
    for i in range(1_000)
]
HEAD = "local_batch_size: 1024\ntables:\n"
SEARCH = ("--gpus", "16", "--sharder", "annealing")
ENDLESS = ("--max-plans", "1000000000")
"""Plans are counted, so that a search does not end because nothing is gained for a while."""
STANDARD = ("hashlib", "pickle", "json", "planner", "multiprocessing", "numpy", "ctypes", "runpy")
"""Modules that children import."""


SCRIPT = """
import signal
from planner.cli import main
if __name__ == "__main__":
    if hasattr(signal, "SIGHUP"):  # ignored where nohup runs the tests
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    main()
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Make a working directory whose modules leave a trace if they are run."""
    for name in STANDARD:
        (tmp_path / f"{name}.py").write_text(
            f"open({str(tmp_path / 'RUN')!r}, 'a').write('{name} ')"
        )
    (tmp_path / "tables.yaml").write_text(HEAD + "".join(TABLES))
    return tmp_path


def command(directory: Path, *arguments: str) -> list[str]:
    """Return what the installed script does: its own folder is on the path, and no other."""
    script = directory / "bin" / "planner"
    script.parent.mkdir(exist_ok=True)
    script.write_text(SCRIPT)
    return [sys.executable, str(script), *arguments]


def environment(directory: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, "XDG_CONFIG_HOME": str(directory), **more}


def planning(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    return begun(directory, "plan", "tables.yaml", *SEARCH, *arguments)


def begun(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603 - our own
        command(directory, *arguments),
        cwd=directory, env=environment(directory), text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def children(parent: int) -> list[int]:
    """Return the processes that a process has started."""
    path = Path(f"/proc/{parent}/task/{parent}/children")
    return [int(number) for number in path.read_text().split()]


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def searches(process: int) -> bool:
    """Return whether a process is one of ``--jobs``, not one that keeps track of them."""
    try:
        told = Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return False
    return "spawn_main" in told or "popen_loky" in told


def soon(wanted: Iterator[bool]) -> bool:
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        if next(wanted):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    "options",
    [("--jobs", "2"), pytest.param(("--baseline", "torchrec"), marks=pytest.mark.slow)],
)
def test_nothing_of_the_working_directory_is_run(directory: Path, options: tuple[str, ...]) -> None:
    if "torchrec" in options:
        pytest.importorskip("torchrec", reason="torchrec is not installed")
        # its planner imports the same for few tables, and takes 10 s for all
        (directory / "tables.yaml").write_text(HEAD + "".join(TABLES[:20]))
    running = planning(directory, "--time-limit", "3", "--baseline", "none", *options)
    said = running.communicate(timeout=120)[1]
    assert running.returncode == 0, said
    assert not (directory / "RUN").exists(), (directory / "RUN").read_text()


def test_a_sweep_runs_nothing_of_the_working_directory(directory: Path) -> None:
    (directory / "tables.yaml").write_text(HEAD + "".join(TABLES[:4]))
    grid = ("--gpus", "2,4", "--hardware", "h100-sxm", "--sharder", "naive", "--jobs", "2")
    running = begun(directory, "sweep", "tables.yaml", *grid, "--time-limit", "10ms")
    said = running.communicate(timeout=120)[1]
    assert running.returncode == 0, said
    assert not (directory / "RUN").exists(), (directory / "RUN").read_text()


def test_a_module_is_run_as_python_does(tmp_path: Path) -> None:
    assert python_command("json.tool")[1:4] == ["-P", "-m", "planner.environment.processes"]
    (tmp_path / "a.json").write_text("[1]")
    done = subprocess.run(  # noqa: S603 - our own
        python_command("json.tool", str(tmp_path / "a.json")), capture_output=True, check=True
    )
    assert done.stdout.split() == [b"[", b"1", b"]"]


def test_the_environment_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    for before in (None, "", "1"):
        monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
        if before is not None:
            monkeypatch.setenv("PYTHONSAFEPATH", before)
        with safe_path():
            assert os.environ["PYTHONSAFEPATH"] == "1"
        assert os.environ.get("PYTHONSAFEPATH") == before


@needs_proc
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_children_end_with_their_parent(directory: Path, number: signal.Signals) -> None:
    running = planning(directory, *ENDLESS, "--baseline", "none", "--jobs", "2")
    assert soon(iter(lambda: bool(children(running.pid)), None))
    time.sleep(4)  # they are at work
    started = children(running.pid)
    assert started
    running.send_signal(number)
    said = running.communicate(timeout=WAIT)[1]
    assert soon(iter(lambda: not any(map(alive, started)), None))
    if number == signal.SIGTERM:
        assert running.returncode == 143
        assert "the best plan found until then" in said
        assert (directory / "plan.json").exists()


@needs_proc
@pytest.mark.parametrize("seconds", [0.0, 4.0], ids=["starting", "at work"])
def test_sigterm_to_the_whole_group_keeps_the_plan(directory: Path, seconds: float) -> None:
    # as Slurm does, and `timeout`: the children get the signal, too, at any moment
    running = planning(directory, "--jobs", "2", *ENDLESS, "--baseline", "none")
    assert soon(iter(lambda: any(map(searches, children(running.pid))), None))
    time.sleep(seconds)
    os.killpg(running.pid, signal.SIGTERM)
    said = running.communicate(timeout=WAIT)[1]
    assert running.returncode == 143, said
    assert (directory / "plan.json").exists()


@needs_proc
@pytest.mark.parametrize(
    ("number", "code", "last"),
    [
        (signal.SIGINT, 130, "interrupted: the same command"),
        (signal.SIGHUP, 129, "interrupted: the same command"),
        (signal.SIGTERM, 143, "interrupted: the same command"),
        (signal.SIGKILL, 3, "fewer --jobs"),
    ],
    ids=["Ctrl-C", "closed terminal", "ended", "one killed"],
)
def test_a_sweep_whose_processes_end_says_so(
    directory: Path, number: signal.Signals, code: int, last: str
) -> None:
    running = begun(
        directory, "sweep", "tables.yaml", "--gpus", "16,32,64", "--hardware", "h100-sxm",
        "--max-plans", "1000000000", "--jobs", "2", "-o", "kept",
    )  # fmt: skip
    assert soon(iter(lambda: any(map(searches, children(running.pid))), None))
    if number == signal.SIGKILL:
        os.kill(next(filter(searches, children(running.pid))), number)
    else:
        os.killpg(running.pid, number)
    said = running.communicate(timeout=WAIT)[1]
    assert running.returncode == code, said
    assert last in said.splitlines()[-1]
    assert "Traceback" not in said
