"""Faults: signals at random moments, full disks, two writers; and what must hold after each."""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

from bench.robustness.attack_files import CORPUS
from planner.files.disk import write_bytes

_WAIT = 60.0
"""Seconds a process that was told to end may take, on a busy machine."""
_SCRIPT = "import sys; from planner.cli import main; main(sys.argv[1:])"
_GPUS = ("--gpus", "16")
_SEARCH = (*_GPUS, "--max-plans", "1000000000", "--sharder", "annealing")
"""Plans are counted, so that a search does not end because nothing is gained for a while."""
_TABLES = "".join(
    f"  - {{name: t{i}, num_embeddings: {5_000 * i + 1_000}, embedding_dim: {32 * (1 + i % 4)}, "
    f"pooling_factor: {1 + i * i % 37}}}\n"
    for i in range(1_000)
)
_WORKLOAD = f"local_batch_size: 1024\ntables:\n{_TABLES}"
_TERMINATED = 128 + signal.SIGTERM


def survived(name: str, seed: int = 0) -> str:
    """Return ``yes``, or what did not hold."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        try:
            FAULTS[name](Path(folder), Random(seed))  # noqa: S311 - the same moments every time
        except AssertionError as error:
            return f"no: {error}"
    return "yes"


def _started(folder: Path, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    if not (folder / "tables.yaml").exists():
        (folder / "tables.yaml").write_text(_WORKLOAD)
    own = {"TMPDIR": str(folder), "XDG_CONFIG_HOME": str(folder)}
    # where there is no room Python leaves a part of a module's bytecode, which nobody can import
    environment = {**os.environ, **own, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-P", "-c", _SCRIPT, *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _descendants(process: int) -> list[int]:
    """Return what a process has started, and they, where /proc tells."""
    found: list[int] = []
    for path in Path("/proc").glob(f"{process}/task/*/children"):
        try:
            mine = [int(number) for number in path.read_text().split()]
        except OSError:
            continue
        found += [*mine, *(other for each in mine for other in _descendants(each))]
    return found


def _cpu_time(process: int) -> float:
    """Return the CPU seconds of a process and all that it has started."""
    ticks = 0
    for each in (process, *_descendants(process)):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _signalled(folder: Path, arguments: Sequence[str], number: signal.Signals, after: float) -> int:
    """Run a command until a signal after some CPU seconds; nothing that it started may go on."""
    process = _started(folder, arguments)
    end = time.monotonic() + 4 * _WAIT
    while process.poll() is None and _cpu_time(process.pid) < after and time.monotonic() < end:
        time.sleep(0.02)
    started = _descendants(process.pid)
    process.send_signal(number)
    try:
        code = process.wait(_WAIT)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"it went on after {number.name}") from None
    end = time.monotonic() + _WAIT
    while any(map(_alive, started)) and time.monotonic() < end:
        time.sleep(0.05)
    _hold(not any(map(_alive, started)), f"what it had started went on after {number.name}")
    return code


def _hold(holds: bool, otherwise: str) -> None:  # noqa: FBT001 - the condition
    if not holds:
        raise AssertionError(otherwise)


def _whole_or_absent(path: Path) -> None:
    if path.exists():
        json.loads(path.read_text())


def _moments(rng: Random, count: int, most: float) -> list[float]:
    return [rng.uniform(0.0, most) for _ in range(count)]


def _kill_plan(folder: Path, rng: Random) -> None:
    for after in _moments(rng, 6, 4.0):
        options = ("--time-limit", "1") if after > 2 else ()
        _signalled(folder, ("plan", "tables.yaml", *_SEARCH, *options), signal.SIGKILL, after)
        _whole_or_absent(folder / "plan.json")


def _end_plan(folder: Path, rng: Random) -> None:
    """Check that a search writes its plan, and nothing before it."""
    for after in [*_moments(rng, 4, 3.0), 6.0]:
        (folder / "plan.json").unlink(missing_ok=True)
        arguments = ("plan", "tables.yaml", *_SEARCH, "--jobs", "2", "--baseline", "none")
        code = _signalled(folder, arguments, signal.SIGTERM, after)
        _hold(code in {_TERMINATED, -signal.SIGTERM}, f"it exited with {code}")
        _whole_or_absent(folder / "plan.json")
    _hold((folder / "plan.json").exists(), "the plan found was not written")


def _end_compare(folder: Path, rng: Random) -> None:
    for after in _moments(rng, 3, 4.0):
        code = _signalled(folder, ("compare", "tables.yaml", *_GPUS), signal.SIGTERM, after)
        _hold(code in {_TERMINATED, -signal.SIGTERM}, f"it exited with {code}")


def _kill_compare(folder: Path, rng: Random) -> None:
    for after in _moments(rng, 3, 6.0):
        _signalled(folder, ("compare", "tables.yaml", *_GPUS), signal.SIGKILL, after)


def _kill_calibrate(folder: Path, rng: Random) -> None:
    """Check that the next run reads what was measured, and goes on from there."""
    from planner.calibration.records import read_measurements

    journal, kept = folder / "mine.measurements.jsonl", 0
    for after in [*_moments(rng, 3, 20.0), 20.0]:
        _signalled(folder, ("calibrate", "-o", "mine.yaml"), signal.SIGKILL, after)
        measured = read_measurements(journal)
        now = len(measured.records) if measured else 0
        _hold(now >= kept, f"{kept} measurements became {now}")
        kept = now


def _end_calibrate(folder: Path, rng: Random) -> None:
    """Check that it ends soon, writes no profile, and keeps what it measured."""
    from planner.calibration.records import read_measurements

    for after in [*_moments(rng, 1, 20.0), 20.0]:
        code = _signalled(folder, ("calibrate", "-o", "mine.yaml"), signal.SIGTERM, after)
        _hold(code in {_TERMINATED, -signal.SIGTERM}, f"it exited with {code}")
        _hold(not (folder / "mine.yaml").exists(), "it wrote a profile of a part")
        read_measurements(folder / "mine.measurements.jsonl")


def _cut_journal(folder: Path, rng: Random) -> None:
    """Check that all lines are kept before the place where a journal is cut."""
    from planner.calibration.records import read_measurements

    data, path = (CORPUS / "measurements.jsonl").read_bytes(), folder / "m.jsonl"
    first = data.index(b"\n") + 1
    for _ in range(300):
        cut = rng.randrange(first, len(data) + 1)
        path.write_bytes(data[:cut])
        measured = read_measurements(path)
        _hold(
            measured is not None and len(measured.records) == data[:cut].count(b"\n") - 1,
            f"cut at byte {cut}, lines before were lost",
        )


def _validate(folder: Path, rng: Random, number: signal.Signals) -> None:
    plan = json.loads((CORPUS / "plan.json").read_text())
    (folder / "cpu.json").write_text(json.dumps({**plan, "hardware": "cpu-gloo"}))
    for after in _moments(rng, 2, 10.0):
        arguments = ("validate", "cpu.json", "--steps", "1000")
        code = _signalled(folder, arguments, number, after)
        if number == signal.SIGTERM:
            _hold(code in {_TERMINATED, -signal.SIGTERM}, f"it exited with {code}")
            _hold(not list(folder.glob("planner-validate-*")), "its folder is still there")


def _full_disk(folder: Path, rng: Random) -> None:
    """Check that an old plan stays where no file may be larger than 2 kB."""
    del rng
    target = folder / "plan.json"
    target.write_text("old")
    arguments = ("plan", "tables.yaml", "--gpus", "8", "--sharder", "naive")
    _hold(_without_room(folder, arguments) == 3, "it did not say so")
    _hold(target.read_text() == "old", "the old plan is gone")
    _hold(not list(folder.glob(".plan.json.*")), "it left a part of the new plan")


def _full_disk_of_a_trace(folder: Path, rng: Random) -> None:
    del rng
    (folder / "plan.json").write_bytes((CORPUS / "plan.json").read_bytes())
    arguments = ("simulate", "plan.json", "--trace", "trace.json")
    _hold(_without_room(folder, arguments) == 3, "it did not say so")
    _hold(not list(folder.glob("*trace.json*")), "it left a part of the trace")


def _full_disk_of_a_journal(folder: Path, rng: Random) -> None:
    """Check that what was measured before the disk was full is kept."""
    from planner.calibration.records import read_measurements

    del rng
    _hold(_without_room(folder, ("calibrate", "-o", "mine.yaml")) == 3, "it did not say so")
    measured = read_measurements(folder / "mine.measurements.jsonl")
    _hold(bool(measured and measured.records), "what was measured is gone")
    _hold(not (folder / "mine.yaml").exists(), "it wrote a profile of a part")


def _full_disk_in_json(folder: Path, rng: Random) -> None:
    """Check that ``--json`` says so in one object, if standard output is somewhere else."""
    del rng
    (folder / "tables.yaml").write_text(_WORKLOAD)
    arguments = ("plan", "tables.yaml", "--gpus", "16", "--sharder", "naive", "-o", "plan.json")
    done = _in_shell(folder, 'ulimit -f 2; exec "$@" --json', arguments)
    _hold(done.returncode == 3, f"it ended with {done.returncode}")
    _hold("cannot be written" in json.loads(done.stdout)["error"]["message"], "it did not say why")


def _no_standard_output(folder: Path, rng: Random) -> None:
    """Check that nothing but a line on stderr comes of ``--json`` where nobody can read it."""
    del rng
    (folder / "tables.yaml").write_text(_WORKLOAD)
    arguments = ("plan", "tables.yaml", "--gpus", "16", "--sharder", "naive")
    for stream, codes in ((">/dev/full", {3}), (">&-", {0})):
        done = _in_shell(folder, f'exec "$@" --json {stream}', arguments)
        _hold(done.returncode in codes, f"{stream}: it ended with {done.returncode}")
        _hold("Traceback" not in done.stderr, f"{stream}: a traceback")


def _in_shell(
    folder: Path, line: str, arguments: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own command
        ["/bin/sh", "-c", line, "sh", sys.executable, "-P", "-c", _SCRIPT, *arguments],
        cwd=folder, capture_output=True, text=True, check=False, timeout=4 * _WAIT,
        env={**os.environ, "XDG_CONFIG_HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip


def _without_room(folder: Path, arguments: Sequence[str]) -> int:
    """Run a command where no file may be larger than 2 kB; return its exit code."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    (folder / "tables.yaml").write_text(_WORKLOAD)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, before[1]))
    try:
        return _started(folder, arguments).wait(4 * _WAIT)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _two_writers(folder: Path, rng: Random) -> None:
    """Check that readers see what one of them wrote, whole."""
    del rng
    target, contents = folder / "plan.json", [letter * 300_000 for letter in (b"a", b"b")]
    write_bytes(target, contents[0])
    writers = [os.fork() for _ in contents[:1]]
    if writers[0] == 0:
        for _ in range(150):
            write_bytes(target, contents[1])
        os._exit(0)
    for _ in range(150):
        write_bytes(target, contents[0])
        _hold(target.read_bytes() in contents, "a file was a mixture, or a part")
    os.waitpid(writers[0], 0)
    _hold([path.name for path in folder.iterdir()] == ["plan.json"], "parts were left")


FAULTS: Mapping[str, Callable[[Path, Random], None]] = {
    "kill -9 of plan, at 6 moments": _kill_plan,
    "SIGTERM of plan --jobs 2, at 5 moments": _end_plan,
    "SIGTERM of compare, at 3 moments": _end_compare,
    "kill -9 of compare, at 3 moments": _kill_compare,
    "kill -9 of calibrate, at 4 moments": _kill_calibrate,
    "SIGTERM of calibrate, at 2 moments": _end_calibrate,
    "a journal cut at 300 places": _cut_journal,
    "kill -9 of validate, at 2 moments": lambda f, r: _validate(f, r, signal.SIGKILL),
    "SIGTERM of validate, at 2 moments": lambda f, r: _validate(f, r, signal.SIGTERM),
    "disk full while a plan is written": _full_disk,
    "disk full while a trace is written": _full_disk_of_a_trace,
    "disk full while measurements are written": _full_disk_of_a_journal,
    "disk full, with --json": _full_disk_in_json,
    "standard output full or closed, with --json": _no_standard_output,
    "two writers of one file, 300 times": _two_writers,
}
