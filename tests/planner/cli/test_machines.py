"""Machines as they are: streams that are closed or full, no home, no memory, read-only folders."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


SCRIPT = "import sys; from planner.cli import main; main(sys.argv[1:])"
NOBODY = """
import os, pwd
def unknown(*_): raise KeyError("uid not found")
pwd.getpwuid = pwd.getpwnam = unknown
os.environ.pop("HOME", None)
os.environ.pop("XDG_CONFIG_HOME", None)
"""
PLAN = ("plan", "tables.yaml", "--gpus", "2", "--time-limit", "0.2", "--sharder", "naive")
needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


def shell(line: str, *arguments: str, script: str = SCRIPT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own
        ["/bin/sh", "-c", line, "sh", sys.executable, "-P", "-c", script, *arguments],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


@needs_full
@pytest.mark.parametrize("arguments", [PLAN, (*PLAN, "--json"), (*PLAN, "-o", "-"), ("--help",)])
@pytest.mark.usefixtures("directory")
def test_full_standard_output_is_one_line(arguments: tuple[str, ...]) -> None:
    done = shell('exec "$@" >/dev/full', *arguments)
    assert (done.returncode, done.stderr.count("Traceback")) == (3, 0)
    assert done.stderr.splitlines()[-1] == "error: standard output: no space left on device"


def test_a_plan_is_written_though_nobody_can_read_the_report(directory: Path) -> None:
    done = shell('exec "$@" >&- 2>&-', *PLAN)
    assert done.returncode == 0
    assert (directory / "plan.json").exists()


@pytest.mark.usefixtures("directory")
def test_closed_standard_input_is_an_empty_file() -> None:
    done = shell('exec "$@" <&-', "plan", "-", "--gpus", "2")
    assert done.returncode == 3
    assert "the file is empty" in done.stderr


def test_no_home_and_no_name(directory: Path) -> None:
    done = shell('exec "$@"', *PLAN, script=NOBODY + SCRIPT)
    assert done.returncode == 0, done.stderr
    assert (directory / "plan.json").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="ulimit -v is Linux's")
@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize("kilobytes", [60_000, 200_000, 270_000, 400_000])
def test_little_memory_is_one_line_or_enough(kilobytes: int) -> None:
    # with 200 MB OpenBLAS, as it is loaded, tries for memory for ever: CPU time is limited, too
    done = shell(f'ulimit -v {kilobytes}; ulimit -t 60; exec "$@"', *PLAN)
    assert done.returncode == 0 or done.stderr.startswith("error: out of memory"), done.stderr
    assert "Traceback" not in done.stderr
    assert kilobytes < 400_000 or done.returncode == 0


CTRL_C = """
import signal, sys
class Interrupting:
    def find_spec(name, *_):
        if name == "click":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupting)
import planner.__main__
planner.__main__.main()
"""


def test_ctrl_c_while_the_program_is_imported_is_one_line() -> None:
    done = shell('exec "$@"', "--help", script=CTRL_C)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "interrupted; nothing more was written\n"
    project = Path(__file__).parents[3] / "pyproject.toml"
    scripts = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["scripts"]
    assert scripts == {"planner": "planner.__main__:main"}


READ_ONLY = """
import errno, multiprocessing.synchronize, tempfile
def refuse(*_, **__): raise OSError(errno.EROFS, "Read-only file system")
def nowhere(*_, **__): raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")
tempfile.TemporaryFile = tempfile.gettempdir = nowhere
multiprocessing.synchronize.SemLock.__init__ = refuse
"""
"""What Python and torch say where nothing can be written, /tmp and /dev/shm included."""


@pytest.mark.usefixtures("directory")
def test_nothing_can_be_written_at_all() -> None:
    printed = ("plan", "tables.yaml", "--gpus", "2", "--time-limit", "0.2", "--json")
    for options in ((), ("--baseline", "none"), ("--jobs", "2")):
        done = shell('exec "$@"', *printed, *options, script=READ_ONLY + SCRIPT)
        assert done.returncode == 0, done.stderr
    grid = ("sweep", "tables.yaml", "--gpus", "2,4", "--hardware", "h100-sxm", "--jobs", "2")
    done = shell('exec "$@"', *grid, "--time-limit", "0.2", script=READ_ONLY + SCRIPT)
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("directory")
def test_too_few_open_files_for_many_processes() -> None:
    done = shell('ulimit -n 24; exec "$@"', *PLAN, "--baseline", "none", "--jobs", "16")
    assert done.returncode == 3
    assert done.stderr.splitlines() == [
        "error: 16 processes cannot be started here: too many open files",
        "  hint: search with fewer --jobs",
    ]


def test_files_and_pipes_get_utf_8_in_any_locale(directory: Path) -> None:
    table = directory / "tables.yaml"
    table.write_text(table.read_text().replace("name: item", "name: 表").replace("user", "画"))
    plan = (*PLAN[:4], "--sharder", "naive", "--max-plans", "1", "-o", "-", "-q")  # by no clock
    written = {}
    for encoding in ("ascii", "latin-1", "utf-8"):
        done = shell(f'PYTHONIOENCODING={encoding} exec "$@" > {encoding}', *plan)
        assert done.returncode == 0, done.stderr
        written[encoding] = (directory / encoding).read_bytes()
    assert "表".encode() in written["utf-8"]
    names = [each.split(b"search")[0] for each in written.values()]  # before what takes how long
    assert names[0] == names[1] == names[2]


@pytest.mark.usefixtures("directory")
def test_a_plan_goes_through_a_pipe_that_has_no_name() -> None:
    done = shell('"$@" | cat', *PLAN, "-q", "-o", "/dev/stdout")
    assert done.stderr == ""
    assert '"schema_version": 2' in done.stdout


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize("columns", [1, 2, 7])
def test_a_terminal_that_is_very_narrow(columns: int) -> None:
    assert shell('exec "$@"', *PLAN).returncode == 0
    for command in (("simulate", "plan.json"), ("explain", "plan.json", "--time-limit", "0.1")):
        done = shell(f'COLUMNS={columns} exec "$@"', *command)
        assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("directory")
def test_a_read_only_folder(tmp_path: Path) -> None:
    done = shell('exec "$@"', *PLAN, "-o", "/proc/plan.json")
    assert done.returncode == 3
    assert done.stderr.startswith("error: /proc/plan.json: cannot be written")
    assert not list(tmp_path.glob("*.tmp"))


def test_names_cannot_move_the_cursor(directory: Path) -> None:
    path = directory / "tables.yaml"
    path.write_text(path.read_text().replace("name: item", r'name: "it\e[2Jem"'))
    done = shell('exec "$@"', *PLAN)
    assert done.returncode == 0, done.stderr
    assert "it\ufffd[2Jem" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
